"""Reads: what a key holds, what a range holds, what happened since; each from one snapshot of the file."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

import msgspec

from kplane_core.engine.interface import (
    Compacted,
    EngineEvent,
    EngineUnreachable,
    FutureRevision,
    Page,
    Read,
    Record,
)
from kplane_sqlite import schema
from kplane_sqlite.opening import Settings

T = TypeVar("T")

_NEWEST: Final = (
    "SELECT s.revision, v.created, v.revision, v.expires, l.value FROM state s"
    " LEFT JOIN live v ON v.key = ? LEFT JOIN log l ON l.revision = v.revision"
)
# A key's version of the past is in `live` if it still is the newest one, else in `history`.
_PAST: Final = (
    "SELECT value, created, revision FROM log WHERE revision = (SELECT max(revision) FROM ("
    "SELECT revision FROM live WHERE key = ? AND revision <= ?"
    " UNION ALL SELECT max(revision) FROM history WHERE key = ? AND revision <= ?))"
)
_RANGE: Final = (
    "SELECT v.key, l.value, v.created, v.revision, v.expires FROM live v CROSS JOIN log l ON l.revision = v.revision"
    " WHERE v.key >= ? AND v.key < ? ORDER BY v.key LIMIT ?"
)
# Both parts come in the order of the keys, so SQLite merges them and stops at a limit; without COLLATE it would sort
# the second one first. With max() the other columns come from the row that has it.
_VERSIONS: Final = (
    "SELECT key, revision, created FROM live WHERE key >= ? AND key < ? AND revision <= ?"
    " UNION ALL SELECT key COLLATE BINARY, max(revision), created FROM history h"
    " WHERE key >= ? AND key < ? AND revision <= ? GROUP BY key COLLATE BINARY"
    " HAVING created > 0 AND NOT EXISTS (SELECT 1 FROM live v WHERE v.key = h.key AND v.revision <= ?)"
)
_RANGE_PAST: Final = (
    f"SELECT g.key, l.value, g.created, g.revision FROM ({_VERSIONS} ORDER BY key LIMIT ?) g"  # noqa: S608 - constants
    " CROSS JOIN log l ON l.revision = g.revision ORDER BY g.key"
)
_KEY_BEHIND: Final = "SELECT key FROM live WHERE key >= ? AND key < ? ORDER BY key LIMIT 1 OFFSET ?"
# The plus keeps SQLite from walking the range through the index: revisions order the file itself.
_SINCE: Final = (
    "SELECT l.revision, l.key, l.created, l.value, p.value, p.created, p.revision FROM log l"
    " LEFT JOIN log p ON p.revision = l.previous"
    " WHERE l.revision > ? AND +l.key >= ? AND +l.key < ? ORDER BY l.revision LIMIT ?"
)


_BYTES_PER_CHANGE: Final = 16 << 10  # a page of changes ends early when they are larger than this on average
FEW: Final = 128  # so many records are read faster than a thread is asked
_FEW_BYTES: Final = 1 << 20


class Expired(Exception):
    """What was read holds a record whose time has come: no error, the caller deletes what is due and reads again."""


class Since(msgspec.Struct, frozen=True):
    """Changes after a revision.

    Attributes:
        events: in order.
        position: every change in the range up to this revision is among them.
        more: whether changes beyond `position` are known to be left.
    """

    events: list[EngineEvent]
    position: int
    more: bool


def read(connection: sqlite3.Connection, key: str, now: int) -> Read:
    """Return the newest record of a key.

    Raises:
        Expired: its time has come.
    """
    newest, created, revision, expires, value = connection.execute(_NEWEST, (key,)).fetchone()
    if revision is None:
        return Read(None, newest)
    if expires is not None and expires <= now:
        raise Expired
    return Read(Record(key, value, created, revision), newest)


def read_past(connection: sqlite3.Connection, key: str, at: int) -> Read:
    """Return the record of a key as of an earlier revision.

    Raises:
        Compacted: the revision is below the floor.
        FutureRevision: it is beyond the newest.
    """
    with schema.snapshot(connection):
        _check(connection, at)
        row = connection.execute(_PAST, (key, at, key, at)).fetchone()
    return Read(None if row is None or not row[1] else Record(key, *row), at)


def scan(connection: sqlite3.Connection, bounds: tuple[str, str], limit: int, now: int, *, count: bool) -> Page:
    """Return the newest records of a range.

    Raises:
        Expired: the time of one has come.
    """
    with schema.snapshot(connection):
        (revision,) = connection.execute("SELECT revision FROM state").fetchone()
        return _scan(connection, bounds, limit, revision, now, count=count)


def scan_few(
    connection: sqlite3.Connection, bounds: tuple[str, str], limit: int, now: int, *, count: bool
) -> Page | None:
    """Do what `scan` does if that is quick, else return None.

    Raises:
        Expired: the time of a record has come.
    """
    records: list[Record] = []
    wanted = min(limit, FEW) if limit else FEW
    size = 0
    with schema.snapshot(connection):
        (revision,) = connection.execute("SELECT revision FROM state").fetchone()
        for key, value, created, mod, expires in connection.execute(_RANGE, (*bounds, wanted + 1)):
            if expires is not None and expires <= now:
                raise Expired
            records.append(Record(key, value, created, mod))
            size += len(value)
            if size > _FEW_BYTES:
                return None
    if len(records) > wanted and (count or wanted != limit):
        return None
    return _page(records, revision, limit, len(records) if count else 0)


def scan_past(connection: sqlite3.Connection, bounds: tuple[str, str], limit: int, at: int, *, count: bool) -> Page:
    """Return the records of a range as of an earlier revision.

    Raises:
        Compacted: the revision is below the floor.
        FutureRevision: it is beyond the newest.
    """
    with schema.snapshot(connection):
        if _check(connection, at) == at:  # the newest state is found without looking at the history
            return _scan(connection, bounds, limit, at, 0, count=count)
        rows = _rows_past(connection, bounds, limit, at)
        total = 0
        if count:
            versions = (*bounds, at, *bounds, at, at)
            (total,) = connection.execute(f"SELECT count(*) FROM ({_VERSIONS})", versions).fetchone()  # noqa: S608 - constants
    return _page([Record(*row) for row in rows], at, limit, total)


def _rows_past(
    connection: sqlite3.Connection, bounds: tuple[str, str], limit: int, at: int
) -> list[tuple[str, bytes, int, int]]:
    """Return one row more than `limit`, if there is one.

    Stretch by stretch: where no key, or every key, has changed since, one of the two tables has nothing to give, and
    would be searched to the end of the range for it.
    """
    start, end = bounds
    rows: list[tuple[str, bytes, int, int]] = []
    while start < end and (not limit or len(rows) <= limit):
        behind = connection.execute(_KEY_BEHIND, (start, end, limit)).fetchone() if limit else None
        stop = behind[0] if behind else end
        wanted = limit + 1 - len(rows) if limit else -1
        rows += connection.execute(_RANGE_PAST, (start, stop, at, start, stop, at, at, wanted))
        start = stop
    return rows


def _scan(
    connection: sqlite3.Connection, bounds: tuple[str, str], limit: int, revision: int, now: int, *, count: bool
) -> Page:
    rows = connection.execute(_RANGE, (*bounds, limit + 1 if limit else -1)).fetchall()
    records = []
    for key, value, created, mod, expires in rows:
        if expires is not None and expires <= now:
            raise Expired
        records.append(Record(key, value, created, mod))
    total = 0
    if count:
        total, first = connection.execute(
            "SELECT count(*), min(expires) FROM live WHERE key >= ? AND key < ?", bounds
        ).fetchone()
        if first is not None and first <= now:
            raise Expired
    return _page(records, revision, limit, total)


def _page(records: list[Record], revision: int, limit: int, total: int) -> Page:
    more = 0 < limit < len(records)
    if more:
        records.pop()
    return Page(records, revision, more, total)


def since(connection: sqlite3.Connection, bounds: tuple[str, str], after: int, limit: int) -> Since:
    """Return the changes of a range after a revision, at most `limit`.

    Raises:
        Compacted: some of them are gone.
    """
    with schema.snapshot(connection):
        newest, floor, swept = connection.execute("SELECT revision, compacted, swept FROM state").fetchone()
        # Whoever was let in before the floor rose is served for as long as the rows are there.
        if after + 1 < swept:
            raise Compacted(after, floor)
        events, size = [], 0
        for row in connection.execute(_SINCE, (after, *bounds, limit)):
            events.append(_event(*row))
            size += len(row[3] or b"") + len(row[4] or b"")
            if size >= limit * _BYTES_PER_CHANGE:
                break
    more = len(events) == limit or size >= limit * _BYTES_PER_CHANGE
    return Since(events, events[-1].revision if more else max(newest, after), more)


def position(connection: sqlite3.Connection) -> tuple[int, int]:
    """Return the newest revision and the compaction revision."""
    newest, floor = connection.execute("SELECT revision, compacted FROM state").fetchone()
    return newest, floor


def _check(connection: sqlite3.Connection, at: int) -> int:
    newest, floor = position(connection)
    if at < floor:
        raise Compacted(at, floor)
    if at > newest:
        raise FutureRevision(at, newest)
    return newest


def _event(
    revision: int,
    key: str,
    created: int,
    value: bytes | None,
    old: bytes | None,
    old_created: int | None,
    old_revision: int | None,
) -> EngineEvent:
    previous = None
    if old is not None and old_created is not None and old_revision is not None:
        previous = Record(key, old, old_created, old_revision)
    return EngineEvent(key, revision, value if created else None, previous, created == revision)


class Readers:
    """The connections that read: one for what is quick, on the event loop itself, and one per thread for the rest.

    A thread costs more than the read of a key does; a long scan would keep the loop from everything else.

    Args:
        settings: of the open database.
        threads: how many long reads run at once.
    """

    def __init__(self, settings: Settings, threads: int = 3) -> None:
        self._settings = settings
        # Waiting is for threads: on the loop a lock (there is one only while a crash is repaired) means "ask a thread".
        self._quick = schema.connect(settings.path, busy_timeout=0.0)
        self._open = [self._quick]
        self._local = threading.local()
        self._pool = ThreadPoolExecutor(threads, "kplane-sqlite-reader")
        self._closed = False

    async def quickly(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Return what a short read returns."""
        self._check_open()
        try:
            return work(self._quick)
        except sqlite3.Error as error:
            if not schema.is_busy(error):
                raise schema.translated(self._settings.path, error) from error
        return await self.apart(work)

    async def apart(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Return what a read that may take its time returns, while the event loop goes on."""
        self._check_open()
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._in_thread, work)

    def _in_thread(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            connection = getattr(self._local, "connection", None)
            if connection is None:
                connection = schema.connect(self._settings.path, busy_timeout=self._settings.busy_timeout)
                self._local.connection = connection
                self._open.append(connection)
            return work(connection)
        except sqlite3.Error as error:
            raise schema.translated(self._settings.path, error) from error

    def _check_open(self) -> None:
        if self._closed:
            raise closed(self._settings)

    def refuse(self) -> None:
        """Interrupt what runs, and let nothing else begin."""
        self._closed = True
        for connection in self._open:
            connection.interrupt()

    def close(self) -> None:
        """Wait for what was interrupted and close all connections; blocks."""
        self._pool.shutdown()
        for connection in self._open:
            connection.close()


def closed(settings: Settings) -> EngineUnreachable:
    """Return the error of whoever comes too late."""
    return EngineUnreachable(f"{settings.path}: this connection to the database is closed")
