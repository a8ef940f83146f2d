"""Watches: every change once and in order, and nobody woken for somebody else's."""

import asyncio
from typing import Any

import pytest

from kplane_core.engine.interface import EngineEvent, EngineUnreachable, Record, Written
from kplane_memory.engine import MemoryEngine
from kplane_memory.watching import MemoryWatch

ALL = ("", "\U0010ffff")


def directory(path: str) -> tuple[str, str]:
    return path, path[:-1] + "0"


async def put(engine: MemoryEngine, key: str, value: bytes = b"v") -> int:
    record = (await engine.read(key)).record
    outcome = await engine.write(key, value, expect=record.mod_revision if record else 0)
    assert isinstance(outcome, Written)
    return outcome.revision


def test_a_watch_tells_creates_updates_and_deletions_with_what_was_before() -> None:
    async def scenario() -> None:
        engine = MemoryEngine()
        watch = await engine.watch(*ALL, after=1)
        await put(engine, "/a", b"1")
        await put(engine, "/a", b"2")
        await engine.write("/a", None, expect=3)
        await put(engine, "/a", b"3")
        assert await watch.batch() == [
            EngineEvent("/a", 2, b"1", None, True),
            EngineEvent("/a", 3, b"2", Record("/a", b"1", 2, 2), False),
            EngineEvent("/a", 4, None, Record("/a", b"2", 2, 3), False),
            EngineEvent("/a", 5, b"3", None, True),
        ]

    asyncio.run(scenario())


def test_a_watch_from_the_past_goes_on_into_the_present_without_gap_or_repetition() -> None:
    async def scenario() -> None:
        engine = MemoryEngine()
        for number in range(300):
            await put(engine, f"/pods/clusters/c{number % 3}/{number}")
        for after in (1, 100, 299, 301):
            watch = await engine.watch(*directory("/pods/clusters/c1/"), after=after)
            await put(engine, "/pods/clusters/c1/new")
            newest = await engine.revision()
            expected = [rev for rev in range(3, 302, 3) if rev > after]
            got = [event.revision for event in await watch.batch()]
            assert got == [*expected, *(rev for rev in range(302, newest + 1))]
            watch.close()

    asyncio.run(scenario())


def test_a_watch_from_a_future_revision_waits_for_it() -> None:
    async def scenario() -> None:
        engine = MemoryEngine(progress_interval=0)
        watch = await engine.watch(*ALL, after=4, progress=True)
        for _ in range(2):
            await put(engine, "/a")
        await engine.request_progress()
        assert watch.position is None
        for _ in range(2):
            await put(engine, "/a")
        assert [event.revision for event in await watch.batch()] == [5]

    asyncio.run(scenario())


def test_ranges_of_every_shape_hear_exactly_their_keys() -> None:
    async def scenario() -> None:
        engine = MemoryEngine()
        keys = ["a", "/", "/a", "/a/", "/a/b", "/a/b/c", "/a/b0", "/a0", "/a/é", "/a/b\U00010000", "/a//b", "//"]
        bounds = sorted({"", *keys, *(key + "\0" for key in keys), *(key[:-1] + "0" for key in keys), "\U0010ffff"})
        watches = {
            (start, end): await engine.watch(start, end, after=1) for start in bounds for end in bounds if start <= end
        }
        for key in keys:
            await put(engine, key)
        for (start, end), watch in watches.items():
            heard = [] if watch.position is None else [event.key for event in await watch.batch()]
            assert heard == [key for key in keys if start <= key < end], (start, end)

    asyncio.run(scenario())


def test_ten_thousand_idle_watches_are_told_nothing() -> None:
    async def scenario() -> None:
        engine = MemoryEngine()
        for number in range(10_000):
            await engine.watch(*directory(f"/pods/clusters/idle-{number}/"), after=1)
        busy = await engine.watch(*directory("/pods/clusters/busy/"), after=1)
        everything = await engine.watch(*directory("/pods/"), after=1)
        one_key = await engine.watch("/pods/clusters/busy/ns/a", "/pods/clusters/busy/ns/a\0", after=1)
        for _ in range(100):
            await put(engine, "/pods/clusters/busy/ns/a")
        assert [len(watch._pending) for watch in (busy, everything, one_key)] == [100, 100, 100]
        assert len(engine._watches._unread) == 3

    asyncio.run(scenario())


def test_a_reader_is_woken_once_per_turn_and_takes_all_that_came() -> None:
    async def scenario() -> None:
        engine = MemoryEngine()
        idle = await engine.watch(*directory("/idle/"), after=1)
        busy = await engine.watch(*directory("/busy/"), after=1)
        batches: dict[str, list[int]] = {"idle": [], "busy": []}

        async def reader(name: str, watch: MemoryWatch) -> None:
            while events := await watch.batch():
                batches[name].append(len(events))

        async with asyncio.TaskGroup() as group:
            for name, watch in (("idle", idle), ("busy", busy)):
                group.create_task(reader(name, watch))
            await asyncio.sleep(0)
            for burst in (100, 1, 50):
                for _ in range(burst):
                    await put(engine, "/busy/a")
                assert batches["busy"][-1:] != [burst]  # the writer was not held up
                await asyncio.sleep(0)
            busy.close()
            idle.close()
        assert batches == {"idle": [], "busy": [100, 1, 50]}

    asyncio.run(scenario())


def test_a_cancelled_reader_loses_nothing() -> None:
    async def scenario() -> None:
        engine = MemoryEngine()
        watch = await engine.watch(*ALL, after=1)
        reader = asyncio.create_task(watch.batch())
        await asyncio.sleep(0)
        await put(engine, "/a")  # the reader is woken, and cancelled before it runs
        reader.cancel()
        await put(engine, "/a")
        with pytest.raises(asyncio.CancelledError):
            await reader
        assert [event.revision for event in await watch.batch()] == [2, 3]

    asyncio.run(scenario())


def test_a_second_reader_is_refused_loudly() -> None:
    async def scenario() -> None:
        engine = MemoryEngine()
        watch = await engine.watch(*ALL, after=1)
        first = asyncio.create_task(watch.batch())
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="one reader"):
            await watch.batch()
        await watch.aclose()
        assert await first == ()

    asyncio.run(scenario())


@pytest.mark.parametrize("who", ["watch", "engine"])
def test_closing_ends_a_waiting_batch_with_nothing(who: str) -> None:
    async def scenario() -> None:
        engine = MemoryEngine()
        watch = await engine.watch(*ALL, after=1, progress=True)
        reader = asyncio.create_task(watch.batch())
        await asyncio.sleep(0)
        await (watch if who == "watch" else engine).aclose()
        assert await reader == ()
        await watch.aclose()
        assert await watch.batch() == ()
        if who == "engine":
            with pytest.raises(EngineUnreachable):
                await engine.watch(*ALL, after=1)

    asyncio.run(scenario())


def test_a_requested_mark_follows_every_event_up_to_it_and_goes_to_those_who_want_it() -> None:
    async def scenario() -> None:
        engine = MemoryEngine(progress_interval=0)
        marked = await engine.watch(*directory("/a/"), after=1, progress=True)
        other = await engine.watch(*directory("/b/"), after=1, progress=True)
        plain = await engine.watch(*directory("/a/"), after=1)
        await put(engine, "/a/1")
        await put(engine, "/c")
        await engine.request_progress()
        await put(engine, "/a/2")
        await engine.request_progress()
        await engine.request_progress()
        story = [(event.is_progress, event.revision) for event in await marked.batch()]
        assert story == [(False, 2), (True, 3), (False, 4), (True, 4)]
        assert [(event.is_progress, event.revision) for event in await other.batch()] == [(True, 4)]
        assert [event.revision for event in await plain.batch()] == [2, 4]

    asyncio.run(scenario())


def test_idle_watches_get_marks_from_one_timer_that_ends_with_the_last_of_them(run_jumping: Any) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        begin = loop.time()
        engine = MemoryEngine(progress_interval=5)
        alarm = engine._watches._alarm
        plain = await engine.watch(*ALL, after=1)
        assert not alarm.armed
        watches = [await engine.watch(*directory(f"/{number}/"), after=1, progress=True) for number in range(3)]
        assert alarm.armed
        for seconds in (5, 10):
            for watch in watches:
                assert await watch.batch() == [EngineEvent("", 1)]
            assert loop.time() - begin == pytest.approx(seconds)
        assert plain.position is None
        for watch in watches:
            watch.close()
        assert not alarm.armed

    run_jumping(scenario())


def test_closed_watches_leave_nothing_behind() -> None:
    async def scenario() -> None:
        engine = MemoryEngine()
        before = asyncio.all_tasks()
        for number in range(200):
            ranges = (directory(f"/c{number}/"), (f"/c{number}", f"/c{number}\0"), ALL)
            watches = [await engine.watch(*where, after=1, progress=True) for where in ranges]
            await put(engine, f"/c{number}/a")
            for watch in watches:
                watch.close()
                watch.close()
        kept = engine._watches
        assert len(kept) == 0
        assert not any((kept._unread, kept._with_progress))
        assert asyncio.all_tasks() == before

    asyncio.run(scenario())


def test_an_engine_works_on_one_event_loop_after_the_other() -> None:
    engine = MemoryEngine(progress_interval=0.01)

    async def first() -> None:
        await engine.watch(*ALL, after=1, progress=True)
        await put(engine, "/a")

    async def second() -> None:
        watch = await engine.watch("/b", "/c", after=1, progress=True)
        assert [event.is_progress for event in await watch.batch()] == [True]
        await engine.aclose()

    asyncio.run(first())
    asyncio.run(second())
