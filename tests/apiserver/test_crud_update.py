"""Updating and patching objects over HTTP."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

MAPS = "/api/v1/namespaces/default/configmaps"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


def test_an_update_of_the_newest_version_is_stored(cluster):
    created = cluster.config_map("a", data={"k": "v"})
    created["data"] = {"k": "w"}
    answer = cluster.put(f"{MAPS}/a", created)
    assert answer.status_code == 200
    assert answer.json()["data"] == {"k": "w"}
    assert int(answer.json()["metadata"]["resourceVersion"]) > int(created["metadata"]["resourceVersion"])
    assert answer.json()["metadata"]["uid"] == created["metadata"]["uid"]


def test_an_update_of_an_older_version_is_a_conflict(cluster):
    created = cluster.config_map("a")
    cluster.patch(f"{MAPS}/a", {"data": {"k": "v"}})
    answer = cluster.put(f"{MAPS}/a", created)
    assert answer.status_code == 409
    assert answer.json()["reason"] == "Conflict"
    assert answer.json()["message"] == (
        'Operation cannot be fulfilled on configmaps "a": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )


def test_an_update_without_a_version_is_unconditional_and_one_without_change_writes_nothing(cluster):
    created = cluster.config_map("a", data={"k": "v"})
    cluster.patch(f"{MAPS}/a", {"data": {"k": "w"}})
    answer = cluster.put(f"{MAPS}/a", {"metadata": {"name": "a"}, "data": {"k": "v"}})
    assert answer.json()["data"] == {"k": "v"}
    again = cluster.put(f"{MAPS}/a", {"metadata": {"name": "a"}, "data": {"k": "v"}})
    assert again.json() == answer.json()
    assert answer.json()["metadata"]["creationTimestamp"] == created["metadata"]["creationTimestamp"]


def test_what_is_not_there_is_not_created_by_an_update(cluster):
    answer = cluster.put(f"{MAPS}/a", {"metadata": {"name": "a"}})
    assert answer.status_code == 404
    assert answer.json()["message"] == 'configmaps "a" not found'


def test_the_uid_of_another_object_is_a_conflict(cluster):
    cluster.config_map("a")
    answer = cluster.put(f"{MAPS}/a", {"metadata": {"name": "a", "uid": "other"}})
    assert answer.status_code == 409
    assert "Precondition failed: UID in precondition: other" in answer.json()["message"]


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"name": "b"}, "the name of the object (b) does not match the name on the URL (a)"),
        (
            {"name": "a", "namespace": "x"},
            "the namespace of the object (x) does not match the namespace on the request (default)",
        ),
    ],
)
def test_an_object_other_than_the_urls_is_400(cluster, metadata, message):
    cluster.config_map("a")
    for answer in (
        cluster.put(f"{MAPS}/a", {"metadata": metadata}),
        cluster.patch(f"{MAPS}/a", {"metadata": metadata}),
    ):
        assert answer.status_code == 400
        assert answer.json()["message"] == message


def test_generation_counts_changes_of_the_spec_alone(cluster):
    cluster.post(DEPLOYMENTS, {"metadata": {"name": "d"}, "spec": {"replicas": 1}})

    def generation(patch, path="d"):
        return cluster.patch(f"{DEPLOYMENTS}/{path}", patch).json()["metadata"]["generation"]

    assert generation({"metadata": {"labels": {"a": "b"}}}) == 1
    assert generation({"status": {"replicas": 3}}, "d/status") == 1
    assert generation({"spec": {"replicas": 2}}) == 2
    assert generation({"spec": {"replicas": 2}}) == 2


def test_status_and_spec_have_an_endpoint_each(cluster):
    cluster.post(DEPLOYMENTS, {"metadata": {"name": "d"}, "spec": {"replicas": 1}})
    both = {"spec": {"replicas": 5}, "status": {"replicas": 3}, "metadata": {"labels": {"a": "b"}}}
    by_status = cluster.patch(f"{DEPLOYMENTS}/d/status", both).json()
    assert by_status["spec"] == {"replicas": 1}
    assert by_status["status"] == {"replicas": 3}
    assert "labels" not in by_status["metadata"]
    by_main = cluster.patch(f"{DEPLOYMENTS}/d", {"spec": {"replicas": 5}, "status": {"replicas": 9}}).json()
    assert by_main["spec"] == {"replicas": 5}
    assert by_main["status"] == {"replicas": 3}
    assert cluster.get(f"{DEPLOYMENTS}/d/status").json() == by_main
    stale = {**by_main, "metadata": {**by_main["metadata"], "resourceVersion": "1"}}
    assert cluster.put(f"{DEPLOYMENTS}/d/status", stale).status_code == 409
    assert cluster.put(f"{DEPLOYMENTS}/d/status", by_main).status_code == 200


def test_a_kind_without_status_has_no_status_endpoint(cluster):
    cluster.config_map("a")
    assert cluster.get(f"{MAPS}/a/status").status_code == 404
    assert cluster.get(f"{MAPS}/a/nonsense").status_code == 404


def test_concurrent_patches_all_take_effect(cluster):
    cluster.config_map("a")
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda n: cluster.patch(f"{MAPS}/a", {"data": {f"k{n}": "v"}}), range(40)))
    assert {answer.status_code for answer in answers} == {200}
    assert set(cluster.get(f"{MAPS}/a").json()["data"]) == {f"k{n}" for n in range(40)}


def test_a_patch_that_names_an_older_version_is_a_conflict(cluster):
    created = cluster.config_map("a")
    old = created["metadata"]["resourceVersion"]
    assert cluster.patch(f"{MAPS}/a", {"metadata": {"resourceVersion": old}, "data": {"k": "1"}}).status_code == 200
    assert cluster.patch(f"{MAPS}/a", {"metadata": {"resourceVersion": old}, "data": {"k": "2"}}).status_code == 409


def test_a_json_patch_applies_and_its_failed_test_is_422(cluster):
    created = cluster.config_map("a", data={"k": "v"})
    version = created["metadata"]["resourceVersion"]
    good = [
        {"op": "test", "path": "/metadata/resourceVersion", "value": version},
        {"op": "add", "path": "/metadata/finalizers", "value": ["example.com/hold"]},
    ]
    answer = cluster.patch(f"{MAPS}/a", good, "json-patch+json")
    assert answer.status_code == 200
    assert answer.json()["metadata"]["finalizers"] == ["example.com/hold"]
    assert cluster.patch(f"{MAPS}/a", good, "json-patch+json").status_code == 422


def test_a_strategic_patch_merges_lists_of_builtin_kinds_by_their_keys(cluster):
    containers = [{"name": "a", "image": "a:1"}, {"name": "b", "image": "b:1"}]
    spec = {"template": {"spec": {"containers": containers}}}
    cluster.post(DEPLOYMENTS, {"metadata": {"name": "d"}, "spec": spec})
    patch = {"spec": {"template": {"spec": {"containers": [{"name": "b", "image": "b:2"}]}}}}
    answer = cluster.patch(f"{DEPLOYMENTS}/d", patch, "strategic-merge-patch+json")
    assert answer.status_code == 200
    images = [one["image"] for one in answer.json()["spec"]["template"]["spec"]["containers"]]
    assert sorted(images) == ["a:1", "b:2"]


def test_an_unknown_patch_type_is_415(cluster):
    cluster.config_map("a")
    answer = cluster.request("PATCH", f"{MAPS}/a", content=b"{}", headers={"content-type": "application/json"})
    assert answer.status_code == 415


def test_a_server_side_apply_creates_and_then_merges(cluster):
    headers = {"content-type": "application/apply-patch+yaml"}
    body = json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}})

    def apply(text, **query):
        return cluster.request("PATCH", f"{MAPS}/a", content=text, headers=headers, params=query)

    refused = apply(body)
    assert refused.status_code == 422
    assert "fieldManager: Required value: is required for apply patch" in refused.json()["message"]
    dry = apply(body, fieldManager="m", dryRun="All")
    assert dry.status_code == 201
    assert cluster.get(f"{MAPS}/a").status_code == 404
    assert apply(body, fieldManager="m").status_code == 201
    again = apply(body.replace('"v"', '"w"'), fieldManager="m", force="true")
    assert again.status_code == 200
    assert again.json()["data"] == {"k": "w"}


def test_force_is_for_apply_alone(cluster):
    cluster.config_map("a")
    answer = cluster.patch(f"{MAPS}/a", {}, force="true")
    assert answer.status_code == 422
    assert answer.json()["details"]["kind"] == "PatchOptions"


def test_dry_runs_of_updates_and_patches_change_nothing(cluster):
    created = cluster.config_map("a", data={"k": "v"})
    put = cluster.put(f"{MAPS}/a", {**created, "data": {"k": "w"}}, dryRun="All")
    patched = cluster.patch(f"{MAPS}/a", {"data": {"k": "w"}}, dryRun="All")
    assert put.status_code == patched.status_code == 200
    assert put.json()["data"] == patched.json()["data"] == {"k": "w"}
    assert cluster.get(f"{MAPS}/a").json() == created
    stale = {**created, "metadata": {**created["metadata"], "resourceVersion": "1"}}
    assert cluster.put(f"{MAPS}/a", stale, dryRun="All").status_code == 409


def test_a_namespaces_finalizers_change_through_finalize_alone(cluster):
    cluster.post("/api/v1/namespaces", {"metadata": {"name": "n"}})
    patched = cluster.patch("/api/v1/namespaces/n", {"spec": {"finalizers": []}}).json()
    assert patched["spec"] == {"finalizers": ["kubernetes"]}
    patched["spec"] = {"finalizers": []}
    finalized = cluster.put("/api/v1/namespaces/n/finalize", patched)
    assert finalized.status_code == 200
    assert finalized.json()["spec"] == {"finalizers": []}
