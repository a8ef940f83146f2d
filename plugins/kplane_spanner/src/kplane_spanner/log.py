"""Reading the change log in the order of revisions."""

from collections.abc import Sequence
from typing import Any, Final

import attrs

from kplane_core.engine.interface import EngineEvent
from kplane_spanner import schema
from kplane_spanner.database import Database
from kplane_spanner.messages import KeySet, Row, add_range, at
from kplane_spanner.revisions import SHARDS, later_ties, micros_of, snapshot_at
from kplane_spanner.rows import LOG_COLUMNS, event

#: Rows that are read at once: more than the 999 that a microsecond can hold, which is therefore never cut.
PAGE: Final = 1000
_KEY: Final = LOG_COLUMNS.index("key")


@attrs.frozen
class Tail:
    """What the newest end of the log holds.

    Attributes:
        events: the changes in order, if `complete`.
        revision: of the snapshot that was read.
        complete: whether these are all; otherwise there are too many to take at once.
    """

    events: Sequence[EngineEvent]
    revision: int
    complete: bool


class ChangeLog:
    """The log of one database.

    A read of a snapshot sees every commit up to it, and no later commit gets an earlier timestamp. So what lies
    between two snapshots is complete, whoever wrote it and however long the commits took to come back.

    Args:
        database: where.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def tail(self, after: int) -> Tail:
        """Return what was committed after a revision, from a new linearizable snapshot."""
        answer = await self._database.read(schema.LOG, LOG_COLUMNS, _keys(after, None), limit=PAGE)
        complete = len(answer.rows) < PAGE
        return Tail(_events(answer.rows) if complete else (), snapshot_at(answer.read_micros), complete)

    async def since(self, after: int, until: int, *, at_revision: int) -> Sequence[Row] | None:
        """Return the rows after one revision up to a snapshot's, in no order; None when they are too many.

        Args:
            after: exclusive.
            until: inclusive; of a snapshot.
            at_revision: which snapshot to read, not before `until`.
        """
        answer = await self._database.read(
            schema.LOG, LOG_COLUMNS, _keys(after, until), micros=micros_of(at_revision), limit=PAGE
        )
        return answer.rows if len(answer.rows) < PAGE else None

    async def later_in_microsecond(self, revision: int) -> Sequence[EngineEvent]:
        """Return the changes of a revision's microsecond that come after it."""
        if later_ties(revision) is None:
            return ()
        until = snapshot_at(micros_of(revision))
        rows = await self.since(revision, until, at_revision=until)
        assert rows is not None, "a microsecond has fewer changes than a page"
        return _events(rows)


class Cursor:
    """Reads a part of the log page by page, from the oldest change to the newest.

    The log lies in shards, each in the order of time, so a read that is cut off after so many rows has everything of
    one shard and nothing of another. A page is therefore a span of time, halved until everything in it fits.

    Attributes:
        position: everything up to this revision was returned.
        until: where the part ends.

    Args:
        log: what to read.
        after: exclusive start.
        until: inclusive end, the revision of a snapshot that is still readable.
        start: first key, inclusive.
        end: first key left out.
    """

    def __init__(self, log: ChangeLog, after: int, until: int, start: str = "", end: str = "") -> None:
        self.position = after
        self.until = until
        self._log = log
        self._start = start
        self._end = end
        self._span = max(micros_of(until) - micros_of(after), 0)

    @property
    def finished(self) -> bool:
        """Whether the end was reached."""
        return self.position >= self.until

    async def page(self) -> Sequence[EngineEvent]:
        """Return the next changes of the range; there may be none in a page."""
        while True:
            low = micros_of(self.position)
            reached = min(snapshot_at(low + self._span), self.until)
            rows = await self._log.since(self.position, reached, at_revision=self.until)
            if rows is not None:
                self.position = reached
                self._span = max(self._span * 2, 1)
                return _events([row for row in rows if self._wanted(row[_KEY])])
            self._span //= 2

    def _wanted(self, key: str | None) -> bool:
        return not self._end or (key is not None and self._start <= key < self._end)


def _events(rows: Sequence[Row]) -> Sequence[EngineEvent]:
    return sorted(map(event, rows), key=_revision)


def _revision(change: EngineEvent) -> int:
    return change.revision


def _keys(after: int, until: int | None) -> Any:
    """Return the keys of the log after one revision up to another one, which is a snapshot's, in every shard."""
    keys = KeySet()
    low = at(micros_of(after))
    tie = later_ties(after)
    for shard in range(SHARDS):
        start = (shard, low) if tie is None else (shard, low, tie)
        end = (shard,) if until is None else (shard, at(micros_of(until)))
        add_range(keys, start, end, after_start=True, with_end=True)
    return keys
