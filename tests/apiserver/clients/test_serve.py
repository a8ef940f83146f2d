"""`kplane serve` as an operator meets it: what it prints, what it refuses, how it ends."""

import base64
import contextlib
import json
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
import yaml

from kplane_apiserver.commands.launch import _transformers
from kplane_apiserver.commands.options import ServeOptions
from kplane_core.storage import IDENTITY

KPLANE = Path(sys.executable).parent / "kplane"


def run(folder, *arguments, **environment):
    """Run `kplane serve` where it is meant to refuse; return exit code, output and complaint."""
    done = subprocess.run(
        [KPLANE, "serve", *arguments],
        cwd=folder,
        env={"HOME": str(folder), "PATH": "/usr/bin:/bin", **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


# --- start ------------------------------------------------------------------------------------------------------------


def test_it_says_where_it_listens_and_what_to_type_next(serve):
    server = serve("--cluster", "c1", "--cluster", "c10")
    assert server.greeting.startswith("kplane serves http://127.0.0.1:")
    assert "memory" in server.greeting
    assert "kubectl --kubeconfig kplane.kubeconfig --context kplane-c1 get namespaces" in server.greeting
    assert len(server.greeting.splitlines()) < 16
    assert stat.S_IMODE(server.kubeconfig.stat().st_mode) == 0o600
    config = yaml.safe_load(server.kubeconfig.read_text(encoding="utf-8"))
    assert config["current-context"] == "kplane-c1"
    for entry in config["clusters"]:
        listed = httpx.get(f"{entry['cluster']['server']}/api/v1/namespaces").json()
        assert {item["metadata"]["name"] for item in listed["items"]} >= {"default", "kube-system"}


def test_without_clusters_the_context_is_that_of_the_root(serve):
    server = serve("--root-control-plane-name", "main")
    config = yaml.safe_load(server.kubeconfig.read_text(encoding="utf-8"))
    assert config["current-context"] == "kplane-main"
    bare = httpx.get(f"{server.url}/api/v1/namespaces/default").json()
    assert bare == httpx.get(f"{server.cluster_url('main')}/api/v1/namespaces/default").json()


def test_it_is_ready_soon_after_its_start(serve):
    """The promise is 0.7 s on two idle cores; here other tests run beside it."""
    start = time.monotonic()
    server = serve()
    assert httpx.get(f"{server.url}/readyz").text == "ok"
    assert time.monotonic() - start < 5


def test_a_cluster_that_was_not_created_is_refused_in_explicit_mode(serve):
    server = serve("--cluster-creation", "explicit", "--cluster", "c1")
    assert httpx.get(f"{server.cluster_url('c1')}/api/v1/configmaps").status_code == 200
    refused = httpx.get(f"{server.cluster_url('typo')}/api/v1/configmaps")
    assert refused.status_code == 404
    assert "typo" in refused.json()["message"]


def test_options_come_from_the_environment_and_a_file_too(tmp_path):
    (tmp_path / "kplane.toml").write_text('[serve]\nport = "many"\n', encoding="utf-8")
    code, _, complaint = run(tmp_path, "--config", "kplane.toml")
    assert code == 2
    assert "kplane.toml" in complaint
    code, _, complaint = run(tmp_path, KPLANE_SERVE_PORT="70000")
    assert code == 2
    assert "KPLANE_SERVE_PORT" in complaint


def test_resources_are_encrypted_as_kubernetes_own_document_says(serve, tmp_path):
    """The document decides per resource; what is encrypted reads back as it was written."""
    document = tmp_path / "encryption.json"
    keys = [{"name": "first", "secret": base64.b64encode(b"k" * 32).decode()}]
    resources = [{"resources": ["secrets"], "providers": [{"aesgcm": {"keys": keys}}, {"identity": {}}]}]
    kind = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration", "resources": resources}
    document.write_text(json.dumps(kind), encoding="utf-8")
    transformers = _transformers(ServeOptions(encryption_provider_config=document))
    assert transformers("secrets") is not IDENTITY
    assert transformers("configmaps") is IDENTITY
    server = serve("--encryption-provider-config", str(document))
    secret = {"metadata": {"name": "s"}, "data": {"password": "aGVsbG8="}}
    url = f"{server.cluster_url('c1')}/api/v1/namespaces/default/secrets"
    assert httpx.post(url, json=secret).status_code == 201
    assert httpx.get(f"{url}/s").json()["data"] == secret["data"]


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--port", "-1"], "--port"),
        (["--port", "http"], "not a whole number"),
        (["--cluster", ".."], '".."'),
        (["--cluster", "a/b"], '"a/b"'),
        (["--cluster", "x" * 64], "--cluster"),
        (["--cluster", ""], "--cluster"),
        (["--root-control-plane-name", "%2e%2e"], "--root-control-plane-name"),
        (["--cluster-creation", "manual"], "auto, explicit"),
        (["--kubeconfig", "no/such/folder/config"], "cannot write the kubeconfig"),
        (["--bind-address", "0.0.0.0"], "--insecure-allow-remote"),
        (["--bind-address", "not an address"], "neither an address nor the name of one"),
        (["--max-request-body", "10"], "at least 1KiB"),
        (["--max-header-size", "1GiB"], "at most 16MiB"),
        (["--request-timeout", "0"], "at least 100ms"),
        (["--request-timeout", "60"], "needs a unit"),
        (["--encryption-provider-config", "no-such-file"], "no-such-file"),
        (["--encryption-provider-config", sys.executable], "is not UTF-8 text"),
        (["--storage-backend", "memroy"], "Did you mean 'memory'?"),
        (["--prot", "1"], "--prot"),
        (["extra"], "extra"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_a_mistake_is_one_line_and_exit_code_2(tmp_path, arguments, message):
    code, printed, complaint = (
        run(tmp_path, "--port", "0", *arguments) if "--port" not in arguments else run(tmp_path, *arguments)
    )
    assert code == 2, complaint
    assert printed == ""
    assert message in complaint
    assert len(complaint.strip().splitlines()) == 1, complaint
    assert "Traceback" not in complaint


def test_a_port_in_use_is_one_line_and_leaves_the_kubeconfig_alone(tmp_path):
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        code, _, complaint = run(tmp_path, "--port", str(port))
    assert code == 2
    assert f"cannot listen on 127.0.0.1 port {port}: address already in use" in complaint
    assert len(complaint.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_help_names_every_option_and_its_default(tmp_path):
    code, printed, _ = run(tmp_path, "--help")
    assert code == 0
    for flag in (
        "--bind-address",
        "--kubeconfig",
        "--cluster NAME",
        "--insecure-allow-remote",
        "--memory-history-limit",
    ):
        assert flag in printed
    assert "3MiB" in printed


# --- limits below the application -------------------------------------------------------------------------------------


def exchange(url, request):
    """Send bytes and return everything that comes back until the server closes."""
    address = urlsplit(url)
    with socket.create_connection((address.hostname, address.port), timeout=10) as connection:
        connection.sendall(request)
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
        return answer


@pytest.mark.parametrize(
    "request_head",
    [
        b"GET / HTTP/1.1\r\nhost: x\r\nbig: " + b"a" * 9000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\n" + b"h: aaaaaaaaaa\r\n" * 900 + b"\r\n",
        b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\nendless: " + b"a" * 20000,
    ],
    ids=["one-header", "many-headers", "request-line", "never-ending"],
)
def test_a_head_beyond_the_limit_is_answered_with_431(serve, request_head):
    server = serve("--max-header-size", "8KiB")
    answer = exchange(server.url, request_head)
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert b"8192 bytes" in answer
    assert httpx.get(f"{server.url}/readyz").text == "ok", "the server goes on"


def test_what_is_not_http_is_answered_with_400(server):
    answer = exchange(server.url, b"hello, is this kplane?\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b'"kind":"Status"' in answer


def test_a_large_body_on_one_connection_does_not_count_as_a_head(serve):
    """Requests follow one another on a connection; only heads are measured against the head's limit."""
    server = serve("--max-header-size", "4KiB")
    with httpx.Client(base_url=server.cluster_url("c1")) as client:
        for number in range(5):
            body = {"metadata": {"name": f"big-{number}"}, "data": {"x": "a" * 50_000}}
            assert client.post("/api/v1/namespaces/default/configmaps", json=body).status_code == 201
            assert client.get(f"/api/v1/namespaces/default/configmaps/big-{number}").status_code == 200


# --- the end ----------------------------------------------------------------------------------------------------------


class OpenWatch(threading.Thread):
    """A client that follows a watch, and remembers how it ended."""

    def __init__(self, url):
        super().__init__(daemon=True)
        self.url = url
        self.opened = threading.Event()
        self.lines = []
        self.failure = None
        self.start()

    def run(self):
        try:
            with httpx.stream("GET", self.url, timeout=30) as answer:
                self.opened.set()
                self.lines.extend(answer.iter_lines())
        except httpx.HTTPError as error:
            self.failure = error


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_signal_ends_open_watches_cleanly_within_two_seconds(serve, number):
    """A watch ends as one whose time is over: the last chunk arrives, so the client resumes where it was."""
    server = serve()
    watches = [OpenWatch(f"{server.cluster_url('c1')}/api/v1/configmaps?watch=true") for _ in range(20)]
    for watch in watches:
        assert watch.opened.wait(10)
    start = time.monotonic()
    assert server.stop(number) == 0
    assert time.monotonic() - start < 2
    for watch in watches:
        watch.join(5)
        assert watch.failure is None
    assert (server.folder / "stderr").read_text(encoding="utf-8") == ""


@pytest.fixture
def stuck_watch():
    """A function that opens a watch on a server, never reads from it, and fills what lies between."""
    with contextlib.ExitStack() as stack:

        def open_one(server):
            address = urlsplit(server.cluster_url("c1"))
            connection = stack.enter_context(socket.create_connection((address.hostname, address.port)))
            path = f"{address.path}/api/v1/configmaps?watch=true"
            connection.sendall(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
            with httpx.Client(base_url=server.cluster_url("c1")) as client:
                for number in range(30):
                    body = {"metadata": {"name": f"big-{number}"}, "data": {"x": "a" * 500_000}}
                    assert client.post("/api/v1/namespaces/default/configmaps", json=body).status_code == 201

        yield open_one


def test_a_client_that_does_not_read_cannot_hold_the_server(serve, stuck_watch):
    """A watch whose client is stuck is cut off when the grace is over."""
    server = serve()
    stuck_watch(server)
    start = time.monotonic()
    assert server.stop(signal.SIGTERM) == 0
    assert time.monotonic() - start < 3
    complaints = (server.folder / "stderr").read_text(encoding="utf-8")
    assert "Traceback" not in complaints, complaints


def test_a_second_signal_does_not_wait(serve, stuck_watch):
    server = serve()
    stuck_watch(server)
    start = time.monotonic()
    server.process.send_signal(signal.SIGINT)
    while server.process.poll() is None and time.monotonic() - start < 0.4:
        time.sleep(0.02)  # two signals at once are one
    assert server.stop(signal.SIGINT) == 130
    assert time.monotonic() - start < 2


def test_the_port_is_free_again_after_the_end(serve):
    server = serve()
    port = urlsplit(server.url).port
    httpx.get(f"{server.url}/readyz")
    assert server.stop() == 0
    with closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))
