"""What is known of the database's clock, and how far back its history reaches."""

import time
from collections.abc import Callable

from kplane_core.engine.interface import Compacted, EngineUnreachable, FutureRevision
from kplane_spanner import messages, schema
from kplane_spanner.database import Database, Transaction
from kplane_spanner.messages import key_set
from kplane_spanner.revisions import micros_of, parse_timestamp, snapshot_at

#: Microseconds for which the change log keeps everything, whatever is compacted.
TRIM_GRACE = 2_000_000

_META_COLUMNS = ("compacted", "born")


class ServerClock:
    """A lower bound of the database's clock: the latest timestamp it told, plus the time since then.

    The clock of this machine is never asked what time it is, only how much of it passed.

    Args:
        monotonic: seconds that never go backwards.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._told = 0
        self._since = 0.0

    def observe(self, micros: int) -> None:
        """Take note of a timestamp that the database told."""
        if micros > self.estimate():
            self._told, self._since = micros, self._monotonic()

    def estimate(self) -> int:
        """Return a microsecond that the database's clock has surely reached; 0 when it told nothing yet."""
        return self._told + int((self._monotonic() - self._since) * 1e6) if self._told else 0


class Horizon:
    """The oldest revision that can still be asked for.

    Three things move it, whichever is the newest: what was compacted, the retention, and the birth of the database,
    before which there is nothing that could be told (after a restore, that is the restore).

    Args:
        database: holds the compaction revision.
        clock: fed with every timestamp that is seen.
        retention: seconds.
        created_micros: when the database was created or restored, if known.
    """

    def __init__(self, database: Database, clock: ServerClock, retention: float, created_micros: int = 0) -> None:
        self.clock = clock
        self._database = database
        self._retention = int(retention * 1e6)
        self._born = created_micros
        self._compacted = 0

    @property
    def floor(self) -> int:
        """Reads at it are served, reads below it are not; watches may start one below."""
        kept = self.clock.estimate() - self._retention
        return max(self._compacted, snapshot_at(max(self._born, kept)))

    @property
    def compacted(self) -> int:
        """The floor, as far as something was dropped; 0 when nothing was."""
        floor = self.floor
        return 0 if floor == snapshot_at(self._born) else floor

    async def refresh(self) -> int:
        """Ask the database for its newest snapshot and for what was compacted, and return the snapshot's revision.

        Raises:
            EngineUnreachable: it gave no answer, or holds no tables of ours any more.
        """
        answer = await self._database.read(schema.META, _META_COLUMNS, key_set([(1,)]))
        if not answer.rows:
            raise EngineUnreachable(f"Spanner database {self._database.name} lost its {schema.META} row")
        self._learn(answer.rows[0])
        self.clock.observe(answer.read_micros)
        return snapshot_at(answer.read_micros)

    async def check(self, revision: int) -> None:
        """Return when the database can be read as of a revision.

        Raises:
            Compacted: it is too old.
            FutureRevision: it is beyond the newest.
        """
        current = await self.refresh()
        if revision > current:
            raise FutureRevision(revision, current)
        self.check_floor(revision)

    def check_floor(self, revision: int) -> None:
        """Refuse a revision that is below what is known to be the floor.

        Raises:
            Compacted: it is.
        """
        if revision < self.floor:
            raise Compacted(revision, self.floor)

    async def compact(self, revision: int) -> None:
        """Raise the floor, in the database.

        Raises:
            Compacted: it is there or higher already.
            FutureRevision: the revision is beyond the newest.
        """
        current = await self.refresh()
        if revision > current:
            raise FutureRevision(revision, current)

        async def raise_floor(transaction: Transaction) -> None:
            ((compacted, born),) = await transaction.read(schema.META, _META_COLUMNS, key_set([(1,)]))
            self._learn((compacted, born))
            if revision <= self.floor:
                raise Compacted(revision, self.floor)
            transaction.mutations.append(messages.update(schema.META, ("id", "compacted"), ("1", str(revision))))

        await self._database.transact(raise_floor, reads=True)
        self._compacted = max(self._compacted, revision)
        await self.trim()

    async def trim(self) -> None:
        """Delete the part of the change log that nobody can ask for any more.

        What is younger than the grace stays in any case: another process may be about to read it. One that comes later
        looks at the floor.
        """
        current = await self.refresh()
        await self._database.delete_where(
            f"DELETE FROM {schema.LOG} WHERE commit_ts < @floor",  # noqa: S608 - a constant
            {"floor": min(micros_of(self.floor), micros_of(current) - TRIM_GRACE)},
        )

    def _learn(self, row: messages.Row) -> None:
        compacted, born = row
        self._compacted = max(self._compacted, int(compacted or 0))
        self._born = max(self._born, parse_timestamp(born or ""))
