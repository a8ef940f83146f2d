"""The memory engine: a multi-version key-value database inside the process.

Every mutation is one synchronous section: between the check of the expected revision and the last pending list of a
watch nothing is awaited, so there is nothing to lock. An engine belongs to one event loop at a time and must not be
called from other threads; any number of stores may share it.
"""

import heapq
import time
from collections.abc import Callable

from kplane_core.engine.interface import (
    Compacted,
    Conflict,
    EngineEvent,
    EngineUnreachable,
    FutureRevision,
    Page,
    Read,
    Record,
    Written,
)
from kplane_core.errors import InvalidKey
from kplane_core.ordered import SortedKeys
from kplane_memory.alarm import Alarm
from kplane_memory.expiry import Expiry
from kplane_memory.history import History
from kplane_memory.watching import MemoryWatch, Watches

_FIRST_REVISION = 1  # of an empty database; the first write gets 2, as on etcd
# Two clocks are read one after the other: a timer may ring a moment early, when asking again at once would spin, or be
# set for a moment later than the deadline, when setting it again with every write would achieve nothing.
_TOLERANCE = 0.001


class MemoryEngine:
    """An `Engine` that keeps everything in memory.

    Records with a time to live are deleted when the clock says so, never before, and no call sees one that is due: each
    call first deletes what is due, with a revision and an event of its own. A timer does the same for idle engines.

    Args:
        history_limit: events that are kept for watches and for reads of the past. Older ones are dropped and
            `compacted()` rises. A watch that does not fetch so many events is cut off with Compacted.
        history_bytes: bound on the bytes that superseded versions hold, likewise.
        progress_interval: seconds between progress marks that nobody asked for; 0 for none.
        clock: seconds that never go backwards; they alone decide about expiry. The wall clock plays no part.
    """

    def __init__(
        self,
        *,
        history_limit: int = 100_000,
        history_bytes: int = 256 << 20,
        progress_interval: float = 2.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if history_limit < 1 or history_bytes < 0 or progress_interval < 0:
            raise ValueError(
                f"history_limit must be at least 1 and history_bytes and progress_interval not negative, got "
                f"{history_limit}, {history_bytes} and {progress_interval}"
            )
        self._revision = _FIRST_REVISION
        self._records: dict[str, Record] = {}
        self._keys = SortedKeys()
        self._live_bytes = 0
        self._history = History(history_limit, history_bytes)
        self._watches = Watches(self._history, progress_interval)
        self._ahead = 0.0  # how far the clock was turned by hand
        self._expiry = Expiry(lambda: clock() + self._ahead)
        self._alarm = Alarm(self._ring)
        self._closed = False

    async def read(self, key: str, *, at: int = 0) -> Read:
        """Return the record of `key` and the revision it was read at."""
        self._enter()
        if not at:
            return Read(self._records.get(key), self._revision)
        self._check_revision(at)
        for event in self._history.since(at, key, key + "\0"):
            return Read(event.previous, at)
        return Read(self._records.get(key), at)

    async def scan(self, start: str, end: str, *, at: int = 0, limit: int = 0, count: bool = False) -> Page:
        """Return the records with start <= key < end, in key order, from one snapshot."""
        self._enter()
        if at:
            self._check_revision(at)
            if at != self._revision:
                return self._scan_past(start, end, at, limit, count=count)
        keys = self._keys.between(start, end, limit + 1 if limit else 0)
        more = 0 < limit < len(keys)
        if more:
            keys.pop()
        records = list(map(self._records.__getitem__, keys))
        return Page(records, self._revision, more, self._keys.count(start, end) if count else 0)

    async def write(self, key: str, value: bytes | None, *, expect: int, ttl: int | None = None) -> Written | Conflict:
        """Compare-and-set one key.

        To delete an absent key is a Conflict (with no record): there is no change that could have a revision.

        Raises:
            InvalidKey: a new key is empty, holds NUL or has no UTF-8 form.
        """
        self._enter()
        current = self._records.get(key)
        if (0 if current is None else current.mod_revision) != expect:
            return Conflict(current, self._revision)
        if value is None:
            if current is None:
                return Conflict(None, self._revision)
            self._delete(current)
        else:
            if ttl is not None and ttl < 0:
                raise ValueError(f"a time to live cannot be negative, got {ttl}")
            self._put(key, value, current)
            if ttl is not None:
                self._set_ttl(key, ttl)
        return Written(self._revision)

    async def watch(self, start: str, end: str, *, after: int, progress: bool = False) -> MemoryWatch:
        """Open a watch on start <= key < end.

        Raises:
            Compacted: changes after `after` are already gone.
        """
        self._enter()
        self._arm()
        if after + 1 < self._history.floor:
            raise Compacted(after, self._history.floor)
        return self._watches.open(start, end, after, progress=progress)

    async def revision(self) -> int:
        """Return the newest committed revision."""
        self._enter()
        return self._revision

    async def request_progress(self) -> None:
        """Deliver a progress mark to every open watch with `progress`."""
        self._enter()
        self._watches.mark_progress()

    async def compact(self, revision: int) -> None:
        """Drop versions superseded at or before `revision`.

        Watches that have older events pending still deliver them.

        Raises:
            Compacted: `revision` is not above the current compaction revision.
            FutureRevision: it is beyond the newest.
        """
        self._enter()
        if revision <= self._history.floor:
            raise Compacted(revision, self._history.floor)
        if revision > self._revision:
            raise FutureRevision(revision, self._revision)
        self._history.compact(revision)

    async def compacted(self) -> int:
        """Return the compaction revision, whether `compact` or the history limit set it; 0 for none."""
        self._enter()
        return self._history.floor

    async def check(self) -> None:
        """Return unless the engine was closed."""
        self._enter()

    async def size(self) -> int:
        """Return the length of all keys and values, live and in the history; Python's overhead is not counted."""
        self._enter()
        return self._live_bytes + self._history.bytes

    async def aclose(self) -> None:
        """End all watches and stop the timers; afterwards every other method raises EngineUnreachable."""
        self._closed = True
        self._alarm.disarm()
        self._watches.close()

    def expire_due(self) -> int:
        """Delete the records whose time has come and return how many; for those who turn the clock by hand."""
        self._check_open()
        return self._expire()

    def advance_clock(self, seconds: float) -> None:
        """Turn the clock that decides about expiry forward, and delete what is due then; for tests.

        Raises:
            ValueError: `seconds` is negative: this clock never goes back.
        """
        self._check_open()
        if seconds < 0:
            raise ValueError(f"the clock only goes forward, got {seconds:g} seconds")
        self._ahead += seconds
        self._expire()
        self._arm()

    def _expire(self) -> int:
        expired = self._expiry.due()
        for key in expired:
            self._delete(self._records[key])
        return len(expired)

    def _enter(self) -> None:
        self._check_open()
        if self._expiry:
            self._expire()

    def _check_open(self) -> None:
        if self._closed:
            raise EngineUnreachable("the memory engine is closed")

    def _check_revision(self, at: int) -> None:
        if at < self._history.floor:
            raise Compacted(at, self._history.floor)
        if at > self._revision:
            raise FutureRevision(at, self._revision)

    def _scan_past(self, start: str, end: str, at: int, limit: int, *, count: bool) -> Page:
        """Scan the live records with every later change undone."""
        undone: dict[str, Record | None] = {}
        for event in self._history.since(at, start, end):
            undone.setdefault(event.key, event.previous)
        restored = [record for record in undone.values() if record is not None]
        # Of this many live keys at least limit + 1 are unchanged, or the range ends before.
        keys = self._keys.between(start, end, limit + 1 + len(undone) if limit else 0)
        unchanged = [self._records[key] for key in keys if key not in undone]
        records = unchanged
        if restored:
            restored.sort(key=_key_of)
            records = list(heapq.merge(unchanged, restored, key=_key_of))
        total = 0
        if count:
            changed = sum(1 for key in undone if key in self._records)
            total = self._keys.count(start, end) - changed + len(restored)
        return Page(records[:limit] if limit else records, at, 0 < limit < len(records), total)

    def _put(self, key: str, value: bytes, current: Record | None) -> None:
        revision = self._revision + 1
        if current is None:
            _check_key(key)
            record = Record(key, value, revision, revision)
            self._keys.add(key)
            self._live_bytes += len(key) + len(value)
        else:
            record = Record(key, value, current.create_revision, revision)
            self._live_bytes += len(value) - len(current.value)
        self._records[key] = record
        self._commit(EngineEvent(key, revision, value, current, current is None))

    def _delete(self, current: Record) -> None:
        key = current.key
        del self._records[key]
        self._keys.remove(key)
        self._live_bytes -= len(key) + len(current.value)
        self._expiry.clear(key)
        self._commit(EngineEvent(key, self._revision + 1, None, current))

    def _commit(self, event: EngineEvent) -> None:
        self._revision = event.revision
        self._history.append(event)
        self._watches.publish(event)

    def _set_ttl(self, key: str, ttl: int) -> None:
        if ttl:
            self._expiry.set(key, ttl)
        else:
            self._expiry.clear(key)
        self._arm()

    def _arm(self) -> None:
        """Let the one timer ring for the next deadline."""
        wait = self._expiry.wait()
        if wait is None:
            self._alarm.disarm()
        elif not self._alarm.due_within(wait + _TOLERANCE):
            self._alarm.arm(wait)

    def _ring(self) -> None:
        self._expire()
        wait = self._expiry.wait()
        if wait is not None:
            self._alarm.arm(max(wait, _TOLERANCE))


def _check_key(key: str) -> None:
    if not key or "\0" in key:
        raise InvalidKey(f"a key must have at least one character and no NUL, got {key!r}")
    if not key.isascii():
        try:
            key.encode()
        except UnicodeEncodeError as error:
            raise InvalidKey(f"the key {key!r} has no UTF-8 form: {error.reason}") from error


def _key_of(record: Record) -> str:
    return record.key
