"""The file stays small, compaction waits for nobody, and nothing that lives is lost."""

import asyncio
import random

import pytest

from kplane_core.engine.interface import Compacted, EngineUnreachable
from kplane_sqlite import changes, writer


async def overwrite(engine, keys, times, size=500):
    """Write each key so many times, many at once."""

    async def one(key):
        expect = 0
        for _ in range(times):
            expect = (await engine.write(key, b"x" * size, expect=expect)).revision

    await asyncio.gather(*(one(f"/{key}") for key in range(keys)))


def test_the_file_shrinks_after_compaction(database):
    async def fill_and_compact(engine):
        await overwrite(engine, 50, 40)
        before = await engine.size()
        await engine.compact(await engine.revision())
        return before, await engine.size()

    before, after = database.run(fill_and_compact)
    live = 50 * 500
    assert before > 20 * live
    assert after < 3 * live + 10 * 4096, "the fixed part of the file is a few pages"


def test_compaction_in_small_steps_lets_writers_through(database, monkeypatch):
    monkeypatch.setattr(changes, "_SWEPT_AT_ONCE", 10)

    async def write_during(engine):
        await overwrite(engine, 10, 50, size=10)
        compaction = asyncio.create_task(engine.compact(await engine.revision()))
        during = 0
        while not compaction.done():
            await engine.write(f"/new/{during}", b"1", expect=0)
            during += 1
        await compaction
        return during

    assert database.run(write_during) > 10


def test_a_compaction_that_was_cut_off_is_finished_by_the_next(database, put):
    async def cut_off(engine):
        await overwrite(engine, 10, 20, size=10)
        await engine._writer.call(lambda connection: changes.raise_floor(connection, 150))

    async def go_on(engine):
        await engine.compact(await engine.revision())
        rows = await engine._writer.call(lambda one: one.execute("SELECT count(*) FROM log").fetchone(), atomic=False)
        return rows[0]

    database.run(cut_off)
    assert database.run(go_on) <= 11, "what the newest revision superseded may stay"


def test_compaction_that_finds_the_file_locked_works_the_next_time(database):
    """kine#414: compaction must not stop for ever because its first transaction failed."""

    async def compact_twice(engine):
        await overwrite(engine, 5, 5, size=10)
        revision = await engine.revision()
        async with database.engine() as other:
            await other._writer.call(lambda connection: connection.execute("BEGIN IMMEDIATE"), atomic=False)
            with pytest.raises(EngineUnreachable, match="another process holds the write lock"):
                await engine.compact(revision)
            await other._writer.call(lambda connection: connection.execute("ROLLBACK"), atomic=False)
        await engine.compact(revision)
        return await engine.compacted() == revision

    assert database.run(compact_twice, busy_timeout=0.05)


def test_no_random_compaction_by_two_connections_loses_or_revives_a_key(database):
    rng = random.Random(7)

    async def work(engine):
        async with database.engine() as other:
            expected, revisions = {}, {}
            for step in range(600):
                key, one = f"/{rng.randrange(20)}", rng.choice((engine, other))
                value = None if key in expected and rng.random() < 0.4 else str(step).encode()
                answer = await one.write(key, value, expect=revisions.get(key, 0))
                if value is None:
                    del expected[key], revisions[key]
                else:
                    expected[key], revisions[key] = value, answer.revision
                if step % 10 == 9:
                    newest = await engine.revision()
                    at = rng.randint(max(1, newest - 30), newest)
                    try:
                        await one.compact(at)
                    except Compacted:
                        continue
                    page = await other.scan("/", "0")
                    assert {record.key: record.value for record in page.records} == expected
                    past = await engine.scan("/", "0", at=newest)
                    assert [(record.key, record.value) for record in past.records] == sorted(expected.items())

    database.run(work)


def test_concurrent_writes_share_commits(database, monkeypatch):
    """64 writers need far fewer transactions than writes; one writer alone needs one for each."""
    transactions = []
    monkeypatch.setattr(writer, "Transaction", lambda *args: transactions.append(1) or changes.Transaction(*args))

    async def write(engine, writers, each):
        transactions.clear()
        await asyncio.gather(*(overwrite_one(engine, f"/{writers}/{number}", each) for number in range(writers)))
        return len(transactions)

    async def overwrite_one(engine, key, times):
        expect = 0
        for _ in range(times):
            expect = (await engine.write(key, b"1", expect=expect)).revision

    assert database.run(lambda engine: write(engine, 1, 50)) == 50
    assert database.run(lambda engine: write(engine, 64, 10)) < 640 / 8


def test_a_crowd_that_expires_together_goes_in_steps_and_once_each(database, monkeypatch):
    monkeypatch.setattr(changes, "_EXPIRED_AT_ONCE", 16)
    clock = [1000.0]

    async def expire(engine):
        await asyncio.gather(*(engine.write(f"/{n}", b"1", expect=0, ttl=2) for n in range(100)))
        start = await engine.revision()
        watch = await engine.watch("/", "0", after=start)
        clock[0] += 2
        assert (await engine.scan("/", "0")).records == []
        events = []
        while len(events) < 100:
            events += await asyncio.wait_for(watch.batch(), 10)
        return start, events, await engine.revision()

    start, events, newest = database.run(expire, clock=lambda: clock[0])
    assert len({event.key for event in events}) == 100
    assert newest == start + 100
