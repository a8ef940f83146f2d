"""What one transaction does: compare, set, expire; and, apart from that, dropping what compaction left behind."""

import math
import sqlite3
from typing import Final

import msgspec

from kplane_core.engine.interface import Compacted, Conflict, EngineEvent, FutureRevision, Record, Written

_FIND: Final = (
    "SELECT v.revision, v.created, v.expires, l.value FROM live v LEFT JOIN log l ON l.revision = v.revision"
    " WHERE v.key = ?"
)
_ADD: Final = "INSERT INTO live VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
_SET: Final = "INSERT OR REPLACE INTO live VALUES (?, ?, ?, ?)"
_LOG: Final = "INSERT INTO log VALUES (?, ?, ?, ?, ?)"
_HISTORY: Final = "INSERT INTO history VALUES (?, ?, ?)"
_DUE: Final = "SELECT key FROM live WHERE expires <= ? ORDER BY expires LIMIT ?"

_LATEST: Final = 1 << 62  # microseconds; a time to live beyond that is for ever
_EXPIRED_AT_ONCE: Final = 500  # a crowd that expires together must not keep writers waiting for all of it
_SWEPT_AT_ONCE: Final = 1000
_VACUUMED_AT_ONCE: Final = 1000  # pages


class Change(msgspec.Struct, frozen=True, gc=False):
    """What a write asks for; see `Engine.write`."""

    key: str
    value: bytes | None
    expect: int
    ttl: int | None


class Transaction:
    """Changes within one transaction, which its user begins and commits.

    Args:
        connection: holds the write lock.
        now: seconds since the epoch; what expires at or before them is gone.

    Attributes:
        revision: the newest revision, this transaction's changes included.
        events: what was changed, in order.
        due: when the next record expires, in microseconds since the epoch; known once it is finished.
    """

    def __init__(self, connection: sqlite3.Connection, now: float) -> None:
        # One cursor and few calls: what a write costs beside its sync is mostly the way into SQLite and back.
        self._connection = connection
        self._cursor = connection.cursor()
        self._execute = self._cursor.execute
        self._now = microseconds(now)
        # Rounded the other way, so that nothing expires early.
        self._after_now = math.ceil(now * 1e6)
        (self.revision,) = self._execute("SELECT revision FROM state").fetchone()
        self._before = self.revision
        self._log: list[tuple[int, str, int, int, bytes | None]] = []
        self._history: list[tuple[str, int, int]] = []
        self.events: list[EngineEvent] = []
        self.due: int | None = None

    def apply(self, change: Change) -> Written | Conflict:
        """Do what `Engine.write` promises, as far as the transaction is committed."""
        if change.expect == 0 and change.value is not None and self._create(change.key, change.value, change.ttl):
            return Written(self.revision)
        key = change.key
        row = self._find(key)
        if row is not None and row[2] is not None and row[2] <= self._now:
            self._delete(Record(key, row[3], row[1], row[0]))
            row = None
        current = None if row is None else Record(key, row[3], row[1], row[0])
        if (0 if current is None else current.mod_revision) != change.expect:
            return Conflict(current, self.revision)
        if change.value is None:
            if current is None:
                return Conflict(None, self.revision)
            self._delete(current)
        else:
            kept = None if row is None else row[2]
            expires = kept if change.ttl is None else self._deadline(change.ttl)
            self._put(key, change.value, current, expires)
        return Written(self.revision)

    def expire(self) -> bool:
        """Delete some of what is due, and return whether more may be."""
        due = self._execute(_DUE, (self._now, _EXPIRED_AT_ONCE)).fetchall()
        for (key,) in due:
            found = self._find(key)
            assert found is not None
            revision, created, _, value = found
            self._delete(Record(key, value, created, revision))
        return len(due) == _EXPIRED_AT_ONCE

    def finish(self) -> None:
        """Write down what was collected and the new revision; the last thing before the commit."""
        if self.revision != self._before:
            self._cursor.executemany(_LOG, self._log)
            if self._history:
                self._cursor.executemany(_HISTORY, self._history)
            self._execute("UPDATE state SET revision = ?", (self.revision,))
        self.due = next_expiry(self._connection)

    def _deadline(self, ttl: int) -> int | None:
        return min(self._after_now + ttl * 1_000_000, _LATEST) if ttl else None

    def _find(self, key: str) -> tuple[int, int, int | None, bytes] | None:
        """Return revision, create revision, expiry and value of a key, as this transaction leaves it so far."""
        row = self._execute(_FIND, (key,)).fetchone()
        if row is None or row[0] <= self._before:
            return row  # type: ignore[no-any-return]
        value = self._log[row[0] - self._before - 1][4]
        return (*row[:3], value)

    def _create(self, key: str, value: bytes, ttl: int | None) -> bool:
        """Make a key unless it is there, and return whether it was made."""
        revision = self.revision + 1
        self._execute(_ADD, (key, revision, revision, self._deadline(ttl) if ttl else None))
        if not self._cursor.rowcount:
            return False
        self.revision = revision
        self._log.append((revision, key, revision, 0, value))
        self.events.append(EngineEvent(key, revision, value, None, True))
        return True

    def _put(self, key: str, value: bytes, current: Record | None, expires: int | None) -> None:
        revision = self.revision = self.revision + 1
        created, previous = revision, 0
        if current is not None:
            created, previous = current.create_revision, current.mod_revision
            self._history.append((key, previous, created))
        self._log.append((revision, key, created, previous, value))
        self._execute(_SET, (key, revision, created, expires))
        self.events.append(EngineEvent(key, revision, value, current, current is None))

    def _delete(self, current: Record) -> None:
        revision = self.revision = self.revision + 1
        self._log.append((revision, current.key, 0, current.mod_revision, None))
        self._history += (current.key, current.mod_revision, current.create_revision), (current.key, revision, 0)
        self._execute("DELETE FROM live WHERE key = ?", (current.key,))
        self.events.append(EngineEvent(current.key, revision, None, current))


def microseconds(seconds: float) -> int:
    """Return whole microseconds, the unit in which expiry is stored; never more than there are."""
    return int(seconds * 1e6)


def next_expiry(connection: sqlite3.Connection) -> int | None:
    """Return when the next record expires, in microseconds since the epoch."""
    found = connection.execute("SELECT min(expires) FROM live WHERE expires IS NOT NULL").fetchone()
    return None if found is None else found[0]


def raise_floor(connection: sqlite3.Connection, revision: int) -> None:
    """Let history begin at `revision`; what lies before it is dropped by `sweep`.

    Raises:
        Compacted: the floor is not below it.
        FutureRevision: it is beyond the newest.
    """
    newest, floor = connection.execute("SELECT revision, compacted FROM state").fetchone()
    if revision <= floor:
        raise Compacted(revision, floor)
    if revision > newest:
        raise FutureRevision(revision, newest)
    connection.execute("UPDATE state SET compacted = ?", (revision,))


def sweep(connection: sqlite3.Connection) -> bool:
    """Drop some of what was superseded before the floor, and return whether more is left.

    Every version below the floor is visited once, when it is known what it superseded. What the version *at* the floor
    superseded stays until the next compaction: a watch that begins there is told what was there before.
    """
    swept, floor = connection.execute("SELECT swept, compacted FROM state").fetchone()
    rows = connection.execute(
        "SELECT revision, key, created, previous FROM log"
        " WHERE revision >= ? AND revision < ? ORDER BY revision LIMIT ?",
        (swept, floor, _SWEPT_AT_ONCE),
    ).fetchall()
    gone = {previous: key for _, key, _, previous in rows if previous}
    gone.update((revision, key) for revision, key, created, _ in rows if not created)
    connection.executemany("DELETE FROM log WHERE revision = ?", [(revision,) for revision in sorted(gone)])
    superseded = sorted((key, revision) for revision, key in gone.items())
    connection.executemany("DELETE FROM history WHERE key = ? AND revision = ?", superseded)
    more = len(rows) == _SWEPT_AT_ONCE
    done = rows[-1][0] + 1 if more else floor
    if done != swept:
        connection.execute("UPDATE state SET swept = ?", (done,))
    return more


def shrink(connection: sqlite3.Connection) -> bool:
    """Give some free pages back to the file system, and return whether more are left; begins its own transaction."""
    connection.execute(f"PRAGMA incremental_vacuum({_VACUUMED_AT_ONCE})").fetchall()
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    return bool(free)


def checkpoint(connection: sqlite3.Connection, busy_timeout: float) -> None:
    """Move the write-ahead log into the database and cut both files, as far as no reader is in the way."""
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    finally:
        connection.execute(f"PRAGMA busy_timeout = {int(busy_timeout * 1000)}")
