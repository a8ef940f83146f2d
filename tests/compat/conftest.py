"""Real clients against a real server; each test has a cluster of its own, or says what is missing.

Every client is tried twice: where everybody may do everything, and over TLS with a token and roles.
"""

import importlib
import itertools
import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
import time
from pathlib import Path

import attrs
import httpx
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(__file__).parent / "data"
BIN = Path(sys.executable).parent
USER = "alice"
TOKENS = ("--token-auth-file", "tokens.csv")


def missing(what):
    """Skip the test, or fail it where everything has to be there."""
    reason = f"{what}; `make compat` brings the clients"
    (pytest.fail if os.environ.get("KPLANE_REQUIRE_COMPAT") else pytest.skip)(reason)


def find_program(name):
    """Return the path of a program beside this interpreter or on PATH."""
    found = shutil.which(name, path=f"{BIN}{os.pathsep}{os.environ['PATH']}")
    if found is None:
        missing(f"{name} is not installed")
    return found


def find_module(name):
    """Return a client library."""
    try:
        return importlib.import_module(name)
    except ImportError:
        missing(f"{name} is not installed")


def eventually(check, seconds=20.0):
    """Return what the check returns as soon as that is true."""
    deadline = time.monotonic() + seconds
    while not (found := check()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
    return found


def strangers_environment(home):
    """Return the environment of a stranger: no settings of the caller, and no proxy on the way to this machine."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("KPLANE", "KUBE", "HELM"))}
    return {**kept, "HOME": str(home), "NO_PROXY": "127.0.0.1"}


class Program:
    """A program that talks to one cluster, in a home of its own."""

    def __init__(self, path, kubeconfig, home):
        self.path, self.home = path, home
        self.env = {**strangers_environment(home), "KUBECONFIG": str(kubeconfig)}

    def __call__(self, *arguments, codes=(0,), stdin=""):
        done = subprocess.run(
            [self.path, *map(str, arguments)],
            input=stdin,
            env=self.env,
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        said = done.stdout + done.stderr
        assert done.returncode in codes, f"{self.path} {' '.join(map(str, arguments))}: {said}"
        return said if done.returncode else done.stdout


class SecuredServer:
    """A `kplane serve` with TLS, users and roles, in a process of its own."""

    def __init__(self, folder):
        self.folder, self._numbers = folder, itertools.count(1)
        self.kubeconfig = folder / "kplane.kubeconfig"
        (folder / TOKENS[1]).touch(mode=0o600)
        command = [BIN / "kplane", "serve", "--port", "0", *TOKENS, "--authorization-mode", "RBAC", "--cluster", "c1"]
        with (folder / "stderr").open("w", encoding="utf-8") as complaints:
            self._process = subprocess.Popen(
                command,
                cwd=folder,
                env=strangers_environment(folder),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=complaints,
                text=True,
            )
        self._follow()

    def _follow(self):
        greeting = ""
        for line in self._process.stdout:
            greeting += line
            if "Ctrl-C" in line:
                break
        found = re.search(r"https://\S+", greeting)
        assert found, self.complaints()
        self.url = found.group()
        document = yaml.safe_load(self.kubeconfig.read_text(encoding="utf-8"))
        trust = ssl.create_default_context(cafile=self.folder / "kplane-certs" / "ca.crt")
        admin = {"authorization": f"Bearer {document['users'][0]['user']['token']}"}
        self.http = httpx.Client(verify=trust, headers=admin, trust_env=False, timeout=30)

    def complaints(self):
        return (self.folder / "stderr").read_text(encoding="utf-8")

    def stop(self):
        """End it; it must still run, and must have had nothing to complain of."""
        self.http.close()
        assert self._process.poll() is None, self.complaints()
        self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(20)
        self._process.stdout.close()
        assert (code, self.complaints()) == (0, "")

    def kplane(self, *arguments):
        """Run a `kplane` command in the server's folder and return what it printed."""
        return Program(BIN / "kplane", self.kubeconfig, self.folder)(*arguments)

    def cluster(self, rights, home):
        """Return a fresh cluster whose user has the rights in a file, and no others."""
        return SecuredCluster(self, f"t{next(self._numbers)}", rights, home)


@attrs.frozen
class Answer:
    """What the administrator is answered."""

    status: int
    json: object


class SecuredCluster:
    """A virtual cluster as its administrator sees it, and the kubeconfig of a user who may do little.

    Attributes:
        url: its address.
        kubeconfig: what `kplane token create -o kubeconfig` printed for the user.
        shared_kubeconfig: the server's own, which `--add-context` put the user into.
        context: the name of that context.
    """

    def __init__(self, server, name, rights, home):
        self._server = server
        self.url = f"{server.url}/clusters/{name}/control-plane"
        flags = ("--user", USER, "--cluster", name, "-o", "kubeconfig", "--add-context")
        text = server.kplane("token", "create", *TOKENS, *flags)
        self.kubeconfig = home / "alice.kubeconfig"
        self.kubeconfig.write_text(text, encoding="utf-8")
        self.shared_kubeconfig, self.context = server.kubeconfig, f"kplane-{name}-{USER}"
        self.load(rights)
        self._try_the_lock(yaml.safe_load(text)["users"][0]["user"]["token"])

    def _try_the_lock(self, token):
        """What follows says nothing of roles unless the user is refused what he was not given."""
        user = {"authorization": f"Bearer {token}"}
        secrets = "/api/v1/namespaces/kube-system/secrets"
        for url, code in ((self.url, 403), (f"{self._server.url}/clusters/c1/control-plane", 401)):
            assert self._server.http.get(f"{url}{secrets}", headers=user).status_code == code

    def request(self, method, path, document=None, *, content_type="application/json"):
        headers = {"content-type": content_type}
        answer = self._server.http.request(method, f"{self.url}{path}", json=document, headers=headers)
        return Answer(answer.status_code, answer.json)

    def create(self, *documents):
        """Create objects; those with a namespace must name it."""
        for document in documents:
            version = document["apiVersion"]
            namespace = document["metadata"].get("namespace", "")
            place = f"/{'apis' if '/' in version else 'api'}/{version}{namespace and f'/namespaces/{namespace}'}"
            answer = self.request("POST", f"{place}/{document['kind'].lower()}s", document)
            assert answer.status == 201, answer.json()

    def load(self, *paths):
        for path in paths:
            self.create(*yaml.safe_load_all(path.read_text(encoding="utf-8")))


@pytest.fixture(scope="session")
def secured_server(tmp_path_factory):
    """The one server with TLS, users and roles."""
    server = SecuredServer(tmp_path_factory.mktemp("secured"))
    yield server
    server.stop()


@pytest.fixture
def rights():
    """The file with the roles that the user needs: those of an administrator of his namespace."""
    return DATA / "rights-of-an-admin.yaml"


@pytest.fixture(params=("open", "secured"))
def cluster(request, tmp_path, rights):
    """This test's cluster: once without users, and once over TLS for a user with a token and roles."""
    if request.param == "open":
        return request.getfixturevalue("kplane_cluster")
    return request.getfixturevalue("secured_server").cluster(rights, tmp_path)


@pytest.fixture
def secured(cluster):
    """Whether the cluster is the one with users."""
    return isinstance(cluster, SecuredCluster)


@pytest.fixture
def program(tmp_path):
    """A function that returns a program with a kubeconfig."""
    return lambda name, kubeconfig: Program(find_program(name), kubeconfig, tmp_path)


@pytest.fixture
def module():
    """A function that returns a client library."""
    return find_module


@pytest.fixture(scope="session")
def wait():
    """A function that waits for a condition."""
    return eventually


@pytest.fixture(scope="session")
def examples():
    """The folder of examples."""
    return ROOT / "examples"
