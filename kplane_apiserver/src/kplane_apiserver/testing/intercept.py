"""What stands between the HTTP server and the application: it writes down, refuses and ends what a test says."""

import asyncio
import contextlib
from urllib.parse import parse_qsl

import attrs
import msgspec

from kplane_apiserver.serve import Asgi
from kplane_apiserver.testing.faults import ANY, Fault
from kplane_apiserver.testing.requests import RecordedRequest, RequestLog, record
from kplane_apiserver.wire.http import Message, Receive, Scope, Send, status_response
from kplane_apiserver.wire.routes import Router
from kplane_core.errors import Expired, KplaneError
from kplane_core.tasks import end_task

_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True", ""})


@attrs.define
class Controls:
    """What is in force for one cluster.

    Attributes:
        requests: what it was asked.
        faults: what its next requests meet; the first that fits counts.
        watches: its open watches.
    """

    requests: RequestLog = attrs.field(factory=RequestLog)
    faults: list[Fault] = attrs.field(factory=list)
    watches: "set[OpenWatch]" = attrs.field(factory=set)

    def fault_for(self, request: RecordedRequest) -> Fault | None:
        """Return what the request meets, if anything, and forget the faults that are used up."""
        found = next((fault for fault in list(self.faults) if fault.meets(request)), None)
        if found is not None and not found.active:
            self.faults.remove(found)
        return found


class OpenWatch:
    """A watch that can be ended from outside: the client's end of it is real, the application only sees it leave.

    Args:
        request: what opened it.
        receive: the HTTP server's.
        send: the HTTP server's.
    """

    def __init__(self, request: RecordedRequest, receive: Receive, send: Send) -> None:
        self.request = request
        self._receive = receive
        self._send = send
        self._begun = False
        self._ended = asyncio.Event()

    async def receive(self) -> Message:
        """Return the client's next message; once the watch was ended, that the client went away."""
        message = asyncio.ensure_future(self._receive())
        ended = asyncio.ensure_future(self._ended.wait())
        try:
            await asyncio.wait({message, ended}, return_when=asyncio.FIRST_COMPLETED)
            return message.result() if message.done() and not ended.done() else {"type": "http.disconnect"}
        finally:
            for waiting in (message, ended):
                await end_task(waiting)

    async def send(self, message: Message) -> None:
        """Send what the application sends, until the watch was ended."""
        if self._ended.is_set():
            return
        self._begun = True
        if message["type"] == "http.response.body" and not message.get("more_body"):
            self._ended.set()
        await self._send(message)

    async def end(self, *lines: bytes) -> bool:
        """Send the last lines and end the watch; return whether it was open."""
        if self._ended.is_set() or not self._begun:
            return False
        self._ended.set()
        for line in lines:
            await self._send({"type": "http.response.body", "body": line, "more_body": True})
        await self._send({"type": "http.response.body", "body": b""})
        return True


class Interceptor:
    """An ASGI application in front of the server's own; clusters without controls pass untouched.

    Args:
        app: the server's application.
        root_cluster: the cluster of paths without a prefix.
    """

    def __init__(self, app: Asgi, root_cluster: str) -> None:
        self._app = app
        self._router = Router(root_cluster)
        self.controls: dict[str, Controls] = {}
        """What is in force, by cluster."""
        self._stopping = asyncio.Event()

    def stop_delaying(self) -> None:
        """Let requests go on that a fault holds up, now and from now on: the server could not stop before them."""
        self._stopping.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        controls = None
        if scope["type"] == "http":
            with contextlib.suppress(KplaneError):  # the application refuses such a path itself
                route = self._router.route(scope["raw_path"])
                controls = self.controls.get(route.cluster)
        if controls is None:
            await self._app(scope, receive, send)
            return
        query = _first_values(scope["query_string"])
        watches = scope["method"] == "GET" and bool(route.resource) and query.get("watch") in _TRUE
        request = record(scope, route, query, watches=watches)
        controls.requests.add(request)
        await self._serve(scope, receive, send, request, controls)

    async def _serve(
        self, scope: Scope, receive: Receive, send: Send, request: RecordedRequest, controls: Controls
    ) -> None:
        async def record_body() -> Message:
            message = await receive()
            if message["type"] == "http.request":
                request.body += message.get("body", b"")
            return message

        async def record_status(message: Message) -> None:
            if message["type"] == "http.response.start":
                request.status = message["status"]
            await send(message)

        fault = controls.fault_for(request)
        if fault is not None:
            if fault.seconds:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(fault.seconds):
                        await self._stopping.wait()
            if fault.status:
                while (await record_body()).get("more_body"):
                    pass
                await status_response(fault.answer(request)).send(record_status)
                return
        if request.verb != "watch":
            await self._app(scope, record_body, record_status)
            return
        watch = OpenWatch(request, receive, record_status)
        controls.watches.add(watch)
        try:
            await self._app(scope, watch.receive, watch.send)
        finally:
            controls.watches.discard(watch)


async def end_watches(controls: Controls, resource: str, *, expired: bool) -> int:
    """End a cluster's open watches and return how many there were.

    Args:
        controls: the cluster's.
        resource: only those of this plural, or `*`.
        expired: end them as a server does whose history no longer reaches them: with an event of status 410.
    """
    status = Expired(Expired.WATCH).status().to_dict()
    lines = [msgspec.json.encode({"type": "ERROR", "object": status}) + b"\n"] if expired else []
    chosen = [watch for watch in controls.watches if resource in {ANY, watch.request.resource}]
    return sum([await watch.end(*lines) for watch in chosen])


def _first_values(query: bytes) -> dict[str, str]:
    return dict(reversed(parse_qsl(query.decode("latin-1"), keep_blank_values=True)))
