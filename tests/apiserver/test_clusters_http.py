"""Virtual clusters over HTTP: isolation, how they come into being, and how they go."""

import asyncio
import socket
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import pytest

from kplane_apiserver.server import ApiServer
from kplane_apiserver.settings import Settings
from kplane_core.engine.factory import EngineConnection
from kplane_memory.engine import MemoryEngine

MAPS = "/api/v1/namespaces/default/configmaps"
CLUSTERS = "/apis/kplane.dev/v1/clusters"


def test_the_same_name_in_two_clusters_is_two_objects(live):
    one, ten = live.cluster("c1"), live.cluster("c10")
    one.config_map("a", data={"of": "c1"})
    assert ten.get(f"{MAPS}/a").status_code == 404
    ten.config_map("a", data={"of": "c10"})
    assert one.get(f"{MAPS}/a").json()["data"] == {"of": "c1"}
    assert len(one.get("/api/v1/configmaps").json()["items"]) == 1
    one.delete(f"{MAPS}/a")
    assert ten.get(f"{MAPS}/a").json()["data"] == {"of": "c10"}
    text = ten.get(f"{MAPS}/a").text
    assert "cluster" not in text


def test_a_touched_cluster_has_its_first_namespaces_and_account(cluster):
    names = [item["metadata"]["name"] for item in cluster.get("/api/v1/namespaces").json()["items"]]
    assert names == ["default", "kube-node-lease", "kube-public", "kube-system"]
    assert cluster.get("/api/v1/namespaces/default/serviceaccounts/default").status_code == 200


def test_the_root_cluster_answers_without_a_prefix_and_with_its_own(live):
    plain = live.client.get("/api/v1/namespaces")
    prefixed = live.cluster("root").get("/api/v1/namespaces")
    assert plain.status_code == 200
    assert plain.json()["items"] == prefixed.json()["items"]


def test_the_root_cluster_can_have_another_name(serve):
    server = serve(root_cluster="base")
    server.client.post(MAPS, json={"metadata": {"name": "a"}})
    assert server.cluster("base").get(f"{MAPS}/a").status_code == 200
    assert server.cluster("root").get(f"{MAPS}/a").status_code == 404


def test_a_prefix_that_a_client_doubles_is_accepted_once(cluster):
    assert cluster.get(cluster.prefix + "/version").status_code == 200
    assert cluster.get(cluster.prefix * 2 + "/version").status_code == 404


@pytest.mark.parametrize("identifier", ["%2e%2e", "a%2Fb", "x" * 64, "-a", "a..b", "%00", "a%20b", "%C3%A9", "%zz"])
def test_invalid_cluster_ids_are_400_and_make_nothing(live, identifier):
    before = live.client.get(CLUSTERS).json()["items"]
    answer = live.client.get(f"/clusters/{identifier}/control-plane/api/v1/namespaces")
    assert answer.status_code == 400
    assert answer.json()["kind"] == "Status"
    assert answer.json()["reason"] == "BadRequest"
    assert live.client.get(CLUSTERS).json()["items"] == before


def test_a_climbing_path_is_refused_not_resolved(live):
    """httpx would resolve the dots itself, so the request is written by hand."""
    host, port = live.url.removeprefix("http://").split(":")
    for path in ("/clusters/../control-plane/api", "/clusters/c1/control-plane/../../c2/control-plane/api", "/api//v1"):
        with socket.create_connection((host, int(port)), timeout=5) as connection:
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
            answer = connection.makefile("rb").read()
        assert answer.startswith(b"HTTP/1.1 400"), answer


def test_a_path_below_a_cluster_but_not_its_control_plane_is_404_and_says_where_it_is(live):
    answer = live.client.get("/clusters/c1/api/v1/namespaces")
    assert answer.status_code == 404
    assert "/clusters/c1/control-plane/" in answer.json()["message"]


def test_concurrent_first_touches_make_one_cluster(serve):
    server = serve()
    cluster = server.cluster("crowd")
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: cluster.get("/api/v1/namespaces/default"), range(32)))
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.json()["metadata"]["uid"] for answer in answers}) == 1
    assert len(server.client.get(CLUSTERS).json()["items"]) == 1


def test_explicit_creation_refuses_unknown_clusters_and_says_what_to_do(serve):
    server = serve(cluster_creation="explicit")
    cluster = server.cluster("c1")
    refused = cluster.get("/api/v1/namespaces")
    assert refused.status_code == 404
    assert "create it with a kplane.dev/v1 Cluster" in refused.json()["message"]
    assert server.keys("/c1/") == []
    made = server.client.post(CLUSTERS, json={"metadata": {"name": "c1"}})
    assert made.status_code == 201
    assert len(cluster.get("/api/v1/namespaces").json()["items"]) == 4


def test_cluster_objects_live_in_the_root_cluster_alone_and_have_valid_ids(live, cluster):
    assert cluster.get(CLUSTERS).status_code == 404
    assert live.client.post(CLUSTERS, json={"metadata": {"name": "a..b"}}).status_code == 422
    assert live.client.post(CLUSTERS, json={"metadata": {"name": "root"}}).status_code == 403
    assert live.client.post(CLUSTERS, json={"metadata": {"name": "With_Case.1"}}).status_code == 201


def test_deleting_a_cluster_removes_its_keys_and_no_others(serve, eventually):
    server = serve()
    one, ten = server.cluster("c1"), server.cluster("c10")
    for cluster in (one, ten):
        cluster.config_map("a", metadata={"finalizers": ["example.com/hold"]})
        cluster.post("/apis/apps/v1/namespaces/default/deployments", {"metadata": {"name": "d"}})
    kept = server.keys("/clusters/c10/")
    answer = server.client.delete(f"{CLUSTERS}/c1")
    assert answer.status_code == 200
    eventually(lambda: server.client.get(f"{CLUSTERS}/c1").status_code == 404)
    assert server.keys("/clusters/c1/") == []
    assert server.keys("/clusters/c10/") == kept
    assert one.get(MAPS).json()["items"] == []  # touched again, it is a new cluster
    assert len(ten.get(MAPS).json()["items"]) == 1


def test_a_cluster_that_is_being_deleted_takes_no_requests(serve, eventually):
    server = serve(cluster_creation="explicit")
    server.client.post(CLUSTERS, json={"metadata": {"name": "c1", "finalizers": ["example.com/hold"]}})
    server.client.delete(f"{CLUSTERS}/c1")
    answer = server.cluster("c1").get("/api/v1/namespaces")
    assert answer.status_code == 409
    assert "being deleted" in answer.json()["message"]
    eventually(lambda: server.keys("/clusters/c1/") == [])
    server.client.patch(
        f"{CLUSTERS}/c1",
        content=b'{"metadata":{"finalizers":[]}}',
        headers={"content-type": "application/merge-patch+json"},
    )
    eventually(lambda: server.client.get(f"{CLUSTERS}/c1").status_code == 404)


def test_a_new_cluster_costs_little(serve):
    server = serve()
    server.cluster("warm").get("/api/v1/namespaces")

    async def make(count):
        clusters = server.api.services.clusters
        tracemalloc.start()
        started, before = time.perf_counter(), tracemalloc.get_traced_memory()[0]
        for number in range(count):
            await clusters.touch(f"many{number}")
        spent, used = time.perf_counter() - started, tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        return spent / count, used / count

    _, size = server.call(make(100))
    assert size < 16 * 1024


def test_two_servers_on_one_database_agree_on_clusters_and_namespaces():
    """Two assembled servers share an engine on one loop, as two processes share a database."""

    async def until(check):
        async with asyncio.timeout(5):
            while not check():  # noqa: ASYNC110 (what is waited for has no event to wait on)
                await asyncio.sleep(0)

    async def run():
        engine = MemoryEngine()
        settings = Settings(cluster_creation="explicit")
        auto, explicit = ApiServer(EngineConnection(engine)), ApiServer(EngineConnection(engine), settings=settings)
        await auto.start()
        await explicit.start()
        await auto.services.clusters.touch("c1")
        await explicit.services.clusters.touch("c1")  # asks the database, whatever it has heard so far
        await until(lambda: explicit.services.namespaces.accepts("c1", "default"))
        await auto.aclose()
        await explicit.aclose()
        await engine.aclose()

    asyncio.run(run())


@pytest.mark.parametrize("query", [{}, {"dryRun": "All"}])
def test_the_root_cluster_cannot_be_created_not_even_for_trial(live, query):
    body = {"metadata": {"name": "root"}}
    answer = live.cluster("root").post("/apis/kplane.dev/v1/clusters", body, **query)
    assert answer.status_code == 403, answer.text
