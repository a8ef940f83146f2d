"""The tables: how they are made, and how a database is told that holds something else."""

from collections.abc import Sequence
from typing import Final

VERSION: Final = 1

RECORDS: Final = "kplane_records"
LOG: Final = "kplane_log"
META: Final = "kplane_meta"
EXPIRY_INDEX: Final = "kplane_records_by_expiry"

#: Spanner keeps old versions for this long unless it is told to keep them longer.
DEFAULT_RETENTION: Final = 3600
#: The longest retention that Spanner offers.
LONGEST_RETENTION: Final = 7 * 24 * 3600

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 24 * 3600}

# The backstop must not be faster than the longest history: what it deletes, nobody is told of.
_BACKSTOP_DAYS: Final = 8

_RECORDS = f"""CREATE TABLE {RECORDS} (
  key STRING(MAX) NOT NULL,
  value BYTES(MAX) NOT NULL,
  mod_ts TIMESTAMP NOT NULL OPTIONS (allow_commit_timestamp=true),
  create_ts TIMESTAMP NOT NULL OPTIONS (allow_commit_timestamp=true),
  lease_ts TIMESTAMP OPTIONS (allow_commit_timestamp=true),
  ttl INT64,
  expire_shard INT64,
  expire_at TIMESTAMP,
) PRIMARY KEY (key),
  ROW DELETION POLICY (OLDER_THAN(expire_at, INTERVAL {_BACKSTOP_DAYS} DAY))"""

_LOG = f"""CREATE TABLE {LOG} (
  shard INT64 NOT NULL,
  commit_ts TIMESTAMP NOT NULL OPTIONS (allow_commit_timestamp=true),
  tie INT64 NOT NULL,
  key STRING(MAX) NOT NULL,
  value BYTES(MAX),
  prev_value BYTES(MAX),
  prev_mod_ts TIMESTAMP,
  prev_create_ts TIMESTAMP,
) PRIMARY KEY (shard, commit_ts, tie),
  ROW DELETION POLICY (OLDER_THAN(commit_ts, INTERVAL {_BACKSTOP_DAYS} DAY))"""

_META = f"""CREATE TABLE {META} (
  id INT64 NOT NULL,
  schema_version INT64 NOT NULL,
  compacted INT64 NOT NULL,
  born TIMESTAMP NOT NULL OPTIONS (allow_commit_timestamp=true),
) PRIMARY KEY (id)"""

_INDEX = f"CREATE NULL_FILTERED INDEX {EXPIRY_INDEX} ON {RECORDS} (expire_shard, expire_at)"

#: Every column, as the database's information schema lists them.
COLUMNS: Final = frozenset(
    {
        (RECORDS, "key", "STRING(MAX)"),
        (RECORDS, "value", "BYTES(MAX)"),
        (RECORDS, "mod_ts", "TIMESTAMP"),
        (RECORDS, "create_ts", "TIMESTAMP"),
        (RECORDS, "lease_ts", "TIMESTAMP"),
        (RECORDS, "ttl", "INT64"),
        (RECORDS, "expire_shard", "INT64"),
        (RECORDS, "expire_at", "TIMESTAMP"),
        (LOG, "shard", "INT64"),
        (LOG, "commit_ts", "TIMESTAMP"),
        (LOG, "tie", "INT64"),
        (LOG, "key", "STRING(MAX)"),
        (LOG, "value", "BYTES(MAX)"),
        (LOG, "prev_value", "BYTES(MAX)"),
        (LOG, "prev_mod_ts", "TIMESTAMP"),
        (LOG, "prev_create_ts", "TIMESTAMP"),
        (META, "id", "INT64"),
        (META, "schema_version", "INT64"),
        (META, "compacted", "INT64"),
        (META, "born", "TIMESTAMP"),
    }
)

LIST_COLUMNS: Final = (
    "SELECT table_name, column_name, spanner_type FROM information_schema.columns "
    "WHERE table_schema = '' AND STARTS_WITH(table_name, 'kplane_')"
)
LIST_INDEXES: Final = (
    "SELECT index_name FROM information_schema.indexes "  # noqa: S608 - a constant
    f"WHERE table_schema = '' AND table_name = '{RECORDS}' AND index_type = 'INDEX'"
)


def statements(database: str, retention: float) -> Sequence[str]:
    """Return the DDL.

    Args:
        database: its short name, which one statement needs.
        retention: seconds of history that the database must keep.
    """
    made = [_RECORDS, _LOG, _META, _INDEX]
    if retention > DEFAULT_RETENTION:
        made.append(retention_statement(database, retention))
    return made


def retention_statement(database: str, retention: float) -> str:
    """Return the statement that lets the database keep old versions for so many seconds."""
    return f"ALTER DATABASE `{database}` SET OPTIONS (version_retention_period = '{int(-(-retention // 1))}s')"


def seconds(period: str) -> int:
    """Return a period as Spanner writes it, such as `7d` or `3600s`, in seconds."""
    return int(period[:-1]) * _UNITS[period[-1]]


def difference(columns: frozenset[tuple[str, str, str]], indexes: frozenset[str]) -> str:
    """Return in words how a database differs from the schema; empty when it does not."""
    missing = sorted(f"{table}.{column}" for table, column, kind in COLUMNS - columns)
    foreign = sorted(f"{table}.{column} {kind}" for table, column, kind in columns - COLUMNS)
    if EXPIRY_INDEX not in indexes:
        missing.append(EXPIRY_INDEX)
    parts = []
    if missing:
        parts.append(f"it lacks {', '.join(missing)}")
    if foreign:
        parts.append(f"it has {', '.join(foreign)}")
    return " and ".join(parts)
