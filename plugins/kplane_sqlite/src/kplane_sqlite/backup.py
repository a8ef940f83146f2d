"""Backups: a copy of the database as of one moment, made while it is in use, that knows it is a copy."""

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from kplane_core.errors import UsageError
from kplane_sqlite import schema


def back_up(path: Path, target: Path) -> int:
    """Write the database as of now to a new file, and return the copy's revision; nobody waits for it.

    Args:
        path: the database, which others may be using.
        target: the file to make; it appears when it is complete.

    Raises:
        UsageError: there is no database, or the target exists or cannot be written.
    """
    if not path.is_file():
        raise UsageError(f"--sqlite-path: there is no database {str(path)!r}")
    if target.exists():
        raise UsageError(f"{str(target)!r} exists already; a backup never replaces a file")
    partial = target.with_name(f"{target.name}.partial")
    try:
        partial.unlink(missing_ok=True)
        revision = _copy(path, partial)
        partial.replace(target)
        _sync(target.parent)
    except (OSError, sqlite3.Error) as error:
        raise UsageError(f"the backup {str(target)!r} cannot be written: {error}") from error
    finally:
        partial.unlink(missing_ok=True)
    return revision


def _copy(path: Path, partial: Path) -> int:
    with (
        closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as source,
        closing(sqlite3.connect(partial, isolation_level=None)) as copy,
    ):
        if not _is_ours(source):
            raise UsageError(f"--sqlite-path: {str(path)!r} is no kplane database")
        source.backup(copy)
        # Whoever opens the copy must not give revisions again that the original has given since.
        copy.execute("PRAGMA journal_mode = DELETE")
        copy.execute("PRAGMA synchronous = FULL")
        copy.execute("UPDATE state SET is_backup = 1")
        if (found := copy.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
            raise sqlite3.DatabaseError(f"the database is damaged: {found}")
        (revision,) = copy.execute("SELECT revision FROM state").fetchone()
    return int(revision)


def _is_ours(connection: sqlite3.Connection) -> bool:
    try:
        return bool(schema.is_ours(connection))
    except sqlite3.DatabaseError:  # no database at all
        return False


def put_back(backup: Path, path: Path) -> None:
    """Put a backup in the place of a database that nobody has open.

    The write-ahead log of the old database goes with it: SQLite would apply it to the new one. The mark stays.

    Args:
        backup: what `back_up` wrote.
        path: the database.
    """
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    partial = path.with_name(f"{path.name}.partial")
    shutil.copyfile(backup, partial)
    partial.replace(path)
    _sync(path.parent)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
