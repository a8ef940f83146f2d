"""A real server for tests: in this process, in a thread with an event loop of its own, on a free port."""

import asyncio
import contextlib
import itertools
import os
import shutil
import tempfile
import threading
from collections.abc import Awaitable, Coroutine, Iterable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Self, TypeVar

import attrs

from kplane_apiserver.serve import HttpLimits, HttpServer, http_config, new_event_loop
from kplane_apiserver.server import ApiServer
from kplane_apiserver.settings import Settings
from kplane_apiserver.testing.actions import Parts
from kplane_apiserver.testing.clock import Clock
from kplane_apiserver.testing.cluster import AsyncCluster, Cluster
from kplane_apiserver.testing.intercept import Interceptor
from kplane_apiserver.testing.manifests import load_manifests
from kplane_apiserver.wire.listening import base_url, listen
from kplane_core.engine.factory import Connection
from kplane_core.errors import UsageError
from kplane_core.plugins.discovery import discover

T = TypeVar("T")

_PATIENCE = 30.0


class Server:
    """A running API server; `stop` it, or use it as a context manager.

    Its clusters are made by `cluster`. It may be used from any thread but its own.

    Args:
        backend: the name of an installed storage backend.
        options: the backend's options; its defaults, without a loop that compacts, when absent.
        settings: how the server behaves; its clock is replaced by one that tests can turn.

    Attributes:
        url: where it listens.
        clock: its clock.
        folder: for the files of its clusters; removed at the end.

    Raises:
        UsageError: the backend is not installed or cannot be connected.
    """

    def __init__(self, backend: str = "memory", *, options: Any = None, settings: Settings | None = None) -> None:
        self.clock = Clock()
        self._settings = attrs.evolve(settings or Settings(), now=self.clock.now)
        self._backend = discover().select(backend)
        self._options = _options(self._backend.options) if options is None else options
        self._numbers = itertools.count(1)
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._parts: Parts | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._http: HttpServer | None = None
        self._listener = listen("127.0.0.1", 0)
        self.url = base_url(self._listener)
        self.folder = Path(tempfile.mkdtemp(prefix="kplane-"))
        self._thread = threading.Thread(target=self._run, name="kplane-server", daemon=True)
        self._thread.start()
        self._ready.wait(_PATIENCE)
        if self._failure is not None or not self._ready.is_set():
            self.stop()
            raise UsageError(f"the server for tests did not start: {self._failure or 'it took too long'}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<kplane server {self.url}>"

    def cluster(self, name: str = "", *, crd_paths: Iterable[str | os.PathLike[str]] = ()) -> Cluster:
        """Return a fresh virtual cluster; close it, or use it as a context manager.

        Args:
            name: its name; a new one by default.
            crd_paths: files and folders with manifests that it begins with.

        Raises:
            UsageError: a manifest cannot be read, or is refused.
        """
        name = name or f"test-{next(self._numbers)}"
        actions = self.run(self.parts.open(name, load_manifests(crd_paths)))
        return Cluster(self, actions)

    async def async_cluster(self, name: str = "", *, crd_paths: Iterable[str | os.PathLike[str]] = ()) -> AsyncCluster:
        """Return a fresh virtual cluster for asynchronous tests; see `cluster`."""
        name = name or f"test-{next(self._numbers)}"
        actions = await self.arun(self.parts.open(name, load_manifests(crd_paths)))
        return AsyncCluster(self, actions)

    def stop(self) -> None:
        """End all watches and connections and stop the server; idempotent.

        Raises:
            RuntimeError: it broke while it ran; the cause is chained.
        """
        if self._http is not None and self._loop is not None:
            self._http.should_exit = True
            with contextlib.suppress(RuntimeError):  # its loop is closed already
                self._loop.call_soon_threadsafe(self.parts.interceptor.stop_delaying)
        self._thread.join(_PATIENCE)
        self._listener.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        failure, self._failure = self._failure, None
        if self._parts is not None and failure is not None:
            raise RuntimeError("the server for tests broke while it ran") from failure

    @property
    def parts(self) -> Parts:
        """What the server consists of; belongs to its event loop."""
        assert self._parts is not None
        return self._parts

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the server's event loop and return its result."""
        return self._submit(work).result(_PATIENCE)

    async def arun(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the server's event loop without blocking the caller's."""
        awaited: Awaitable[T] = asyncio.wrap_future(self._submit(work))
        return await awaited

    def _submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        if self._loop is None or not self._thread.is_alive():
            work.close()
            raise UsageError(f"the server at {self.url} was stopped")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=new_event_loop) as runner:
                runner.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - told to whoever starts or stops the server, in his own thread
            self._failure = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        async with contextlib.AsyncExitStack() as stack:
            connection: Connection = await self._backend.connect(self._options)
            stack.push_async_callback(connection.aclose)
            api = ApiServer(connection, settings=self._settings)
            stack.push_async_callback(api.aclose)
            await api.start()
            interceptor = Interceptor(api.app, self._settings.root_cluster)
            self._parts = Parts(api, connection, interceptor, self.clock)
            self._loop = asyncio.get_running_loop()
            self._http = HttpServer(http_config(interceptor, HttpLimits()), api, self._ready.set)
            await self._http.serve([self._listener])


def _options(kind: type) -> Any:
    """Return a backend's defaults; where it would compact from time to time, tests do that themselves."""
    options = kind()
    quiet = {"compaction_interval": 0.0} if hasattr(options, "compaction_interval") else {}
    return attrs.evolve(options, **quiet)
