"""Watches: a cursor over the log in the file, which follows in memory once it has caught up.

The hub hears of this process's commits at once and looks every few milliseconds for those of others. A watch that is
behind (because it starts in the past, or its reader is slow) reads the file page by page, so a stalled watch holds no
memory and delays nobody; only compaction can overtake it.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Final

from kplane_core.engine.fanout import Wakeup, WatchIndex
from kplane_core.engine.interface import Compacted, EngineEvent, EngineUnreachable
from kplane_core.errors import KplaneError
from kplane_sqlite import reading
from kplane_sqlite.reading import Readers

_POLL: Final = 0.02  # seconds between looks at what other processes committed
_FEW: Final = 100  # changes that are read faster than a thread is asked
_PAGE: Final = 1000
_PENDING: Final = 2000  # events that are kept for a reader before it is sent back to the file
_LAST: Final = "\U0010ffff" * 4  # no key comes after it


class SqliteWatch:
    """A watch on one key range; made by `Hub.open`."""

    __slots__ = (
        "_behind",
        "_closed",
        "_error",
        "_first",
        "_hub",
        "_marked",
        "_pending",
        "_position",
        "_reader",
        "bounds",
        "progress",
    )

    def __init__(self, hub: "Hub", bounds: tuple[str, str], after: int, *, progress: bool, behind: bool) -> None:
        self.bounds = bounds
        self.progress = progress
        self._hub = hub
        self._position = after
        self._behind = behind
        self._marked = False
        self._first: list[EngineEvent] = []
        self._pending: list[EngineEvent] = []
        self._reader = Wakeup()
        self._closed = False
        self._error: KplaneError | None = None

    async def batch(self) -> Sequence[EngineEvent]:
        """Wait for events and return all that are ready; empty once closed.

        Raises:
            Compacted: the position reached is older than the kept history.
            EngineUnreachable: the file cannot be read any more.
        """
        while not self._closed:
            if self._error is not None:
                raise self._error
            if self._first:
                events, self._first = self._first, []
                return events
            if self._behind and (events := await self._catch_up()):
                return events
            if self._pending and not self._behind:
                events, self._pending = self._pending, []
                self._position = max(self._position, events[-1].revision)
                return events
            if not self._behind:
                await self._reader.wait()
        return ()

    def close(self) -> None:
        """End the watch; idempotent. A waiting `batch` returns empty."""
        self._closed = True
        self._first, self._pending = [], []
        self._hub.remove(self)
        self._reader.wake()

    async def aclose(self) -> None:
        """Do what `close` does: there is nothing to wait for."""
        self.close()

    def offer(self, events: Sequence[EngineEvent]) -> None:
        """Take new events of the range, in order."""
        if self._behind:  # they will be read from the file
            return
        position = self._position
        mine = [event for event in events if event.revision > position]
        if not mine:
            return
        self._pending += mine
        if len(self._pending) > _PENDING:
            self._position = next(event.revision for event in self._pending if not event.is_progress) - 1
            self._marked = self._marked or any(event.is_progress for event in self._pending)
            self._behind = True
            self._pending = []
        self._reader.wake()

    def mark(self, revision: int) -> None:
        """Tell the reader that it has everything up to `revision`, once it has."""
        if revision < self._position:  # a watch from the future would see its revision go backwards
            return
        if self._behind:
            self._marked = True
            return
        if self._pending and self._pending[-1].is_progress:
            self._pending.pop()
        self._pending.append(EngineEvent("", revision))
        self._reader.wake()

    def fail(self, error: KplaneError) -> None:
        """Let the next batch raise."""
        self._error = error
        self._reader.wake()

    async def begin(self) -> None:
        """Read what there is already, unless it is much: what is in memory no compaction can take away."""
        if self._behind:
            first = await self._catch_up(few=True)
            # Where more is left than a first page, that page waits by itself.
            if self._caught_up():
                self._pending[:0] = first
            else:
                self._first = first

    def _caught_up(self) -> bool:
        return not self._behind

    async def _catch_up(self, *, few: bool = False) -> list[EngineEvent]:
        """Return the next page from the file; after the last one, what came in the meantime is pending."""
        start = self._position
        self._pending = []
        self._behind = False  # `offer` may set it again while the page is read
        try:
            page = await self._hub.since(self.bounds, self._position, few=few)
        except BaseException:
            self._position, self._behind = start, True
            raise
        self._position = page.position
        if page.more or not self._caught_up():
            self._pending, self._behind = [], True
            return page.events
        later = [event for event in self._pending if event.revision > page.position]
        if self._marked or len(later) < len(self._pending):
            # A mark that came meanwhile may be older than the page is: this one is true and goes back for nobody.
            later[:0] = [EngineEvent("", page.position)] if self.progress else []
        self._marked, self._pending = False, later
        return page.events


class Hub:
    """All open watches of one connection, and where they get their events from.

    Args:
        readers: read the file.
        progress_interval: seconds between progress marks that nobody asked for.
    """

    def __init__(self, readers: Readers, progress_interval: float) -> None:
        self._readers = readers
        self._interval = progress_interval
        self._watches: WatchIndex[SqliteWatch] = WatchIndex()
        self._seen = 0
        self._task: asyncio.Task[None] | None = None
        self._gap = asyncio.Event()

    async def open(self, bounds: tuple[str, str], after: int, *, progress: bool) -> SqliteWatch:
        """Open a watch.

        Raises:
            Compacted: changes after `after` may be gone.
        """
        newest, floor = await self._readers.quickly(reading.position)
        if after + 1 < floor:
            raise Compacted(after, floor)
        if not self._watches:
            self._seen = newest
        watch = SqliteWatch(self, bounds, after, progress=progress, behind=after < self._seen)
        self._watches.add(watch, *bounds)
        if self._task is None:
            self._task = asyncio.create_task(self._follow(), name="kplane-sqlite-follower")
        try:
            await watch.begin()
        except BaseException:
            watch.close()
            raise
        return watch

    def remove(self, watch: SqliteWatch) -> None:
        """Forget a watch; without any, nothing is followed."""
        self._watches.discard(watch)
        if not self._watches:
            self._gap.set()  # the follower ends

    async def since(self, bounds: tuple[str, str], after: int, *, few: bool) -> reading.Since:
        """Return changes of a range from the file: at once if `few` are enough, else as many as are worth a thread."""
        ask, limit = (self._readers.quickly, _FEW) if few else (self._readers.apart, _PAGE)
        return await ask(lambda connection: reading.since(connection, bounds, after, limit))

    def committed(self, events: Sequence[EngineEvent]) -> None:
        """Take a commit of this process; where others committed before it, the file is read first."""
        if not self._watches or events[-1].revision <= self._seen:
            return
        if events[0].revision == self._seen + 1:
            self._publish(events, events[-1].revision)
        else:
            self._gap.set()

    async def mark_progress(self) -> None:
        """Deliver a progress mark at the newest revision to every watch that wants them."""
        if any(watch.progress for watch in self._watches):
            await self.catch_up()
            self._mark()

    async def catch_up(self) -> None:
        """Offer the open watches everything that is committed by now."""
        if self._watches:
            # When compaction was faster, the follower tells the watches.
            with contextlib.suppress(Compacted):
                await self._fetch()

    async def aclose(self) -> None:
        """End every watch, and what follows the file for them."""
        for watch in list(self._watches):
            watch.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None

    def _mark(self) -> None:
        for watch in self._watches:
            if watch.progress:
                watch.mark(self._seen)

    def _publish(self, events: Sequence[EngineEvent], revision: int) -> None:
        self._seen = revision
        concerned: dict[SqliteWatch, list[EngineEvent]] = {}
        for event in events:
            for watch in self._watches.holding(event.key):
                concerned.setdefault(watch, []).append(event)
        for watch, mine in concerned.items():
            watch.offer(mine)

    async def _follow(self) -> None:
        loop = asyncio.get_running_loop()
        marked = loop.time()
        while self._watches:
            # When nothing tells of a commit here, look at the file for those of others.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_POLL):
                    await self._gap.wait()
            self._gap.clear()
            try:
                await self._fetch()
            except (Compacted, EngineUnreachable) as error:
                for watch in list(self._watches):
                    watch.fail(error)
                    self.remove(watch)
            if self._interval and loop.time() - marked >= self._interval:
                marked = loop.time()
                self._mark()
        self._task = None

    async def _fetch(self) -> None:
        """Publish what was committed since, by whomever."""
        while (await self._readers.quickly(reading.position))[0] > self._seen:
            page = await self.since(("", _LAST), self._seen, few=True)
            # What this process committed in the meantime may be published already.
            events = [event for event in page.events if event.revision > self._seen]
            if page.position > self._seen:
                self._publish(events, page.position)
            await asyncio.sleep(0)  # a page that was read on the loop gave nobody else a turn
