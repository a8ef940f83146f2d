"""The database file: its tables, how a connection to it is made, and SQLite's errors in kplane's words.

    state   one row: the newest revision, the compaction revision, how far superseded rows are dropped, who we are
    log     every version of every key, under its revision; a deletion has create revision 0
    live    for each key that exists the revision of its version, and when it expires
    history for each key the revisions of its other versions and of its deletions

`live` exists so that reads of the newest state do not depend on the length of the history. What is in `live` is not in
`history`: a new key costs one place in one tree of keys, and random places are what a commit pays for.
"""

import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from kplane_core.engine.interface import EngineUnreachable

APPLICATION_ID: Final = 0x6B706C6E  # "kpln": what `file` and we know the database by
FORMAT: Final = 2
FIRST_REVISION: Final = 1  # of an empty database; the first write gets 2, as on etcd

_TABLES: Final = """
CREATE TABLE state (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    identity TEXT NOT NULL,
    revision INTEGER NOT NULL,
    compacted INTEGER NOT NULL,
    swept INTEGER NOT NULL,
    is_backup INTEGER NOT NULL
);
CREATE TABLE log (
    revision INTEGER PRIMARY KEY,
    key TEXT NOT NULL COLLATE BINARY,
    created INTEGER NOT NULL,
    previous INTEGER NOT NULL,
    value BLOB
);
CREATE TABLE live (
    key TEXT PRIMARY KEY COLLATE BINARY,
    revision INTEGER NOT NULL,
    created INTEGER NOT NULL,
    expires INTEGER
) WITHOUT ROWID;
CREATE INDEX live_by_expiry ON live (expires) WHERE expires IS NOT NULL;
"""
_HISTORY: Final = """
CREATE TABLE history (
    key TEXT NOT NULL COLLATE BINARY,
    revision INTEGER NOT NULL,
    created INTEGER NOT NULL,
    PRIMARY KEY (key, revision)
) WITHOUT ROWID;
"""
_FILL_HISTORY: Final = """
INSERT INTO history SELECT key, revision, created FROM log l
    WHERE NOT EXISTS (SELECT 1 FROM live v WHERE v.key = l.key AND v.revision = l.revision);
DROP INDEX log_by_key;
"""


class DatabaseFull(EngineUnreachable):
    """There is no room for another page: nothing was written."""


class DatabaseReadOnly(EngineUnreachable):
    """The file, its folder or its file system does not let us write: nothing was written."""


class DatabaseBusy(EngineUnreachable):
    """Another process held the write lock for longer than the busy timeout: nothing was written."""


class DatabaseDamaged(EngineUnreachable):
    """The file is no SQLite database, or parts of it are lost."""


def connect(path: Path, *, busy_timeout: float) -> sqlite3.Connection:
    """Return a connection that any one thread at a time may use; transactions are begun by hand."""
    connection = sqlite3.connect(
        str(path.absolute()), timeout=busy_timeout, isolation_level=None, check_same_thread=False, cached_statements=64
    )
    try:
        # A page that a deletion leaves need not be overwritten with zeros: the file is no safer place than before.
        connection.execute("PRAGMA secure_delete = OFF")
        connection.execute("PRAGMA cache_size = -16000")
    except BaseException:
        connection.close()
        raise
    return connection


def is_ours(connection: sqlite3.Connection) -> bool | None:
    """Whether the file is a kplane database; None when it is empty."""
    if connection.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID:
        return True
    return None if not connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] else False


def create(connection: sqlite3.Connection) -> None:
    """Make the tables, unless another process was faster."""
    # Both take effect only before the first table, outside of a transaction.
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute("PRAGMA journal_mode = WAL")
    with transaction(connection):
        if is_ours(connection):
            return
        _execute_all(connection, _TABLES + _HISTORY)
        connection.execute(
            "INSERT INTO state VALUES (1, ?, ?, 0, 0, 0)",
            (uuid.uuid4().hex, FIRST_REVISION),
        )
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {FORMAT}")


def upgraded(connection: sqlite3.Connection) -> int:
    """Return the format of the database, after bringing one of format 1 to ours; no other process may be using that."""
    found = _format(connection)
    if found == 1:
        with transaction(connection):
            if _format(connection) == 1:  # nobody else was faster
                # Format 1 had an index over all versions in the place of this table.
                _execute_all(connection, _HISTORY + _FILL_HISTORY)
                connection.execute(f"PRAGMA user_version = {FORMAT}")
        found = _format(connection)
    return found


def _format(connection: sqlite3.Connection) -> int:
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    return int(found)


def _execute_all(connection: sqlite3.Connection, statements: str) -> None:
    # One by one: `executescript` would end the transaction.
    for statement in statements.split(";"):
        connection.execute(statement)


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Hold the write lock, from the first statement on; commit at the end, or roll back."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # A full disk may have rolled back already.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """Let all reads within see one state of the database; waits for no writer and stops none."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("COMMIT")


_FULL: Final = {sqlite3.SQLITE_FULL}
_READ_ONLY: Final = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH}
_BUSY: Final = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_DAMAGED: Final = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


def is_busy(error: sqlite3.Error) -> bool:
    """Whether the error only says that somebody else holds a lock."""
    return _primary(error) in _BUSY


def translated(path: Path, error: sqlite3.Error) -> EngineUnreachable:
    """Return one of SQLite's errors as what it means for an operator."""
    code = _primary(error)
    if code in _FULL:
        return DatabaseFull(f"{path}: no room is left for the database; free space on its disk or raise its quota")
    if code in _READ_ONLY:
        return DatabaseReadOnly(f"{path}: the database cannot be written; check the permissions of file and folder")
    if code in _BUSY:
        return DatabaseBusy(f"{path}: another process holds the write lock; see --sqlite-busy-timeout")
    if code in _DAMAGED:
        return DatabaseDamaged(f"{path}: the database is damaged ({error}); restore a backup")
    return EngineUnreachable(f"{path}: SQLite failed: {error}")


def _primary(error: sqlite3.Error) -> int:
    # The upper bits tell variants of one code; errors of the Python module itself have none.
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
