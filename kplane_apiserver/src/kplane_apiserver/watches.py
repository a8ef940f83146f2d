"""Watches over HTTP: each event a line of JSON, made from the stored bytes.

A watch is one request task that pulls batches from the store, plus one small task that waits for the client to go away:
ASGI tells of that only through `receive`. Whatever ends a watch stops the store's watch, which wakes the request task.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Iterator, Sequence

import attrs
import msgspec

from kplane_apiserver.http import JSON, Receive, Request, Send
from kplane_apiserver.negotiate import Form, negotiate
from kplane_apiserver.params import watch_options
from kplane_apiserver.readers import include_object
from kplane_apiserver.settings import Settings
from kplane_apiserver.stores import Served
from kplane_apiserver.tables import IncludeObject, partial_metadata, table_for_object
from kplane_core.errors import KplaneError, Subject, status_for
from kplane_core.storage.interface import (
    INITIAL_EVENTS_END,
    EventType,
    Store,
    StoredObject,
    Watch,
    WatchEvent,
)

_log = logging.getLogger(__name__)

MAX_CHUNK_BYTES = 64 * 1024
MAX_CHUNK_EVENTS = 64

_LAST_BOOKMARK = 2.0
"""Seconds before a watch's end at which it gets a last bookmark."""

_END_MARK = INITIAL_EVENTS_END.encode()
_LINE_HEADS = {kind: b'{"type":"%s","object":' % kind.value.encode() for kind in EventType}


class Watches:
    """The open watches of a server: their bookmarks, and their common end.

    Args:
        settings: how long watches last and how often they get a bookmark.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._open: set[WatchStream] = set()
        self._asking: dict[int, asyncio.Task[None]] = {}
        self._tick: asyncio.TimerHandle | None = None
        self._empty = asyncio.Event()
        self._empty.set()
        self.draining = False

    def __len__(self) -> int:
        """Return how many watches are open."""
        return len(self._open)

    async def open(self, request: Request, served: Served) -> "WatchStream":
        """Open the watch that a request asks for.

        Raises:
            KplaneError: as `Store.watch` does at once; InvalidError for parameters that exclude each other.
        """
        route = request.route
        form = negotiate(request.header(b"accept"))
        options = watch_options(request, served, only_name=route.name)
        key, recursive = served.scope(route.cluster, route.namespace, options.predicate)
        watch = await served.store.watch(key, attrs.evolve(options, recursive=recursive))
        lines = EventLines(served, form, include_object(request) if form is Form.TABLE else "Metadata")
        seconds = request.integer("timeoutSeconds") or self._settings.min_watch_timeout * random.uniform(1, 2)  # noqa: S311
        return WatchStream(
            self, watch, lines, served.store, request.receive, seconds, bookmarks=options.progress_notify
        )

    def add(self, stream: "WatchStream") -> None:
        """Take a watch that begins."""
        self._open.add(stream)
        self._empty.clear()
        if self.draining:
            stream.end()
        elif self._tick is None:
            self._tick = asyncio.get_running_loop().call_later(self._settings.bookmark_interval, self._on_tick)

    def remove(self, stream: "WatchStream") -> None:
        """Forget a watch that ended."""
        self._open.discard(stream)
        if not self._open:
            self._empty.set()
            self._stop_ticking()

    def ask_progress(self, store: Store) -> None:
        """Ask the store for progress, which reaches its watches as bookmarks; one question at a time per store."""
        if id(store) not in self._asking:
            task = asyncio.get_running_loop().create_task(self._ask(store), name="kplane-ask-progress")
            self._asking[id(store)] = task

    async def drain(self) -> None:
        """End all watches cleanly and refuse new ones; return once they ended, or after the time for that."""
        self.draining = True
        self._stop_ticking()
        for stream in list(self._open):
            stream.end()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.drain_timeout):
                await self._empty.wait()

    async def aclose(self) -> None:
        """End what is left; idempotent."""
        await self.drain()
        for task in list(self._asking.values()):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _ask(self, store: Store) -> None:
        try:
            await store.request_watch_progress()
        except KplaneError as error:
            _log.debug("the store gave no progress: %s", error)  # the watches themselves will tell what is wrong
        finally:
            self._asking.pop(id(store), None)

    def _on_tick(self) -> None:
        # All watches get their bookmarks on one beat: a store's progress reaches all of its watches anyway.
        self._tick = asyncio.get_running_loop().call_later(self._settings.bookmark_interval, self._on_tick)
        for stream in self._open:
            stream.want_bookmark()

    def _stop_ticking(self) -> None:
        if self._tick is not None:
            self._tick.cancel()
            self._tick = None


class EventLines:
    """Makes the lines of one watch.

    Args:
        served: the kind.
        form: in which form the client wants objects.
        include: what rows of a table carry.
    """

    def __init__(self, served: Served, form: Form, include: IncludeObject) -> None:
        self._served = served
        self._form = form
        self._include = include
        self._with_columns = True

    def line(self, event: WatchEvent) -> bytes:
        """Return the event's line, with the line feed."""
        if event.error is not None:
            kind = self._served.kind
            status = status_for(event.error, "watch", Subject(kind.plural, kind.group))
            return b"%s%s}\n" % (_LINE_HEADS[EventType.ERROR], msgspec.json.encode(status.to_dict()))
        assert event.object is not None
        return b"%s%s}\n" % (_LINE_HEADS[event.type], self._object(event.object))

    def _object(self, stored: StoredObject) -> bytes:
        match self._form:
            case Form.TABLE:
                with_columns, self._with_columns = self._with_columns, False
                return table_for_object(
                    self._served.kind,
                    stored,
                    self._include,
                    with_columns=with_columns,
                    object_bytes=self._served.data,
                )
            case Form.PARTIAL:
                return partial_metadata(stored)
            case _:
                return self._served.data(stored)


class WatchStream:
    """One watch as an HTTP answer.

    Args:
        watches: where it is counted.
        watch: the store's watch.
        lines: makes its lines.
        store: asked for progress when a bookmark is due.
        receive: tells when the client goes away.
        seconds: how long the watch lasts.
        bookmarks: whether the client wants bookmarks.
    """

    def __init__(
        self,
        watches: Watches,
        watch: Watch,
        lines: EventLines,
        store: Store,
        receive: Receive,
        seconds: float,
        *,
        bookmarks: bool,
    ) -> None:
        self._watches = watches
        self._watch = watch
        self._lines = lines
        self._store = store
        self._receive = receive
        self._seconds = seconds
        self._bookmarks = bookmarks
        self._bookmark_due = False
        self._gone = False

    def end(self) -> None:
        """End the watch soon and cleanly: what is ready is still sent."""
        self._watch.stop()

    def want_bookmark(self) -> None:
        """Send the next bookmark that the store has, and ask it for one."""
        if self._bookmarks:
            self._bookmark_due = True
            self._watches.ask_progress(self._store)

    async def stream(self, send: Send) -> None:
        """Send events until the watch ends or the client goes away."""
        loop = asyncio.get_running_loop()
        disconnect = loop.create_task(self._wait_for_disconnect(), name="kplane-watch-disconnect")
        timers = [loop.call_later(self._seconds, self.end)]
        if self._bookmarks:
            timers.append(loop.call_later(max(self._seconds - _LAST_BOOKMARK, self._seconds / 2), self.want_bookmark))
        self._watches.add(self)
        try:
            async with self._watch:
                await self._send_events(send)
        finally:
            self._watches.remove(self)
            for timer in timers:
                timer.cancel()
            disconnect.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await disconnect

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
        lines: list[bytes] = []
        size = 0
        for event in events:
            if event.type is EventType.BOOKMARK and not self._sends_bookmark(event):
                continue
            line = self._lines.line(event)
            lines.append(line)
            size += len(line)
            if size >= MAX_CHUNK_BYTES or len(lines) >= MAX_CHUNK_EVENTS:
                yield b"".join(lines)
                lines.clear()
                size = 0
        if lines:
            yield b"".join(lines)

    def _sends_bookmark(self, event: WatchEvent) -> bool:
        assert event.object is not None
        if _END_MARK in event.object.raw:
            return True
        due, self._bookmark_due = self._bookmark_due, False
        return due

    async def _wait_for_disconnect(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass  # a watch has no body; what is left of one is of no interest
        self._gone = True
        self._watch.stop()
