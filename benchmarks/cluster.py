"""What a thousand virtual clusters cost: memory of empty ones, memory per object, and the time to use a new one."""

import asyncio
import gc
import http.client
import json
import statistics
import time
import tracemalloc
from collections.abc import Iterable, Sequence
from contextlib import closing

from benchmarks.harness.results import Result
from benchmarks.harness.serving import Server, running
from benchmarks.harness.workload import config_map
from kplane_apiserver.server import ApiServer
from kplane_core.engine import EngineConnection
from kplane_memory.engine import MemoryEngine

SUMMARY = "memory and time per virtual cluster, memory per object"

_CLUSTERS = 1_000
_OBJECTS = 10
_SIZE = 1_600
_WARM_UP = 50
_PATH = "/clusters/{}/control-plane/api/v1/namespaces/default{}"


def measure(tries: int) -> Iterable[Result]:
    """Measure on a server of its own, and inside this process where Python counts its bytes."""
    del tries
    with running() as server:
        yield from _over_http(server)
    yield Result(
        "memory of an empty cluster, as Python counts it",
        asyncio.run(_traced()) / 1024,
        "KB",
        floor=16,
        at_most=True,
    )


def _over_http(server: Server) -> Iterable[Result]:
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)) as connection:
        for number in range(_WARM_UP):
            _send(connection, "GET", _PATH.format(f"warm-{number}", ""))
            _send(connection, "POST", _PATH.format("warm-0", "/configmaps"), _body(f"warm-{number}"))
        clusters = [f"cluster-{number}" for number in range(_CLUSTERS)]
        empty = server.resident_bytes()
        used = server.cpu_seconds()
        times = [_timed(connection, cluster) for cluster in clusters]
        used = server.cpu_seconds() - used
        with_clusters = server.resident_bytes()
        yield Result(
            "first request to a new cluster, median",
            statistics.median(times) * 1000,
            "ms",
            by_cpu=used / _CLUSTERS * 1000,
            floor=2,
            at_most=True,
            note="GET of its default namespace; slowest 1 % took "
            f"{statistics.quantiles(times, n=100)[-1] * 1000:.1f} ms on the wall clock",
        )
        yield Result(
            "memory of an empty cluster, of the process",
            (with_clusters - empty) / _CLUSTERS / 1024,
            "KB",
            floor=16,
            at_most=True,
        )
        _fill(connection, clusters)
        grown = server.resident_bytes() - with_clusters
        yield Result(
            "memory per object, of the process",
            grown / (_CLUSTERS * _OBJECTS),
            "B",
            note=f"{_CLUSTERS} clusters of {_OBJECTS} ConfigMaps of {_SIZE} bytes each; the store's history of "
            "changes shares the bytes with what is stored",
        )
        _fill_caches(connection, clusters[0])
        cached = server.resident_bytes() - with_clusters - grown
        yield Result("memory per object of a watch cache, of the process", cached / (_CLUSTERS * _OBJECTS), "B")


def _timed(connection: http.client.HTTPConnection, cluster: str) -> float:
    began = time.perf_counter()
    _send(connection, "GET", _PATH.format(cluster, ""))
    return time.perf_counter() - began


def _fill(connection: http.client.HTTPConnection, clusters: Sequence[str]) -> None:
    for number in range(_OBJECTS):
        body = _body(f"item-{number}")
        for cluster in clusters:
            _send(connection, "POST", _PATH.format(cluster, "/configmaps"), body)


def _fill_caches(connection: http.client.HTTPConnection, cluster: str) -> None:
    """List once: that fills the cache, which is one for all clusters."""
    _send(connection, "GET", _PATH.format(cluster, "/configmaps"))


def _body(name: str) -> bytes:
    return json.dumps(config_map(name, _SIZE)).encode()


def _send(connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None = None) -> None:
    connection.request(method, path, body, {"content-type": "application/json"} if body else {})
    answer = connection.getresponse()
    said = answer.read()
    if answer.status not in {200, 201}:
        raise RuntimeError(f"{method} {path}: {answer.status} {said[:500]!r}")


async def _traced() -> float:
    """Return the bytes that Python allocates per empty cluster."""
    connection = EngineConnection(MemoryEngine())
    async with ApiServer(connection) as api:
        for number in range(_WARM_UP):
            await api.ensure_cluster(f"warm-{number}")
        gc.collect()
        tracemalloc.start()
        try:
            for number in range(_CLUSTERS):
                await api.ensure_cluster(f"cluster-{number}")
            gc.collect()
            grown, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    await connection.aclose()
    return grown / _CLUSTERS
