"""Revisions: microseconds, tie-breakers, and the text that Spanner writes timestamps in."""

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kplane_core.storage.interface import INT64_MAX
from kplane_spanner.revisions import (
    PER_MICROSECOND,
    SHARDS,
    format_timestamp,
    later_ties,
    micros_of,
    parse_timestamp,
    revision_of,
    shard_of,
    snapshot_at,
    tie_of,
)

MICROS = st.integers(min_value=0, max_value=9_000_000_000_000_000)
KEYS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@given(MICROS, KEYS)
def test_a_write_lies_between_the_snapshots_before_and_at_its_microsecond(micros, key):
    revision = revision_of(micros, tie_of(key))
    assert snapshot_at(micros - 1) < revision < snapshot_at(micros)
    assert micros_of(revision) == micros_of(snapshot_at(micros)) == micros
    assert 0 <= revision <= INT64_MAX


@given(KEYS)
def test_a_tie_breaker_is_never_that_of_a_snapshot_and_decides_the_shard(key):
    tie = tie_of(key)
    assert 0 <= tie < PER_MICROSECOND - 1
    assert 0 <= shard_of(tie) < SHARDS


def test_tie_breakers_never_change():
    """Stored revisions rest on them: a new hash would make every record another version of itself."""
    assert [tie_of(key) for key in ("/registry/pods/a", "/a", "é😀")] == [812, 42, 345]


def test_only_a_snapshot_has_nothing_later_in_its_microsecond():
    assert later_ties(snapshot_at(7)) is None
    assert later_ties(revision_of(7, 12)) == 12


@given(MICROS.filter(lambda micros: micros < 253_402_300_799_000_000))
def test_timestamps_come_back_from_text(micros):
    assert parse_timestamp(format_timestamp(micros)) == micros


@pytest.mark.parametrize(
    ("text", "microsecond"),
    [
        ("2026-12-01T04:09:16Z", 0),
        ("2026-12-01T04:09:16.1Z", 100_000),
        ("2026-12-01T04:09:16.118686Z", 118_686),
        ("2026-12-01T04:09:16.118686999Z", 118_686),
        ("2026-12-01T04:09:16.000000001Z", 0),
    ],
)
def test_spanner_leaves_zeros_out_and_may_add_nanoseconds(text, microsecond):
    whole = int(dt.datetime(2026, 12, 1, 4, 9, 16, tzinfo=dt.UTC).timestamp())
    assert parse_timestamp(text) == whole * 1_000_000 + microsecond
