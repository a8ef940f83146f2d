"""The engine: ten methods over an ordered, versioned key-value database.

A backend author implements this protocol and gets the whole storage contract from `EngineStore`. Keys are text without
NUL except as a scan bound, ordered by their UTF-8 bytes (which is the order of Python strings). Revisions are positive
int64, strictly increasing over all keys, never reused, and never visible before every smaller one is.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from kplane_core.errors import KplaneError, Status


class Record(msgspec.Struct, frozen=True, gc=False):
    """One version of one key.

    Attributes:
        key: the full key.
        value: the stored bytes.
        create_revision: the revision that created this life of the key.
        mod_revision: the revision that wrote this version.
    """

    key: str
    value: bytes
    create_revision: int
    mod_revision: int


class Read(msgspec.Struct, frozen=True, gc=False):
    """The answer of `Engine.read`: the record, or None, and the revision it was read at."""

    record: Record | None
    revision: int


class Page(msgspec.Struct, frozen=True):
    """The answer of `Engine.scan`.

    Attributes:
        records: in key order, at most `limit`.
        revision: the ONE snapshot they come from.
        more: whether further records follow in the range.
        total: records in the whole range at that snapshot; 0 unless asked for.
    """

    records: Sequence[Record]
    revision: int
    more: bool = False
    total: int = 0


class Written(msgspec.Struct, frozen=True, gc=False):
    """A write was committed at this revision."""

    revision: int


class Conflict(msgspec.Struct, frozen=True, gc=False):
    """A write was refused: this is what the key really holds (None: nothing) as of `revision`."""

    record: Record | None
    revision: int


class EngineEvent(msgspec.Struct, frozen=True, gc=False):
    """One committed change, or a progress mark.

    Attributes:
        key: the changed key; empty for a progress mark.
        revision: the revision of the change. A progress mark at r says: every change <= r was delivered before.
        value: the new value; None for a deletion (and for a progress mark).
        previous: the record before the change; None for a create, or when the database no longer has it.
        created: whether this change created the key.
    """

    key: str
    revision: int
    value: bytes | None = None
    previous: Record | None = None
    created: bool = False

    @property
    def is_progress(self) -> bool:
        """Whether this is a progress mark."""
        return not self.key


class Compacted(KplaneError):
    """The asked revision is older than the kept history.

    Args:
        revision: the asked revision.
        compacted: the floor: reads at it work, reads below it do not.
    """

    def __init__(self, revision: int, compacted: int) -> None:
        super().__init__(f"revision {revision} has been compacted; history starts at {compacted}")
        self.revision = revision
        self.compacted = compacted


class FutureRevision(KplaneError):
    """The asked revision does not exist yet.

    Args:
        revision: the asked revision.
        current: the newest one.
    """

    def __init__(self, revision: int, current: int) -> None:
        super().__init__(f"revision {revision} is in the future; the newest is {current}")
        self.revision = revision
        self.current = current


class EngineUnreachable(KplaneError):
    """The database cannot be reached, or gave no answer within the deadline."""


class EngineWatch(Protocol):
    """An open watch on a key range."""

    async def batch(self) -> Sequence[EngineEvent]:
        """Wait for events and return all that are ready, at least one; an empty sequence once closed.

        Raises:
            Compacted: the start, or the position reached, is older than the kept history.
            EngineUnreachable: the database went away and the watch cannot go on without a gap.
        """
        ...

    def close(self) -> None:
        """End the watch now; idempotent. A waiting `batch` returns empty."""
        ...

    async def aclose(self) -> None:
        """End the watch and wait until what it held is released; idempotent."""
        ...


class Engine(Protocol):
    """A connected, ordered, versioned key-value database.

    Every method may raise EngineUnreachable.

    An engine that cannot always tell how far a watch is, because the version of its database decides, may have an
    attribute `watch_progress: bool`. While it is False, `request_progress` has no effect, and consistent lists go to
    the engine instead of the watch cache. Without the attribute it counts as True.
    """

    async def read(self, key: str, *, at: int = 0) -> Read:
        """Return the record of `key` and the revision it was read at.

        Args:
            key: the full key.
            at: 0 reads the newest, linearizably; otherwise exactly that revision.

        Raises:
            Compacted: `at` is below the compaction revision.
            FutureRevision: `at` is beyond the newest.
        """
        ...

    async def scan(self, start: str, end: str, *, at: int = 0, limit: int = 0, count: bool = False) -> Page:
        """Return the records with start <= key < end, in key order, from one snapshot.

        Args:
            start: first key, inclusive.
            end: first key not returned.
            at: as in `read`.
            limit: at most so many records; 0 for all.
            count: also count the whole range.

        Raises:
            Compacted: `at` is below the compaction revision.
            FutureRevision: `at` is beyond the newest.
        """
        ...

    async def write(self, key: str, value: bytes | None, *, expect: int, ttl: int | None = None) -> Written | Conflict:
        """Compare-and-set one key.

        Args:
            key: the full key.
            value: the new value; None deletes.
            expect: the mod revision that the record must have; 0 means that it must be absent.
            ttl: None keeps the remaining time to live (forever for a new key), 0 clears it, n sets n seconds.

        Returns:
            Written, or Conflict with the actual record.

        Raises:
            ValueTooLarge: the database does not take a value of this size.
        """
        ...

    async def watch(self, start: str, end: str, *, after: int, progress: bool = False) -> EngineWatch:
        """Open a watch on start <= key < end.

        It delivers every committed change with a revision greater than `after` once, in revision order, with the
        previous record. An `after` in the future waits, and older changes are not delivered.

        Args:
            start: first key, inclusive.
            end: first key not watched.
            after: the exclusive start revision.
            progress: also deliver progress marks, from time to time and soon after `request_progress`.

        Raises:
            Compacted: changes after `after` are already gone (it may also be raised by the first `batch`).
        """
        ...

    async def revision(self) -> int:
        """Return the newest committed revision of the whole engine, linearizably."""
        ...

    async def request_progress(self) -> None:
        """Make open watches with `progress` deliver a progress mark soon."""
        ...

    async def compact(self, revision: int) -> None:
        """Drop versions superseded at or before `revision`; the live version of each key is kept.

        Raises:
            Compacted: `revision` is not above the current compaction revision.
            FutureRevision: it is beyond the newest.
        """
        ...

    async def compacted(self) -> int:
        """Return the compaction revision; 0 when nothing was compacted."""
        ...

    async def check(self) -> None:
        """Return when the database answers; raises EngineUnreachable otherwise."""
        ...

    async def size(self) -> int:
        """Return the bytes that the database uses."""
        ...

    async def aclose(self) -> None:
        """Close watches and the connection; idempotent."""
        ...


class ValueTooLarge(KplaneError):
    """The database does not take a value of this size.

    Args:
        size: bytes of the value.
        limit: bytes that are taken.
    """

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"the object has {size} bytes, the storage backend takes at most {limit}")
        self.size = size
        self.limit = limit

    def status(self) -> Status:
        """Return 413, naming the limit."""
        return Status(413, "RequestEntityTooLarge", f"Request entity too large: {self}")
