"""The ASGI application: from a scope to an answer, whatever happens on the way."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from time import perf_counter

from kplane_apiserver.apierrors import MethodNotAllowed, request_timeout
from kplane_apiserver.clusters.registry import Clusters
from kplane_apiserver.front.access import Gate
from kplane_apiserver.front.handlers import Handlers
from kplane_apiserver.requests.crosscluster import CrossCluster
from kplane_apiserver.requests.metrics import RequestMetrics
from kplane_apiserver.settings import Settings
from kplane_apiserver.wire.http import (
    ClientDisconnected,
    Message,
    Receive,
    Request,
    Response,
    Scope,
    Send,
    StreamResponse,
    status_response,
)
from kplane_apiserver.wire.routes import EVERY_CLUSTER, Router
from kplane_core.errors import KplaneError, Status, status_for

_log = logging.getLogger(__name__)


class Deadlines:
    """Cancels requests that take too long, with one timer for all: they began in the order in which they are due.

    Args:
        seconds: what a request may take.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._running: dict[object, tuple[float, asyncio.Task[object]]] = {}
        self._expired: set[object] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def enter(self) -> object:
        """Take note that the current task serves a request; return what names it."""
        loop = self._loop
        if loop is None or not loop.is_running():
            # Kept, because to ask for the running loop is a system call before Python 3.12.
            loop = self._loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        assert task is not None
        token = object()
        self._running[token] = (loop.time() + self._seconds, task)
        if self._timer is None:
            self._timer = loop.call_later(self._seconds, self._check)
        return token

    def leave(self, token: object) -> bool:
        """Take note that a request is done; return whether it was cancelled for taking too long."""
        self._running.pop(token, None)
        if token in self._expired:
            self._expired.discard(token)
            return True
        return False

    def close(self) -> None:
        """Stop the timer; idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        for token, (due, task) in list(self._running.items()):
            if due > loop.time():
                self._timer = loop.call_at(due, self._check)
                return
            del self._running[token]
            self._expired.add(token)
            task.cancel()


class Application:
    """The server as an ASGI application.

    Args:
        handlers: answer requests about one cluster.
        everywhere: answers those about all clusters.
        clusters: knows which clusters exist.
        metrics: counts requests.
        gate: lets requests in, or not.
        settings: limits and names.
        start: begins to serve; called at the lifespan's start-up.
        stop: ends it; called at the lifespan's shut-down.
    """

    def __init__(
        self,
        handlers: Handlers,
        everywhere: CrossCluster,
        clusters: Clusters,
        metrics: RequestMetrics,
        gate: Gate,
        settings: Settings,
        *,
        start: Callable[[], Awaitable[None]],
        stop: Callable[[], Awaitable[None]],
    ) -> None:
        self._handlers = handlers
        self._everywhere = everywhere
        self._metrics = metrics
        self._gate = gate
        self._admit = gate.admit
        self._clusters = clusters
        self._known = clusters.known
        self._router = Router(settings.root_cluster)
        self._max_body = settings.max_body
        self._timeout = settings.request_timeout
        self.deadlines = Deadlines(settings.request_timeout)
        self._start = start
        self._stop = stop

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        match scope["type"]:
            case "http":
                await self._serve(scope, receive, send)
            case "lifespan":
                await self._lifespan(receive, send)
            case "websocket":
                await receive()
                await send({"type": "websocket.close", "code": 1008, "reason": "there are no WebSockets here"})

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = perf_counter()
        if scope["method"] == "HEAD":
            send = _without_body(send)
        try:
            request = Request(scope, receive, self._router.route(scope["raw_path"]), self._max_body)
        except KplaneError as error:
            refusal = _refusal(error, None)
            self._metrics.unrouted(scope["method"], refusal.status)
            await refusal.send(send)
            return
        token = self.deadlines.enter()
        answer: Response | StreamResponse | None = None
        try:
            answer = await self._answer(request)
            if isinstance(answer, Response):
                await answer.send(send)
        except ClientDisconnected:
            return
        except asyncio.CancelledError:
            if not self.deadlines.leave(token):
                raise
            _uncancel()
            # With half an answer sent, all that is left is to close the connection, which the HTTP server does.
            if answer is None:
                answer = self._timed_out()
                await answer.send(send)
        finally:
            self.deadlines.leave(token)
        if isinstance(answer, Response):
            self._metrics.answered(request, answer.status, perf_counter() - started)
        else:
            self._metrics.began(request)
            await answer.stream(send)

    def _timed_out(self) -> Response:
        detail = f"the request did not complete within {self._timeout:g} seconds"
        return status_response(request_timeout(detail).status())

    async def _answer(self, request: Request) -> Response | StreamResponse:
        try:
            cluster = request.route.cluster
            self._admit(request)
            if cluster not in self._known:
                if cluster == EVERY_CLUSTER:
                    return await self._everywhere.respond(request)
                if self._gate.may_make(request):
                    await self._clusters.touch(cluster)
            return await self._handlers.respond(request)
        except KplaneError as error:
            return _refusal(error, request)
        except ClientDisconnected:
            raise
        except Exception:  # noqa: BLE001 (one broken request must not end the server, and the client gets an answer)
            _log.exception("%s %s failed", request.scope["method"], request.scope["path"])
            message = "Internal error occurred: the server's log has the details"
            return status_response(Status(500, "InternalError", message))

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                try:
                    await self._start()
                except KplaneError as error:
                    await send({"type": "lifespan.startup.failed", "message": str(error)})
                    return
                await send({"type": "lifespan.startup.complete"})
            else:
                await self._stop()
                await send({"type": "lifespan.shutdown.complete"})
                return


def _refusal(error: KplaneError, request: Request | None) -> Response:
    status = error.status() if request is None else status_for(error, request.verb, request.subject)
    if status.code >= 500:  # noqa: PLR2004 (HTTP)
        _log.warning("answered %d %s: %s", status.code, status.reason, status.message)
    response = status_response(status)
    if isinstance(error, MethodNotAllowed):
        response.headers = (*response.headers, (b"allow", ", ".join(error.allowed).encode()))
    if status.code == 401:  # noqa: PLR2004 (HTTP)
        response.headers = (*response.headers, (b"www-authenticate", b'Bearer realm="kplane"'))
    return response


def _uncancel() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.uncancel()


def _without_body(send: Send) -> Send:
    async def send_head(message: Message) -> None:
        await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

    return send_head
