"""Real clients against a real `kplane serve`: one process per test worker, fresh virtual clusters per test."""

import contextlib
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest

ROOT = Path(__file__).resolve().parents[3]
BIN = Path(sys.executable).parent

_numbers = itertools.count(1)


def clean_environment(home: Path) -> dict[str, str]:
    """Return the environment of a stranger: no kubeconfig, no kplane or Python settings of the caller."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("KPLANE_", "KUBE", "PYTHON"))}
    return {**kept, "HOME": str(home)}


@attrs.define
class ServeProcess:
    """A running `kplane serve`."""

    process: subprocess.Popen[str]
    folder: Path
    greeting: str
    url: str

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kplane.kubeconfig"

    def cluster_url(self, cluster: str) -> str:
        return f"{self.url}/clusters/{cluster}/control-plane"

    def stop(self, number: int = signal.SIGTERM, timeout: float = 10) -> int:
        """Send a signal, wait, and return the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(timeout)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            for pipe in (self.process.stdout, self.process.stderr):
                if pipe is not None:
                    pipe.close()


def start_server(folder: Path, *arguments: str) -> ServeProcess:
    """Start `kplane serve` on a free port and return once it says where it listens."""
    with (folder / "stderr").open("w", encoding="utf-8") as complaints:
        process = subprocess.Popen(
            [str(BIN / "kplane"), "serve", *([] if "--port" in arguments else ["--port", "0"]), *arguments],
            cwd=folder,
            env=clean_environment(folder),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=complaints,
            text=True,
        )
    assert process.stdout is not None
    greeting = ""
    for line in process.stdout:
        greeting += line
        if "Ctrl-C" in line:
            break
    found = re.search(r"https?://\S+", greeting)
    if found is None:
        process.kill()
        process.wait()
        process.stdout.close()
        pytest.fail(f"kplane serve did not start: {(folder / 'stderr').read_text(encoding='utf-8')}")
    return ServeProcess(process, folder, greeting, found.group())


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Any]:
    """A function that starts a `kplane serve` with the given flags; all are stopped after the test."""
    with contextlib.ExitStack() as stack:

        def start(*arguments: str, folder: Path | None = None, files: Mapping[str, str] | None = None) -> ServeProcess:
            if folder is None:
                folder = tmp_path / f"serve-{next(_numbers)}"
                folder.mkdir()
            for name, text in (files or {}).items():
                (folder / name).touch(mode=0o600)
                (folder / name).write_text(text, encoding="utf-8")
            server = start_server(folder, *arguments)
            stack.callback(server.stop)
            return server

        yield start


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    """A server that the tests of one worker share; it must still run, without complaint, at the end."""
    running = start_server(tmp_path_factory.mktemp("serve"), "--cluster", "c1", "--cluster", "c10")
    yield running
    alive = running.process.poll() is None
    code = running.stop()
    complaints = (running.folder / "stderr").read_text(encoding="utf-8")
    assert alive, f"the server ended during the tests: {complaints}"
    assert code == 0, complaints
    assert "Traceback" not in complaints, complaints


@attrs.frozen
class Kubectl:
    """A kubectl that talks to one virtual cluster."""

    binary: str
    home: Path
    url: str

    kubeconfig: Path | None = None

    def command(self, *arguments: str) -> list[str]:
        if self.kubeconfig is not None:
            return [self.binary, "--kubeconfig", str(self.kubeconfig), *arguments]
        return [self.binary, "--server", self.url, *arguments]

    def with_kubeconfig(self, path: Path) -> "Kubectl":
        """Return the same kubectl with the server and the user of a kubeconfig."""
        return attrs.evolve(self, kubeconfig=path)

    def __call__(self, *arguments: str, stdin: str = "", ok: bool = True) -> str:
        """Run a command and return what it printed; `ok` says whether it is meant to succeed."""
        done = subprocess.run(
            self.command(*arguments),
            input=stdin,
            env=clean_environment(self.home),
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode == 0) == ok, f"kubectl {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stdout if ok else done.stderr

    def json(self, *arguments: str) -> Any:
        """Run a command with `-o json` and return the document."""
        return json.loads(self(*arguments, "-o", "json"))

    def names(self, *arguments: str) -> list[str]:
        """Run a `get` and return the names of what it lists."""
        return [item["metadata"]["name"] for item in self.json("get", *arguments)["items"]]

    def on(self, url: str) -> "Kubectl":
        """Return the same kubectl for another cluster, with the same caches."""
        return attrs.evolve(self, url=url)


def kubectl_binaries() -> list[str]:
    """Return the kubectl of the test environment and the one on PATH, if they exist."""
    found = {str(BIN / "kubectl"): None} if (BIN / "kubectl").exists() else {}
    on_path = shutil.which("kubectl", path=os.pathsep.join(p for p in os.get_exec_path() if Path(p) != BIN))
    return [*found, *([on_path] if on_path else [])]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a kubectl test with every kubectl there is; with none, say so, and fail where one is required."""
    if "kubectl_binary" in metafunc.fixturenames:
        found = kubectl_binaries()
        ids = ["packaged" if Path(path).parent == BIN else "on-path" for path in found]
        metafunc.parametrize("kubectl_binary", found or [None], ids=ids or ["none"], scope="session")


@pytest.fixture
def kubectl(kubectl_binary: str | None, server: ServeProcess, tmp_path: Path) -> Kubectl:
    """A kubectl on a fresh virtual cluster whose name is the beginning of `neighbour`'s."""
    if kubectl_binary is None:
        reason = "no kubectl: `make install` puts one into the environment (Linux on x86-64), or put one on PATH"
        if os.environ.get("KPLANE_REQUIRE_KUBECTL"):
            pytest.fail(reason)
        pytest.skip(reason)
    home = tmp_path / "home"
    home.mkdir()
    return Kubectl(kubectl_binary, home, server.cluster_url(f"t{next(_numbers)}-c1"))


@pytest.fixture
def neighbour(kubectl: Kubectl) -> Kubectl:
    """The same kubectl on a second fresh cluster: `c10` to the first one's `c1`."""
    return kubectl.on(kubectl.url.replace("-c1/", "-c10/"))


@pytest.fixture(scope="session")
def manifests() -> Path:
    """The folder with real manifests: `KPLANE_MANIFESTS`, or `../shared/data/manifests` beside the checkout."""
    given = os.environ.get("KPLANE_MANIFESTS")
    folder = Path(given) if given else ROOT.parent / "shared" / "data" / "manifests"
    if not folder.is_dir():
        if given:
            pytest.fail(f"KPLANE_MANIFESTS names no folder: {given}")
        pytest.skip("no real manifests: set KPLANE_MANIFESTS to a folder that holds them")
    return folder
