"""Server-side apply: what one Deployment costs the server, and kubectl with a manifest of 3 MB."""

import http.client
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

from benchmarks.harness.results import Result
from benchmarks.harness.serving import Server, beside_the_server, running
from benchmarks.harness.workload import container

SUMMARY = "server-side apply of a Deployment, and of a manifest of 3 MB by kubectl"

_PATH = "/clusters/{}/control-plane/apis/apps/v1/namespaces/default/deployments/{}?fieldManager={}&force=true"
_REQUESTS = 400
_WARM_UP = 50
_ROOT = Path(__file__).resolve().parents[1]
_MANIFESTS = Path(os.environ.get("KPLANE_MANIFESTS", _ROOT.parent / "shared" / "data" / "manifests"))


def measure(tries: int) -> Iterable[Result]:
    """Apply one Deployment in each way that there is, the best of `tries`; then let kubectl apply the manifest."""
    with beside_the_server(), running() as server:
        for name, path, body in _WAYS:
            yield min((_applied(server, name, path, body, turn) for turn in range(tries)), key=_cpu)
    yield from _install(tries)


def _cpu(result: Result) -> float:
    return result.by_cpu or result.value


# --- one Deployment ---------------------------------------------------------------------------------------------------


def _deployment(name: str, image: str) -> dict[str, Any]:
    labels = {"app.kubernetes.io/name": "web", "app.kubernetes.io/component": "frontend", "tier": "frontend"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default", "labels": labels, "annotations": {"example.com/team": "a"}},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": labels},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "serviceAccountName": "web",
                    "containers": [container("web", 8080, image), container("sidecar", 9090, "sidecar:1")],
                    "volumes": [{"name": "config", "configMap": {"name": "web-config"}}],
                },
            },
        },
    }


Body = Callable[[int], dict[str, Any]]


def _one(_number: int) -> dict[str, Any]:
    return _deployment("same", "web:1")


def _other_image(number: int) -> dict[str, Any]:
    return _deployment("changing", f"web:{number}")


def _new(number: int) -> dict[str, Any]:
    return _deployment(f"new-{number}", "web:1")


_WAYS: tuple[tuple[str, str, Body], ...] = (
    ("server-side apply of a new Deployment", "kubectl", _new),
    ("server-side apply that changes an image", "kubectl", _other_image),
    ("server-side apply that changes nothing", "kubectl", _one),
    ("server-side apply by two managers in turn", "", _other_image),
)


def _applied(server: Server, name: str, manager: str, body: Body, turn: int) -> Result:
    cluster = f"apply-{turn}-{abs(hash(name))}"
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)) as connection:
        for number in range(-_WARM_UP, 0):
            _send(connection, cluster, manager or f"m{number % 2}", body(number))
        used, began = server.cpu_seconds(), time.perf_counter()
        for number in range(_REQUESTS):
            _send(connection, cluster, manager or f"m{number % 2}", body(number))
        taken, used = time.perf_counter() - began, server.cpu_seconds() - used
    milliseconds = 1000 / _REQUESTS
    return Result(name, taken * milliseconds, "ms", by_cpu=used * milliseconds, floor=2, at_most=True)


def _send(connection: http.client.HTTPConnection, cluster: str, manager: str, document: dict[str, Any]) -> None:
    path = _PATH.format(cluster, document["metadata"]["name"], manager)
    connection.request("PATCH", path, json.dumps(document), {"content-type": "application/apply-patch+yaml"})
    answer = connection.getresponse()
    said = answer.read()
    if answer.status not in {200, 201}:
        raise RuntimeError(f"PATCH {path}: {answer.status} {said[:500]!r}")


# --- a manifest by kubectl --------------------------------------------------------------------------------------------


def _install(tries: int) -> Iterable[Result]:
    name = "kubectl apply --server-side of Argo Rollouts' install.yaml, 3 MB"
    manifest = _MANIFESTS / "argo-rollouts" / "install.yaml"
    kubectl = shutil.which("kubectl", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if kubectl is None or not manifest.exists():
        print(f"apply: left out: {'no kubectl is installed' if kubectl is None else f'there is no {manifest}'}")
        return
    times = []
    for _ in range(max(tries, 1)):
        with running() as server:  # one that has seen none of the definitions yet
            times.append(_kubectl(server, kubectl, manifest))
    wall, by_kubectl, by_server = min(times)
    median = statistics.median(time[0] for time in times)
    note = f"each time by a new server; the median was {median:.2f} s; the server used {by_server:.2f} s of the best"
    yield Result(name, wall, "s", by_cpu=by_kubectl + by_server, floor=5, at_most=True, note=note)


def _kubectl(server: Server, kubectl: str, manifest: Path) -> tuple[float, float, float]:
    """Return the seconds that it took, and the processor time of kubectl and of the server."""
    with tempfile.TemporaryDirectory(prefix="kplane-bench-") as home:
        command = [kubectl, "--server", server.cluster("install"), "apply", "--server-side", "-f", str(manifest)]
        env = {name: value for name, value in os.environ.items() if not name.startswith("KUBE")}
        used, before = server.cpu_seconds(), resource.getrusage(resource.RUSAGE_CHILDREN)
        began = time.perf_counter()
        done = subprocess.run(
            command, env={**env, "HOME": home}, capture_output=True, text=True, timeout=120, check=False
        )
        taken, used = time.perf_counter() - began, server.cpu_seconds() - used
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise RuntimeError(f"kubectl apply: {done.stderr[-500:]}")
    return taken, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, used
