"""Revisions from commit timestamps.

Spanner's commit timestamps are whole microseconds and follow the order of commits, but two commits that touch nothing
in common may share one. A revision is therefore the microsecond times a thousand plus a tie-breaker that the key alone
decides. It fits an int64 and looks like the UnixNano that the Go original uses.

The tie-breakers of writes are 0 to 998. The number 999 belongs to snapshots: the revision of "everything up to this
microsecond" is above every write in it and below every write after it.

Two keys may have the same tie-breaker. That they do not also share a microsecond is the database's business, not luck:
the change log's primary key is (shard, commit timestamp, tie-breaker), without the key, and every write inserts its
row there. A second write of the same microsecond and tie-breaker is refused and done again, in a later microsecond. So
no two changes have the same revision, and no bookmark, list or resume point can fall between two that would.
"""

import datetime as dt
import zlib
from functools import lru_cache
from typing import Final

PER_MICROSECOND: Final = 1000
SHARDS: Final = 16
"""Parts of the change log and of the expiry index, so that neither has one hot end."""

_TIES: Final = PER_MICROSECOND - 1
_SNAPSHOT: Final = PER_MICROSECOND - 1
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_SECOND_DIGITS: Final = len("2026-01-01T00:00:00")


def tie_of(key: str) -> int:
    """Return the tie-breaker of a key: stable for ever, because stored revisions rest on it."""
    return zlib.crc32(key.encode()) % _TIES


def shard_of(tie: int) -> int:
    """Return the shard of a tie-breaker, so that equal ones always meet in one shard."""
    return tie % SHARDS


def revision_of(micros: int, tie: int) -> int:
    """Return the revision of a write that was committed at a microsecond."""
    return micros * PER_MICROSECOND + tie


def snapshot_at(micros: int) -> int:
    """Return the revision of the snapshot that holds everything up to a microsecond, and nothing later."""
    return micros * PER_MICROSECOND + _SNAPSHOT


def micros_of(revision: int) -> int:
    """Return the microsecond of a revision."""
    return revision // PER_MICROSECOND


def later_ties(revision: int) -> int | None:
    """Return the tie-breaker after which writes of the same microsecond are later; None when none can be."""
    tie = revision % PER_MICROSECOND
    return None if tie == _SNAPSHOT else tie


@lru_cache(maxsize=4096)
def _seconds(text: str) -> int:
    return int((dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC) - _EPOCH).total_seconds())


def parse_timestamp(text: str) -> int:
    """Return the microsecond of an RFC 3339 timestamp in UTC; what is below a microsecond is cut off."""
    fraction = text[_SECOND_DIGITS + 1 : -1]
    return _seconds(text[:_SECOND_DIGITS]) * 1_000_000 + int(fraction.ljust(6, "0")[:6])


def format_timestamp(micros: int) -> str:
    """Return a microsecond as RFC 3339 in UTC."""
    seconds, fraction = divmod(micros, 1_000_000)
    return f"{(_EPOCH + dt.timedelta(seconds=seconds)).strftime('%Y-%m-%dT%H:%M:%S')}.{fraction:06}Z"
