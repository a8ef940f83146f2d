"""Watches: who hears of which change, and when.

A watch collects references to the shared events of its range, so a stalled watch costs eight bytes per event and no
event of somebody else is ever looked at for it. The alternative, one log with a cursor per watch, is cheaper only when
very many watches have the same range, and makes each of the others step over foreign events. What a watch collects is
bounded: one that is further behind than the history is long is cut off and told so.
"""

from collections.abc import Sequence

from kplane_core.engine.fanout import Wakeup, WatchIndex
from kplane_core.engine.interface import Compacted, EngineEvent
from kplane_memory.alarm import Alarm
from kplane_memory.history import History


class MemoryWatch:
    """A watch on one key range; made by `MemoryEngine.watch`.

    Attributes:
        start: first key, inclusive.
        end: first key not watched.
        after: the exclusive start revision.
        progress: whether progress marks are delivered.
    """

    __slots__ = ("_closed", "_lost", "_owner", "_pending", "_reader", "after", "end", "progress", "start")

    def __init__(self, owner: "Watches", start: str, end: str, after: int, *, progress: bool) -> None:
        self.start = start
        self.end = end
        self.after = after
        self.progress = progress
        self._owner = owner
        self._pending: list[EngineEvent] = []
        self._reader = Wakeup()
        self._closed = False
        self._lost: tuple[int, int] | None = None

    async def batch(self) -> Sequence[EngineEvent]:
        """Wait for events and return all that are ready; empty once closed.

        Raises:
            Compacted: the watch fell further behind than the history is long.
        """
        while True:
            self._owner.cut_off_if_behind(self)
            if self._lost is not None:
                raise Compacted(*self._lost)
            if self._pending:
                events, self._pending = self._pending, []
                self._owner.drained(self)
                return events
            if self._closed:
                return ()
            await self._reader.wait()

    def close(self) -> None:
        """End the watch; idempotent. A waiting `batch` returns empty."""
        if self._closed:
            return
        self._closed = True
        self._owner.remove(self)
        self._pending = []
        self._lost = None
        self._reader.wake()

    async def aclose(self) -> None:
        """Do what `close` does: there is nothing to wait for."""
        self.close()

    def offer(self, event: EngineEvent) -> None:
        """Add an event of the range to what the next batch returns."""
        if not self._pending:  # else it was woken already, or has not come yet
            self._reader.wake()
        self._pending.append(event)

    def mark(self, mark: EngineEvent) -> None:
        """Add a progress mark, in place of one that directly precedes it."""
        if self._pending and self._pending[-1].is_progress:
            self._pending.pop()
        self.offer(mark)

    @property
    def position(self) -> int | None:
        """The revision of the oldest event not fetched yet, None when there is none."""
        for event in self._pending[:2]:
            # Marks do not count: to miss one is no gap. Two never follow each other.
            if not event.is_progress:
                return event.revision
        return None

    def cut_off(self, missed: int, floor: int) -> None:
        """Forget everything pending, first of all revision `missed`; from now on `batch` raises Compacted."""
        self._lost = (missed - 1, floor)
        self._pending = []
        self._owner.remove(self)
        self._reader.wake()


class Watches:
    """All open watches of one engine, filed so that an event finds its own without asking the others.

    Args:
        history: decides how far a watch may fall behind.
        progress_interval: seconds between unasked progress marks; 0 for none.
    """

    def __init__(self, history: History, progress_interval: float) -> None:
        self._history = history
        self._interval = progress_interval
        self._index: WatchIndex[MemoryWatch] = WatchIndex()
        self._with_progress: set[MemoryWatch] = set()
        self._unread: set[MemoryWatch] = set()
        self._alarm = Alarm(self._tick)
        self._newest = 1
        self._swept = 0

    def __len__(self) -> int:
        return len(self._index)

    def open(self, start: str, end: str, after: int, *, progress: bool) -> MemoryWatch:
        """Open a watch that has the kept events after `after` pending; the caller has checked the floor."""
        watch = MemoryWatch(self, start, end, after, progress=progress)
        self._index.add(watch, start, end)
        for event in self._history.since(after, start, end):
            watch.offer(event)
        if watch.position is not None:
            self._unread.add(watch)
        if progress:
            self._with_progress.add(watch)
            if self._interval and not self._alarm.armed:
                self._alarm.arm(self._interval)
        return watch

    def remove(self, watch: MemoryWatch) -> None:
        """Forget the watch."""
        self._index.discard(watch)
        self._unread.discard(watch)
        self._with_progress.discard(watch)
        if not self._with_progress:
            self._alarm.disarm()

    def drained(self, watch: MemoryWatch) -> None:
        """Note that the watch has nothing pending."""
        self._unread.discard(watch)

    def publish(self, event: EngineEvent) -> None:
        """Hand the newest event, which is in the history already, to the watches of its key."""
        self._newest = event.revision
        for watch in self._index.holding(event.key):
            if event.revision > watch.after:
                watch.offer(event)
                self._unread.add(watch)
        # Whoever reads checks itself; this pass frees what watches hold that are not read any more.
        if self._history.overflow > self._swept:
            self._sweep()

    def mark_progress(self) -> None:
        """Deliver a progress mark at the newest revision to every watch that wants them."""
        mark = EngineEvent("", self._newest)
        for watch in self._with_progress:
            # A watch from the future would see its revision go backwards.
            if watch.after <= self._newest:
                watch.mark(mark)
                self._unread.add(watch)

    def cut_off_if_behind(self, watch: MemoryWatch) -> None:
        """Cut the watch off when the oldest event it has not fetched would no longer fit into the history."""
        position = watch.position
        if position is not None and position < self._history.overflow:
            watch.cut_off(position, self._history.floor)

    def close(self) -> None:
        """End every watch."""
        for watch in list(self._index):
            watch.close()

    def _sweep(self) -> None:
        for watch in list(self._unread):
            self.cut_off_if_behind(watch)
        # Once per eighth of the history: the pass costs next to nothing per event.
        self._swept = self._history.overflow + self._history.max_events // 8

    def _tick(self) -> None:
        self.mark_progress()
        if self._with_progress:
            self._alarm.arm(self._interval)
