"""Watches: one reader of the change log for the whole process, and what it hands to whom.

The hub follows the log while somebody watches: at once when this process committed something, otherwise every poll
interval. Each read is a snapshot, so its revision is also the newest progress mark. A watch that starts further back
than the hub remembers, or that is not read for so long that too much would pile up, reads its own part of the log
first.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from kplane_core.engine.fanout import Wakeup, WatchIndex
from kplane_core.engine.interface import Compacted, EngineEvent, EngineUnreachable
from kplane_core.errors import InternalError, KplaneError
from kplane_spanner import horizon as history
from kplane_spanner.errors import SnapshotTooOld
from kplane_spanner.horizon import Horizon
from kplane_spanner.log import ChangeLog, Cursor
from kplane_spanner.revisions import micros_of

_log = logging.getLogger(__name__)

_PENDING: Final = 10_000  # events that wait in a watch before it reads the log itself instead
_PENDING_BYTES: Final = 64 << 20
_REMEMBERED: Final = 2_000  # newest events that a new watch need not read the log for
_REMEMBERED_BYTES: Final = 8 << 20
_GAP: Final = 0.004  # seconds between two reads of the log, so that a burst of commits is one read
_LINGER: Final = 2.0  # seconds that the hub goes on following after the last watch ended
_PATIENCE: Final = 10.0  # seconds without an answer after which watches are told
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0


class SpannerWatch:
    """A watch on one key range; made by `Hub.open`.

    Attributes:
        start: first key, inclusive.
        end: first key not watched.
        progress: whether progress marks are delivered.
    """

    def __init__(self, hub: "Hub", start: str, end: str, after: int, *, progress: bool, behind: bool) -> None:
        self.start = start
        self.end = end
        self.progress = progress
        self._hub = hub
        self._position = after
        self._behind = behind
        self._cursor: Cursor | None = None
        self._reading: asyncio.Task[Sequence[EngineEvent]] | None = None
        self._pending: list[EngineEvent] = []
        self._bytes = 0
        self._reader = Wakeup()
        self._error: KplaneError | None = None
        self._closed = False

    async def batch(self) -> Sequence[EngineEvent]:
        """Wait for events and return all that are ready; empty once closed.

        Raises:
            Compacted: the start, or the position reached, is older than the kept history.
            EngineUnreachable: the database gave no answer for too long.
        """
        while not self._closed:
            if self._behind and self._cursor is None:
                self._cursor = self._hub.catch_up(self, self._position)
                self._behind = False
            if self._cursor is not None:
                if events := await self._catch_up(self._cursor):
                    return events
            elif self._pending:
                events, self._pending, self._bytes = self._pending, [], 0
                self._position = events[-1].revision
                return events
            elif self._error is not None:
                raise self._error
            else:
                await self._reader.wait()
        return ()

    async def _catch_up(self, cursor: Cursor) -> Sequence[EngineEvent]:
        """Return the next page of what lies behind; what is newer collects meanwhile."""
        if cursor.finished:
            self._cursor = None
            return ()
        if self._reading is None:
            self._reading = asyncio.create_task(self._hub.read(cursor), name="kplane-spanner-replay")
        reading = self._reading
        # A reader that gives up waiting must not lose the page: the next call takes it.
        await asyncio.wait([reading])
        self._reading = None
        if reading.cancelled():
            return ()
        events = reading.result()
        self._position = cursor.position
        return events

    def close(self) -> None:
        """End the watch; idempotent. A waiting `batch` returns empty."""
        if self._closed:
            return
        self._closed = True
        self._hub.remove(self)
        self._pending = []
        if self._reading is not None:
            self._reading.cancel()
        self._reader.wake()

    async def aclose(self) -> None:
        """End the watch and wait for its reading of the log to end."""
        self.close()
        if self._reading is not None:
            await asyncio.wait([self._reading])
            self._reading = None

    def offer(self, event: EngineEvent) -> None:
        """Add an event of the range to what the next batch returns."""
        if self._behind or self._error is not None or event.revision <= self._position:
            return
        if len(self._pending) >= _PENDING or self._bytes >= _PENDING_BYTES:
            # Nothing is lost: it is in the log, from where the reader left off.
            self._pending, self._bytes = [], 0
            self._behind = True
        else:
            self._pending.append(event)
            self._bytes += _size(event)
        self._reader.wake()

    def mark(self, mark: EngineEvent) -> None:
        """Add a progress mark, in place of one that directly precedes it."""
        if self._pending and self._pending[-1].is_progress:
            self._pending.pop()
        self.offer(mark)

    def fail(self, error: KplaneError) -> None:
        """Let `batch` raise an error after what is pending."""
        self._error = error
        self._hub.remove(self)
        self._reader.wake()


class Memory:
    """The newest events, bounded in number and bytes.

    Attributes:
        floor: everything after this revision is remembered.
    """

    def __init__(self) -> None:
        self.floor = 0
        self._events: deque[EngineEvent] = deque()
        self._bytes = 0

    def reset(self, revision: int) -> None:
        """Forget everything; what is added next comes after a revision."""
        self.floor = revision
        self._events.clear()
        self._bytes = 0

    def add(self, event: EngineEvent) -> None:
        """Remember an event that is newer than all others."""
        self._events.append(event)
        self._bytes += _size(event)
        while len(self._events) > _REMEMBERED or self._bytes > _REMEMBERED_BYTES:
            oldest = self._events.popleft()
            self._bytes -= _size(oldest)
            self.floor = oldest.revision

    def since(self, revision: int) -> Sequence[EngineEvent]:
        """Return the events after a revision that is not below the floor."""
        found = []
        for event in reversed(self._events):
            if event.revision <= revision:
                break
            found.append(event)
        found.reverse()
        return found


class Hub:
    """Follows the log and hands its changes to the open watches.

    Args:
        log: what to follow.
        horizon: how far back it reaches.
        poll: seconds between looks at the log when this process commits nothing.
        progress_interval: seconds between unasked progress marks; 0 for none.
        patience: seconds without an answer of the database after which watches fail.
    """

    def __init__(
        self,
        log: ChangeLog,
        horizon: Horizon,
        *,
        poll: float,
        progress_interval: float,
        patience: float = _PATIENCE,
    ) -> None:
        self._log = log
        self._horizon = horizon
        self._poll = poll
        self._progress_interval = progress_interval
        self._patience = patience
        self._position = 0
        self._memory = Memory()
        self._watches: WatchIndex[SpannerWatch] = WatchIndex()
        self._following = False
        self._resumed: asyncio.Future[None] | None = None
        self._wanted = asyncio.Event()
        self._news = asyncio.Event()
        self._marks_asked = False
        self._marked_at = 0.0
        self._read_at = 0.0
        self._idle_since = 0.0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the task that follows the log, which `aclose` ends."""
        self._task = asyncio.create_task(self._run(), name="kplane-spanner-tail")

    async def open(self, start: str, end: str, after: int, *, progress: bool) -> SpannerWatch:
        """Open a watch on start <= key < end.

        Raises:
            Compacted: changes after `after` are already gone.
            EngineUnreachable: the database gave no answer.
        """
        if self._following and after < self._position:
            await self._horizon.refresh()  # another process may have compacted
        while not self._following:  # asked last: from here on nothing is awaited, so the reader does see this watch
            await self._resume()
        self._check(after)
        behind = after < self._memory.floor
        watch = SpannerWatch(self, start, end, after, progress=progress, behind=behind)
        if not behind:
            for event in self._memory.since(after):
                if start <= event.key < end:
                    watch.offer(event)
        self._watches.add(watch, start, end)
        return watch

    def remove(self, watch: SpannerWatch) -> None:
        """Forget a watch."""
        self._watches.discard(watch)

    def catch_up(self, watch: SpannerWatch, after: int) -> Cursor:
        """Return what a watch has to read itself; what comes after that is offered to it."""
        return Cursor(self._log, after, self._position, watch.start, watch.end)

    async def read(self, cursor: Cursor) -> Sequence[EngineEvent]:
        """Return the next page of a cursor, if all of it is still there.

        Raises:
            Compacted: it is not.
        """
        after = cursor.position
        try:
            events = await cursor.page()
            # Asked afterwards: whatever was gone at the time of the page is below the floor by now.
            await self._horizon.refresh()
            self._check(after)
        except SnapshotTooOld:
            raise Compacted(after, self._horizon.floor) from None
        except BaseException:
            cursor.position = after  # nobody got the page
            raise
        return events

    def committed(self) -> None:
        """Look at the log at once: this process wrote to it."""
        self._news.set()

    def request_progress(self) -> None:
        """Give a progress mark to the watches that want them, from a snapshot that is yet to be taken."""
        self._marks_asked = True
        self._news.set()

    async def aclose(self) -> None:
        """End the watches and the task."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        for watch in list(self._watches):
            await watch.aclose()
        if self._resumed is not None and not self._resumed.done():
            self._resumed.set_exception(EngineUnreachable("this connection to Spanner is closed"))

    def _check(self, after: int) -> None:
        if after + 1 < self._horizon.floor:
            raise Compacted(after, self._horizon.floor)

    # --- the task -----------------------------------------------------------------------------------------------------

    async def _resume(self) -> None:
        """Wait until the task follows the log."""
        if self._resumed is None:
            self._resumed = asyncio.get_running_loop().create_future()
            self._wanted.set()
        await asyncio.shield(self._resumed)

    async def _run(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            try:
                await self._begin()
                await self._follow()
            except KplaneError as error:
                self._fail(error)
            except Exception as error:  # noqa: BLE001 - whatever a driver raises, no watch may be left in silence
                _log.exception("the reader of the change log failed")
                self._fail(InternalError(f"the reader of the change log failed: {error}"))

    async def _begin(self) -> None:
        self._position = await self._horizon.refresh()
        self._memory.reset(self._position)
        loop = asyncio.get_running_loop()
        self._idle_since = self._marked_at = loop.time()
        self._following = True
        self._settle(lambda resumed: resumed.set_result(None))

    def _settle(self, how: Callable[[asyncio.Future[None]], None]) -> None:
        resumed, self._resumed = self._resumed, None
        if resumed is not None and not resumed.done():
            how(resumed)

    def _fail(self, error: KplaneError) -> None:
        """Tell everybody that the log cannot be followed; whoever opens a watch next tries again."""
        self._following = False
        for watch in list(self._watches):
            watch.fail(error)

        def refuse(resumed: asyncio.Future[None]) -> None:
            resumed.set_exception(error)
            resumed.exception()  # nobody may be waiting any more

        self._settle(refuse)

    async def _follow(self) -> None:
        loop = asyncio.get_running_loop()
        answered = loop.time()
        pause = _FIRST_PAUSE
        while self._busy(loop.time()):
            try:
                await self._advance()
            except EngineUnreachable:
                if loop.time() - answered > self._patience:
                    raise
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
                continue
            answered = loop.time()
            pause = _FIRST_PAUSE
            await self._wait_for_news()
        self._following = False

    def _busy(self, now: float) -> bool:
        if self._watches:
            self._idle_since = now
        return now - self._idle_since < _LINGER

    async def _wait_for_news(self) -> None:
        loop = asyncio.get_running_loop()
        if not self._news.is_set():
            timer = loop.call_later(self._poll, self._news.set)
            try:
                await self._news.wait()
            finally:
                timer.cancel()
        if (rest := self._read_at + _GAP - loop.time()) > 0:
            await asyncio.sleep(rest)

    async def _advance(self) -> None:
        """Read what is new and hand it out."""
        # Before the read: what is committed or asked for while it is under way needs another one.
        self._news.clear()
        now = asyncio.get_running_loop().time()
        due = bool(self._progress_interval) and now - self._marked_at >= self._progress_interval
        marks, self._marks_asked = due or self._marks_asked, False
        try:
            tail = await self._log.tail(self._position)
            self._read_at = asyncio.get_running_loop().time()
            self._horizon.clock.observe(micros_of(tail.revision))
            if micros_of(tail.revision) - micros_of(self._position) >= history.TRIM_GRACE:
                # So late, somebody may have compacted and deleted what was not read yet.
                await self._horizon.refresh()
                self._check(self._position)
            if tail.complete:
                self._deliver(tail.events, tail.revision)
            else:
                await self._catch_up(tail.revision)
        except EngineUnreachable:
            self._marks_asked = self._marks_asked or marks
            raise
        if marks:
            self._marked_at = now
            self._mark()

    async def _catch_up(self, until: int) -> None:
        cursor = Cursor(self._log, self._position, until)
        while not cursor.finished:
            events = await cursor.page()
            self._deliver(events, cursor.position)

    def _deliver(self, events: Sequence[EngineEvent], position: int) -> None:
        """Hand out the next events; everything up to `position` is among them."""
        for event in events:
            self._memory.add(event)
            for watch in self._watches.holding(event.key):
                watch.offer(event)
        self._position = max(self._position, position)

    def _mark(self) -> None:
        mark = EngineEvent("", self._position)
        for watch in self._watches:
            if watch.progress:
                watch.mark(mark)


def _size(event: EngineEvent) -> int:
    size = len(event.value or b"")
    return size + len(event.previous.value) if event.previous is not None else size
