"""Engine log entries to watch events: initial state, transitions through a selector, bookmarks, errors.

A watch pulls: nothing runs between two calls of `batch`, so a watcher that does not read costs nothing and blocks
nobody. Order and completeness are the engine's; this module may only leave out what the selector leaves out.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Self

from kplane_core.chance import CHANCE
from kplane_core.engine.interface import (
    Compacted,
    Engine,
    EngineEvent,
    EngineUnreachable,
    EngineWatch,
    FutureRevision,
    Page,
    Record,
)
from kplane_core.engine.reading import RecordReader, Unreadable
from kplane_core.errors import Expired, InternalError, KplaneError, StoreReadError, TooLargeResourceVersion, Unreachable
from kplane_core.storage.bookmarks import Bookmarks
from kplane_core.storage.interface import EventType, ListOptions, StoredObject, WatchEvent
from kplane_core.storage.keys import prefix_end
from kplane_core.storage.resource import Resource

_PAGE = 10_000
_ENDED: Sequence[WatchEvent] = ()


class EventBuilder:
    """Turns engine events of one store into watch events, for one selector.

    Args:
        resource: whose events.
        reader: turns records into objects.
        matches: the selector's test on an object's JSON; None selects all.
        record_seen: told of every change, for size estimation.
    """

    def __init__(
        self,
        resource: Resource,
        reader: RecordReader,
        matches: Callable[[bytes], bool] | None,
        record_seen: Callable[[EngineEvent], None] | None = None,
    ) -> None:
        self._resource = resource
        self._reader = reader
        self._matches = matches
        self._record_seen = record_seen
        self.bookmark = Bookmarks(resource).at

    def initial(self, record: Record) -> WatchEvent | None:
        """Return the ADDED event for a record of the initial state, or None when it does not match."""
        found = self._object(record)
        return WatchEvent(EventType.ADDED, found) if self._selected(found) else None

    def change(self, event: EngineEvent) -> WatchEvent | None:
        """Return the event for a committed change, or None when the selector sees nothing of it.

        Raises:
            KplaneError: the change cannot be told, so nothing after it may be.
        """
        if self._record_seen:
            self._record_seen(event)
        if event.value is None:
            return self._deleted(event)
        new = self._object(Record(event.key, event.value, 0, event.revision))
        if event.created:
            return WatchEvent(EventType.ADDED, new) if self._selected(new) else None
        if self._matches is None:
            return WatchEvent(EventType.MODIFIED, new)
        return self._transition(event, new)

    def _transition(self, event: EngineEvent, new: StoredObject) -> WatchEvent | None:
        old = self._object(self._previous(event))
        if self._selected(new):
            return WatchEvent(EventType.MODIFIED if self._selected(old) else EventType.ADDED, new)
        if self._selected(old):
            return WatchEvent(EventType.DELETED, StoredObject(new.key, event.revision, old.raw))
        return None

    def _deleted(self, event: EngineEvent) -> WatchEvent | None:
        previous = self._previous(event)
        try:
            old = self._reader.object(previous)
        except Unreadable as error:
            if not (self._resource.corrupt_object_reports and error.corrupt):
                raise error.error from error
            message = f"saw a DELETED event, but object data is corrupt - {error.error}"
            raise StoreReadError(message, kind=self._resource.group_resource) from error
        if not self._selected(old):
            return None
        return WatchEvent(EventType.DELETED, StoredObject(old.key, event.revision, old.raw))

    def _previous(self, event: EngineEvent) -> Record:
        if event.previous is None:
            raise InternalError(
                f"the previous value of key {event.key!r} at revision {event.revision} is gone (PrevKv=nil): "
                "list again and watch from there"
            )
        return event.previous

    def _object(self, record: Record) -> StoredObject:
        try:
            return self._reader.object(record)
        except Unreadable as error:
            raise InternalError(str(error.error)) from error

    def _selected(self, found: StoredObject) -> bool:
        return self._matches is None or self._matches(found.raw)


class EngineStoreWatch:
    """A watch over an engine; see `Watch`.

    Args:
        engine: where the changes come from.
        builder: turns them into events.
        start: first full key, inclusive.
        end: first full key not watched.
        options: as the caller gave them.
        revision: the parsed resourceVersion.
        single: whether exactly one key is watched.
    """

    def __init__(
        self,
        engine: Engine,
        builder: EventBuilder,
        *,
        start: str,
        end: str,
        options: ListOptions,
        revision: int,
        single: bool,
    ) -> None:
        self._engine = engine
        self._builder = builder
        self._start, self._end, self._single = start, end, single
        self._options = options
        self._revision = revision
        self._ready: deque[WatchEvent] = deque()
        self._next_page: tuple[str, int] | None = None
        self._source: EngineWatch | None = None
        self._ended = False
        self._deadline_handle: asyncio.TimerHandle | None = None

    async def open(self) -> None:
        """Take the snapshot and open the live stream; failures become the stream's ERROR event."""
        if self._options.deadline is not None:
            loop = asyncio.get_running_loop()
            if self._options.deadline <= loop.time():
                self.stop()
                return
            self._deadline_handle = loop.call_at(self._options.deadline, self.stop)
        try:
            after = await self._start_position()
            self._source = await self._engine.watch(
                self._start, self._end, after=after, progress=self._options.progress_notify
            )
        except KplaneError as error:
            self._fail(error)

    async def _start_position(self) -> int:
        wanted = self._options.send_initial_events
        unset = self._revision == 0
        if wanted is True or (unset and wanted is None):
            return await self._snapshot()
        return await self._engine.revision() if unset else self._revision

    async def _snapshot(self) -> int:
        if self._single:
            read = await self._engine.read(self._start)
            page = Page([read.record] if read.record else [], read.revision)
        else:
            page = await self._engine.scan(self._start, self._end, limit=_PAGE)
        if self._revision > page.revision:
            raise TooLargeResourceVersion(self._revision, page.revision, CHANCE.randint(1, 3))
        self._take_initial(page, page.revision)
        return page.revision

    def _take_initial(self, page: Page, revision: int) -> None:
        for record in page.records:
            event = self._builder.initial(record)
            if event is not None:
                self._ready.append(event)
        if page.more:
            self._next_page = (page.records[-1].key + "\0", revision)
            return
        self._next_page = None
        if self._options.send_initial_events and self._options.predicate.allow_watch_bookmarks:
            self._ready.append(self._builder.bookmark(revision, initial_events_end=True))

    async def batch(self) -> Sequence[WatchEvent]:
        """Return all events that are ready, waiting for at least one; empty once the watch has ended."""
        while not self._ready:
            if self._ended:
                return _ENDED
            try:
                await self._pull()
            except KplaneError as error:
                self._fail(error)
        events = tuple(self._ready)
        self._ready.clear()
        return events

    async def _pull(self) -> None:
        if self._next_page is not None:
            start, at = self._next_page
            page = await self._engine.scan(start, self._end, at=at, limit=_PAGE)
            if not self._ended:
                self._take_initial(page, at)
            return
        if self._source is None:
            self._ended = True
            return
        changes = await self._source.batch()
        if not changes:
            self._ended = True
        for change in changes:
            event = self._builder.bookmark(change.revision) if change.is_progress else self._builder.change(change)
            if event is not None:
                self._ready.append(event)

    def _fail(self, error: KplaneError) -> None:
        """Make `error` the last event."""
        match error:
            case Compacted():
                shown: KplaneError = Expired(Expired.WATCH)
            case EngineUnreachable():
                shown = Unreachable(self._start, str(error))
            case FutureRevision():
                shown = TooLargeResourceVersion(error.revision, error.current)
            case _:
                shown = error
        if not self._ended:
            self._ready.append(WatchEvent(EventType.ERROR, error=shown))
        self.stop()

    def stop(self) -> None:
        """End the watch soon; idempotent."""
        self._ended = True
        if self._deadline_handle is not None:
            self._deadline_handle.cancel()
        if self._source is not None:
            self._source.close()

    def __aiter__(self) -> AsyncIterator[WatchEvent]:
        return self

    async def __anext__(self) -> WatchEvent:
        if not self._ready:
            self._ready.extend(await self.batch())
        if not self._ready:
            raise StopAsyncIteration
        return self._ready.popleft()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.stop()
        if self._source is not None:
            await self._source.aclose()


def watch_range(full_key: str, *, recursive: bool) -> tuple[str, str]:
    """Return the key range that a watch covers: a directory, or exactly one key."""
    return (full_key, prefix_end(full_key)) if recursive else (full_key, full_key + "\0")
