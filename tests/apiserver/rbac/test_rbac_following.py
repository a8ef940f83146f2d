"""Roles are in storage: they outlive the server, other processes obey them, and clusters begin with some."""

import time

import pytest

from kplane_memory.engine import MemoryEngine

MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
def start(serve, make, admin):
    """Start a server with RBAC on an engine, and return a cluster of it as its administrator sees it."""

    def started(engine, name="c1", mode="RBAC"):
        server = serve(engine=engine, authenticator=make.names, authorization_mode=mode)
        return type(admin)(server.cluster(name), "admin")

    return started


def eventually(ask, code):
    """Ask until the answer has this code; other processes learn of a write a moment later."""
    until = time.monotonic() + 10
    while (answer := ask()).status_code != code:
        assert time.monotonic() < until, answer.text
    return answer


def names(answer):
    return {item["metadata"]["name"] for item in answer.json()["items"]}


def test_another_process_obeys_a_binding_and_its_deletion(start, make):
    engine = MemoryEngine()
    one, other = start(engine), start(engine)
    one.made(make.bindings, make.binding("alices", "ClusterRole/view", "User/alice"))
    assert one("alice").get(MAPS).status_code == 200
    eventually(lambda: other("alice").get(MAPS), 200)
    assert other.delete(f"{make.bindings}/alices").status_code == 200
    assert other("alice").get(MAPS).status_code == 403
    eventually(lambda: one("alice").get(MAPS), 403)


def test_a_process_knows_its_own_writes_without_hearing_of_them(start, make):
    """The watches are cut, so that only what the process itself notes can be what it judges by."""
    one = start(MemoryEngine())
    rbac = one.cluster.server.api.services.rbac

    async def cut():
        for followed in rbac.policies._followed.values():
            followed.follower._task.cancel()

    one.cluster.server.call(cut())
    one.made(make.cluster_roles, make.role("reader", make.rule("list", "configmaps")))
    one.made(make.bindings, make.binding("alices", "ClusterRole/reader", "User/alice"))
    assert one("alice").get(MAPS).status_code == 200
    assert one.patch(f"{make.cluster_roles}/reader", {"rules": []}).status_code == 200
    assert one("alice").get(MAPS).status_code == 403
    one.made(make.bindings, make.binding("views", "ClusterRole/view", "User/alice"))
    assert one("alice").get(MAPS).status_code == 200
    assert one.request("DELETE", make.bindings).status_code == 200
    assert one("alice").get(MAPS).status_code == 403


def test_a_server_that_starts_later_knows_the_roles_that_there_are(start, make):
    engine = MemoryEngine()
    one = start(engine)
    one.made(make.cluster_roles, make.role("reader", make.rule("list", "configmaps")))
    one.made(make.cluster_bindings, make.binding("alices", "ClusterRole/reader", "User/alice"))
    assert one.delete(f"{make.cluster_bindings}/system:basic-user").status_code == 200
    again = start(engine)
    assert again("alice").get(MAPS).status_code == 200
    assert again("bob").get(MAPS).status_code == 403
    assert again("bob").post("/apis/authentication.k8s.io/v1/selfsubjectreviews", {}).status_code == 403


def test_a_cluster_begins_with_roles_and_bindings(admin, make):
    roles, bindings = admin.get(make.cluster_roles), admin.get(make.cluster_bindings)
    assert {"admin", "cluster-admin", "edit", "view", "system:discovery", "system:basic-user"} <= names(roles)
    assert names(bindings) == {"cluster-admin", "system:basic-user", "system:discovery", "system:public-info-viewer"}
    for item in (*roles.json()["items"], *bindings.json()["items"]):
        metadata = item["metadata"]
        assert metadata["labels"]["kubernetes.io/bootstrapping"] == "rbac-defaults"
        assert metadata["annotations"] == {"rbac.authorization.kubernetes.io/autoupdate": "true"}
        assert metadata["uid"]
        assert metadata["creationTimestamp"]
    # They can be changed and written back like any other.
    for item in roles.json()["items"]:
        answer = admin.put(f"{make.cluster_roles}/{item['metadata']['name']}", item)
        assert answer.json() == {**item, "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"}


def test_what_a_cluster_began_with_can_be_taken_away(admin, make):
    alice = admin("alice")
    assert alice.get("/apis").status_code == 200
    assert admin.delete(f"{make.cluster_bindings}/system:discovery").status_code == 200
    assert alice.get("/apis").status_code == 403
    assert alice.get("/version").status_code == 200
    assert (
        admin.put(
            f"{make.cluster_roles}/system:public-info-viewer",
            make.role("system:public-info-viewer", make.rule("get", paths="/livez")),
        ).status_code
        == 200
    )
    assert alice.get("/version").status_code == 403
    assert admin.patch(f"{make.cluster_roles}/view", {"aggregationRule": None, "rules": []}).status_code == 200
    admin.made(make.bindings, make.binding("alices", "ClusterRole/view", "User/alice"))
    assert alice.get(MAPS).status_code == 403


def test_without_rbac_clusters_begin_with_no_roles(cluster, make):
    assert names(cluster.get(make.cluster_roles)) == set()


def test_a_cluster_from_before_rbac_has_the_same_roles_unseen(start, make):
    engine = MemoryEngine()
    before = start(engine, mode="AlwaysAllow")
    before.made(make.bindings, make.binding("alices", "ClusterRole/edit", "User/alice"))
    after = start(engine)
    assert names(after.get(make.cluster_roles)) == set()
    assert after("alice").post(MAPS, {"metadata": {"name": "a"}}).status_code == 201
    assert after("alice").get("/apis").status_code == 200
    assert after("bob").get(MAPS).status_code == 403


def test_a_server_that_is_asked_again_leaves_the_root_clusters_roles_alone(start, make):
    engine = MemoryEngine()
    root = start(engine, "root")
    version = root.get(make.cluster_roles).json()["metadata"]["resourceVersion"]
    changed = root.patch(f"{make.cluster_roles}/view", {"metadata": {"labels": {"a": "b"}}})
    again = start(engine, "root")
    assert again.get(f"{make.cluster_roles}/view").json() == changed.json()
    later = again.get(make.cluster_roles).json()["items"]
    written = [one for one in later if int(one["metadata"]["resourceVersion"]) > int(version)]
    assert [one["metadata"]["name"] for one in written] == ["view"]


def test_roles_come_along_with_a_fork(strict, admin, make):
    admin.made(make.bindings, make.binding("alices", "ClusterRole/view", "User/alice"))
    root, name = type(admin)(strict.cluster("root"), "admin"), admin.cluster.name
    forked = root.post(f"/apis/kplane.dev/v1/clusters/{name}/fork", {"metadata": {"name": f"{name}-fork"}})
    assert forked.status_code == 201, forked.text
    fork = type(admin)(strict.cluster(f"{name}-fork"), "alice")
    assert fork.get(MAPS).status_code == 200
    assert fork("bob").get(MAPS).status_code == 403


def test_a_deleted_cluster_leaves_no_roles_behind(strict, admin, make):
    admin.made(make.cluster_bindings, make.binding("all", "ClusterRole/cluster-admin", "User/alice"))
    policies, name = strict.api.services.rbac.policies, admin.cluster.name
    assert name in policies._clusters
    root = type(admin)(strict.cluster("root"), "admin")
    assert root.delete(f"/apis/kplane.dev/v1/clusters/{name}").status_code == 200
    eventually(lambda: root.get(f"/apis/kplane.dev/v1/clusters/{name}"), 404)
    assert name not in policies._clusters
