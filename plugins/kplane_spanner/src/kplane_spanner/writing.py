"""Writes: a record and its row of the change log, in one commit."""

from collections.abc import Sequence
from typing import Final

import attrs

from kplane_core.engine.interface import Conflict, EngineUnreachable, Record, ValueTooLarge, Written
from kplane_core.errors import InvalidKey
from kplane_spanner import schema
from kplane_spanner.database import Database, Transaction
from kplane_spanner.errors import RowExists
from kplane_spanner.horizon import ServerClock
from kplane_spanner.messages import key_set
from kplane_spanner.revisions import revision_of, snapshot_at, tie_of
from kplane_spanner.rows import (
    RECORD_COLUMNS,
    Stored,
    create_mutations,
    delete_mutations,
    stored,
    update_mutations,
)

#: What Spanner takes in one cell.
VALUE_LIMIT: Final = 10 << 20
#: What Spanner takes as a key, with some room for the rest of an index's key.
KEY_LIMIT: Final = 8000

_COLLISIONS: Final = 20
_TOGETHER: Final = 50  # expired records that are deleted in one transaction
_SURELY_ALIVE: Final = 5_000_000  # microseconds by which the estimate of the clock cannot be wrong


@attrs.frozen
class _Found:
    """What a transaction found instead of what it expected.

    Attributes:
        record: what the key holds; None for nothing.
        expired: it holds a record whose time is over.
    """

    record: Record | None
    expired: bool = False


class Writer:
    """Compare-and-set on single keys.

    Args:
        database: where.
        clock: knows about what time it is there.
    """

    def __init__(self, database: Database, clock: ServerClock) -> None:
        self._database = database
        self._clock = clock

    async def write(self, key: str, value: bytes | None, *, expect: int, ttl: int | None) -> Written | Conflict:
        """Do what `Engine.write` promises.

        Raises:
            InvalidKey: the key is empty, holds NUL, has no UTF-8 form or is too long.
            ValueTooLarge: the value does not fit into a cell.
            EngineUnreachable: whether it was written is not known.
        """
        if ttl is not None and ttl < 0:
            raise ValueError(f"a time to live cannot be negative, got {ttl}")
        if value is not None and len(value) > VALUE_LIMIT:
            raise ValueTooLarge(len(value), VALUE_LIMIT)
        for _ in range(_COLLISIONS):
            if value is not None and not expect:
                _check_key(key)
                done = await self._create(key, value, ttl or 0)
            else:
                done = await self._change(key, value, expect, ttl)
            if done is not None:
                return done
        raise EngineUnreachable(f"the key {key!r} was in the way of its own change {_COLLISIONS} times")

    async def _create(self, key: str, value: bytes, ttl: int) -> Written | Conflict | None:
        """Insert both rows; None to try again.

        Nothing is read first: the insertion itself is the test. That the commit names a transaction which was begun
        before makes it safe to send twice; a bare commit that was sent twice could trip over its own row.
        """

        async def insert(transaction: Transaction) -> None:
            transaction.mutations.extend(create_mutations(key, value, ttl, self._clock.estimate()))

        try:
            _, micros = await self._database.transact(insert, reads=False)
        except RowExists:
            return await self._taken(key)
        self._clock.observe(micros)
        return Written(revision_of(micros, tie_of(key)))

    async def _taken(self, key: str) -> Conflict | None:
        """Return what is in the way of a creation.

        None when nothing is any more: the key was deleted meanwhile, its time was over, or only the row of the change
        log met another one of the same microsecond and tie-breaker.
        """
        answer = await self._database.read(schema.RECORDS, RECORD_COLUMNS, key_set([(key,)]))
        self._clock.observe(answer.read_micros)
        for found in map(stored, answer.rows):
            if not found.expired(answer.read_micros):
                return Conflict(found.record, snapshot_at(answer.read_micros))
            await self.expire([key])
        return None

    async def _change(self, key: str, value: bytes | None, expect: int, ttl: int | None) -> Written | Conflict | None:
        async def compare_and_set(transaction: Transaction) -> _Found | None:
            found = await self._read(transaction, key)
            if found is None:
                return _Found(None)
            if await self._is_over(transaction, found):
                return _Found(None, expired=True)
            if found.record.mod_revision != expect:
                return _Found(found.record)
            if value is None:
                transaction.mutations.extend(delete_mutations(found.record))
            else:
                transaction.mutations.extend(update_mutations(found.record, value, ttl, self._clock.estimate()))
            return None

        try:
            surprise, micros = await self._database.transact(compare_and_set, reads=True)
        except RowExists:
            return None  # another change has this microsecond and tie-breaker
        self._clock.observe(micros)
        if surprise is None:
            return Written(revision_of(micros, tie_of(key)))
        if surprise.expired:
            await self.expire([key])
        return Conflict(surprise.record, snapshot_at(micros))

    async def expire(self, keys: Sequence[str]) -> int:
        """Delete those of some records whose time to live is over, and return how many.

        Whoever commits first wins: a refresh that came before makes the record live on, and of two who want to delete
        it one finds nothing.
        """
        deleted = 0
        for batch in _apart(keys):
            deleted += await self._expire(batch)
        return deleted

    async def _expire(self, keys: Sequence[str]) -> int:
        async def delete_if_over(transaction: Transaction) -> int:
            rows = await transaction.read(schema.RECORDS, RECORD_COLUMNS, key_set([(key,) for key in keys]))
            found = [one for one in map(stored, rows) if one.expires is not None]
            if not found:
                return 0
            now = await transaction.now()
            over = [one.record for one in found if one.expired(now)]
            for record in over:
                transaction.mutations.extend(delete_mutations(record))
            return len(over)

        for _ in range(_COLLISIONS):
            try:
                deleted, micros = await self._database.transact(delete_if_over, reads=True)
            except RowExists:
                continue
            self._clock.observe(micros)
            return deleted
        return 0

    @staticmethod
    async def _read(transaction: Transaction, key: str) -> Stored | None:
        rows = await transaction.read(schema.RECORDS, RECORD_COLUMNS, key_set([(key,)]))
        return stored(rows[0]) if rows else None

    async def _is_over(self, transaction: Transaction, found: Stored) -> bool:
        """Whether a record's time is over; the database's clock decides, unless it is far from that."""
        if found.expires is None or not found.expired(self._clock.estimate() + _SURELY_ALIVE):
            return False
        return found.expired(await transaction.now())


def _apart(keys: Sequence[str]) -> Sequence[Sequence[str]]:
    """Return the keys in batches, each for one commit: one microsecond, in which every tie-breaker counts once."""
    batches: list[dict[int, str]] = [{}]
    for key in keys:
        tie = tie_of(key)
        if tie in batches[-1] or len(batches[-1]) >= _TOGETHER:
            batches.append({})
        batches[-1][tie] = key
    return [list(batch.values()) for batch in batches if batch]


def _check_key(key: str) -> None:
    if not key or "\0" in key:
        raise InvalidKey(f"a key must have at least one character and no NUL, got {key!r}")
    try:
        size = len(key.encode())
    except UnicodeEncodeError as error:
        raise InvalidKey(f"the key {key!r} has no UTF-8 form: {error.reason}") from error
    if size > KEY_LIMIT:
        raise InvalidKey(f"the key {key[:60]!r}... has {size} bytes, Spanner takes at most {KEY_LIMIT}")
