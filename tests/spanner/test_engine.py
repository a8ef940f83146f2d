"""The engine on the emulator: what the conformance suite cannot see from outside."""

import asyncio
import random

import grpc
import pytest

from kplane_core.engine.interface import Compacted, Conflict, EngineUnreachable, Record, ValueTooLarge, Written
from kplane_core.errors import InvalidKey
from kplane_spanner.calls import Calls
from kplane_spanner.revisions import snapshot_at
from kplane_spanner.writing import KEY_LIMIT, VALUE_LIMIT


async def collect(watch, last):
    """Return the changes that a watch delivers, up to a revision."""
    events = []
    while not events or events[-1].revision < last:
        batch = await watch.batch()
        assert batch, "the watch ended"
        events += [event for event in batch if not event.is_progress]
    return events


@pytest.fixture
def delayed_commits(monkeypatch):
    """Commits that reach the database late, and whose calls return late, each by another time."""
    commit = Calls.commit
    chance = random.Random(7)

    async def delayed(self, request, headers):
        await asyncio.sleep(chance.choice([0.0, 0.0, 0.03, 0.15]))
        micros = await commit(self, request, headers)
        await asyncio.sleep(chance.choice([0.0, 0.05, 0.25]))
        return micros

    monkeypatch.setattr(Calls, "commit", delayed)


async def write_until_done(engine, key, value, returned):
    """Write a key whatever it holds, and note the revision when the call returns."""
    while True:
        found = (await engine.read(key)).record
        done = await engine.write(key, value, expect=found.mod_revision if found else 0)
        if isinstance(done, Written):
            returned.append(done.revision)
            return


async def list_often(engine, lists):
    for _ in range(10):
        lists.append(await engine.scan("/r/", "/r0"))
        await asyncio.sleep(0.05)


def state_at(events, revision):
    """Return what the changes up to a revision leave."""
    return {event.key: event.value for event in events if event.revision <= revision}


def test_commits_that_come_back_out_of_order_are_delivered_in_order(options, open_engines, delayed_commits):
    """64 writers whose calls return late and in any order: watches see the order of commits, lists the same."""

    async def scenario():
        async with open_engines(options, 2) as pair:
            start = await pair[0].revision()
            watches = [await engine.watch("/r/", "/r0", after=start, progress=True) for engine in pair]
            lists, returned = [], []
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(list_often(pair[1], lists))
                for number in range(64):
                    value = str(number).encode()
                    tasks.create_task(write_until_done(pair[number % 2], f"/r/{number % 40:02}", value, returned))
            assert returned != sorted(returned), "the delays put nothing out of order: the test shows nothing"
            seen = [await collect(watch, max(returned)) for watch in watches]
            for events in seen:
                assert [event.revision for event in events] == sorted(returned)
            lists.append(await pair[0].scan("/r/", "/r0"))
            for page in lists:
                assert {record.key: record.value for record in page.records} == state_at(seen[0], page.revision)

    asyncio.run(scenario())


def test_a_creation_that_is_sent_twice_is_one_creation(options, open_engines, monkeypatch):
    """The answer of the first commit is lost on the way: the second one reports the same commit, not a conflict."""

    async def scenario():
        async with open_engines(options) as engine:
            calls = engine.database._calls
            commit, sent, nothing = calls._commit, [], grpc.aio.Metadata()

            def lossy(request, **details):
                call = commit(request, **details)
                sent.append(request)
                if len(sent) > 1:
                    return call

                async def lose():
                    await call
                    raise grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, nothing, nothing, "the connection broke")

                return lose()

            monkeypatch.setattr(calls, "_commit", lossy)
            done = await engine.write("/a", b"1", expect=0)
            assert len(sent) == 2
            assert (await engine.read("/a")).record == Record("/a", b"1", done.revision, done.revision)

    asyncio.run(scenario())


def test_a_cancelled_write_leaves_no_lock_behind(make_emulator, make_options, open_engines, monkeypatch):
    """Whoever comes next does not wait for the abandoned transaction, which this emulator would never break up."""
    options = make_options(make_emulator("--abort_current_transaction_probability=0").address)
    stuck = asyncio.Event()

    async def scenario():
        async with open_engines(options, 2) as (one, two):
            first = await one.write("/a", b"1", expect=0)
            began = asyncio.Event()

            async def never(_request, _headers):
                began.set()
                await stuck.wait()

            with monkeypatch.context() as patch:
                patch.setattr(one.database._calls, "commit", never)
                writing = asyncio.create_task(one.write("/a", b"2", expect=first.revision))
                await began.wait()
                writing.cancel()
                await asyncio.wait([writing])
            async with asyncio.timeout(5):
                assert isinstance(await two.write("/a", b"3", expect=first.revision), Written)

    asyncio.run(scenario())


@pytest.mark.parametrize("key", ["", "/a\0b", "/a\ud800", "/" + "a" * KEY_LIMIT])
def test_a_key_that_spanner_cannot_hold_is_refused(options, open_engines, key):
    async def scenario():
        async with open_engines(options) as engine:
            with pytest.raises(InvalidKey):
                await engine.write(key, b"1", expect=0)

    asyncio.run(scenario())


def test_values_up_to_the_limit_of_a_cell_come_back_and_larger_ones_are_refused(options, open_engines):
    """Such a value comes in several messages."""

    async def scenario():
        async with open_engines(options) as engine:
            value = random.Random(1).randbytes(VALUE_LIMIT)
            done = await engine.write("/large", value, expect=0)
            assert (await engine.read("/large")).record.value == value
            with pytest.raises(ValueTooLarge):
                await engine.write("/large", value + b"x", expect=done.revision)

    asyncio.run(scenario())


def test_an_empty_value_is_no_deletion(options, open_engines):
    async def scenario():
        async with open_engines(options) as engine:
            start = await engine.revision()
            done = await engine.write("/empty", b"", expect=0)
            changed = await engine.write("/empty", b"", expect=done.revision)
            watch = await engine.watch("/", "0", after=start)
            events = await collect(watch, changed.revision)
            assert [(event.value, event.created) for event in events] == [(b"", True), (b"", False)]
            assert events[1].previous == Record("/empty", b"", done.revision, done.revision)

    asyncio.run(scenario())


def test_a_watch_that_nobody_reads_holds_little_and_loses_nothing(options, open_engines, monkeypatch):
    """What piles up is dropped, and read from the log when the reader comes back."""
    monkeypatch.setattr("kplane_spanner.watching._PENDING", 10)

    async def scenario():
        async with open_engines(options) as engine:
            watch = await engine.watch("/a/", "/a0", after=await engine.revision())
            written = [(await engine.write(f"/a/{number}", b"1", expect=0)).revision for number in range(60)]
            for _ in range(100):
                if watch._behind:
                    break
                await asyncio.sleep(0.02)
            assert len(watch._pending) <= 10
            assert [event.revision for event in await collect(watch, written[-1])] == written
            last = await engine.write("/a/last", b"1", expect=0)
            assert [event.revision for event in await collect(watch, last.revision)] == [last.revision]

    asyncio.run(scenario())


def test_a_watch_that_falls_behind_again_while_it_catches_up_loses_nothing(options, open_engines, monkeypatch):
    monkeypatch.setattr("kplane_spanner.watching._PENDING", 10)
    monkeypatch.setattr("kplane_spanner.log.PAGE", 8)

    async def scenario():
        async with open_engines(options, 2) as (one, two):
            start = await one.revision()
            written = [(await two.write(f"/a/{number}", b"1", expect=0)).revision for number in range(20)]
            await one.watch("/b/", "/b0", after=await one.revision())
            watch = await one.watch("/a/", "/a0", after=start)
            events = list(await watch.batch())
            assert 0 < len(events) < 20
            written += [(await one.write(f"/a/{number}", b"1", expect=0)).revision for number in range(20, 60)]
            for _ in range(100):
                if watch._behind:
                    break
                await asyncio.sleep(0.02)
            assert watch._behind
            events += await collect(watch, written[-1])
            assert [event.revision for event in events] == written

    asyncio.run(scenario())


def test_a_tail_that_fell_far_behind_catches_up_in_pages(options, open_engines, monkeypatch):
    monkeypatch.setattr("kplane_spanner.log.PAGE", 10)

    async def scenario():
        async with open_engines(options, 2) as (one, two):
            watch = await one.watch("/a/", "/a0", after=await one.revision())
            monkeypatch.setattr(one.hub, "_poll", 30.0)
            await asyncio.sleep(0.1)  # the poll that is under way
            written = [(await two.write(f"/a/{number}", b"1", expect=0)).revision for number in range(50)]
            one.hub.committed()
            assert [event.revision for event in await collect(watch, written[-1])] == written

    asyncio.run(scenario())


def test_the_floor_follows_the_retention(options, make_options, emulator, open_engines, monkeypatch):
    """What is older can be neither read nor resumed from, in words that name the floor."""
    options = make_options(emulator.address, history_retention=75.0)

    async def scenario():
        async with open_engines(options) as engine:
            first = await engine.write("/a", b"1", expect=0)
            assert await engine.compacted() == 0
            monkeypatch.setattr(engine.horizon, "_retention", 200_000)
            await asyncio.sleep(0.5)
            floor = await engine.compacted()
            assert floor > first.revision
            with pytest.raises(Compacted) as caught:
                await engine.read("/a", at=first.revision)
            assert caught.value.compacted >= floor
            with pytest.raises(Compacted):
                await engine.watch("/", "0", after=first.revision)
            assert (await engine.read("/a")).record.value == b"1"

    asyncio.run(scenario())


def test_a_tail_that_comes_too_late_says_so(options, open_engines, monkeypatch):
    """Another process compacted and deleted changes that this one has not read yet: 410, and no gap."""
    monkeypatch.setattr("kplane_spanner.horizon.TRIM_GRACE", 0)

    async def scenario():
        async with open_engines(options, 2) as (one, two):
            await one.watch("/", "0", after=await one.revision())
            watch = await one.watch("/", "0", after=await one.revision())
            monkeypatch.setattr(one.hub, "_poll", 30.0)
            await asyncio.sleep(0.15)  # the poll that is under way
            for number in range(5):
                last = await two.write(f"/a/{number}", b"1", expect=0)
            await two.compact(last.revision)
            one.hub.committed()
            with pytest.raises(Compacted):
                await watch.batch()

    asyncio.run(scenario())


def test_what_was_just_written_survives_a_compaction_for_those_who_read_it_next(options, open_engines, monkeypatch):
    async def scenario():
        async with open_engines(options, 2) as (one, two):
            await one.watch("/", "0", after=await one.revision())
            watch = await one.watch("/", "0", after=await one.revision())
            monkeypatch.setattr(one.hub, "_poll", 30.0)
            await asyncio.sleep(0.15)
            written = [(await two.write(f"/a/{number}", b"1", expect=0)).revision for number in range(5)]
            await two.compact(written[-1])
            one.hub.committed()
            assert [event.revision for event in await collect(watch, written[-1])] == written

    asyncio.run(scenario())


def test_trimming_drops_exactly_what_nobody_can_ask_for(options, open_engines, monkeypatch):
    """A watch from the floor on still has everything; the records stay."""
    monkeypatch.setattr("kplane_spanner.horizon.TRIM_GRACE", 0)

    async def scenario():
        async with open_engines(options) as engine:
            revisions = [(await engine.write(f"/a/{number}", b"1", expect=0)).revision for number in range(6)]
            before = await engine.size()
            await engine.compact(revisions[3])
            await engine.horizon.trim()
            assert await engine.size() == before - 3 * len("/a/01")
            watch = await engine.watch("/", "0", after=revisions[3] - 1)
            assert [event.revision for event in await collect(watch, revisions[5])] == revisions[3:]
            assert len((await engine.scan("/", "0")).records) == 6

    asyncio.run(scenario())


def test_a_replay_that_lost_the_race_with_compaction_says_so(options, open_engines, monkeypatch):
    """Compacted and trimmed by another process between the opening of the watch and its first batch."""
    monkeypatch.setattr("kplane_spanner.horizon.TRIM_GRACE", 0)

    async def scenario():
        async with open_engines(options, 2) as (one, two):
            revisions = [(await one.write(f"/a/{number}", b"1", expect=0)).revision for number in range(5)]
            await one.watch("/", "0", after=revisions[-1])
            watch = await one.watch("/", "0", after=revisions[0])
            await two.compact(revisions[3])
            await two.horizon.trim()
            with pytest.raises(Compacted):
                await watch.batch()

    asyncio.run(scenario())


def test_a_page_that_could_not_be_told_is_read_again(options, open_engines, monkeypatch):
    """The database goes away between the page and the look at the floor: the next batch has the page."""

    async def scenario():
        async with open_engines(options) as engine:
            revisions = [(await engine.write(f"/a/{number}", b"1", expect=0)).revision for number in range(5)]
            await engine.watch("/", "0", after=revisions[-1])
            watch = await engine.watch("/", "0", after=revisions[0])

            async def away():
                raise EngineUnreachable("away")

            with monkeypatch.context() as patch:
                patch.setattr(engine.horizon, "refresh", away)
                with pytest.raises(EngineUnreachable):
                    await watch.batch()
            assert [event.revision for event in await collect(watch, revisions[-1])] == revisions[1:]

    asyncio.run(scenario())


def test_revisions_move_with_time_and_marks_are_never_overtaken(options, open_engines):
    """A quiet watch learns how far the database is, without any write."""

    async def scenario():
        async with open_engines(options) as engine:
            watch = await engine.watch("/", "0", after=await engine.revision(), progress=True)
            asked = await engine.revision()
            await engine.request_progress()
            mark = 0
            while mark < asked:
                (event,) = await watch.batch()
                assert event.is_progress
                assert event.revision > mark
                mark = event.revision
            done = await engine.write("/a", b"1", expect=0)
            assert done.revision > mark

    asyncio.run(scenario())


def test_a_closed_engine_refuses_everything_and_ends_its_watches(options, open_engines):
    async def scenario():
        async with open_engines(options) as engine:
            watch = await engine.watch("/", "0", after=await engine.revision())
            waiting = asyncio.create_task(watch.batch())
            await asyncio.sleep(0.05)
            await engine.aclose()
            assert await waiting == ()
            await engine.aclose()
            for call in (engine.read("/a"), engine.write("/a", b"", expect=0), engine.revision(), engine.check()):
                with pytest.raises(EngineUnreachable):
                    await call

    asyncio.run(scenario())


def test_an_idle_hub_stops_asking_and_goes_on_without_a_gap(options, open_engines, monkeypatch):
    monkeypatch.setattr("kplane_spanner.watching._LINGER", 0.1)

    async def scenario():
        async with open_engines(options) as engine:
            watch = await engine.watch("/", "0", after=await engine.revision())
            first = await engine.write("/a", b"1", expect=0)
            await collect(watch, first.revision)
            await watch.aclose()
            for _ in range(200):
                if not engine.hub._following:
                    break
                await asyncio.sleep(0.02)
            second = await engine.write("/b", b"1", expect=0)
            watch = await engine.watch("/", "0", after=first.revision)
            assert [event.revision for event in await collect(watch, second.revision)] == [second.revision]

    asyncio.run(scenario())


def test_a_conflict_tells_the_record_and_a_revision_that_covers_it(options, open_engines):
    async def scenario():
        async with open_engines(options) as engine:
            done = await engine.write("/a", b"1", expect=0)
            for expect in (0, done.revision - 1):
                answer = await engine.write("/a", b"2", expect=expect)
                assert isinstance(answer, Conflict)
                assert answer.record == Record("/a", b"1", done.revision, done.revision)
                assert done.revision <= answer.revision <= await engine.revision()
                assert answer.revision == snapshot_at(answer.revision // 1000)

    asyncio.run(scenario())
