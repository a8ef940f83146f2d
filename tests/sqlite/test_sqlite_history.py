"""The past is read as it was, from two tables that share it; changes of one commit see one another."""

import asyncio
import random
import sqlite3
from contextlib import closing

import pytest

from kplane_core.engine.interface import Conflict, Written
from kplane_sqlite import changes, reading, schema
from kplane_sqlite.changes import Change

_FORMAT_1 = """
DROP TABLE history;
CREATE INDEX log_by_key ON log (key, revision, created);
PRAGMA user_version = 1;
"""


async def random_states(engine, steps):
    """Write, overwrite and delete twelve keys at random; return the whole state after each revision."""
    rng = random.Random(11)
    current, revisions, states = {}, {}, {}
    for step in range(steps):
        key = f"/{rng.randrange(12):02}"
        value = None if key in current and rng.random() < 0.4 else f"{step}".encode()
        answer = await engine.write(key, value, expect=revisions.get(key, 0))
        assert isinstance(answer, Written)
        if value is None:
            del current[key], revisions[key]
        else:
            current[key], revisions[key] = value, answer.revision
        states[answer.revision] = sorted(current.items())
    return states


async def assert_past(engine, states):
    """Every way to read the past gives the states of then."""
    for revision, state in states.items():
        page = await engine.scan("/", "0", at=revision, count=True)
        assert [(record.key, record.value) for record in page.records] == state
        assert page.total == len(state)
        page = await engine.scan("/03", "/09", at=revision, limit=2, count=True)
        inside = [(key, value) for key, value in state if "/03" <= key < "/09"]
        assert [(record.key, record.value) for record in page.records] == inside[:2]
        assert (page.more, page.total) == (len(inside) > 2, len(inside))
        for key in ("/00", "/05", "/11"):
            record = (await engine.read(key, at=revision)).record
            assert (record and record.value) == dict(state).get(key)


async def superseded(engine):
    """Return what `history` should hold, and what it holds."""
    should = (
        "SELECT key, revision, created FROM log l"
        " WHERE NOT EXISTS (SELECT 1 FROM live v WHERE v.revision = l.revision) ORDER BY key, revision"
    )
    does = "SELECT key, revision, created FROM history ORDER BY key, revision"
    return [
        await engine._writer.call(lambda one, asked=asked: one.execute(asked).fetchall(), atomic=False)
        for asked in (should, does)
    ]


def test_every_revision_of_the_past_reads_as_it_was(database):
    async def work(engine):
        states = await random_states(engine, 150)
        await assert_past(engine, states)
        should, does = await superseded(engine)
        assert does == should != []

    database.run(work)


def test_compaction_drops_the_same_versions_from_both_tables(database):
    async def work(engine):
        states = await random_states(engine, 150)
        await engine.compact(100)
        await assert_past(engine, {revision: state for revision, state in states.items() if revision >= 100})
        should, does = await superseded(engine)
        assert does == should != []
        await engine.compact(await engine.revision())
        should, does = await superseded(engine)
        assert does == should
        assert len(does) <= 2, "what the newest revision superseded may stay"

    database.run(work)


def test_a_database_of_format_1_is_brought_to_this_one_with_its_past(database):
    states = database.run(lambda engine: random_states(engine, 80))
    with closing(sqlite3.connect(database.path)) as older, older:
        older.executescript(_FORMAT_1)
    older.close()

    async def work(engine):
        await assert_past(engine, states)
        should, does = await superseded(engine)
        assert does == should != []
        indexes = "SELECT name FROM sqlite_schema WHERE name = 'log_by_key'"
        assert await engine._writer.call(lambda one: one.execute(indexes).fetchall(), atomic=False) == []

    database.run(work)
    database.run(lambda engine: assert_past(engine, states))  # opened once more, nothing is left to do


def then_overwritten(transaction, key, revision):
    transaction.apply(Change(key, b"2", revision, None))


def then_deleted(transaction, key, revision):
    transaction.apply(Change(key, None, revision, None))


def before_overwritten(transaction, key, revision):
    """The change is older than what is asked for."""
    then_overwritten(transaction, key, revision)


@pytest.mark.parametrize("change", [then_overwritten, then_deleted, before_overwritten])
def test_a_page_of_the_past_costs_the_same_however_many_keys_are_behind_it(change):
    """SQLite's steps for five keys do not grow with the range, whichever of the tables has nothing to give."""

    def steps(keys):
        connection = sqlite3.connect(":memory:", isolation_level=None)
        schema.create(connection)
        names = [f"/{number:05}" for number in range(keys)]
        for apply in (lambda one, key, _: one.apply(Change(key, b"1", 0, None)), change):
            transaction = changes.Transaction(connection, 0.0)
            for revision, name in enumerate(names, 2):
                apply(transaction, name, revision)
            transaction.finish()
        at = transaction.revision if change is before_overwritten else keys + 1
        transaction = changes.Transaction(connection, 0.0)
        transaction.apply(Change("/a", b"1", 0, None))  # or the newest state would be asked for
        transaction.finish()
        taken = []
        connection.set_progress_handler(lambda: taken.append(1), 1)
        page = reading.scan_past(connection, ("/", "0"), 5, at, count=False)
        connection.close()
        assert [record.key for record in page.records] == names[:5]
        return len(taken)

    assert steps(2000) < steps(1000) + 100


def test_changes_of_one_commit_see_one_another(database):
    """Create, update, delete and conflict on one key, all in one transaction: as one after the other."""

    async def work(engine):
        first = await engine.revision()
        writes = [
            (b"1", 0),  # first + 1
            (b"2", first + 1),  # first + 2
            (b"no", 0),
            (None, first + 2),  # first + 3
            (None, first + 2),
            (b"3", 0),  # first + 4
            (b"no", first + 2),
        ]
        watch = await engine.watch("/", "0", after=first)
        answers = await asyncio.gather(*(engine.write("/a", value, expect=expect) for value, expect in writes))
        events = []
        while len(events) < 4:
            events += await asyncio.wait_for(watch.batch(), 10)
        watch.close()
        return first, answers, events, await superseded(engine)

    first, answers, events, (should, does) = database.run(work)
    assert [a.revision - first for a in answers if isinstance(a, Written)] == [1, 2, 3, 4]
    refused = [
        a.record and (a.record.value, a.record.create_revision - first) for a in answers if isinstance(a, Conflict)
    ]
    assert refused == [(b"2", 1), None, (b"3", 4)]
    assert [(e.value, e.previous and e.previous.value) for e in events] == [
        (b"1", None),
        (b"2", b"1"),
        (None, b"2"),
        (b"3", None),
    ]
    assert does == should == [("/a", first + 1, first + 1), ("/a", first + 2, first + 1), ("/a", first + 3, 0)]
