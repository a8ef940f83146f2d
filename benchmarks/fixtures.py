"""The pytest fixtures: what a fresh cluster costs, and 200 tests with three calls each through the official client."""

import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from benchmarks.harness.results import Result, Unavailable

SUMMARY = "a fresh cluster per test, and 200 tests with the kubernetes client"

_CLUSTERS = 300
_SUITE = """
import kubernetes, pytest

@pytest.mark.parametrize("number", range(200))
def test_it(kplane_cluster, number):
    api = kubernetes.client.CoreV1Api(kplane_cluster.client("kubernetes"))
    api.create_namespaced_config_map("default", {"metadata": {"name": "a"}, "data": {"n": str(number)}})
    assert api.read_namespaced_config_map("a", "default").data == {"n": str(number)}
    assert len(api.list_namespaced_config_map("default").items) == 1
"""


def measure(tries: int) -> Iterable[Result]:
    """Time single clusters, then a whole suite in a process of its own."""
    try:
        import kubernetes  # noqa: F401, PLC0415 - asked for before a suite fails for the lack of it
    except ImportError as error:
        raise Unavailable("the kubernetes client is not installed") from error
    del tries
    yield Result("fresh cluster, median", *_cluster(), floor=3, at_most=True)
    yield Result("200 tests, three calls each", *_suite(), floor=8, at_most=True)


def _cluster() -> tuple[float, str, float]:
    """Return the time that a cluster takes, its unit, and the processor time of the test and the server's thread."""
    from kplane_apiserver import testing  # noqa: PLC0415 - loads the server

    taken, used = [], []
    with testing.server() as server:
        for _ in range(_CLUSTERS):
            began, before = time.perf_counter(), time.process_time()
            server.cluster().close()
            taken.append((time.perf_counter() - began) * 1000)
            used.append((time.process_time() - before) * 1000)
    return statistics.median(taken[1:]), "ms", statistics.median(used[1:])


def _suite() -> tuple[float, str, float]:
    """Return the time of the suite as pytest tells it, its unit, and the processor time of the whole process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory(prefix="kplane-bench-") as folder:
        Path(folder, "test_suite.py").write_text(_SUITE, encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    found = re.search(r"200 passed in ([\d.]+)s", done.stdout)
    if found is None:
        raise Unavailable(f"the suite did not pass: {done.stdout[-500:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return float(found[1]), "s", used
