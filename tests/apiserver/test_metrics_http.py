"""`/metrics`: upstream's names, no label that a client could invent, and numbers that are right."""

import asyncio
import time

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from kplane_apiserver.credentials.tokens import TokenLine, Tokens
from kplane_apiserver.requests.metrics import BUCKETS, RequestMetrics
from kplane_apiserver.server import ApiServer
from kplane_apiserver.wire.http import Request
from kplane_apiserver.wire.routes import parse
from kplane_core.engine import EngineConnection
from kplane_core.metrics import Sample
from kplane_memory.engine import MemoryEngine

PATH = "/api/v1/namespaces/default/configmaps"


def _scrape(server):
    answer = server.client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    return {family.name: family for family in text_string_to_metric_families(answer.text)}


def _value(families, family, sample=None, **labels):
    found = [
        one.value
        for one in families[family].samples
        if one.name == (sample or one.name) and labels.items() <= one.labels.items()
    ]
    assert len(found) <= 1, f"several series of {family} have {labels}"
    return found[0] if found else 0


def _count(families, **labels):
    return _value(families, "apiserver_request", "apiserver_request_total", **labels)


def test_requests_are_counted_by_what_they_asked_and_how_they_ended(serve):
    server = serve()
    cluster = server.cluster()
    cluster.config_map("a")
    for _ in range(3):
        cluster.get(f"{PATH}/a")
    cluster.get(f"{PATH}/none")
    cluster.get(PATH)
    cluster.get("/api/v1/configmaps")
    cluster.patch(f"{PATH}/a", {"data": {"k": "v"}})
    cluster.delete(f"{PATH}/a")
    cluster.delete(PATH)
    families = _scrape(server)
    about = {"group": "", "version": "v1", "resource": "configmaps"}
    expected = {
        ("GET", "resource", "200"): 3,
        ("GET", "resource", "404"): 1,
        ("LIST", "namespace", "200"): 1,
        ("LIST", "cluster", "200"): 1,
        ("POST", "namespace", "201"): 1,
        ("PATCH", "resource", "200"): 1,
        ("DELETE", "resource", "200"): 1,
        ("DELETECOLLECTION", "namespace", "200"): 1,
    }
    for (verb, scope, code), count in expected.items():
        assert _count(families, verb=verb, scope=scope, code=code, **about) == count, (verb, scope, code)
    duration = "apiserver_request_duration_seconds"
    got = {"verb": "GET", "scope": "resource", **about}
    assert _value(families, duration, f"{duration}_count", **got) == 4
    assert _value(families, duration, f"{duration}_bucket", le="+Inf", **got) == 4
    assert 0 < _value(families, duration, f"{duration}_sum", **got) < 4
    buckets = [
        one for one in families[duration].samples if one.name.endswith("_bucket") and got.items() <= one.labels.items()
    ]
    assert [float(one.labels["le"]) for one in buckets] == [*BUCKETS, float("inf")]
    assert [one.value for one in buckets] == sorted(one.value for one in buckets)


def test_open_watches_are_a_gauge_and_no_duration(serve):
    server = serve()
    cluster = server.cluster()
    about = {"verb": "WATCH", "resource": "configmaps"}
    with cluster.watch(PATH, timeoutSeconds=30), cluster.watch(PATH, timeoutSeconds=30):
        families = _scrape(server)
        assert _value(families, "apiserver_longrunning_requests", scope="namespace", **about) == 2
        assert _count(families, code="200", **about) == 2
    deadline = time.monotonic() + 5
    while _value(_scrape(server), "apiserver_longrunning_requests", **about) and time.monotonic() < deadline:
        time.sleep(0.01)
    families = _scrape(server)
    assert _value(families, "apiserver_longrunning_requests", **about) == 0
    assert _count(families, code="200", **about) == 2
    durations = families["apiserver_request_duration_seconds"].samples
    assert not [one for one in durations if one.labels["verb"] == "WATCH"]


def test_a_client_cannot_invent_labels(serve):
    server = serve()
    cluster = server.cluster("secret-name")
    cluster.get("/apis/made.up/v7/inventions")
    server.client.request("OPTIONS", "/clusters/%zz/control-plane/api")
    server.client.get("/clusters/c1/control-plane/api/v1/%2e%2e")
    text = server.client.get("/metrics").text
    for word in ("made.up", "inventions", "secret-name", "zz"):
        assert word not in text
    families = _scrape(server)
    assert _count(families, verb="LIST", group="", resource="", code="404") == 1
    assert _count(families, verb="OPTIONS", resource="", code="400") == 1
    assert _count(families, verb="GET", resource="", code="400") == 1


def test_methods_that_nobody_knows_are_counted_as_one():
    metrics = RequestMetrics()
    for method in ("BREW", "FROB"):
        metrics.unrouted(method, 400)
    total, _ = metrics.collect()
    assert [(one.labels["verb"], one.value) for one in total.samples] == [("OTHER", 2)]


@pytest.mark.parametrize("asked", [True, False])
def test_clusters_are_told_apart_only_where_that_was_asked_for(serve, asked):
    server = serve(metrics_by_cluster=asked)
    for name in ("m1", "m2"):
        server.cluster(name).get(PATH)
    families = _scrape(server)
    samples = families["apiserver_request"].samples
    found = {one.labels.get("cluster") for one in samples if one.labels["resource"] == "configmaps"}
    assert found == ({"m1", "m2"} if asked else {None})


def test_a_cluster_that_a_stranger_made_up_is_no_label(serve):
    tokens = Tokens([TokenLine("good", "alice")])
    server = serve(metrics_by_cluster=True, authenticator=tokens)
    good = {"authorization": "Bearer good"}
    server.client.get("/clusters/real/control-plane/version", headers=good)
    for cluster in ("made-up-1", "made-up-2"):
        for headers in ({}, {"authorization": "Bearer bad"}):
            assert server.client.get(f"/clusters/{cluster}/control-plane{PATH}", headers=headers).status_code == 401
    text = server.client.get("/metrics", headers=good).text
    assert 'cluster="real"' in text
    assert "made-up" not in text


def test_caches_are_counted_under_upstreams_names(serve):
    server = serve()
    cluster = server.cluster()
    cluster.get(PATH)
    created = cluster.config_map("a")
    cluster.get(PATH)
    families = _scrape(server)
    about = {"group": "", "resource": "configmaps"}
    assert _value(families, "apiserver_watch_cache_events_received", **about) == 1
    assert _value(families, "apiserver_watch_cache_initializations", **about) == 1
    assert _value(families, "apiserver_cache_list", **about) == 2
    assert _value(families, "apiserver_cache_list_returned_objects", **about) == 1
    version = int(created["metadata"]["resourceVersion"])
    assert _value(families, "apiserver_watch_cache_resource_version", **about) >= version
    assert _value(families, "apiserver_watch_cache_consistent_read", success="true", **about) == 2
    assert "apiserver_watch_cache_read_wait_seconds" in families
    kinds = _value(families, "apiserver_watch_cache_initializations", resource="customresourcedefinitions")
    assert kinds == 1
    assert families["apiserver_watch_cache_initializations"].type == "counter"


def test_the_process_is_measured_too(live):
    families = _scrape(live)
    assert _value(families, "process_resident_memory_bytes") > 1_000_000
    assert _value(families, "process_open_fds") > 3


def test_the_page_is_at_the_root_alone(serve):
    server = serve()
    assert "/metrics" in server.client.get("/").json()["paths"]
    assert server.cluster("c1").get("/metrics").status_code == 404
    assert server.client.get("/metrics/more").status_code == 404
    assert server.client.post("/metrics").status_code == 405


def _request():
    async def receive():
        raise AssertionError

    raw = b"/clusters/c1/control-plane/api/v1/namespaces/default/configmaps/a"
    return Request({"method": "GET", "headers": [], "query_string": b""}, receive, parse(raw, "root"), 1)


def test_a_duration_is_counted_in_every_bucket_that_holds_it():
    metrics = RequestMetrics()
    for seconds in (0.001, 0.3, 0.4, 59.0, 1000.0):
        metrics.answered(_request(), 200, seconds)
    _, durations = metrics.collect()
    counts = {one.labels["le"]: one.value for one in durations.samples if one.name.endswith("_bucket")}
    assert [counts[bound] for bound in ("0.005", "0.2", "0.4", "45.0", "60.0", "+Inf")] == [1, 1, 3, 3, 4, 5]
    (total,) = [one.value for one in durations.samples if one.name.endswith("_sum")]
    assert total == pytest.approx(1059.701)


def test_counting_a_request_costs_little():
    """A few microseconds at the most, on any machine: the promise is about one."""
    metrics, request = RequestMetrics(), _request()
    best = 1.0
    for _ in range(20):
        started = time.perf_counter()
        for _ in range(1000):
            metrics.answered(request, 200, 0.001)
        best = min(best, time.perf_counter() - started)
    assert best / 1000 < 10e-6


class _CountingConnection(EngineConnection):
    def samples(self):
        labels = (("operation", "read"),)
        yield Sample("store_calls_total", "counter", "Calls.", labels, 7)
        yield Sample("store_seconds", "histogram", "Seconds.", labels, 1.5, (2, 3, 3), (0.1, 1.0))


def test_what_a_backends_connection_counts_is_shown_too():
    async def scenario():
        async with ApiServer(_CountingConnection(MemoryEngine())) as server:
            transport = httpx.ASGITransport(app=server.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://c1") as client:
                return (await client.get("/metrics")).text

    text = asyncio.run(scenario())
    assert 'store_calls_total{operation="read"} 7.0' in text
    assert 'store_seconds_bucket{le="0.1",operation="read"} 2.0' in text
    assert 'store_seconds_bucket{le="+Inf",operation="read"} 3.0' in text
    assert 'store_seconds_sum{operation="read"} 1.5' in text
