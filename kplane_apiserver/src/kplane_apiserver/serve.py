"""Run the API server as a process: how it starts, answers signals and ends."""

import asyncio
import contextlib
import functools
import gc
import logging
import signal
import socket
import ssl
import sys
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING

import attrs
import uvicorn

from kplane_apiserver.server import ApiServer
from kplane_apiserver.wire.http import Receive, Scope, Send
from kplane_apiserver.wire.protocol import bounded_protocol
from kplane_core.tasks import end_task

if TYPE_CHECKING:
    from kplane_apiserver.wire.tls_port import TlsPort

Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]

GRACE_SECONDS = 1
"""How long open requests get to end once the server stops; then their connections are dropped."""

# Go clients drop an idle connection after 90 s. The server must not be the first: a request that crosses the close on
# its way is lost, and clients do not repeat a POST.
_KEEP_ALIVE_SECONDS = 120

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)

# What the server holds for long lives outside the collector's sight or is frozen; young garbage is what a request
# leaves. Python's own thresholds walk everything far too often for that: pauses of seconds with 100,000 objects.
_GC_THRESHOLDS = (100_000, 50, 1000)


class HttpServer(uvicorn.Server):
    """uvicorn's server, with its signals left to us and the watches told to end when it stops.

    Args:
        config: see `http_config`.
        api: the started application.
        on_ready: called once connections are accepted.
        context: the server's end of TLS; None speaks plain HTTP.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        api: ApiServer,
        on_ready: Callable[[], None],
        context: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(config)
        self._api = api
        self._on_ready = on_ready
        self._context = context
        self._ports: list[TlsPort] = []

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle none: `serve` does, on the event loop."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections, then say so."""
        if self._context is None:
            await super().startup(sockets)
        elif sys.platform == "win32":  # its loops cannot look at what comes without taking it
            self.config.ssl = self._context
            await super().startup(sockets)
        else:
            # uvicorn's own TLS would leave it to a failed handshake to tell a client that it speaks plain HTTP.
            await super().startup([])
            self._listen_with_tls(self._context, sockets or [])
        self._on_ready()

    def _listen_with_tls(self, context: ssl.SSLContext, sockets: list[socket.socket]) -> None:
        from kplane_apiserver.wire.tls_port import TlsPort  # noqa: PLC0415 - only for TLS

        kind: Callable[..., asyncio.Protocol] = self.config.http_protocol_class
        make = functools.partial(kind, self.config, self.server_state, self.lifespan.state)
        self._ports = [TlsPort(one, context, make) for one in sockets]

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting, and end the open watches while the connections are waited for."""
        # The task runs first when uvicorn waits, and by then it accepts nothing new: a client that comes back at
        # once finds the port closed, not a server that ends its next watch too.
        draining = asyncio.create_task(self._api.drain())
        cut_off = asyncio.get_running_loop().call_later(GRACE_SECONDS, self._cut_off)
        for port in self._ports:
            port.close()
        try:
            await super().shutdown(sockets)
        finally:
            cut_off.cancel()
            self._cut_off()
            await end_task(draining)

    def _cut_off(self) -> None:
        """Drop the connections that are left: who has not read his answer by now holds us up no longer."""
        for connection in list(self.server_state.connections):
            connection.transport.abort()


@attrs.frozen
class HttpLimits:
    """What the HTTP layer refuses before the application sees it.

    Attributes:
        max_header_size: bytes of request line and headers together.
    """

    max_header_size: int = 64 * 1024


def http_config(app: Asgi, limits: HttpLimits) -> uvicorn.Config:
    """Return how uvicorn serves the application: without logs, lifespan and headers of its own."""
    return uvicorn.Config(
        app,
        http=bounded_protocol(limits.max_header_size),
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=2 * GRACE_SECONDS,
    )


async def serve(
    api: ApiServer,
    listener: socket.socket,
    *,
    limits: HttpLimits,
    on_ready: Callable[[], None],
    context: ssl.SSLContext | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM; open watches then end as a watch does whose time is over.

    A second signal cancels whatever still runs.

    Args:
        api: the started application.
        listener: where to accept; closed at the end.
        limits: what to refuse.
        on_ready: called once connections are accepted.
        context: the server's end of TLS; None speaks plain HTTP.
    """
    config = http_config(api.app, limits)
    server = HttpServer(config, api, on_ready, context)
    with _signals(server, asyncio.current_task()):
        await server.serve([listener])


@contextlib.contextmanager
def _signals(server: uvicorn.Server, task: asyncio.Task[None] | None) -> Iterator[None]:
    """Stop the server at the first signal and cancel the task at the second, while the context is open."""
    loop = asyncio.get_running_loop()

    def stop() -> None:
        if server.should_exit and task is not None:
            task.cancel()
        server.should_exit = True

    if sys.platform == "win32":  # its loops know no signals; Ctrl-C cancels the task
        yield
        return
    for number in _STOP_SIGNALS:
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in _STOP_SIGNALS:
            loop.remove_signal_handler(number)


def tune_collector() -> None:
    """Take everything made so far out of the garbage collector's way. For a server process, never for a library."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return uvloop's event loop where there is one."""
    try:
        import uvloop  # noqa: PLC0415 - absent on Windows
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def log_to_stderr() -> None:
    """Send warnings and errors to standard error, one line each with its time."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
