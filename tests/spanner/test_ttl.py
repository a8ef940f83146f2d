"""Times to live: hidden, swept once for all processes, and outlived by a refresh that came first."""

import asyncio

import pytest

from kplane_core.engine.interface import Conflict, Record, Written
from kplane_spanner import schema
from kplane_spanner.messages import key_set


async def deletions(watch, count, within=10.0):
    """Return so many deletions that a watch delivers."""
    found = []
    async with asyncio.timeout(within):
        while len(found) < count:
            found += [event for event in await watch.batch() if not event.is_progress and event.value is None]
    return found


async def without_sweeping(engines):
    """End the sweepers, so that a test decides what deletes."""
    for engine in engines:
        await engine.sweeper.aclose()


def test_every_process_sees_the_one_deletion_of_an_expired_record(options, open_engines):
    """Three sweepers, forty records: one deletion each, the same revisions everywhere, none early."""

    async def scenario():
        async with open_engines(options, 3) as trio:
            start = await trio[0].revision()
            watches = [await engine.watch("/", "0", after=start) for engine in trio]
            written = [await trio[n % 3].write(f"/e/{n:02}", b"1", expect=0, ttl=1) for n in range(40)]
            seen = [await deletions(watch, 40) for watch in watches]
            assert seen[0] == seen[1] == seen[2]
            assert sorted(event.key for event in seen[0]) == [f"/e/{n:02}" for n in range(40)]
            for event in seen[0]:
                born = written[int(event.key[3:])].revision
                assert event.previous == Record(event.key, b"1", born, born)
                assert event.revision - born >= 1_000_000_000, "it was deleted early"
            # Nothing more comes: whoever swept second found nothing.
            last = await trio[0].write("/last", b"1", expect=0)
            for watch in watches:
                assert [event.revision for event in await watch.batch()] == [last.revision]

    asyncio.run(scenario())


def test_an_expired_record_is_hidden_before_it_is_swept(options, open_engines):
    """From reads, lists, counts and writes; its deletion still gets an event before the next life."""

    async def scenario():
        async with open_engines(options, 2) as pair:
            one, two = pair
            await without_sweeping(pair)
            first = await one.write("/e/a", b"1", expect=0, ttl=1)
            other = await one.write("/e/b", b"1", expect=0, ttl=1)
            await one.write("/e/c", b"1", expect=0)
            await one.write("/e/d", b"1", expect=0)
            watch = await two.watch("/", "0", after=(await two.revision()))
            assert (await two.scan("/e/", "/e0", limit=1, count=True)).total == 4
            await asyncio.sleep(1.05)
            assert (await one.read("/e/a")).record is None
            page = await two.scan("/e/", "/e0", limit=1, count=True)
            assert ([record.key for record in page.records], page.more, page.total) == (["/e/c"], True, 2)
            assert await one.write("/e/b", b"2", expect=other.revision) == Conflict(None, pytest.approx(0, abs=2**63))
            again = await two.write("/e/a", b"2", expect=0)
            events = []
            while not events or events[-1].revision < again.revision:
                events += await watch.batch()
            assert [(event.key, event.value, event.created) for event in events] == [
                ("/e/b", None, False),
                ("/e/a", None, False),
                ("/e/a", b"2", True),
            ]
            assert events[1].previous.mod_revision == first.revision

    asyncio.run(scenario())


def test_a_refresh_that_commits_first_wins(options, open_engines):
    """Refreshed again and again shortly before its end, a record is never deleted; the sweepers look all the time."""

    async def scenario():
        async with open_engines(options, 2) as pair:
            keys = [f"/e/{number}" for number in range(5)]
            held = {key: (await pair[0].write(key, b"0", expect=0, ttl=1)).revision for key in keys}
            watch = await pair[1].watch("/", "0", after=max(held.values()))
            for _ in range(4):
                await asyncio.sleep(0.6)
                for number, key in enumerate(keys):
                    await pair[number % 2].sweeper.sweep()
                    done = await pair[number % 2].write(key, b"1", expect=held[key], ttl=1)
                    assert isinstance(done, Written), f"{key} was deleted although it was refreshed"
                    held[key] = done.revision
            refreshed = []
            while len(refreshed) < 20:
                refreshed += await watch.batch()
            assert all(event.value == b"1" for event in refreshed[:20])
            assert len(await deletions(watch, 5)) == 5

    asyncio.run(scenario())


def test_what_is_due_is_decided_in_the_transaction_that_deletes(options, open_engines):
    """A sweeper that looked before a refresh, or twice, deletes nothing."""

    async def scenario():
        async with open_engines(options) as engine:
            await without_sweeping([engine])
            await engine.write("/alive", b"1", expect=0, ttl=1000)
            await engine.write("/for-ever", b"1", expect=0)
            await engine.write("/over", b"1", expect=0, ttl=1)
            await asyncio.sleep(1.01)
            keys = ["/alive", "/for-ever", "/over", "/never-was"]
            assert await engine._writer.expire(keys) == 1
            assert await engine._writer.expire(keys) == 0
            page = await engine.scan("/", "0")
            assert [record.key for record in page.records] == ["/alive", "/for-ever"]

    asyncio.run(scenario())


def test_keeping_clearing_and_shortening_a_time_to_live(options, open_engines):
    async def scenario():
        async with open_engines(options) as engine:
            kept = await engine.write("/kept", b"1", expect=0, ttl=1)
            cleared = await engine.write("/cleared", b"1", expect=0, ttl=1)
            shortened = await engine.write("/shortened", b"1", expect=0, ttl=1000)
            watch = await engine.watch("/", "0", after=shortened.revision)
            await engine.write("/kept", b"2", expect=kept.revision)
            await engine.write("/cleared", b"2", expect=cleared.revision, ttl=0)
            await engine.write("/shortened", b"2", expect=shortened.revision, ttl=1)
            assert {event.key for event in await deletions(watch, 2)} == {"/kept", "/shortened"}
            assert (await engine.read("/cleared")).record.value == b"2"
            columns = ("lease_ts", "ttl", "expire_shard", "expire_at")
            answer = await engine.database.read(schema.RECORDS, columns, key_set([("/cleared",)]))
            assert answer.rows == [(None, None, None, None)], "a cleared record stays in the expiry index"

    asyncio.run(scenario())


def test_a_time_to_live_counts_on_when_no_process_is_there(options, open_engines):
    """It is fixed in the database: whoever comes later sweeps it."""

    async def scenario():
        async with open_engines(options) as engine:
            written = await engine.write("/e", b"1", expect=0, ttl=1)
        await asyncio.sleep(1.0)
        async with open_engines(options) as engine:
            watch = await engine.watch("/", "0", after=written.revision)
            (deleted,) = await deletions(watch, 1)
            assert deleted.previous.mod_revision == written.revision

    asyncio.run(scenario())
