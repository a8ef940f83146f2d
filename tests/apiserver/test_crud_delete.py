"""Deleting over HTTP: finalizers, preconditions, collections, namespaces."""

import pytest

from kplane_apiserver.server import ApiServer
from kplane_core.errors import KplaneError, Subject
from kplane_memory.engine import MemoryEngine

MAPS = "/api/v1/namespaces/default/configmaps"


def test_a_deleted_object_is_gone_and_the_answer_names_its_uid(cluster):
    created = cluster.config_map("a")
    answer = cluster.delete(f"{MAPS}/a", {"propagationPolicy": "Background"})
    assert answer.status_code == 200
    assert answer.json() == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {"name": "a", "kind": "configmaps", "uid": created["metadata"]["uid"]},
    }
    assert cluster.get(f"{MAPS}/a").status_code == 404
    assert cluster.delete(f"{MAPS}/a").status_code == 404


def test_kinds_whose_deletion_upstream_answers_with_the_object(cluster):
    path = "/api/v1/namespaces/default/serviceaccounts"
    cluster.post(path, {"metadata": {"name": "s"}})
    assert cluster.delete(f"{path}/s").json()["kind"] == "ServiceAccount"


def test_finalizers_hold_an_object_until_they_are_gone(cluster):
    cluster.config_map("a", metadata={"finalizers": ["example.com/hold"]})
    held = cluster.delete(f"{MAPS}/a")
    assert held.status_code == 200
    stamp = held.json()["metadata"]["deletionTimestamp"]
    assert held.json()["metadata"]["deletionGracePeriodSeconds"] == 0
    again = cluster.delete(f"{MAPS}/a")
    assert again.json() == held.json()
    changed = cluster.patch(f"{MAPS}/a", {"data": {"k": "v"}, "metadata": {"deletionTimestamp": None}})
    assert changed.json()["metadata"]["deletionTimestamp"] == stamp
    added = cluster.patch(f"{MAPS}/a", {"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}})
    assert added.status_code == 422
    assert "no new finalizers can be added if the object is being deleted" in added.json()["message"]
    with cluster.watch(MAPS, resourceVersion=changed.json()["metadata"]["resourceVersion"]) as events:
        released = cluster.patch(f"{MAPS}/a", {"metadata": {"finalizers": None}})
        assert events.next()["type"] == "DELETED"
    assert released.status_code == 200
    assert "finalizers" not in released.json()["metadata"]
    assert cluster.get(f"{MAPS}/a").status_code == 404


def test_preconditions_must_hold(cluster):
    created = cluster.config_map("a")["metadata"]
    wrong = cluster.delete(f"{MAPS}/a", {"preconditions": {"uid": "other"}})
    assert wrong.status_code == 409
    assert "Precondition failed: UID in precondition: other" in wrong.json()["message"]
    stale = cluster.delete(f"{MAPS}/a", {"preconditions": {"resourceVersion": "1"}})
    assert stale.status_code == 409
    right = {"uid": created["uid"], "resourceVersion": created["resourceVersion"]}
    assert cluster.delete(f"{MAPS}/a", {"preconditions": right}).status_code == 200


def test_a_dry_run_deletes_nothing(cluster):
    cluster.config_map("a")
    assert cluster.delete(f"{MAPS}/a", dryRun="All").json()["status"] == "Success"
    assert cluster.delete(f"{MAPS}/a", {"dryRun": ["All"]}).json()["status"] == "Success"
    assert cluster.delete(MAPS, dryRun="All").status_code == 200
    assert cluster.get(f"{MAPS}/a").status_code == 200
    assert cluster.delete(f"{MAPS}/b", dryRun="All").status_code == 404
    refused = cluster.delete(f"{MAPS}/a", {"dryRun": ["Maybe"]})
    assert refused.status_code == 422
    assert refused.json()["details"]["kind"] == "DeleteOptions"


def test_a_body_that_is_no_delete_options_is_400(cluster):
    cluster.config_map("a")
    assert cluster.delete(f"{MAPS}/a", {"kind": "ConfigMap"}).status_code == 400
    assert cluster.delete(f"{MAPS}/a", {"preconditions": "x"}).status_code == 400
    assert cluster.delete(f"{MAPS}/a", {"propagationPolicy": "Sideways"}).status_code == 422


def test_a_collection_is_deleted_by_its_selectors_in_its_own_cluster(live):
    one, ten = live.cluster("d1"), live.cluster("d10")
    for cluster in (one, ten):
        for number in range(5):
            cluster.config_map(f"n{number}", metadata={"labels": {"odd": str(number % 2)}})
    answer = one.delete(MAPS, labelSelector="odd=1")
    assert answer.status_code == 200
    assert answer.json()["kind"] == "ConfigMapList"
    assert [item["metadata"]["name"] for item in answer.json()["items"]] == ["n1", "n3"]
    left = [item["metadata"]["name"] for item in one.get(MAPS).json()["items"]]
    assert left == ["n0", "n2", "n4"]
    assert one.delete("/api/v1/namespaces", labelSelector="x=y").status_code == 405
    assert one.delete(MAPS).status_code == 200
    assert one.get(MAPS).json()["items"] == []
    assert len(ten.get(MAPS).json()["items"]) == 5


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public"])
def test_some_namespaces_cannot_be_deleted(cluster, name):
    answer = cluster.delete(f"/api/v1/namespaces/{name}")
    assert answer.status_code == 403
    assert answer.json()["message"] == f'namespaces "{name}" is forbidden: this namespace may not be deleted'


def test_a_deleted_namespace_takes_its_content_along(cluster, eventually):
    cluster.post("/api/v1/namespaces", {"metadata": {"name": "n"}})
    cluster.post("/api/v1/namespaces", {"metadata": {"name": "n0"}})
    for path in ("/api/v1/namespaces/{}/configmaps", "/apis/apps/v1/namespaces/{}/deployments"):
        for namespace in ("n", "n0"):
            assert cluster.post(path.format(namespace), {"metadata": {"name": "a"}}).status_code == 201
    answer = cluster.delete("/api/v1/namespaces/n")
    assert answer.status_code == 200
    assert answer.json()["status"]["phase"] == "Terminating"
    eventually(lambda: cluster.get("/api/v1/namespaces/n").status_code == 404)
    assert cluster.server.keys(f"/{cluster.name}/n/") == []
    assert len(cluster.server.keys(f"/{cluster.name}/n0/")) == 3  # and its service account
    assert cluster.post("/api/v1/namespaces", {"metadata": {"name": "n"}}).status_code == 201


def test_content_with_finalizers_keeps_its_namespace_terminating_and_closed(cluster, eventually):
    cluster.post("/api/v1/namespaces", {"metadata": {"name": "n"}})
    path = "/api/v1/namespaces/n/configmaps"
    cluster.post(path, {"metadata": {"name": "a", "finalizers": ["example.com/hold"]}})
    cluster.delete("/api/v1/namespaces/n")
    eventually(lambda: "deletionTimestamp" in cluster.get(f"{path}/a").json()["metadata"])
    refused = cluster.post(path, {"metadata": {"name": "b"}})
    assert refused.status_code == 403
    assert "because it is being terminated" in refused.json()["message"]
    assert cluster.get("/api/v1/namespaces/n").json()["status"]["phase"] == "Terminating"
    cluster.patch(f"{path}/a", {"metadata": {"finalizers": []}})
    eventually(lambda: cluster.get("/api/v1/namespaces/n").status_code == 404)


def test_a_restarted_server_finishes_what_another_began(serve):
    first = serve(engine=MemoryEngine())
    cluster = first.cluster("again")
    cluster.post("/api/v1/namespaces", {"metadata": {"name": "n"}})
    cluster.post("/api/v1/namespaces/n/configmaps", {"metadata": {"name": "a", "finalizers": ["example.com/hold"]}})
    cluster.delete("/api/v1/namespaces/n")

    async def restart():
        await first.api.aclose()
        second = ApiServer(first.connection)
        await second.start()
        return second

    second = first.call(restart())
    namespaces = second.services.namespaces
    assert not namespaces.accepts("again", "n")
    with pytest.raises(KplaneError, match="because it is being terminated"):
        first.call(namespaces.check("again", "n", Subject("configmaps", "", "b")))
    first.call(second.aclose())
