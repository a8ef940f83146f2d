"""What the tests of the etcd backend share: real servers, connections to them, and an alarm."""

import asyncio
import signal
import uuid
from collections.abc import Iterator

import pytest

from kplane_etcd.connection import EtcdConnection, Settings
from kplane_etcd.endpoints import Endpoint, TlsFiles
from kplane_etcd.servers import EtcdBinary, EtcdServer, find_all
from kplane_etcd.transport import Transport

BINARIES = find_all()


@pytest.fixture(autouse=True)
def no_test_hangs() -> Iterator[None]:
    """A watch that misses an event would wait for ever: let the test fail instead."""

    def fail(_signal: int, _frame: object) -> None:
        raise TimeoutError("the test takes longer than 60 seconds")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="session", params=BINARIES, ids=lambda one: f"{one.source}-{one.version}".replace(" ", "-"))
def binary(request: pytest.FixtureRequest) -> EtcdBinary:
    """Every etcd that is installed, one after the other."""
    return request.param


@pytest.fixture(scope="session")
def etcd(binary: EtcdBinary) -> Iterator[EtcdServer]:
    """A running etcd that tests share; each uses a prefix of its own and leaves the process alone."""
    server = EtcdServer(binary)
    asyncio.run(server.start())
    yield server
    server.remove()


@pytest.fixture
def own_etcd(binary: EtcdBinary) -> Iterator[EtcdServer]:
    """A running etcd for one test, which may break it."""
    server = EtcdServer(binary)
    asyncio.run(server.start())
    yield server
    server.remove()


@pytest.fixture
def prefix() -> str:
    """A path that no other test uses."""
    return f"/test-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def connect():
    """A function that opens a connection; use it as `async with connect(url, ...) as connection`."""
    return _Connecting


class _Connecting:
    def __init__(self, *urls: str, timeout: float = 10.0, start: bool = True, credentials=None, **settings) -> None:
        self._urls = urls
        self._timeout = timeout
        self._start = start
        self._credentials = credentials
        self._settings = Settings(**{"compaction_interval": 0.0, "poll_interval": 0.0, **settings})

    async def __aenter__(self) -> EtcdConnection:
        endpoints = [Endpoint(url, TlsFiles()) for url in self._urls]
        transport = Transport(endpoints, timeout=self._timeout, credentials=self._credentials)
        self.connection = EtcdConnection(transport, self._settings)
        if self._start:
            try:
                await self.connection.start()
            except BaseException:
                await self.connection.aclose()
                raise
        return self.connection

    async def __aexit__(self, *_: object) -> None:
        await self.connection.aclose()
