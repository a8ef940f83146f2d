"""The high-water mark: a small file beside the database that tells a restored older copy from a restart.

It holds the newest revision that was ever acknowledged. It is raised after each commit, before anybody hears of that
commit, without fsync: the operating system keeps it when this process is killed. When the machine itself goes down an
older mark may be left, which only means that a restore at that very moment goes unnoticed; the database, which is
synced, is then the newer of the two. A mark *ahead* of the database can only mean that the database went back.
"""

import fcntl
import os
from pathlib import Path
from typing import Final

import attrs

_HEAD: Final = "kplane-sqlite mark"
_SIZE: Final = 96


@attrs.frozen
class Position:
    """What a mark says.

    Attributes:
        identity: of the database.
        revision: the newest that was acknowledged.
    """

    identity: str
    revision: int


class Mark:
    """The mark of one database file; several processes may hold it open.

    Args:
        database: the database's path; the mark has its name with `-mark` appended.

    Raises:
        OSError: it cannot be made or written.
    """

    def __init__(self, database: Path) -> None:
        self.path = database.with_name(f"{database.name}-mark")
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def read(self) -> Position | None:
        """Return what the mark says; None when it is new.

        Raises:
            ValueError: it cannot be read.
        """
        text = os.pread(self._file, _SIZE, 0).decode("ascii", "replace")
        if not text.strip("\0"):
            return None
        head, _, rest = text.partition(":")
        identity, _, revision = rest.strip().partition(" ")
        if head != _HEAD or not revision.isdecimal():
            raise ValueError(f"{self.path} is not readable as a mark")
        return Position(identity, int(revision))

    def raise_to(self, identity: str, revision: int) -> None:
        """Raise the mark; a higher one of the same database stays."""
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            current = self._current()
            if current is None or current.identity != identity or current.revision < revision:
                os.pwrite(self._file, f"{_HEAD}: {identity} {revision}".ljust(_SIZE - 1).encode() + b"\n", 0)
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def _current(self) -> Position | None:
        try:
            return self.read()
        except ValueError:
            return None

    def close(self) -> None:
        """Sync and close the file."""
        os.fsync(self._file)
        os.close(self._file)
