"""Snapshots of clusters, what is restored from them, forks, and clusters that end by themselves."""

import asyncio
import itertools
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from kplane_apiserver.kinds import builtin_kinds
from kplane_apiserver.server import ApiServer
from kplane_apiserver.upkeep.snapshots import take
from kplane_core.engine.factory import EngineConnection
from kplane_core.storage.resource import Resource
from kplane_memory.engine import MemoryEngine

MAPS = "/api/v1/namespaces/default/configmaps"
CLUSTERS = "/apis/kplane.dev/v1/clusters"
KINDS = (("configmaps", "ConfigMap"), ("secrets", "Secret"))
THINGS = "/apis/example.com/v1/namespaces/default/things"


def define(cluster):
    names = {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"}
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    spec = {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]}
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    assert cluster.post(crds, {"metadata": {"name": "things.example.com"}, "spec": spec}).status_code == 201


def thing(cluster, name, **spec):
    document = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": name}, "spec": spec}
    answer = cluster.post(THINGS, document)
    assert answer.status_code == 201, answer.text
    return answer.json()


def without_versions(items):
    kept = [{**item, "metadata": {**item["metadata"]}} for item in items]
    for item in kept:
        item["metadata"].pop("resourceVersion")
        item["metadata"].pop("managedFields", None)
    return kept


def everything(cluster, **query):
    answer = cluster.get("/snapshot", **query)
    assert answer.status_code == 200, answer.text
    return {(one["group"], one["resource"]): without_versions(one["items"]) for one in answer.json()["resources"]}


@pytest.fixture
def filled(cluster, eventually):
    """A cluster with a definition, an object of it, a namespace, and a pair of owner and dependent."""
    define(cluster)
    owner = thing(cluster, "t", size=3)["metadata"]
    reference = {"apiVersion": "example.com/v1", "kind": "Thing", "name": "t", "uid": owner["uid"]}
    cluster.config_map("child", data={"k": "v"}, metadata={"ownerReferences": [reference]})
    cluster.post("/api/v1/namespaces", {"metadata": {"name": "more"}})
    eventually(lambda: cluster.get("/api/v1/namespaces/more/serviceaccounts/default").status_code == 200)
    return cluster


def test_a_snapshot_holds_every_object_as_a_client_sees_it(filled):
    answer = filled.get("/snapshot")
    document = answer.json()
    assert document["cluster"] == filled.name
    assert answer.headers["x-snapshot-cluster"] == filled.name
    assert answer.headers["x-snapshot-time"] == document["snapshotTime"]
    found = {one["resource"]: one for one in document["resources"]}
    assert set(found) == {"namespaces", "serviceaccounts", "configmaps", "customresourcedefinitions", "things"}
    assert document["liveResources"] == 5
    assert found["things"]["itemCount"] == 1
    shown = filled.get(f"{MAPS}/child").json()
    shown["metadata"].pop("managedFields", None)
    assert found["configmaps"]["items"] == [shown]
    assert int(document["resourceVersion"]) >= int(shown["metadata"]["resourceVersion"])


def test_a_snapshot_can_be_of_some_resources_and_of_empty_ones_too(filled):
    assert set(everything(filled, resource="things,configmaps")) == {("example.com", "things"), ("", "configmaps")}
    assert set(everything(filled, resource="things.example.com")) == {("example.com", "things")}
    assert everything(filled, resource="pods") == {}
    assert everything(filled, resource="pods", includeEmpty="true") == {("", "pods"): []}
    assert ("apps", "deployments") in everything(filled, includeEmpty="true")
    refused = filled.get("/snapshot", resource="nonsense")
    assert refused.status_code == 400
    assert "'nonsense'" in refused.json()["message"]


def test_the_snapshot_of_a_cluster_is_also_found_below_its_object(live, filled):
    answer = live.client.get(f"{CLUSTERS}/{filled.name}/snapshot")
    assert answer.json()["resources"] == filled.get("/snapshot").json()["resources"]
    assert live.client.get(f"{CLUSTERS}/nowhere/snapshot").status_code == 404
    assert live.client.post(f"{CLUSTERS}/{filled.name}/snapshot").status_code == 405


class BusyStore:
    """A store with somebody who writes before every list."""

    def __init__(self, inner, write):
        self._inner = inner
        self._write = write

    def __getattr__(self, name):
        return getattr(self._inner, name)

    async def get_list(self, key, options=None):
        await self._write()
        return await self._inner.get_list(key, options)


def test_a_snapshot_shows_one_moment_however_long_it_takes():
    """Objects of two resources are written in turns: a snapshot of two moments would show two numbers."""

    async def run():
        connection = EngineConnection(MemoryEngine())
        plain = {name: connection.store(Resource(f"{name}", f"/{name}/clusters/", "v1", kind)) for name, kind in KINDS}
        numbers = itertools.count(1)

        async def write():
            number = str(next(numbers))
            for name, kind in KINDS:
                document = {"apiVersion": "v1", "kind": kind, "metadata": {"name": "a"}, "data": {"n": number}}
                key = f"/{name}/clusters/c/default/a"
                await plain[name].guaranteed_update(key, lambda _, __, new=document: (new, None), ignore_not_found=True)

        async with ApiServer(connection, lambda resource: BusyStore(connection.store(resource), write)) as server:
            await server.ensure_cluster("c")
            snapshot = await take(server.services, "c")
        await connection.aclose()
        return {
            served.kind.plural: [item.decode()["data"]["n"] for item in items]
            for served, items in snapshot.resources
            if served.kind.plural in dict(KINDS)
        }

    found = asyncio.run(run())
    assert len(found["configmaps"]) == 1
    assert found["configmaps"] == found["secrets"]


def test_a_cluster_that_another_process_is_filling_waits_untouched(serve, eventually):
    """Its dependents may be there before their owners."""
    engine = MemoryEngine()
    first = serve(engine=engine)
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "not-yet", "uid": "u"}

    async def half_fill():
        kinds = builtin_kinds()
        maps = first.api.services.stores.serve(kinds["", "v1", "configmaps"])
        clusters = first.api.services.stores.serve(kinds["kplane.dev", "v1", "clusters"])
        document = {"apiVersion": "kplane.dev/v1", "kind": "Cluster", "metadata": {"name": "c"}}
        await clusters.store.create(clusters.key("root", "", "c"), {**document, "status": {"phase": "Pending"}})
        document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "child", "namespace": "default"}}
        document["metadata"]["ownerReferences"] = [reference]
        await maps.store.create(maps.key("c", "default", "child"), document)

    first.call(half_fill())
    second = serve(engine=engine)
    answer = second.cluster("c").get(MAPS)
    assert answer.status_code == 409
    assert "wait until its phase is Ready" in answer.json()["message"]
    time.sleep(0.1)
    assert second.keys("/clusters/c/default/child")
    assert second.client.delete(f"{CLUSTERS}/c").status_code == 200
    eventually(lambda: not second.keys("/clusters/c/"))


def fork(live, source, name, **spec):
    answer = live.client.post(f"{CLUSTERS}/{source.name}/fork", json={"metadata": {"name": name}, "spec": spec})
    assert answer.status_code == 201, answer.text
    return live.cluster(name)


def test_a_fork_holds_the_same_objects_and_lives_its_own_life(live, filled, eventually):
    copy = fork(live, filled, "fork-one")
    assert everything(copy) == everything(filled)
    made = live.client.get(f"{CLUSTERS}/fork-one").json()
    assert made["status"]["phase"] == "Ready"
    assert made["status"]["forkedFrom"]["cluster"] == filled.name
    thing(copy, "only-here")
    assert filled.get(f"{THINGS}/only-here").status_code == 404
    assert copy.delete(f"{THINGS}/t").status_code == 200
    eventually(lambda: copy.get(f"{MAPS}/child").status_code == 404)
    assert filled.get(f"{MAPS}/child").status_code == 200
    assert live.client.delete(f"{CLUSTERS}/fork-one").status_code == 200
    assert len(everything(filled)["example.com", "things"]) == 1


def test_a_fork_can_be_forked_and_its_objects_be_updated(live, filled):
    copy = fork(live, fork(live, filled, "fork-two"), "fork-three")
    changed = copy.patch(f"{THINGS}/t", {"spec": {"size": 4}})
    assert changed.status_code == 200
    assert changed.json()["metadata"]["generation"] == 2
    with copy.watch(MAPS) as events:
        assert events.next()["object"]["metadata"]["name"] == "child"


def test_a_fork_of_hundreds_of_objects_takes_far_less_than_to_write_them(live, cluster):
    for number in range(300):
        cluster.config_map(f"m{number}", data={"k": "x" * 500})
    started = time.perf_counter()
    copy = fork(live, cluster, "fork-many")
    assert time.perf_counter() - started < 2
    assert len(copy.get(MAPS).json()["items"]) == 300


def test_a_fork_needs_a_source_and_a_name_that_is_free(live, filled):
    def ask(source, metadata):
        return live.client.post(f"{CLUSTERS}/{source}/fork", json={"metadata": metadata})

    assert ask("nowhere", {"name": "x"}).status_code == 404
    assert ask(filled.name, {"name": filled.name}).status_code == 409
    assert ask(filled.name, {"name": "root"}).status_code == 403
    assert ask(filled.name, {"name": "a..b"}).status_code == 422
    assert ask(filled.name, {}).status_code == 422
    made = ask(filled.name, {"generateName": "gen-"})
    assert made.json()["metadata"]["name"].startswith("gen-")
    assert live.client.get(f"{CLUSTERS}/{filled.name}/fork").status_code == 405


def test_the_root_cluster_can_be_forked_without_its_clusters(serve):
    server = serve()
    server.client.post(MAPS, json={"metadata": {"name": "a"}})
    server.cluster("other").config_map("b")
    copy = fork(server, server.cluster("root"), "copy")
    assert [item["metadata"]["name"] for item in copy.get(MAPS).json()["items"]] == ["a"]
    assert copy.get(CLUSTERS).status_code == 404


def test_many_forks_at_once_of_one_name_make_one_cluster(live, filled):
    def ask(_):
        return live.client.post(f"{CLUSTERS}/{filled.name}/fork", json={"metadata": {"name": "crowded"}}).status_code

    with ThreadPoolExecutor(8) as pool:
        codes = sorted(pool.map(ask, range(8)))
    assert codes == [201] + [409] * 7
    assert everything(live.cluster("crowded")) == everything(filled)


def test_a_snapshot_is_restored_into_a_new_cluster_with_its_uids(live, filled):
    snapshot = filled.get("/snapshot").json()
    answer = live.client.post(f"{CLUSTERS}/restored/restore", json=snapshot)
    assert answer.status_code == 201, answer.text
    assert answer.json()["status"]["restoredFrom"]["cluster"] == filled.name
    copy = live.cluster("restored")
    assert everything(copy) == everything(filled)
    thing(copy, "another")
    assert live.client.post(f"{CLUSTERS}/restored/restore", json=snapshot).status_code == 409


def test_a_snapshot_can_be_restored_by_another_server(live, serve, filled):
    other = serve()
    assert other.client.post(f"{CLUSTERS}/c/restore", json=filled.get("/snapshot").json()).status_code == 201
    assert everything(other.cluster("c")) == everything(filled)


def test_part_of_a_snapshot_is_enough_and_the_rest_is_as_in_every_cluster(live, filled):
    snapshot = filled.get("/snapshot", resource="configmaps").json()
    assert live.client.post(f"{CLUSTERS}/part/restore", json=snapshot).status_code == 201
    assert len(live.cluster("part").get("/api/v1/namespaces").json()["items"]) == 4


@pytest.mark.parametrize(
    ("resources", "code"),
    [
        ("x", 400),
        ([{"resource": "configmaps"}], 400),
        ([{"resource": "configmaps", "items": ["x"]}], 400),
        ([{"resource": "configmaps", "items": [{"metadata": {"name": "a"}}]}], 400),
        ([{"resource": "nodes", "items": [{"metadata": {"name": "a", "namespace": "b"}}]}], 400),
        ([{"resource": "configmaps", "items": [{"metadata": {"name": "../a", "namespace": "b"}}]}], 422),
        ([{"resource": "configmaps", "items": [{"metadata": {"name": "a", "namespace": "../b"}}]}], 400),
        ([{"resource": "things", "group": "example.com", "items": []}], 400),
        ([{"resource": "clusters", "group": "kplane.dev", "items": []}], 400),
    ],
)
def test_what_is_no_snapshot_is_refused_and_leaves_nothing(serve, resources, code):
    server = serve()
    answer = server.client.post(f"{CLUSTERS}/c/restore", json={"resources": resources})
    assert answer.status_code == code, answer.text
    assert server.client.get(f"{CLUSTERS}/c").status_code == 404
    assert server.keys("/clusters/c/") == []


def test_a_cluster_that_cannot_be_filled_is_deleted_again(serve, eventually):
    server = serve()
    item = {"metadata": {"name": "a", "namespace": "default"}}
    snapshot = {"resources": [{"resource": "configmaps", "items": [item, item]}]}
    assert server.client.post(f"{CLUSTERS}/c/restore", json=snapshot).status_code == 409
    eventually(lambda: server.client.get(f"{CLUSTERS}/c").status_code == 404)
    assert server.keys("/clusters/c/") == []


def test_a_cluster_ends_when_its_time_is_over(serve, eventually):
    moment = [datetime(2030, 1, 1, tzinfo=UTC)]
    server = serve(now=lambda: moment[0])
    for name, spec in (("short", {"ttlSeconds": 60}), ("long", {"ttlSeconds": 600}), ("ever", {})):
        document = {"metadata": {"name": name}, "spec": spec}
        assert server.client.post(CLUSTERS, json=document).status_code == 201
        server.cluster(name).config_map("a")

    def names():
        return [item["metadata"]["name"] for item in server.client.get(CLUSTERS).json()["items"]]

    moment[0] += timedelta(seconds=61)
    eventually(lambda: names() == ["ever", "long"])
    assert server.keys("/clusters/short/") == []
    more = {"content-type": "application/merge-patch+json"}
    patched = server.client.patch(f"{CLUSTERS}/long", content='{"spec":{"ttlSeconds":1200}}', headers=more)
    assert patched.status_code == 200
    moment[0] += timedelta(seconds=600)
    time.sleep(1.1)  # the time of day is looked at each second
    assert names() == ["ever", "long"]
    moment[0] += timedelta(seconds=600)
    eventually(lambda: names() == ["ever"])


@pytest.mark.parametrize("ttl", [0, -1, 1.5, "60", True, 2**31])
def test_a_time_to_live_is_a_number_of_seconds(live, ttl):
    answer = live.client.post(CLUSTERS, json={"metadata": {"name": "never"}, "spec": {"ttlSeconds": ttl}})
    assert answer.status_code == 422
    assert answer.json()["details"]["causes"][0]["field"] == "spec.ttlSeconds"


def test_forks_can_have_a_time_to_live_too(serve, eventually):
    moment = [datetime(2030, 1, 1, tzinfo=UTC)]
    server = serve(now=lambda: moment[0])
    source = server.cluster("source")
    source.config_map("a")
    fork(server, source, "copy", ttlSeconds=60)
    moment[0] += timedelta(seconds=61)
    eventually(lambda: server.client.get(f"{CLUSTERS}/copy").status_code == 404)
    assert server.client.get(f"{CLUSTERS}/source").status_code == 200
