"""The Spanner engine: ten methods over the tables of one database."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from kplane_core.chance import CHANCE
from kplane_core.engine.interface import (
    Compacted,
    Conflict,
    EngineEvent,
    EngineUnreachable,
    Page,
    Read,
    Record,
    Written,
)
from kplane_core.errors import KplaneError
from kplane_spanner import schema
from kplane_spanner.connecting import Connected, open_database
from kplane_spanner.database import Database
from kplane_spanner.errors import SnapshotTooOld
from kplane_spanner.expiry import Sweeper
from kplane_spanner.horizon import Horizon, ServerClock
from kplane_spanner.log import ChangeLog
from kplane_spanner.messages import KeySet, add_range, key_set
from kplane_spanner.plugin import SpannerOptions
from kplane_spanner.revisions import micros_of, snapshot_at
from kplane_spanner.rows import RECORD_COLUMNS, Stored, stored
from kplane_spanner.watching import Hub, SpannerWatch
from kplane_spanner.writing import Writer

_log = logging.getLogger(__name__)

_COUNT: Final = (
    f"SELECT COUNT(*) FROM {schema.RECORDS} WHERE key {{above}} @start AND key {{below}} @end "  # noqa: S608 - constants
    "AND (ttl IS NULL OR TIMESTAMP_ADD(lease_ts, INTERVAL ttl SECOND) > @now)"
)
_SIZE: Final = (
    f"SELECT COALESCE((SELECT SUM(BYTE_LENGTH(key) + BYTE_LENGTH(value)) FROM {schema.RECORDS}), 0) + "  # noqa: S608 - constants
    "COALESCE((SELECT SUM(BYTE_LENGTH(key) + COALESCE(BYTE_LENGTH(value), 0) + COALESCE(BYTE_LENGTH(prev_value), 0)) "
    f"FROM {schema.LOG}), 0)"
)
_TRIM_SHARE: Final = 4  # of the retention: the log holds a quarter more than can be asked for
_MOST_BETWEEN_TRIMS: Final = 1800.0


async def open_engine(options: SpannerOptions) -> "SpannerEngine":
    """Connect to a database, making it if need be, and return an engine that runs.

    Raises:
        UsageError: an option is wrong, or the database holds something else.
        Unreachable: Spanner gave no answer, or refused.
    """
    connected = await open_database(options)
    engine = SpannerEngine(connected, options)
    try:
        await engine.start()
    except BaseException:
        await engine.aclose()
        raise
    return engine


class SpannerEngine:
    """An `Engine` on one Spanner database, which any number of processes may share.

    Revisions come from commit timestamps (see `kplane_spanner.revisions`), history from the change log for watches and
    from Spanner's own versions for reads of the past.

    Args:
        connected: the open database.
        options: as the operator gave them.
    """

    def __init__(self, connected: Connected, options: SpannerOptions) -> None:
        self._channel = connected.channel
        self.database: Database = connected.database
        clock = ServerClock()
        self.horizon = Horizon(self.database, clock, options.history_retention, connected.created_micros)
        self._clock = clock
        self._writer = Writer(self.database, clock)
        self._log = ChangeLog(self.database)
        self.hub = Hub(
            self._log,
            self.horizon,
            poll=options.watch_poll_interval,
            progress_interval=options.progress_interval,
        )
        self.sweeper = Sweeper(self.database, self._writer, clock, options.sweep_interval)
        self._trim_interval = min(options.history_retention / _TRIM_SHARE, _MOST_BETWEEN_TRIMS)
        self._trimmer: asyncio.Task[None] | None = None
        self._closed = False

    async def start(self) -> None:
        """Learn the database's clock and start the tasks, which `aclose` ends.

        Raises:
            EngineUnreachable: the database gave no answer.
        """
        await self.horizon.refresh()
        self.hub.start()
        self.sweeper.start()
        self._trimmer = asyncio.create_task(self._trim(), name="kplane-spanner-trimmer")

    async def read(self, key: str, *, at: int = 0) -> Read:
        """Return the record of `key` and the revision it was read at."""
        self._check_open()
        async with self._pinned(at):
            undone = await self._changes_to_undo(at)
            answer = await self.database.read(
                schema.RECORDS, RECORD_COLUMNS, key_set([(key,)]), micros=micros_of(at) if at else 0
            )
        rows = self._alive([stored(row) for row in answer.rows], answer.read_micros)
        record = rows[0].record if rows else None
        for change in undone:
            if change.key == key:
                record = change.previous
        return Read(record, at or snapshot_at(answer.read_micros))

    async def scan(self, start: str, end: str, *, at: int = 0, limit: int = 0, count: bool = False) -> Page:
        """Return the records with start <= key < end, in key order, from one snapshot."""
        self._check_open()
        async with self._pinned(at):
            undone = [change for change in await self._changes_to_undo(at) if start <= change.key < end]
            if undone:
                return await self._scan_undoing(undone, start, end, at=at, limit=limit)
            wanted = limit + 1 if limit else 0
            rows, micros = await self._rows(start, end, micros_of(at) if at else 0, wanted)
            more = 0 < limit < len(rows)
            records = [row.record for row in (rows[:limit] if more else rows)]
            total = 0
            if count:
                total = await self._count(start, end, micros) if more else len(records)
        return Page(records, at or snapshot_at(micros), more, total)

    async def write(self, key: str, value: bytes | None, *, expect: int, ttl: int | None = None) -> Written | Conflict:
        """Compare-and-set one key.

        To delete an absent key is a Conflict (with no record).

        Raises:
            InvalidKey: a new key is empty, holds NUL, has no UTF-8 form or more than 8000 bytes.
            ValueTooLarge: the value has more than 10 MiB.
        """
        self._check_open()
        if value is None and not expect:
            read = await self.read(key)
            return Conflict(read.record, read.revision)
        done = await self._writer.write(key, value, expect=expect, ttl=ttl)
        if isinstance(done, Written):
            self.hub.committed()
        return done

    async def watch(self, start: str, end: str, *, after: int, progress: bool = False) -> SpannerWatch:
        """Open a watch on start <= key < end.

        Raises:
            Compacted: changes after `after` are already gone (the first `batch` may raise it, too).
        """
        self._check_open()
        return await self.hub.open(start, end, after, progress=progress)

    async def revision(self) -> int:
        """Return the revision of a new snapshot of the whole database: it moves with time, not only with writes."""
        self._check_open()
        return await self.horizon.refresh()

    async def request_progress(self) -> None:
        """Deliver a progress mark to every open watch with `progress`, from a snapshot taken after this call."""
        self._check_open()
        self.hub.request_progress()

    async def compact(self, revision: int) -> None:
        """Let nobody ask for anything older than `revision` any more, in any process.

        Raises:
            Compacted: `revision` is not above the current floor.
            FutureRevision: it is beyond the newest.
        """
        self._check_open()
        await self.horizon.compact(revision)

    async def compacted(self) -> int:
        """Return the floor, whether `compact` or the retention set it; 0 when nothing was dropped yet."""
        self._check_open()
        await self.horizon.refresh()
        return self.horizon.compacted

    async def check(self) -> None:
        """Return when the database answers."""
        self._check_open()
        await self.horizon.refresh()

    async def size(self) -> int:
        """Return the length of all keys and values, live and in the change log; this reads all of them."""
        self._check_open()
        ((size,),) = (await self.database.query(_SIZE)).rows
        return int(size or 0)

    async def aclose(self) -> None:
        """End watches and tasks, delete the sessions and close the channel; afterwards every call is refused."""
        if self._closed:
            return
        self._closed = True
        await self.hub.aclose()
        await self.sweeper.aclose()
        if self._trimmer is not None:
            self._trimmer.cancel()
            await asyncio.wait([self._trimmer])
        await self.database.aclose()
        await self._channel.close()

    def _check_open(self) -> None:
        if self._closed:
            raise EngineUnreachable("this connection to Spanner is closed")

    @asynccontextmanager
    async def _pinned(self, at: int) -> AsyncIterator[None]:
        """Refuse a revision that cannot be read, before or while it is."""
        if at:
            await self.horizon.check(at)
        try:
            yield
        except SnapshotTooOld as error:
            raise Compacted(at, max(self.horizon.floor, at + 1)) from error

    async def _changes_to_undo(self, at: int) -> Sequence[EngineEvent]:
        """Return the changes that a read of the microsecond of `at` sees although they come after `at`."""
        return await self._log.later_in_microsecond(at) if at else ()

    def _alive(self, rows: Sequence[Stored], micros: int) -> list[Stored]:
        """Leave out the records whose time to live was over at the time of the snapshot."""
        alive = [row for row in rows if not row.expired(micros)]
        if len(alive) < len(rows):
            self.sweeper.met()
        self._clock.observe(micros)
        return alive

    async def _rows(self, start: str, end: str, micros: int, wanted: int) -> tuple[list[Stored], int]:
        """Return the first live rows of a range, and the microsecond of their snapshot."""
        if start >= end:
            return [], micros or micros_of(await self.horizon.refresh())
        found: list[Stored] = []
        start, after_start = _bound(start)
        end, with_end = _bound(end)
        while True:
            keys = KeySet()
            add_range(keys, (start,), (end,), after_start=after_start, with_end=with_end)
            limit = wanted - len(found) if wanted else 0
            answer = await self.database.read(schema.RECORDS, RECORD_COLUMNS, keys, micros=micros, limit=limit)
            micros = micros or answer.read_micros
            rows = [stored(row) for row in answer.rows]
            found += self._alive(rows, micros)
            if not limit or len(rows) < limit or len(found) >= wanted:
                return found, micros
            # Some rows were expired; the page is filled up behind them.
            start, after_start = rows[-1].record.key, True

    async def _scan_undoing(self, undone: Sequence[EngineEvent], start: str, end: str, *, at: int, limit: int) -> Page:
        rows, _ = await self._rows(start, end, micros_of(at), 0)
        records: dict[str, Record] = {row.record.key: row.record for row in rows}
        for change in undone:  # at most one for each key: a key has one change in a microsecond
            if change.previous is None:
                records.pop(change.key, None)
            else:
                records[change.key] = change.previous
        ordered = [records[key] for key in sorted(records)]
        more = 0 < limit < len(ordered)
        return Page(ordered[:limit] if more else ordered, at, more, len(ordered))

    async def _count(self, start: str, end: str, micros: int) -> int:
        start, after_start = _bound(start)
        end, with_end = _bound(end)
        sql = _COUNT.format(above=">" if after_start else ">=", below="<=" if with_end else "<")
        answer = await self.database.query(
            sql, micros=micros, texts={"start": start, "end": end}, times={"now": micros}
        )
        ((total,),) = answer.rows
        return int(total or 0)

    async def _trim(self) -> None:
        while True:
            await asyncio.sleep(self._trim_interval * CHANCE.uniform(0.75, 1.25))
            try:
                await self.horizon.trim()
            except KplaneError as error:
                _log.warning("the change log could not be trimmed, which will be tried again: %s", error)
            except Exception:  # noqa: BLE001 - whatever a driver raises, the log must not grow for ever
                _log.exception("trimming the change log failed, and will be tried again")


def _bound(key: str) -> tuple[str, bool]:
    """Return a bound without the NUL that makes it the key directly after another, and whether it had one."""
    return (key[:-1], True) if key.endswith("\0") else (key, False)
