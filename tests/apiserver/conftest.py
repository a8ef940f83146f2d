"""A real server for tests: uvicorn on a random port, in a thread of its own, and a fresh cluster per test."""

import asyncio
import contextlib
import itertools
import json
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Self

import httpx
import pytest
import uvicorn
import uvloop

from kplane_apiserver.server import ApiServer
from kplane_apiserver.settings import Settings
from kplane_core.engine.factory import EngineConnection
from kplane_memory.engine import MemoryEngine

_WAIT = 10.0
_ids = itertools.count(1)


class LiveServer:
    """A server under uvicorn; `engine` can be shared by several."""

    def __init__(self, settings: Settings, engine: MemoryEngine | None = None) -> None:
        self.settings = settings
        self.engine = engine
        self.api: ApiServer
        self.connection: EngineConnection
        self.loop: asyncio.AbstractEventLoop
        self._ready = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._run, name="kplane-test-server")
        self.client = httpx.Client(base_url=self.url, timeout=_WAIT)
        self._failure: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(_WAIT)
        if self._failure:
            raise self._failure
        return self

    def __exit__(self, *exc: object) -> None:
        self.client.close()
        self._server.should_exit = True
        self._thread.join(_WAIT)
        assert not self._thread.is_alive()
        if self._failure and not exc[0]:
            raise self._failure

    def call(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine on the server's loop and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(_WAIT)

    def cluster(self, name: str = "") -> "Cluster":
        return Cluster(self, name or f"t{next(_ids)}")

    def keys(self, part: str) -> list[str]:
        """Return all database keys that contain a text."""

        async def scan() -> list[str]:
            page = await self.connection.engine.scan("/", "0")
            return [record.key for record in page.records if part in record.key]

        found: list[str] = self.call(scan())
        return found

    def tasks(self) -> int:
        """Return how many tasks the server's loop has."""

        async def count() -> int:
            return len(asyncio.all_tasks()) - 1

        found: int = self.call(count())
        return found

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._serve())
        except BaseException as error:  # noqa: BLE001 (told to the test in its own thread)
            self._failure = error
            self._ready.set()

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.connection = EngineConnection(self.engine or MemoryEngine())
        self.api = ApiServer(self.connection, settings=self.settings)
        await self.api.start()
        config = uvicorn.Config(self.api.app, lifespan="off", ws="none", access_log=False, log_level="error")
        self._server = uvicorn.Server(config)
        serving = asyncio.create_task(self._server.serve([self._listener]))
        while not self._server.started:  # noqa: ASYNC110 (uvicorn has no event for it)
            await asyncio.sleep(0.001)
        self._ready.set()
        while not self._server.should_exit:  # noqa: ASYNC110 (uvicorn has no event for it)
            await asyncio.sleep(0.005)
        await self.api.drain()
        await serving
        await self.api.aclose()
        await self.connection.aclose()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, left


class Cluster:
    """A virtual cluster of a live server, addressed by paths below its prefix."""

    def __init__(self, server: LiveServer, name: str) -> None:
        self.server = server
        self.name = name
        self.prefix = f"/clusters/{name}/control-plane"

    def request(self, method: str, path: str, **given: Any) -> httpx.Response:
        return self.server.client.request(method, self.prefix + path, **given)

    def get(self, path: str, **query: Any) -> httpx.Response:
        return self.request("GET", path, params=query or None)

    def post(self, path: str, document: Any, **query: Any) -> httpx.Response:
        return self.request("POST", path, json=document, params=query or None)

    def put(self, path: str, document: Any, **query: Any) -> httpx.Response:
        return self.request("PUT", path, json=document, params=query or None)

    def patch(self, path: str, document: Any, kind: str = "merge-patch+json", **query: Any) -> httpx.Response:
        headers = {"content-type": f"application/{kind}"}
        return self.request("PATCH", path, content=json.dumps(document), headers=headers, params=query or None)

    def delete(self, path: str, document: Any = None, **query: Any) -> httpx.Response:
        return self.request("DELETE", path, json=document, params=query or None)

    def config_map(self, name: str, **fields: Any) -> dict[str, Any]:
        """Create a ConfigMap in the namespace default and return it."""
        metadata = {"name": name, **fields.pop("metadata", {})}
        answer = self.post(CONFIG_MAPS, {"metadata": metadata, **fields})
        assert answer.status_code == 201, answer.text
        created: dict[str, Any] = answer.json()
        return created

    @contextlib.contextmanager
    def watch(self, path: str, **query: Any) -> Iterator["Events"]:
        """Open a watch; its events are read one by one."""
        url = self.prefix + path
        headers = query.pop("headers", None)
        with self.server.client.stream("GET", url, params={"watch": "true", **query}, headers=headers) as answer:
            assert answer.status_code == 200, answer.read()
            yield Events(answer)


CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


class Events:
    """The events of an open watch."""

    def __init__(self, answer: httpx.Response) -> None:
        self._lines = answer.iter_lines()

    def next(self) -> dict[str, Any]:
        event: dict[str, Any] = json.loads(next(self._lines))
        return event

    def take(self, count: int) -> list[dict[str, Any]]:
        return [self.next() for _ in range(count)]

    def rest(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._lines]


@pytest.fixture(scope="session")
def live() -> Iterator[LiveServer]:
    """One server for all tests that need no settings of their own."""
    with LiveServer(Settings()) as server:
        yield server


@pytest.fixture
def cluster(live: LiveServer) -> Cluster:
    """A cluster that no other test uses."""
    return live.cluster()


@pytest.fixture
def serve() -> Iterator[Callable[..., LiveServer]]:
    """Start further servers: `serve(engine=..., **settings)`."""
    with contextlib.ExitStack() as stack:

        def start(*, engine: MemoryEngine | None = None, **settings: Any) -> LiveServer:
            return stack.enter_context(LiveServer(Settings(**settings), engine))

        yield start


@pytest.fixture(scope="session")
def eventually():
    """Wait until a condition holds: clusters, namespaces, owners and fleets are looked after in the background."""

    def wait(check, seconds=10.0):
        deadline = time.monotonic() + seconds
        while not check():
            assert time.monotonic() < deadline, "it did not happen in time"
            time.sleep(0.005)

    return wait
