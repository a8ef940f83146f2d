"""Commits that share a microsecond, which the emulator never makes: on a database whose clock the test turns."""

import asyncio
import copy
import itertools

import pytest

from kplane_core.engine.interface import Conflict, Record, Written
from kplane_spanner import schema
from kplane_spanner.engine import SpannerEngine
from kplane_spanner.errors import RowExists
from kplane_spanner.horizon import Horizon, ServerClock
from kplane_spanner.log import PAGE, ChangeLog, Cursor
from kplane_spanner.messages import COMMIT_TIMESTAMP, RowReader, at
from kplane_spanner.revisions import PER_MICROSECOND, micros_of, revision_of, snapshot_at, tie_of
from kplane_spanner.writing import Writer

START = 1_800_000_000_000_000
KEYS = {
    schema.RECORDS: ("key",),
    schema.LOG: ("shard", "commit_ts", "tie"),
    schema.META: ("id",),
}


class TurnedDatabase:
    """A database in memory whose commits happen at the microsecond that the test says, also several at one."""

    name = "turned"

    def __init__(self):
        self.micros = START
        meta = {("1",): {"id": "1", "schema_version": "1", "compacted": "0", "born": at(START - 1000)}}
        self._versions = [(0, {schema.RECORDS: {}, schema.LOG: {}, schema.META: meta})]
        self.refused = 0

    async def read(self, table, columns, keys, *, micros=0, limit=0):
        now = micros or self.micros
        tables = next(tables for since, tables in reversed(self._versions) if since <= now)
        found = RowReader()
        found.read_micros = now
        rows = [
            row
            for key, row in sorted(tables[table].items(), key=lambda one: typed(table, one[0]))
            if selected(table, key, keys)
        ]
        found.rows = [tuple(row[column] for column in columns) for row in rows]
        if limit:
            found.rows = found.rows[:limit]
        return found

    async def transact(self, body, *, reads):  # noqa: ARG002 - as Database has it
        transaction = TurnedTransaction(self)
        answer = await body(transaction)
        tables = copy.deepcopy(self._versions[-1][1])
        for mutation in transaction.mutations:
            self._apply(tables, mutation)
        self._versions.append((self.micros, tables))
        return answer, self.micros

    def _apply(self, tables, mutation):
        kind = mutation.WhichOneof("operation")
        change = getattr(mutation, kind)
        if kind == "delete":
            for key in change.key_set.keys:
                del tables[change.table][tuple(part.string_value for part in key.values)]
            return
        cells = [None if cell.HasField("null_value") else cell.string_value for cell in change.values[0].values]
        row = dict(zip(change.columns, cells, strict=True))
        row = {name: at(self.micros) if cell == COMMIT_TIMESTAMP else cell for name, cell in row.items()}
        key = tuple(row[name] for name in KEYS[change.table])
        if kind == "insert" and key in tables[change.table]:
            self.refused += 1
            self.micros += 1  # as time goes by
            raise RowExists(f"{change.table} {key}")
        tables[change.table].setdefault(key, dict.fromkeys(("lease_ts", "ttl"))).update(row)


class TurnedTransaction:
    def __init__(self, database):
        self._database = database
        self.mutations = []

    async def read(self, table, columns, keys):
        return (await self._database.read(table, columns, keys)).rows


def typed(table, key):
    return tuple(
        int(part) if name in {"shard", "tie", "id"} else part for name, part in zip(KEYS[table], key, strict=False)
    )


def selected(table, key, keys):
    mine = typed(table, key)

    def bound(parts):
        return typed(table, tuple(part.string_value for part in parts.values))

    def inside(one):
        start = bound(getattr(one, one.WhichOneof("start_key_type")))
        end = bound(getattr(one, one.WhichOneof("end_key_type")))
        after = mine[: len(start)] > start if one.HasField("start_open") else mine[: len(start)] >= start
        return after and (mine[: len(end)] <= end if one.HasField("end_closed") else mine[: len(end)] < end)

    return any(bound(one) == mine for one in keys.keys) or any(inside(one) for one in keys.ranges)


class Nobody:
    def committed(self):
        """There is no watch to tell."""


class TurnedEngine(SpannerEngine):
    """The engine's reads and writes on such a database, without its tasks."""

    def __init__(self, database):
        self._closed = False
        self.database = database
        self._clock = ServerClock()
        self.horizon = Horizon(database, self._clock, 3600.0)
        self._writer = Writer(database, self._clock)
        self._log = ChangeLog(database)
        self.hub = Nobody()


@pytest.fixture
def database():
    return TurnedDatabase()


@pytest.fixture
def engine(database):
    return TurnedEngine(database)


def colliding(count):
    """Return so many keys with one tie-breaker."""
    alike = (key for key in (f"/a/{number}" for number in itertools.count()) if tie_of(key) == tie_of("/a/0"))
    return list(itertools.islice(alike, count))


def test_two_writes_of_one_microsecond_have_two_revisions(database, engine):
    """Different tie-breakers tell them apart, and the log delivers them in that order."""

    async def scenario():
        first = await engine.write("/a/x", b"1", expect=0)
        second = await engine.write("/a/y", b"1", expect=0)
        assert micros_of(first.revision) == micros_of(second.revision) == START
        assert first.revision != second.revision
        tail = await ChangeLog(database).tail(snapshot_at(START - 1))
        assert [change.revision for change in tail.events] == sorted([first.revision, second.revision])

    asyncio.run(scenario())


def test_writes_whose_tie_breakers_collide_are_pushed_apart(database, engine):
    """The log's primary key refuses the second one, which is then done in a later microsecond, unnoticed."""
    one, other = colliding(2)

    async def scenario():
        first = await engine.write(one, b"1", expect=0)
        second = await engine.write(other, b"1", expect=0)
        assert isinstance(second, Written)
        assert database.refused == 1
        assert micros_of(second.revision) > micros_of(first.revision)
        assert (await engine.read(other)).record == Record(other, b"1", second.revision, second.revision)

        database.micros += 10
        third = await engine.write(one, b"2", expect=first.revision)
        fourth = await engine.write(other, None, expect=second.revision)
        assert database.refused == 2
        assert fourth.revision > third.revision
        tail = await ChangeLog(database).tail(snapshot_at(START - 1))
        assert [change.revision for change in tail.events] == [
            first.revision,
            second.revision,
            third.revision,
            fourth.revision,
        ]

    asyncio.run(scenario())


def test_a_taken_key_is_a_conflict_and_no_collision(database, engine):
    async def scenario():
        first = await engine.write("/a/x", b"1", expect=0)
        database.micros += 1
        again = await engine.write("/a/x", b"2", expect=0)
        assert isinstance(again, Conflict)
        assert again.record == Record("/a/x", b"1", first.revision, first.revision)
        assert again.revision >= first.revision

    asyncio.run(scenario())


def test_a_read_at_a_write_does_not_see_the_later_writes_of_its_microsecond(database, engine):
    """For creations, updates and deletions alike, by key and by range."""
    keys = sorted((f"/a/{name}" for name in "abcdefgh"), key=tie_of)

    async def scenario():
        old = {}
        for key in keys[2:]:
            old[key] = (await engine.write(key, b"old", expect=0)).revision
        database.micros += 5
        for key in keys:
            if key in keys[5:]:
                await engine.write(key, None, expect=old[key])
            else:
                await engine.write(key, b"new", expect=old.get(key, 0))
        database.micros += 5
        for position in range(len(keys)):
            revision = revision_of(START + 5, tie_of(keys[position]))
            changed = keys[: position + 1]
            want = dict.fromkeys(keys[2:], b"old") | {key: b"new" for key in keys[:5] if key in changed}
            want = {key: value for key, value in want.items() if not (key in keys[5:] and key in changed)}
            page = await engine.scan("/a/", "/a0", at=revision)
            assert {record.key: record.value for record in page.records} == want
            assert [record.key for record in page.records] == sorted(want)
            assert all(record.mod_revision <= revision for record in page.records)
            for key in keys:
                record = (await engine.read(key, at=revision)).record
                assert (record.value if record else None) == want.get(key)
        limited = await engine.scan("/a/", "/a0", at=revision_of(START + 5, tie_of(keys[0])), limit=3, count=True)
        assert (len(limited.records), limited.more, limited.total) == (3, True, len(keys) - 1)

    asyncio.run(scenario())


def test_a_list_holds_all_of_a_microsecond_or_nothing_of_it(database, engine):
    """No list, bookmark or newest revision falls between two writes of one microsecond."""

    async def scenario():
        await engine.write("/a/x", b"1", expect=0)
        page = await engine.scan("/a/", "/a0")
        assert page.revision % PER_MICROSECOND == PER_MICROSECOND - 1
        assert await engine.revision() == page.revision == snapshot_at(START)

    asyncio.run(scenario())


@pytest.mark.parametrize("page", [3, 7, PAGE])
def test_a_cursor_reads_a_long_part_in_order_whatever_fits_into_a_page(database, engine, monkeypatch, page):
    """Also from the middle of a microsecond; each change once, none left out."""
    monkeypatch.setattr("kplane_spanner.log.PAGE", page)

    async def scenario():
        written = []
        for number in range(36):
            database.micros += (0 if page > 7 and number % 3 else 1) + 50 * (number == 20)
            written.append((await engine.write(f"/{'ab'[number % 2]}/{number}", b"1", expect=0)).revision)
        database.micros += 10
        written.sort()
        for skipped in (0, 17, 35):
            after = written[skipped - 1] if skipped else snapshot_at(START - 1)
            cursor = Cursor(ChangeLog(database), after, snapshot_at(database.micros), "/a/", "/a0")
            found = []
            while not cursor.finished:
                before = cursor.position
                events = await cursor.page()
                assert cursor.position > before
                assert all(before < change.revision <= cursor.position for change in events)
                found += events
            everything = await engine.scan("/a/", "/a0")
            want = [record.mod_revision for record in everything.records if record.mod_revision > after]
            assert [change.revision for change in found] == sorted(want)

    asyncio.run(scenario())
