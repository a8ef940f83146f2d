"""Authentication: what a token costs a request, inside the process and over HTTP, plain and with TLS."""

import asyncio
import json
import urllib.request
from collections.abc import Iterable

from benchmarks.harness import load, timing
from benchmarks.harness.load import Load
from benchmarks.harness.results import Result
from benchmarks.harness.serving import Server, beside_the_server, running, trusting
from benchmarks.harness.workload import config_map, pod
from kplane_apiserver.authorization.questions import AlwaysAllow
from kplane_apiserver.credentials.browsers import Browsers
from kplane_apiserver.credentials.tokens import TokenLine, Tokens
from kplane_apiserver.front.access import Access, Gate, OpenGate
from kplane_apiserver.wire.http import Request
from kplane_apiserver.wire.routes import parse

SUMMARY = "what a token costs a request, plain and with TLS"

_TOKEN = "benchmark-token-of-a-usual-length-43-letters"
_TOKENS = 10_000
_ADMISSIONS = 50_000
_PODS = "/api/v1/namespaces/default/pods"
_CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
_SECONDS = 1.0
_PATH = f"/clusters/c1/control-plane{_PODS}/web".encode()
_HEADERS = [
    (b"host", b"127.0.0.1:8080"),
    (b"user-agent", b"kubectl/v1.35.0 (linux/amd64) kubernetes/0000000"),
    (b"accept", b"application/json;as=Table;v=v1;g=meta.k8s.io,application/json"),
    (b"accept-encoding", b"gzip"),
]


def measure(tries: int) -> Iterable[Result]:
    """Measure the gate alone, then a server behind it."""
    tokens = Tokens(TokenLine(f"token-{number}-{_TOKEN}", f"user-{number}") for number in range(_TOKENS))
    known = (b"authorization", b"Bearer token-77-%s" % _TOKEN.encode())
    yield _gate(
        "admit a request by one of 10,000 tokens", Access(tokens, AlwaysAllow(), root_cluster="root"), [known], tries
    )
    yield _gate("admit a request without authentication", OpenGate(AlwaysAllow(), Browsers([])), [], tries)
    for tls in (False, True):
        with beside_the_server(), running(token=_TOKEN, tls=tls) as server:
            yield from _served(server, f"with a token{', over TLS' if tls else ''}", tries)


def _gate(name: str, gate: Gate, headers: list[tuple[bytes, bytes]], tries: int) -> Result:
    scope = {"method": "GET", "query_string": b"", "headers": [*_HEADERS, *headers]}
    request = Request(scope, _nothing, parse(_PATH, "root"), 0)

    async def work() -> int:
        for _ in range(_ADMISSIONS):
            gate.admit(request)
        return _ADMISSIONS

    rate = asyncio.run(timing.best_of(tries, work))
    return Result(name, 1e6 / rate.wall, "us", by_cpu=1e6 / rate.cpu, floor=5, at_most=True)


async def _nothing() -> dict[str, str]:
    return {}


def _served(server: Server, how: str, tries: int) -> Iterable[Result]:
    cluster = server.cluster("users")
    _post(server, cluster + _PODS, pod("web"))
    got = load.read_load(server, f"{cluster}{_PODS}/web", tries=tries, seconds=_SECONDS)
    yield _result(f"GET of a pod, {how}", got, floor=10_000)
    body = config_map("many", 4096)
    made = load.create_load(server, cluster + _CONFIG_MAPS, body, tries=tries, seconds=_SECONDS)
    yield _result(f"create of a ConfigMap of 4 KiB, {how}", made, floor=5_000)


def _post(server: Server, url: str, document: dict[str, object]) -> None:
    headers = {"authorization": f"Bearer {server.token}", "content-type": "application/json"}
    request = urllib.request.Request(url, json.dumps(document).encode(), headers)
    with urllib.request.urlopen(request, timeout=10, context=trusting() if server.tls else None):
        pass


def _result(name: str, got: Load, floor: float | None = None) -> Result:
    return Result(name, got.wall, "/s", by_cpu=got.by_cpu, floor=floor, note=got.note)
