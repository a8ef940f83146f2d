"""What the server makes of requests: limits, errors, methods, health, negotiation."""

import asyncio
import json
import socket

import httpx
import pytest

from kplane_apiserver.server import ApiServer
from kplane_core.engine.factory import EngineConnection
from kplane_core.errors import Unreachable
from kplane_memory.engine import MemoryEngine

MAPS = "/api/v1/namespaces/default/configmaps"


def test_version_is_one_that_kubectl_and_helm_can_read(cluster):
    document = cluster.get("/version").json()
    assert document["gitVersion"].startswith("v1.35.0+kplane-")
    assert (document["major"], document["minor"]) == ("1", "35")
    assert cluster.get("/version/").json() == document


def test_trailing_slashes_make_no_difference(cluster):
    for path in ("/api", "/apis", "/api/v1", "/api/v1/namespaces"):
        assert cluster.get(path).json() == cluster.get(path + "/").json()


@pytest.mark.parametrize("which", ["readyz", "livez", "healthz"])
def test_health_is_told_whole_and_check_by_check(cluster, which):
    assert cluster.get(f"/{which}").text == "ok"
    verbose = cluster.get(f"/{which}?verbose").text
    assert verbose.startswith("[+]ping ok\n")
    assert verbose.endswith(f"{which} check passed\n")
    assert cluster.get(f"/{which}/ping").text == "ok"
    assert "[+]ping excluded: ok" in cluster.get(f"/{which}?verbose&exclude=ping").text
    assert cluster.get(f"/{which}/nonsense").status_code == 404


def test_a_lost_database_is_not_ready_and_says_no_more_than_that(serve):
    server = serve()

    async def fail():
        raise Unreachable("", "password hunter2 was refused")

    server.connection._probe._check = fail
    answer = server.client.get("/readyz")
    assert answer.status_code == 500
    assert "[-]storage-readiness failed: reason withheld" in answer.text
    assert "hunter2" not in answer.text
    assert server.client.get("/readyz?exclude=storage-readiness").status_code == 200
    assert server.client.get("/livez/ping").status_code == 200


def test_a_draining_server_is_alive_but_not_ready(serve):
    server = serve()
    server.call(server.api.drain())
    assert server.client.get("/livez").status_code == 200
    assert "[-]shutdown failed" in server.client.get("/readyz").text


@pytest.mark.parametrize("body", [b"{", b"", b"\xff\xfe", b"nonsense", b"[" * 5000, b'{"a":' * 5000])
def test_a_body_that_cannot_be_read_is_400_and_the_server_goes_on(cluster, body):
    answer = cluster.request("POST", MAPS, content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert answer.json()["reason"] == "BadRequest"
    assert cluster.get(MAPS).status_code == 200


def test_a_body_beyond_the_limit_is_413_naming_the_limit(cluster):
    big = json.dumps({"metadata": {"name": "a"}, "data": {"k": "x" * (4 << 20)}}).encode()
    for content in (big, iter([big])):
        answer = cluster.request("POST", MAPS, content=content, headers={"content-type": "application/json"})
        assert answer.status_code == 413
        assert answer.json()["reason"] == "RequestEntityTooLarge"
        assert "3145728 bytes (3 MiB)" in answer.json()["message"]
    assert cluster.get(f"{MAPS}/a").status_code == 404


def test_the_limit_can_be_set(serve):
    cluster = serve(max_body=1000).cluster()
    assert cluster.post(MAPS, {"metadata": {"name": "a"}, "data": {"k": "x" * 500}}).status_code == 201
    assert cluster.post(MAPS, {"metadata": {"name": "b"}, "data": {"k": "x" * 1000}}).status_code == 413


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/nonsense",
        "/api/v2/configmaps",
        "/apis/nonsense.io/v1/things",
        "/nonsense",
        "/apis/apps/v1/namespaces/default/deployments/a/b/c",
        "/api/v1/namespaces/default/nodes",
        "/api/v1/configmaps/a",
        "/api/v1/watch/configmaps",
    ],
)
def test_what_is_not_served_is_404(cluster, path):
    answer = cluster.get(path)
    assert answer.status_code == 404
    status = answer.json()
    assert status["kind"] == "Status"
    assert status["reason"] == "NotFound"
    assert status["message"] == "the server could not find the requested resource"


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", MAPS, "GET, HEAD, POST, DELETE"),
        ("POST", f"{MAPS}/a", "GET, HEAD, PUT, PATCH, DELETE"),
        ("POST", "/api/v1/configmaps", "GET, HEAD"),
        ("POST", "/version", "GET, HEAD"),
        ("OPTIONS", MAPS, "GET, HEAD, POST, DELETE"),
    ],
)
def test_a_method_that_a_path_does_not_take_is_405_with_those_it_takes(cluster, method, path, allowed):
    answer = cluster.request(method, path)
    assert answer.status_code == 405
    assert answer.headers["allow"] == allowed
    assert answer.json()["reason"] == "MethodNotAllowed"


def test_head_is_get_without_the_body(cluster):
    cluster.config_map("a")
    got, head = cluster.get(f"{MAPS}/a"), cluster.request("HEAD", f"{MAPS}/a")
    assert head.status_code == 200
    assert head.content == b""
    assert head.headers["content-length"] == got.headers["content-length"]
    assert cluster.request("HEAD", f"{MAPS}?watch=true").status_code == 200


@pytest.mark.parametrize(
    ("value", "watches"), [("True", True), ("1", True), ("", True), ("false", False), ("F", False)]
)
def test_booleans_are_read_as_go_reads_them(cluster, value, watches):
    answer = cluster.get(MAPS, watch=value, resourceVersionMatch="NotOlderThan")
    assert answer.status_code == 422
    assert ("for watch" in answer.json()["message"]) is watches


def test_other_booleans_and_numbers_are_400(cluster):
    assert cluster.get(MAPS, watch="maybe").status_code == 400
    assert cluster.get(MAPS, limit="many").status_code == 400
    assert cluster.get(MAPS, limit="-1").status_code == 400
    assert cluster.get(MAPS, limit=str(2**63)).status_code == 400


def test_a_failure_inside_is_500_with_the_reason_in_the_log_alone(serve, caplog):
    server = serve()
    cluster = server.cluster()
    cluster.get(MAPS)

    async def broken(*_args):
        raise RuntimeError("secret inside")

    server.api.services.stores.serve(server.api.services.catalog.lookup("x", "", "v1", "configmaps")).store.get = broken
    answer = cluster.get(f"{MAPS}/a")
    assert answer.status_code == 500
    assert answer.json()["reason"] == "InternalError"
    assert "secret" not in answer.text
    assert "secret inside" in caplog.text
    assert cluster.get(MAPS).status_code == 200


def test_a_request_that_takes_too_long_is_504_and_others_are_not_touched(serve):
    server = serve(request_timeout=0.2)
    cluster = server.cluster()
    cluster.get(MAPS)

    async def slow(*_args):
        await asyncio.sleep(60)

    server.api.services.stores.serve(server.api.services.catalog.lookup("x", "", "v1", "configmaps")).store.get = slow
    answer = cluster.get(f"{MAPS}/a")
    assert answer.status_code == 504
    assert answer.json()["reason"] == "Timeout"
    assert "0.2 seconds" in answer.json()["message"]
    assert cluster.get(MAPS).status_code == 200
    with cluster.watch(MAPS, timeoutSeconds=1) as events:
        assert events.rest() == []  # a watch lasts longer than a request may


def test_a_slow_body_is_given_up_too(serve):
    server = serve(request_timeout=0.2)
    cluster = server.cluster()
    cluster.get(MAPS)
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        head = f"POST {cluster.prefix}{MAPS} HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\nConnection: close\r\n\r\n{{"
        connection.sendall(head.encode())
        assert connection.makefile("rb").readline().startswith(b"HTTP/1.1 504")


def test_a_client_that_leaves_in_the_middle_of_its_body_harms_nothing(cluster, caplog):
    host, port = cluster.server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        connection.sendall(f"POST {cluster.prefix}{MAPS} HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{{".encode())
    assert cluster.get(MAPS).status_code == 200
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("*/*", "ConfigMap"),
        ("application/vnd.kubernetes.protobuf,application/json", "ConfigMap"),
        ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", "Table"),
        ("application/json;as=Table;v=v9;g=meta.k8s.io,application/json", "ConfigMap"),
        ("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", "PartialObjectMetadata"),
        ("text/html;q=0.9,application/json;q=0.8,*/*;q=0.1", "ConfigMap"),
    ],
)
def test_the_first_form_that_can_be_produced_is_answered(cluster, accept, kind):
    cluster.config_map("a")
    answer = cluster.request("GET", f"{MAPS}/a", headers={"accept": accept})
    assert answer.status_code == 200
    assert answer.json()["kind"] == kind


def test_nothing_that_can_be_produced_is_406(cluster):
    for accept in ("application/vnd.kubernetes.protobuf", "text/html", "application/json;q=0"):
        answer = cluster.request("GET", MAPS, headers={"accept": accept})
        assert answer.status_code == 406
        assert answer.json()["reason"] == "NotAcceptable"


def test_the_application_serves_its_own_lifespan():
    """A foreign ASGI server starts and stops it by the lifespan protocol."""

    async def run():
        connection = EngineConnection(MemoryEngine())
        api = ApiServer(connection)
        messages = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])
        sent = []

        async def receive():
            return next(messages)

        async def send(message):
            sent.append(message["type"])
            if message["type"] == "lifespan.startup.complete":
                transport = httpx.ASGITransport(app=api.app)
                async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
                    assert (await client.get("/readyz")).text == "ok"

        await api.app({"type": "lifespan"}, receive, send)
        await connection.aclose()
        assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(run())
