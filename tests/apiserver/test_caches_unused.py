"""A custom resource that no cluster defines any more costs nothing: its cache, its tasks and its store are let go."""

import asyncio
import time

import pytest

from kplane_apiserver.storing.stores import StoreSet
from kplane_apiserver.upkeep import caches_unused
from kplane_memory.engine import MemoryEngine

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
DEFINITION = f"{DEFINITIONS}/widgets.example.com"
WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"
RESOURCE = "widgets.example.com"


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    monkeypatch.setattr(caches_unused, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(caches_unused, "LONGEST_PAUSE", 0.02)


def define(cluster):
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    names = {"plural": "widgets", "kind": "Widget"}
    versions = [{"name": "v1", "served": True, "storage": True, "schema": schema}]
    spec = {"group": "example.com", "scope": "Namespaced", "names": names, "versions": versions}
    answer = cluster.post(DEFINITIONS, {"metadata": {"name": RESOURCE}, "spec": spec})
    assert answer.status_code == 201, answer.text


def use(cluster):
    """Write an object and list it, which fills the cache, and have another one owned by it, which is followed."""
    owner = cluster.post(WIDGETS, {"metadata": {"name": "w"}}).json()["metadata"]
    reference = {"apiVersion": "example.com/v1", "kind": "Widget", "name": "w", "uid": owner["uid"]}
    cluster.config_map("owned", metadata={"ownerReferences": [reference]})
    assert len(cluster.get(WIDGETS).json()["items"]) == 1


def until(holds):
    end = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < end, "this never came"
        time.sleep(0.01)


def has_store(server):
    return server.api.services.stores.has(RESOURCE)


def tasks(server):
    """The names of the tasks that are about the resource, or that live only for a while."""

    async def names():
        found = (task.get_name() for task in asyncio.all_tasks())
        return [name for name in found if "widgets" in name or name == "kplane-unused-caches"]

    return server.call(names())


def test_it_is_let_go_with_the_last_definition(serve):
    server = serve()
    one, other = server.cluster(), server.cluster()
    before = server.tasks()
    define(one)
    define(other)
    use(one)
    until(lambda: any("follow" in name for name in tasks(server)))
    one.delete(DEFINITION)
    until(lambda: one.get(DEFINITION).status_code == 404)
    assert has_store(server), "the other cluster has it still"
    assert other.get(WIDGETS).json()["items"] == []
    other.delete(DEFINITION)
    until(lambda: not has_store(server) and not tasks(server))
    assert server.tasks() <= before
    assert RESOURCE not in dict(server.api.services.stores.caches())


def test_it_can_be_defined_again(serve):
    server = serve()
    cluster = server.cluster()
    for _ in range(3):
        define(cluster)
        use(cluster)
        cluster.delete(DEFINITION)
        cluster.delete("/api/v1/namespaces/default/configmaps/owned")
        until(lambda: cluster.get(DEFINITION).status_code == 404)
    until(lambda: not has_store(server))
    define(cluster)
    use(cluster)
    with cluster.watch(WIDGETS) as events:
        assert events.next()["object"]["metadata"]["name"] == "w"
    assert has_store(server)


def test_an_open_watch_keeps_it(serve, monkeypatch):
    tried = []

    async def counted(stores, resource):
        tried.append(resource)
        return await let_go(stores, resource)

    let_go = StoreSet.let_go
    monkeypatch.setattr(StoreSet, "let_go", counted)
    server = serve()
    cluster = server.cluster()
    define(cluster)
    use(cluster)
    with cluster.watch(WIDGETS) as events:
        assert events.next()["type"] == "ADDED"
        cluster.delete(DEFINITION)
        assert events.next()["type"] == "DELETED"
        until(lambda: cluster.get(DEFINITION).status_code == 404)
        until(lambda: len(tried) > 2)
        assert has_store(server)
    until(lambda: not has_store(server) and not tasks(server))


def test_a_definition_that_another_process_removed_lets_it_go_too(serve):
    engine = MemoryEngine()
    first, second = serve(engine=engine), serve(engine=engine)
    define(first.cluster("c"))
    use(first.cluster("c"))
    until(lambda: second.cluster("c").get(WIDGETS).status_code == 200)
    assert has_store(second)
    first.cluster("c").delete(DEFINITION)
    until(lambda: not has_store(first) and not has_store(second))


def test_a_deleted_cluster_lets_it_go_too(serve):
    server = serve()
    cluster = server.cluster()
    define(cluster)
    use(cluster)
    server.cluster("root").delete(f"/apis/kplane.dev/v1/clusters/{cluster.name}")
    until(lambda: not has_store(server) and not tasks(server))


def test_a_builtin_resource_stays_whatever_is_said(serve):
    server = serve()
    cluster = server.cluster()
    cluster.get("/apis/apps/v1/deployments")

    async def say():
        server.api._unused.undefined("deployments.apps")

    server.call(say())
    assert server.api.services.stores.has("deployments.apps")
    assert tasks(server) == []
