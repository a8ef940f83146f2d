"""Owner references: what goes with its owner, what stays, and what an owner waits for."""

import pytest

from kplane_memory.engine import MemoryEngine

MAPS = "/api/v1/namespaces/default/configmaps"
NODES = "/api/v1/nodes"


def reference(owner, **more):
    metadata = owner["metadata"]
    return {"apiVersion": "v1", "kind": owner["kind"], "name": metadata["name"], "uid": metadata["uid"], **more}


def owned(cluster, name, *owners, **metadata):
    return cluster.config_map(name, metadata={"ownerReferences": list(owners), **metadata})


def names(cluster):
    return [item["metadata"]["name"] for item in cluster.get(MAPS).json()["items"]]


def gone(cluster, name):
    return cluster.get(f"{MAPS}/{name}").status_code == 404


def settled(cluster, eventually):
    """Return once everything that was asked for before has been worked off."""
    probe = owned(cluster, "probe", {"apiVersion": "v1", "kind": "ConfigMap", "name": "none", "uid": "none"})
    assert probe["metadata"]["name"] == "probe"
    eventually(lambda: gone(cluster, "probe"))


@pytest.mark.parametrize("body", [None, {"propagationPolicy": "Background"}, {"orphanDependents": False}])
def test_what_an_owner_owned_goes_after_it_over_all_generations(cluster, body, eventually):
    first = cluster.config_map("a")
    second = owned(cluster, "b", reference(first))
    owned(cluster, "c", reference(second))
    cluster.config_map("other")
    assert cluster.delete(f"{MAPS}/a", body).status_code == 200
    eventually(lambda: names(cluster) == ["other"])


def test_an_object_stays_while_one_of_its_owners_does_and_forgets_the_others(cluster, eventually):
    one, two = cluster.config_map("one"), cluster.config_map("two")
    owned(cluster, "child", reference(one), reference(two))
    cluster.delete(f"{MAPS}/one")
    eventually(lambda: len(cluster.get(f"{MAPS}/child").json()["metadata"]["ownerReferences"]) == 1)
    assert cluster.get(f"{MAPS}/child").json()["metadata"]["ownerReferences"] == [reference(two)]
    cluster.delete(f"{MAPS}/two")
    eventually(lambda: gone(cluster, "child"))


def test_a_reference_counts_by_its_uid_not_by_its_name(cluster, eventually):
    one = cluster.config_map("one")
    owned(cluster, "right", reference(one))
    owned(cluster, "wrong", {**reference(one), "uid": "of-an-earlier-one"})
    eventually(lambda: gone(cluster, "wrong"))
    assert not gone(cluster, "right")


def test_an_owner_in_another_namespace_or_cluster_is_no_owner(live, cluster, eventually):
    one = cluster.config_map("one")
    path = "/api/v1/namespaces/kube-system/configmaps"
    cluster.post(path, {"metadata": {"name": "far", "ownerReferences": [reference(one)]}})
    eventually(lambda: cluster.get(f"{path}/far").status_code == 404)
    other = live.cluster()
    owned(other, "far", reference(one))
    eventually(lambda: gone(other, "far"))


def test_an_object_without_a_namespace_cannot_be_owned_by_one_with(cluster, eventually):
    one = cluster.config_map("one")
    cluster.post(NODES, {"metadata": {"name": "n", "ownerReferences": [reference(one)]}})
    cluster.delete(f"{MAPS}/one")
    settled(cluster, eventually)
    assert cluster.get(f"{NODES}/n").status_code == 200


def test_an_object_in_a_namespace_can_be_owned_by_one_without(cluster, eventually):
    node = cluster.post(NODES, {"metadata": {"name": "n"}}).json()
    owned(cluster, "child", reference(node))
    settled(cluster, eventually)
    assert not gone(cluster, "child")
    cluster.delete(f"{NODES}/n")
    eventually(lambda: gone(cluster, "child"))


def test_an_owner_of_a_kind_that_is_not_served_keeps_its_dependents(cluster, eventually):
    owned(cluster, "child", {"apiVersion": "example.com/v1", "kind": "Thing", "name": "t", "uid": "u"})
    settled(cluster, eventually)
    assert not gone(cluster, "child")


def test_a_foreground_deletion_waits_for_the_dependents_that_block_it(cluster, eventually):
    one = cluster.config_map("one")
    owned(cluster, "blocks", reference(one, blockOwnerDeletion=True), finalizers=["example.com/hold"])
    owned(cluster, "free", reference(one), finalizers=["example.com/hold"])
    answer = cluster.delete(f"{MAPS}/one", {"propagationPolicy": "Foreground"}).json()
    assert answer["metadata"]["finalizers"] == ["foregroundDeletion"]
    for name in ("blocks", "free"):
        eventually(lambda name=name: cluster.get(f"{MAPS}/{name}").json()["metadata"].get("deletionTimestamp"))
    assert not gone(cluster, "one")
    cluster.patch(f"{MAPS}/blocks", {"metadata": {"finalizers": None}})
    eventually(lambda: gone(cluster, "one"))
    assert names(cluster) == ["free"]


def test_a_foreground_deletion_waits_over_all_generations(cluster, eventually):
    one = cluster.config_map("one")
    two = owned(cluster, "two", reference(one, blockOwnerDeletion=True))
    owned(cluster, "three", reference(two, blockOwnerDeletion=True), finalizers=["example.com/hold"])
    cluster.delete(f"{MAPS}/one", {"propagationPolicy": "Foreground"})
    eventually(lambda: cluster.get(f"{MAPS}/three").json()["metadata"].get("deletionTimestamp"))
    settled(cluster, eventually)
    assert names(cluster) == ["one", "three", "two"]
    cluster.patch(f"{MAPS}/three", {"metadata": {"finalizers": None}})
    eventually(lambda: names(cluster) == [])


def test_owners_in_a_circle_go_in_the_foreground_too(cluster, eventually):
    one = cluster.config_map("one")
    two = owned(cluster, "two", reference(one, blockOwnerDeletion=True))
    cluster.patch(f"{MAPS}/one", {"metadata": {"ownerReferences": [reference(two, blockOwnerDeletion=True)]}})
    cluster.delete(f"{MAPS}/one", {"propagationPolicy": "Foreground"})
    eventually(lambda: names(cluster) == [])


def test_an_impatient_background_deletion_ends_a_foreground_one(cluster):
    one = cluster.config_map("one")
    owned(cluster, "two", reference(one, blockOwnerDeletion=True), finalizers=["example.com/hold"])
    cluster.delete(f"{MAPS}/one", {"propagationPolicy": "Foreground"})
    assert not gone(cluster, "one")
    cluster.delete(f"{MAPS}/one", {"propagationPolicy": "Background"})
    assert gone(cluster, "one")


@pytest.mark.parametrize("body", [{"propagationPolicy": "Orphan"}, {"orphanDependents": True}])
def test_orphans_stay_without_the_reference(cluster, body, eventually):
    one, two = cluster.config_map("one"), cluster.config_map("two")
    owned(cluster, "child", reference(one))
    owned(cluster, "shared", reference(one), reference(two))
    assert cluster.delete(f"{MAPS}/one", body).json()["metadata"]["finalizers"] == ["orphan"]
    eventually(lambda: gone(cluster, "one"))
    assert "ownerReferences" not in cluster.get(f"{MAPS}/child").json()["metadata"]
    assert cluster.get(f"{MAPS}/shared").json()["metadata"]["ownerReferences"] == [reference(two)]


def test_a_job_orphans_its_pods_unless_told_otherwise(cluster, eventually):
    jobs = "/apis/batch/v1/namespaces/default/jobs"
    job = cluster.post(jobs, {"metadata": {"name": "j"}}).json()
    owned(cluster, "child", {**reference(job), "apiVersion": "batch/v1"})
    cluster.delete(f"{jobs}/j")
    eventually(lambda: cluster.get(f"{jobs}/j").status_code == 404)
    settled(cluster, eventually)
    assert "ownerReferences" not in cluster.get(f"{MAPS}/child").json()["metadata"]


def test_both_ways_to_say_it_at_once_are_refused(cluster):
    cluster.config_map("a")
    answer = cluster.delete(f"{MAPS}/a", {"propagationPolicy": "Orphan", "orphanDependents": True})
    assert answer.status_code == 422
    assert "orphanDependents and deletionPropagation cannot be both set" in answer.json()["message"]


def test_custom_objects_own_and_are_owned(cluster, eventually):
    names_ = {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"}
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    spec = {"group": "example.com", "scope": "Namespaced", "names": names_, "versions": [version]}
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    assert cluster.post(crds, {"metadata": {"name": "things.example.com"}, "spec": spec}).status_code == 201
    things = "/apis/example.com/v1/namespaces/default/things"
    thing = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}}
    one = cluster.post(things, thing).json()
    two = owned(cluster, "child", {**reference(one), "apiVersion": "example.com/v1"})
    thing["metadata"] = {"name": "u", "ownerReferences": [reference(two)]}
    assert cluster.post(things, thing).status_code == 201
    settled(cluster, eventually)
    assert len(cluster.get(things).json()["items"]) == 2
    cluster.delete(f"{things}/t")
    eventually(lambda: gone(cluster, "child") and not cluster.get(things).json()["items"])


def test_a_restarted_server_knows_the_owners_again(serve, eventually):
    engine = MemoryEngine()
    first = serve(engine=engine)
    before = first.cluster("c")
    one = before.config_map("one")
    owned(before, "child", reference(one))
    owned(before, "blocks", reference(one, blockOwnerDeletion=True), finalizers=["example.com/hold"])
    after = serve(engine=engine).cluster("c")
    after.delete(f"{MAPS}/one", {"propagationPolicy": "Foreground"})
    eventually(lambda: gone(after, "child"))
    assert not gone(after, "one")
    after.patch(f"{MAPS}/blocks", {"metadata": {"finalizers": None}})
    eventually(lambda: gone(after, "one"))


def test_another_process_may_delete_the_owner(serve, eventually):
    engine = MemoryEngine()
    here, there = serve(engine=engine).cluster("c"), serve(engine=engine).cluster("c")
    for policy, left in (("Background", []), ("Orphan", ["child"])):
        one = here.config_map("one")
        owned(here, "child", reference(one))
        settled(here, eventually)
        there.delete(f"{MAPS}/one", {"propagationPolicy": policy})
        eventually(lambda: gone(here, "one"))
        settled(here, eventually)
        eventually(lambda left=left: names(here) == left)
