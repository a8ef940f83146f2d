"""The rows of the tables, as records and events and back."""

from collections.abc import Sequence
from typing import Any, Final

import attrs

from kplane_core.engine.interface import EngineEvent, Record
from kplane_spanner import schema
from kplane_spanner.messages import COMMIT_TIMESTAMP, Cell, Row, at, delete, insert, pack_bytes, unpack_bytes, update
from kplane_spanner.revisions import micros_of, parse_timestamp, revision_of, shard_of, tie_of

RECORD_COLUMNS: Final = ("key", "value", "mod_ts", "create_ts", "lease_ts", "ttl")
LOG_COLUMNS: Final = ("commit_ts", "tie", "key", "value", "prev_value", "prev_mod_ts", "prev_create_ts")

_LOG_ROW: Final = ("shard", *LOG_COLUMNS)
_LEASE: Final = ("lease_ts", "ttl", "expire_shard", "expire_at")
_NO_LEASE: Final[tuple[Cell, ...]] = (None, None, None, None)


@attrs.frozen
class Stored:
    """A row of the records table.

    Attributes:
        record: what it holds.
        expires: the microsecond from which on it does not count any more; None for never.
    """

    record: Record
    expires: int | None

    def expired(self, micros: int) -> bool:
        """Whether its time to live is over at a microsecond of the database's clock."""
        return self.expires is not None and self.expires <= micros


def stored(row: Row) -> Stored:
    """Return what a row with RECORD_COLUMNS holds."""
    key, value, mod_ts, create_ts, lease_ts, ttl = row
    assert key is not None
    assert value is not None
    assert mod_ts is not None
    assert create_ts is not None
    tie = tie_of(key)
    modified = parse_timestamp(mod_ts)
    created = modified if create_ts == mod_ts else parse_timestamp(create_ts)
    expires = parse_timestamp(lease_ts) + int(ttl) * 1_000_000 if lease_ts and ttl else None
    return Stored(
        Record(key, unpack_bytes(value), revision_of(created, tie), revision_of(modified, tie)),
        expires,
    )


def event(row: Row) -> EngineEvent:
    """Return the change that a row with LOG_COLUMNS tells of."""
    commit_ts, tie_text, key, value, prev_value, prev_mod_ts, prev_create_ts = row
    assert commit_ts is not None
    assert tie_text is not None
    assert key is not None
    tie = int(tie_text)
    previous = None
    if prev_value is not None and prev_mod_ts is not None and prev_create_ts is not None:
        previous = Record(
            key,
            unpack_bytes(prev_value),
            revision_of(parse_timestamp(prev_create_ts), tie),
            revision_of(parse_timestamp(prev_mod_ts), tie),
        )
    return EngineEvent(
        key,
        revision_of(parse_timestamp(commit_ts), tie),
        None if value is None else unpack_bytes(value),
        previous,
        previous is None,
    )


def create_mutations(key: str, value: bytes, ttl: int, now: int) -> Sequence[Any]:
    """Return what creates a record, with its row of the change log.

    Args:
        key: the new key.
        value: its value.
        ttl: seconds to live; 0 for ever.
        now: a microsecond not after the commit.
    """
    columns = ("key", "value", "mod_ts", "create_ts", *_LEASE)
    packed = pack_bytes(value)
    row = (key, packed, COMMIT_TIMESTAMP, COMMIT_TIMESTAMP, *_lease(key, ttl, now))
    return insert(schema.RECORDS, columns, row), _log(key, packed, None)


def update_mutations(current: Record, value: bytes, ttl: int | None, now: int) -> Sequence[Any]:
    """Return what gives a record a new value, with its row of the change log; see `create_mutations`.

    Args:
        current: what the key holds.
        value: the new value.
        ttl: None keeps the remaining time to live.
        now: as in `create_mutations`.
    """
    packed = pack_bytes(value)
    columns: Sequence[str] = ("key", "value", "mod_ts")
    row: Sequence[Cell] = (current.key, packed, COMMIT_TIMESTAMP)
    if ttl is not None:
        columns, row = (*columns, *_LEASE), (*row, *_lease(current.key, ttl, now))
    return update(schema.RECORDS, columns, row), _log(current.key, packed, current)


def delete_mutations(current: Record) -> Sequence[Any]:
    """Return what deletes a record, with its row of the change log."""
    return delete(schema.RECORDS, (current.key,)), _log(current.key, None, current)


def _log(key: str, packed: str | None, previous: Record | None) -> Any:
    tie = tie_of(key)
    before: Row = (None, None, None)
    if previous is not None:
        before = (
            pack_bytes(previous.value),
            at(micros_of(previous.mod_revision)),
            at(micros_of(previous.create_revision)),
        )
    return insert(schema.LOG, _LOG_ROW, (str(shard_of(tie)), COMMIT_TIMESTAMP, str(tie), key, packed, *before))


def _lease(key: str, ttl: int, now: int) -> tuple[Cell, ...]:
    """Return the cells of a time to live.

    It counts from the commit: `lease_ts` and `ttl` decide. `expire_at` only tells the sweeper where to look, and may
    be a little early.
    """
    if not ttl:
        return _NO_LEASE
    return COMMIT_TIMESTAMP, str(ttl), str(shard_of(tie_of(key))), at(now + ttl * 1_000_000)
