"""`kplane serve` in a process of its own, on a core of its own, with an eye on what it uses."""

import contextlib
import functools
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

_START_SECONDS = 30.0
_PROC = Path("/proc")


@attrs.frozen
class Server:
    """A running `kplane serve`.

    Attributes:
        pid: its process.
        port: where it listens, on 127.0.0.1.
        token: what it asks of requests; empty for nothing.
        tls: whether it speaks TLS.
    """

    pid: int
    port: int
    token: str = attrs.field(default="", repr=False)
    tls: bool = False

    @property
    def url(self) -> str:
        """The address of the server."""
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    def cluster(self, name: str) -> str:
        """Return the address of a virtual cluster."""
        return f"{self.url}/clusters/{name}/control-plane"

    def cpu_seconds(self) -> float:
        """Return the processor time that the process has used; 0 where the system does not tell."""
        nanoseconds = 0
        for task in (_PROC / str(self.pid) / "task").glob("*/schedstat"):
            with contextlib.suppress(OSError):  # a thread that ended meanwhile
                nanoseconds += int(task.read_text().split()[0])
        return nanoseconds / 1e9

    def resident_bytes(self) -> int:
        """Return the memory that the process has; 0 where the system does not tell."""
        statm = _PROC / str(self.pid) / "statm"
        if not statm.exists():
            return 0
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@functools.cache
def cores() -> tuple[int, int] | None:
    """Return a core for the server and another for the load; None where processes cannot be pinned."""
    if shutil.which("taskset") is None or not hasattr(os, "sched_getaffinity"):
        return None
    allowed = sorted(os.sched_getaffinity(0))
    return (allowed[0], allowed[1]) if len(allowed) > 1 else None


def pinned(core: int | None, command: Sequence[str]) -> list[str]:
    """Return a command that runs on one core."""
    return list(command) if core is None else ["taskset", "-c", str(core), *command]


def free_port() -> int:
    """Return a port on which nobody listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def start(folder: Path, port: int, *flags: str, core: int | None = None) -> "subprocess.Popen[bytes]":
    """Start `kplane serve` and return at once."""
    command = [str(Path(sys.executable).parent / "kplane"), "serve", "--port", str(port), *flags]
    # Some machines that build software forbid it; a user's second start finds the modules compiled.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with (folder / "stderr").open("wb") as complaints:
        return subprocess.Popen(
            pinned(core, command),
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=complaints,
        )


def trusting() -> ssl.SSLContext:
    """Return TLS for a client that takes any certificate: it knows that it talks to itself."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def wait_until_ready(
    process: "subprocess.Popen[bytes]", port: int, folder: Path, pause: float = 0.002, *, tls: bool = False
) -> None:
    """Return once `/readyz` answers 200.

    Raises:
        RuntimeError: the process ended, or took too long.
    """
    url, context = f"http://127.0.0.1:{port}/readyz", None
    if tls:
        url, context = url.replace("http:", "https:"), trusting()
    until = time.perf_counter() + _START_SECONDS
    while time.perf_counter() < until:
        if process.poll() is not None:
            break
        try:
            with urllib.request.urlopen(url, timeout=5, context=context) as answer:
                if answer.status == 200:
                    return
        except OSError:  # nobody listens yet
            time.sleep(pause)
    raise RuntimeError(f"kplane serve did not become ready: {(folder / 'stderr').read_text(errors='replace')}")


def stop(process: "subprocess.Popen[bytes]") -> None:
    """End the process and return once it is gone."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()


@contextlib.contextmanager
def running(*flags: str, token: str = "", tls: bool = False) -> Iterator[Server]:
    """Run `kplane serve` on its own core while the context is open.

    Args:
        flags: further flags.
        token: a token that it asks for; empty for none.
        tls: whether it speaks TLS, which takes a token.
    """
    pair = cores()
    with tempfile.TemporaryDirectory(prefix="kplane-bench-") as name:
        folder, port = Path(name), free_port()
        if token:
            (folder / "tokens.csv").touch(mode=0o600)
            (folder / "tokens.csv").write_text(f"{token},benchmark,1\n", encoding="utf-8")
            flags = (*flags, "--token-auth-file", "tokens.csv", *([] if tls else ["--tls", "off"]))
        process = start(folder, port, *flags, core=None if pair is None else pair[0])
        try:
            wait_until_ready(process, port, folder, tls=tls)
            yield Server(process.pid, port, token, tls)
        finally:
            stop(process)


@contextlib.contextmanager
def beside_the_server() -> Iterator[None]:
    """Keep this process off the server's core while the context is open."""
    pair = cores()
    if pair is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {pair[1]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
