"""Watches over HTTP: each event a line of JSON, made from the stored bytes, once for all who get the same.

A watch is one request task that pulls batches from the store, plus one small task that waits for the client to go away:
ASGI tells of that only through `receive`. Whatever ends a watch stops the store's watch, which wakes the request task.
A client that does not read holds up the request task of its own watch, and nothing else.
"""

import asyncio
import contextlib
from collections.abc import Iterator, Sequence

import attrs
import msgspec

from kplane_apiserver.printers.tables import IncludeObject, partial_metadata, table_for_object
from kplane_apiserver.requests.params import watch_options
from kplane_apiserver.requests.readers import Mark, include_object
from kplane_apiserver.settings import Settings
from kplane_apiserver.storing.stores import Served
from kplane_apiserver.wire.http import JSON, Receive, Request, Send
from kplane_apiserver.wire.negotiate import Form, negotiate
from kplane_core.chance import CHANCE
from kplane_core.errors import Subject, status_for
from kplane_core.storage.interface import EventType, ListOptions, StoredObject, Watch, WatchEvent
from kplane_core.tasks import end_task

MAX_CHUNK_BYTES = 64 * 1024
MAX_CHUNK_EVENTS = 64

_REMEMBERED_LINES = 4096
_REMEMBERED_BYTES = 8 * 1024 * 1024

_LINE_HEADS = {kind: b'{"type":"%s","object":' % kind.value.encode() for kind in EventType}

_LineKey = tuple[int, EventType, int, bool]


class Lines:
    """The newest lines, so that what many watchers get alike is encoded once.

    A cache hands the same object to everybody whom an event or an initial state shows it, so the object's identity,
    with the type of the event, is the key. What is remembered is bounded in number and in bytes; the oldest goes first.

    Attributes:
        encoded: how many lines were made, for the curious and for tests.
    """

    def __init__(self) -> None:
        self._lines: dict[_LineKey, tuple[StoredObject, Served, bytes]] = {}
        self._bytes = 0
        self.encoded = 0

    def __len__(self) -> int:
        """Return how many lines are remembered."""
        return len(self._lines)

    def of(self, kind: EventType, stored: StoredObject, served: Served, mark: Mark | None = None) -> bytes:
        """Return the line of an event, with the line feed.

        Args:
            kind: what happened.
            stored: the object that the event carries.
            served: in whose version clients want it.
            mark: what becomes of the object first; one and the same for everybody who gives one.
        """
        # Each entry holds its object and kind, so that nobody else can come by their ids while it is remembered.
        key = (id(stored), kind, id(served), mark is not None)
        known = self._lines.get(key)
        if known is not None:
            return known[2]
        line = b"%s%s}\n" % (_LINE_HEADS[kind], served.data(stored if mark is None else mark(stored)))
        self.encoded += 1
        self._remember(key, (stored, served, line))
        return line

    def _remember(self, key: _LineKey, entry: tuple[StoredObject, Served, bytes]) -> None:
        lines = self._lines
        lines[key] = entry
        self._bytes += len(entry[2])
        while len(lines) > _REMEMBERED_LINES or self._bytes > _REMEMBERED_BYTES:
            self._bytes -= len(lines.pop(next(iter(lines)))[2])


class Watches:
    """The open watches of a server, and their common end.

    Args:
        settings: how long watches last.

    Attributes:
        lines: what they share.
        draining: whether no new ones are taken.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._open: set[WatchStream] = set()
        self._empty = asyncio.Event()
        self._empty.set()
        self.lines = Lines()
        self.draining = False

    def __len__(self) -> int:
        """Return how many watches are open."""
        return len(self._open)

    def __iter__(self) -> Iterator["WatchStream"]:
        return iter(list(self._open))

    async def open(self, request: Request, served: Served) -> "WatchStream":
        """Open the watch that a request asks for.

        Raises:
            KplaneError: as `Store.watch` does at once; InvalidError for parameters that exclude each other.
        """
        route = request.route
        options = watch_options(request, served, only_name=route.name)
        key, recursive = served.scope(route.cluster, route.namespace, options.predicate)
        return await self.begin(request, served, key, attrs.evolve(options, recursive=recursive))

    async def begin(
        self, request: Request, served: Served, key: str, options: ListOptions, mark: Mark | None = None
    ) -> "WatchStream":
        """Open a watch whose place and selection are known.

        Args:
            request: what tells its form and its time.
            served: what is watched.
            key: where.
            options: how.
            mark: what becomes of each object before it is shown.

        Raises:
            KplaneError: as `Store.watch` does at once.
        """
        form = negotiate(request.header(b"accept"))
        include = include_object(request) if form is Form.TABLE else "Metadata"
        seconds = request.integer("timeoutSeconds") or self._settings.min_watch_timeout * CHANCE.uniform(1, 2)
        deadline = asyncio.get_running_loop().time() + seconds
        watch = await served.store.watch(key, attrs.evolve(options, deadline=deadline))
        lines = EventLines(self.lines, served, form, include, mark)
        return WatchStream(self, request, served, watch, lines, deadline)

    def add(self, stream: "WatchStream") -> None:
        """Take a watch that begins."""
        self._open.add(stream)
        self._empty.clear()
        if self.draining:
            stream.end()

    def remove(self, stream: "WatchStream") -> None:
        """Forget a watch that ended."""
        self._open.discard(stream)
        if not self._open:
            self._empty.set()

    async def drain(self) -> None:
        """End all watches cleanly and refuse new ones; return once they ended, or after the time for that."""
        self.draining = True
        for stream in list(self._open):
            stream.end()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.drain_timeout):
                await self._empty.wait()


class EventLines:
    """Makes the lines of one watch.

    Args:
        lines: where lines are shared.
        served: the kind.
        form: in which form the client wants objects.
        include: what rows of a table carry.
        mark: what becomes of each object before it is shown.
    """

    def __init__(
        self, lines: Lines, served: Served, form: Form, include: IncludeObject, mark: Mark | None = None
    ) -> None:
        self._lines = lines
        self._served = served
        self._form = form
        self._include = include
        self._mark = mark
        self._with_columns = True

    def line(self, event: WatchEvent) -> bytes:
        """Return the event's line, with the line feed."""
        stored = event.object
        if stored is None:
            kind = self._served.kind
            assert event.error is not None
            status = status_for(event.error, "watch", Subject(kind.plural, kind.group))
            return b"%s%s}\n" % (_LINE_HEADS[EventType.ERROR], msgspec.json.encode(status.to_dict()))
        mark = self._mark
        if event.type is EventType.BOOKMARK:
            mark = None  # it is nobody's, and each watcher has its own
        elif self._form is Form.OBJECT:
            return self._lines.of(event.type, stored, self._served, mark)
        return b"%s%s}\n" % (_LINE_HEADS[event.type], self._shown(stored if mark is None else mark(stored)))

    def _shown(self, stored: StoredObject) -> bytes:
        if self._form is Form.PARTIAL:
            return partial_metadata(stored)
        if self._form is not Form.TABLE:
            return self._served.data(stored)
        with_columns, self._with_columns = self._with_columns, False
        kind, data = self._served.kind, self._served.data
        return table_for_object(kind, stored, self._include, with_columns=with_columns, object_bytes=data)


class WatchStream:
    """One watch as an HTTP answer.

    Args:
        watches: where it is counted.
        request: what asked for it; tells when the client goes away.
        served: what is watched.
        watch: the store's watch.
        lines: makes its lines.
        deadline: loop time at which it ends.
    """

    def __init__(
        self, watches: Watches, request: Request, served: Served, watch: Watch, lines: EventLines, deadline: float
    ) -> None:
        self.route = request.route
        self.served = served
        self._watches = watches
        self._watch = watch
        self._lines = lines
        self._receive: Receive = request.receive
        self._deadline = deadline
        self._gone = False

    def end(self) -> None:
        """End the watch soon and cleanly: what is ready is still sent."""
        self._watch.stop()

    async def stream(self, send: Send) -> None:
        """Send events until the watch ends or the client goes away."""
        loop = asyncio.get_running_loop()
        disconnect = loop.create_task(self._wait_for_disconnect(), name="kplane-watch-disconnect")
        timer = loop.call_at(self._deadline, self.end)
        self._watches.add(self)
        try:
            async with self._watch:
                await self._send_events(send)
        finally:
            self._watches.remove(self)
            timer.cancel()
            await end_task(disconnect)

    async def _send_events(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", JSON)]})
        while events := await self._watch.batch():
            for chunk in self._chunks(events):
                if self._gone:
                    return
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        if not self._gone:
            await send({"type": "http.response.body", "body": b""})

    def _chunks(self, events: Sequence[WatchEvent]) -> Iterator[bytes]:
        """Join lines: one send for each event would cost more than all else."""
        make, lines, size = self._lines.line, [], 0
        for event in events:
            line = make(event)
            lines.append(line)
            size += len(line)
            if size >= MAX_CHUNK_BYTES or len(lines) >= MAX_CHUNK_EVENTS:
                yield b"".join(lines)
                lines, size = [], 0
        if lines:
            yield b"".join(lines)

    async def _wait_for_disconnect(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass  # a watch has no body; what is left of one is of no interest
        self._gone = True
        self._watch.stop()
