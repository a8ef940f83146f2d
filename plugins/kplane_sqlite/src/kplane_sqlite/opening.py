"""Opening the file: is it ours, can it be written, and is it the database that we had before?"""

import logging
import os
import sqlite3
from pathlib import Path
from typing import Final

import attrs

from kplane_core.errors import UsageError
from kplane_sqlite import schema
from kplane_sqlite.mark import Mark, Position

_log = logging.getLogger(__name__)

#: How far revisions jump when the database went back: more than anybody can have seen beyond the mark.
JUMP: Final = 1_000_000_000

_CHECKPOINT: Final = 4000  # pages of the write-ahead log; SQLite finds so many through one table


@attrs.frozen
class Settings:
    """How the file is used.

    Attributes:
        path: where it is.
        synchronous: SQLite's setting of that name.
        busy_timeout: seconds to wait for another process's write.
    """

    path: Path
    synchronous: str = "full"
    busy_timeout: float = 5.0


@attrs.frozen
class Opened:
    """An open database.

    Attributes:
        connection: the one that writes.
        mark: its high-water mark.
        identity: of the database.
        inode: device and number of the file, by which a replaced one is noticed.
    """

    connection: sqlite3.Connection
    mark: Mark
    identity: str
    inode: tuple[int, int]

    def close(self) -> None:
        """Close both."""
        self.connection.close()
        self.mark.close()


def open_database(settings: Settings) -> Opened:
    """Open the database, make it when there is none, and move its revisions on when it is an older copy.

    Raises:
        UsageError: the path cannot be used; the message begins with the flag.
        EngineUnreachable: SQLite refuses.
    """
    path = settings.path
    _check_access(path)
    try:
        connection = schema.connect(path, busy_timeout=settings.busy_timeout)
        try:
            mark = _prepare(connection, settings)
            (identity,) = connection.execute("SELECT identity FROM state").fetchone()
        except BaseException:
            connection.close()
            raise
    except sqlite3.DatabaseError as error:
        raise _refusal(path, error) from error
    except OSError as error:
        raise UsageError(f"--sqlite-path: {str(path)!r} cannot be used: {error.strerror}") from error
    stat = path.stat()
    return Opened(connection, mark, identity, (stat.st_dev, stat.st_ino))


def _check_access(path: Path) -> None:
    try:
        if not path.parent.is_dir():
            raise UsageError(f"--sqlite-path: the folder {str(path.parent)!r} does not exist")
        for file in (path, path.parent):
            if file.exists() and not os.access(file, os.W_OK):
                raise UsageError(f"--sqlite-path: {str(file)!r} is read-only for this user")
    except OSError as error:  # a folder above it is closed to this user
        raise UsageError(f"--sqlite-path: {str(path)!r} cannot be used: {error.strerror}") from error


def _refusal(path: Path, error: sqlite3.Error) -> Exception:
    reason = schema.translated(path, error)
    if isinstance(reason, schema.DatabaseDamaged | schema.DatabaseReadOnly):
        return UsageError(f"--sqlite-path: {reason}")
    return reason


def _prepare(connection: sqlite3.Connection, settings: Settings) -> Mark:
    ours = schema.is_ours(connection)
    if ours is False:
        raise UsageError(f"--sqlite-path: {str(settings.path)!r} is a database of something else, not of kplane")
    if ours is None:
        schema.create(connection)
    found = schema.upgraded(connection)
    if found != schema.FORMAT:
        raise UsageError(
            f"--sqlite-path: {str(settings.path)!r} has format {found}, this kplane-sqlite knows {schema.FORMAT}: "
            "pip install -U kplane-sqlite"
        )
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise UsageError(
            f"--sqlite-path: the file system of {str(settings.path)!r} cannot share memory, as SQLite needs"
        )
    connection.execute(f"PRAGMA synchronous = {settings.synchronous}")
    # A checkpoint syncs three times. Four times as rare as SQLite's default, it costs a busy writer little.
    connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT}")
    # After a checkpoint the write-ahead log is cut to this; it may grow beyond while it is in use.
    connection.execute(f"PRAGMA journal_size_limit = {_CHECKPOINT * 4096}")
    mark = Mark(settings.path)
    try:
        _move_on(connection, mark, settings.path)
    except BaseException:
        mark.close()
        raise
    return mark


def _move_on(connection: sqlite3.Connection, mark: Mark, path: Path) -> None:
    """Compare the database with its mark; where it went back, no revision is given again and no old one is served."""
    with schema.transaction(connection):
        # Read below the write lock, the mark cannot be ahead of a database that is the right one.
        identity, revision, is_backup = connection.execute("SELECT identity, revision, is_backup FROM state").fetchone()
        reason, seen = _went_back(mark, Position(identity, revision), is_backup=bool(is_backup))
        if reason:
            revision = max(revision, seen) + JUMP
            connection.execute("UPDATE state SET revision = ?, compacted = ?, is_backup = 0", (revision, revision))
            _log.warning("%s: %s; revisions go on at %d, and older ones have expired", path, reason, revision)
    mark.raise_to(identity, revision)


def _went_back(mark: Mark, database: Position, *, is_backup: bool) -> tuple[str, int]:
    try:
        seen = mark.read()
    except ValueError as error:
        return f"{error}, so this may be an older copy", database.revision
    if seen is None:
        return ("this is a restored backup", 0) if is_backup else ("", 0)
    if seen.identity != database.identity:
        return f"another database was here before, up to revision {seen.revision}", seen.revision
    if seen.revision > database.revision:
        return f"this is an older copy: revision {seen.revision} was given before", seen.revision
    return ("this is a restored backup", seen.revision) if is_backup else ("", 0)
