"""The SQLite engine: kplane's ten methods over one file.

Writes go to one thread, which commits together what was asked for together. Short reads run on the event loop: in
SQLite's write-ahead-log mode they wait for nobody, and a thread would cost more than they do. Long ones have threads.
"""

import asyncio
import time
from collections.abc import Callable
from functools import partial

from kplane_core.engine.interface import Conflict, EngineUnreachable, Page, Read, ValueTooLarge, Written
from kplane_core.errors import InvalidKey
from kplane_sqlite import changes, reading
from kplane_sqlite.changes import Change
from kplane_sqlite.integrity import Integrity
from kplane_sqlite.opening import Opened, Settings, open_database
from kplane_sqlite.reading import Readers
from kplane_sqlite.watching import Hub, SqliteWatch
from kplane_sqlite.writer import Writer

_REMEMBERED = 10_000  # ranges that were found to be large
_GRACE = 0.06  # seconds that other processes have to read what will be dropped; they look every 0.02
_LARGEST = 512 << 20  # bytes of a value; SQLite itself ends at twice that, for a whole row


class SqliteEngine:
    """An `Engine` over one SQLite file, which other processes of this machine may use at the same time.

    Args:
        opened: the database; closed with the engine.
        settings: as it was opened.
        progress_interval: seconds between progress marks that nobody asked for; 0 for none.
        clock: seconds since the epoch, for expiry.
    """

    def __init__(
        self,
        opened: Opened,
        settings: Settings,
        *,
        progress_interval: float = 2.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings
        self._opened = opened
        self._clock = clock
        self._closed = False
        self._large: set[tuple[str, str]] = set()
        self._readers = Readers(settings)
        self._hub = Hub(self._readers, progress_interval)
        self._writer = Writer(opened, settings, clock, self._hub)
        self.integrity = Integrity(self._readers, settings.path)

    @classmethod
    async def open(
        cls, settings: Settings, *, progress_interval: float = 2.0, clock: Callable[[], float] = time.time
    ) -> "SqliteEngine":
        """Open the file, or make it, and return the engine.

        Raises:
            UsageError: the path cannot be used.
            EngineUnreachable: SQLite refuses.
        """
        opened = open_database(settings)
        return cls(opened, settings, progress_interval=progress_interval, clock=clock)

    @property
    def closed(self) -> bool:
        """Whether `aclose` was called."""
        return self._closed

    async def read(self, key: str, *, at: int = 0) -> Read:
        """Return the record of `key` and the revision it was read at."""
        if at:
            return await self._readers.quickly(lambda connection: reading.read_past(connection, key, at))
        while True:
            try:
                return await self._readers.quickly(lambda connection: reading.read(connection, key, self._now()))
            except reading.Expired:
                await self.expire_due()

    async def scan(self, start: str, end: str, *, at: int = 0, limit: int = 0, count: bool = False) -> Page:
        """Return the records with start <= key < end, in key order, from one snapshot."""
        bounds = (start, end)
        if at:
            return await self._readers.apart(lambda one: reading.scan_past(one, bounds, limit, at, count=count))
        while True:
            few = partial(reading.scan_few, bounds=bounds, limit=limit, now=self._now(), count=count)
            whole = partial(reading.scan, bounds=bounds, limit=limit, now=self._now(), count=count)
            try:
                if bounds not in self._large and (page := await self._readers.quickly(few)) is not None:
                    return page
                page = await self._readers.apart(whole)
            except reading.Expired:
                await self.expire_due()
            else:
                self._remember(bounds, large=len(page.records) > reading.FEW)
                return page

    async def write(self, key: str, value: bytes | None, *, expect: int, ttl: int | None = None) -> Written | Conflict:
        """Compare-and-set one key; the answer comes when the change is on disk.

        To delete an absent key is a Conflict (with no record): there is no change that could have a revision.

        Raises:
            InvalidKey: the key is empty, holds NUL or has no UTF-8 form.
            ValueTooLarge: the value is larger than a row may be.
        """
        _check_key(key)
        if value is not None and len(value) > _LARGEST:
            raise ValueTooLarge(len(value), _LARGEST)
        if ttl is not None and ttl < 0:
            raise ValueError(f"a time to live cannot be negative, got {ttl}")
        return await self._open_writer().write(Change(key, value, expect, ttl))

    async def watch(self, start: str, end: str, *, after: int, progress: bool = False) -> SqliteWatch:
        """Open a watch on start <= key < end."""
        return await self._hub.open((start, end), after, progress=progress)

    async def revision(self) -> int:
        """Return the newest committed revision."""
        return (await self._readers.quickly(reading.position))[0]

    async def request_progress(self) -> None:
        """Deliver a progress mark to every open watch with `progress`."""
        await self._hub.mark_progress()

    async def compact(self, revision: int) -> None:
        """Let history begin at `revision`, and give the room of what was superseded before back to the file system."""
        await self._hub.catch_up()
        await self._open_writer().call(lambda connection: changes.raise_floor(connection, revision))
        # Open watches, of other processes too, are served as long as the rows are there: let them take what is new.
        await asyncio.sleep(_GRACE)
        await self.reclaim()

    async def compacted(self) -> int:
        """Return the compaction revision, whoever set it; 0 for none."""
        return (await self._readers.quickly(reading.position))[1]

    async def check(self) -> None:
        """Return when the file can be read and the last write succeeded.

        Raises:
            EngineUnreachable: it cannot, it did not, or the file is not the one that was opened.
        """
        await self._readers.quickly(reading.position)
        try:
            stat = self._settings.path.stat()
        except OSError as error:
            raise EngineUnreachable(f"{self._settings.path}: the file is gone: {error.strerror}") from error
        if (stat.st_dev, stat.st_ino) != self._opened.inode:
            raise EngineUnreachable(f"{self._settings.path}: the file was replaced while it was open; restart kplane")
        if self._writer.trouble is not None:
            raise self._writer.trouble

    async def size(self) -> int:
        """Return the bytes of the database and of its write-ahead log."""
        self._open_writer()
        log = self._settings.path.with_name(f"{self._settings.path.name}-wal")
        try:
            return self._settings.path.stat().st_size + (log.stat().st_size if log.exists() else 0)
        except OSError as error:
            raise EngineUnreachable(f"{self._settings.path}: the file is gone: {error.strerror}") from error

    async def aclose(self) -> None:
        """End all watches, finish what is being written and close the file; idempotent."""
        if self._closed:
            return
        self._closed = True
        await self._hub.aclose()
        await self.integrity.aclose()
        self._readers.refuse()
        await asyncio.to_thread(self._close)

    async def reclaim(self) -> None:
        """Drop now what lies below the compaction revision, and give the room back to the file system.

        It goes in small steps, between which others write, and may be cut off anywhere.
        """
        while await self._open_writer().call(changes.sweep):
            pass
        while await self._open_writer().call(changes.shrink, atomic=False):
            pass
        timeout = self._settings.busy_timeout
        await self._open_writer().call(lambda connection: changes.checkpoint(connection, timeout), atomic=False)

    def _remember(self, bounds: tuple[str, str], *, large: bool) -> None:
        """Note whether it is worth trying to scan a range on the loop."""
        if len(self._large) >= _REMEMBERED:
            self._large.clear()
        (self._large.add if large else self._large.discard)(bounds)

    async def expire_due(self) -> None:
        """Delete the records whose time has come."""
        await self._open_writer().expire()

    def clock_was_turned(self) -> None:
        """Look anew for what is due, without waiting for it; for those who turn the clock by hand."""
        self._open_writer().nudge()

    def _close(self) -> None:
        self._readers.close()
        # Last: who closes last moves the write-ahead log into the database, which an interrupted connection does not.
        self._writer.stop()

    def _now(self) -> int:
        return changes.microseconds(self._clock())

    def _open_writer(self) -> Writer:
        if self._closed:
            raise reading.closed(self._settings)
        return self._writer


def _check_key(key: str) -> None:
    if not key or "\0" in key:
        raise InvalidKey(f"a key must have at least one character and no NUL, got {key!r}")
    if not key.isascii():
        try:
            key.encode()
        except UnicodeEncodeError as error:
            raise InvalidKey(f"the key {key!r} has no UTF-8 form: {error.reason}") from error
