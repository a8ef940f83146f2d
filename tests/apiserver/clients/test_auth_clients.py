"""Real clients with tokens over TLS: kubectl, the Python client, `kplane cluster` and `kplane token`."""

import json
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import attrs
import httpx
import pytest
import yaml
from kubernetes import client, config
from kubernetes.client import ApiException

from kplane_apiserver.credentials import certificates
from kplane_apiserver.settings import wall_clock

KPLANE = Path(sys.executable).parent / "kplane"
TOKENS = "tokens.csv"


def kplane(server, *arguments, ok=True):
    """Run a `kplane` command in the folder of a server and return what it printed."""
    done = subprocess.run(
        [KPLANE, *arguments],
        cwd=server.folder,
        env={"HOME": str(server.folder), "PATH": "/usr/bin:/bin"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode == 0) is ok, done.stdout + done.stderr
    return done.stdout if ok else done.stderr


@pytest.fixture
def secured(serve):
    """Start a server with authentication and flags of the test's."""

    def start(*flags):
        return serve("--token-auth-file", TOKENS, "--cluster", "c1", *flags, files={TOKENS: ""})

    return start


@attrs.frozen
class User:
    """A kubectl with the kubeconfig of one user."""

    kubectl: object
    kubeconfig: Path

    def __call__(self, *arguments, **options):
        return self.kubectl.with_kubeconfig(self.kubeconfig)(*arguments, **options)


@pytest.fixture
def user_of(kubectl, tmp_path):
    """Make a token of a server and return a kubectl that uses it."""

    def make(server, *flags):
        text = kplane(server, "token", "create", "--token-auth-file", TOKENS, "-o", "kubeconfig", *flags)
        path = tmp_path / f"user-{len(list(tmp_path.iterdir()))}.kubeconfig"
        path.write_text(text, encoding="utf-8")
        return User(kubectl, path)

    return make


MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: v}\n"


def test_a_user_works_in_his_cluster_and_in_no_other(secured, user_of):
    server = secured()
    alice = user_of(server, "--user", "alice", "--cluster", "c1", "--group", "dev")
    assert "c1" in alice("config", "current-context")
    assert json.loads(alice("auth", "whoami", "-o", "json"))["status"]["userInfo"] == {
        "username": "alice",
        "groups": ["dev", "system:authenticated"],
    }
    assert alice("apply", "-f", "-", stdin=MAP) == "configmap/a created\n"
    assert alice("apply", "--server-side", "-f", "-", stdin=MAP.replace("name: a", "name: b"))
    assert alice("get", "configmaps", "-o", "name").split() == ["configmap/a", "configmap/b"]
    assert alice("auth", "can-i", "delete", "configmaps") == "yes\n"
    assert alice("explain", "pod.spec.nodeName")
    other = f"{server.url}/clusters/c2/control-plane"
    assert "You must be logged in to the server" in alice("--server", other, "get", "configmaps", ok=False)
    assert (server.folder / "stderr").read_text(encoding="utf-8") == ""


def test_the_administrator_acts_as_somebody_else(secured, kubectl):
    server = secured()
    admin = User(kubectl, server.kubeconfig)
    assert json.loads(admin("auth", "whoami", "-o", "json"))["status"]["userInfo"]["groups"] == [
        "system:masters",
        "system:authenticated",
    ]
    shown = json.loads(admin("auth", "whoami", "-o", "json", "--as", "eve", "--as-group", "x", "--as-uid", "7"))
    assert shown["status"]["userInfo"] == {"username": "eve", "uid": "7", "groups": ["x", "system:authenticated"]}
    assert admin("get", "configmaps", "--as", "eve") == ""


def test_a_token_ends_while_the_server_runs(secured, user_of):
    server = secured()
    alice = user_of(server, "--user", "alice", "--cluster", "c1")
    alice("get", "namespaces")
    kplane(server, "token", "delete", "--token-auth-file", TOKENS, "--user", "alice")
    until = time.monotonic() + 10
    while time.monotonic() < until:
        try:
            alice("get", "namespaces", ok=False)
        except AssertionError:  # it takes a second
            continue
        return
    pytest.fail("the token is still good")


def test_kplane_cluster_takes_token_and_authority_from_the_kubeconfig(secured, kubectl):
    server = secured()
    assert kplane(server, "cluster", "create", "c7") == "cluster c7 created\n"
    assert kplane(server, "cluster", "kubeconfig", "c7") == "kplane.kubeconfig: kplane-c7\n"
    assert "c7" in kplane(server, "cluster", "list", "-o", "name")
    document = yaml.safe_load(server.kubeconfig.read_text(encoding="utf-8"))
    assert {one["context"]["user"] for one in document["contexts"]} == {f"kplane@{urlsplit(server.url).netloc}"}
    assert User(kubectl, server.kubeconfig)("--context", "kplane-c7", "get", "namespaces")


def test_kplane_cluster_tells_a_server_that_it_cannot_trust_from_one_that_wants_tls(secured):
    server = secured()
    absent = ("--kubeconfig", "none")
    refused = kplane(server, "cluster", "list", *absent, "--server", server.url, ok=False)
    assert f"the certificate of {server.url} is not trusted: self-signed certificate in certificate chain; " in refused
    assert "--kubeconfig FILE: it has the authority\n" in refused
    refused = kplane(server, "cluster", "list", *absent, "--server", server.url.replace("https", "http"), ok=False)
    assert refused.endswith(" answered 400 Bad Request: Client sent an HTTP request to an HTTPS server.\n")


def test_the_python_client_is_a_user_over_tls_and_without(secured):
    server = secured()
    api = client.CoreV1Api(config.new_client_from_config(str(server.kubeconfig)))
    api.create_namespaced_config_map("default", {"metadata": {"name": "a"}})
    assert [item.metadata.name for item in api.list_namespaced_config_map("default").items] == ["a"]
    wrong = client.Configuration(host=f"{server.url}/clusters/c1/control-plane")
    wrong.ssl_ca_cert = str(server.folder / "kplane-certs" / "ca.crt")
    with pytest.raises(ApiException) as caught:
        client.CoreV1Api(client.ApiClient(wrong)).list_namespaced_config_map("default")
    assert json.loads(caught.value.body)["message"] == "Unauthorized"
    plain = secured("--tls", "off")
    assert plain.url.startswith("http://")
    assert "kubectl sends none" in plain.greeting
    assert "kubectl --kubeconfig" not in plain.greeting
    assert "kplane cluster list --kubeconfig kplane.kubeconfig" in plain.greeting
    assert kplane(plain, "cluster", "list", "-o", "name") == "c1\n"
    api = client.CoreV1Api(config.new_client_from_config(str(plain.kubeconfig)))
    assert api.list_namespaced_config_map("default").items == []


def test_a_server_with_users_may_be_reached_by_others(secured, kubectl):
    server = secured("--bind-address", "0.0.0.0", "--tls-san", "kplane.example")
    admin = User(kubectl, server.kubeconfig)
    assert admin("get", "namespaces")
    address = urlsplit(server.url)
    context = ssl.create_default_context(cafile=server.folder / "kplane-certs" / "ca.crt")
    with (
        socket.create_connection((address.hostname, address.port)) as connection,
        context.wrap_socket(connection, server_hostname="kplane.example") as tls,
    ):
        assert ("DNS", "kplane.example") in tls.getpeercert()["subjectAltName"]


def test_a_certificate_for_another_name_is_asked_for_by_that_name(secured, serve, kubectl, monkeypatch):
    """The kubeconfig says which name the certificate has, as its address is none of the certificate's."""
    monkeypatch.setattr(certificates, "LOOPBACK_NAMES", ())
    made = kubectl.home / "certs"
    certificates.development_tls(made, ["kplane.example"], wall_clock())
    pair = ("--tls-cert-file", str(made / "server.crt"), "--tls-private-key-file", str(made / "server.key"))
    for server in (secured(*pair), serve("--cluster", "c1", *pair)):
        cluster = yaml.safe_load(server.kubeconfig.read_text(encoding="utf-8"))["clusters"][0]["cluster"]
        assert cluster["tls-server-name"] == "kplane.example"
        assert User(kubectl, server.kubeconfig)("get", "namespaces")
        assert kplane(server, "cluster", "list", "-o", "name") == "c1\n"


def test_the_next_start_keeps_its_certificate_and_renews_the_token_in_the_kubeconfig(secured, serve, kubectl):
    first = secured()
    before = yaml.safe_load(first.kubeconfig.read_text(encoding="utf-8"))
    authority = (first.folder / "kplane-certs" / "ca.crt").read_bytes()
    first.stop()
    port = str(urlsplit(first.url).port)
    second = serve("--token-auth-file", TOKENS, "--cluster", "c1", "--port", port, folder=first.folder)
    after = yaml.safe_load(second.kubeconfig.read_text(encoding="utf-8"))
    assert (first.folder / "kplane-certs" / "ca.crt").read_bytes() == authority
    assert before["clusters"] == after["clusters"]
    assert before["users"][0]["name"] == after["users"][0]["name"]
    assert before["users"] != after["users"]
    assert User(kubectl, second.kubeconfig)("get", "namespaces")


def test_metrics_and_health_of_a_server_with_users(secured):
    server = secured()
    authority = str(server.folder / "kplane-certs" / "ca.crt")
    token = kplane(server, "token", "create", "--token-auth-file", TOKENS, "--user", "prom", "--all-clusters").strip()
    with httpx.Client(base_url=server.url, verify=ssl.create_default_context(cafile=authority)) as http:
        assert http.get("/readyz").text == "ok"
        assert http.get("/readyz?verbose").status_code == 401
        assert http.get("/metrics").status_code == 401
        assert "apiserver_request_total" in http.get("/metrics", headers={"authorization": f"Bearer {token}"}).text


def test_no_token_comes_out_of_a_server(secured):
    """Neither its output nor its log shows a token, its own or a user's, good or wrong."""
    server = secured()
    own = yaml.safe_load(server.kubeconfig.read_text(encoding="utf-8"))["users"][0]["user"]["token"]
    authority = str(server.folder / "kplane-certs" / "ca.crt")
    with httpx.Client(base_url=server.url, verify=ssl.create_default_context(cafile=authority)) as http:
        assert http.get("/api", headers={"authorization": f"Bearer {own}"}).status_code == 200
        assert http.get("/api", headers={"authorization": "Bearer wrong-token"}).status_code == 401
    (server.folder / TOKENS).write_text("bad-file-token\n", encoding="utf-8")
    with httpx.Client(base_url=server.url, verify=ssl.create_default_context(cafile=authority)) as http:
        assert http.get("/api", headers={"authorization": "Bearer wrong-token"}).status_code == 401
    said = server.greeting + (server.folder / "stderr").read_text(encoding="utf-8")
    assert "line 1 has 1 columns" in said
    for secret in (own, "wrong-token", "bad-file-token"):
        assert secret not in said


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--authorization-mode", "RBAC"], "--authorization-mode RBAC: roles need users"),
        (["--token-auth-file", "none"], "--token-auth-file: no such file: 'none'"),
        (["--token-auth-file", TOKENS, "--bind-address", "0.0.0.0", "--tls", "off"], "in the clear"),
        (["--tls-cert-file", TOKENS, "--tls-private-key-file", TOKENS], "has no certificate in PEM"),
        (["--tls-san", "a b"], "neither a host name nor an address"),
    ],
)
def test_flags_that_do_not_go_together_are_one_line_and_exit_code_2(tmp_path, flags, complaint):
    (tmp_path / TOKENS).touch(mode=0o600)
    done = subprocess.run(
        [KPLANE, "serve", "--port", "0", *flags],
        cwd=tmp_path,
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert complaint in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
