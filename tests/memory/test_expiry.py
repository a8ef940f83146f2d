"""Time to live: never early, exactly once, and a refresh that committed first wins."""

import asyncio
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kplane_core.engine.interface import Conflict, EngineEvent, Record, Written
from kplane_memory.engine import MemoryEngine
from kplane_memory.expiry import Expiry

ALL = ("", "\U0010ffff")


async def put(engine: MemoryEngine, key: str, *, ttl: int | None = None, value: bytes = b"v") -> int:
    record = (await engine.read(key)).record
    outcome = await engine.write(key, value, expect=record.mod_revision if record else 0, ttl=ttl)
    assert isinstance(outcome, Written)
    return outcome.revision


async def alive(engine: MemoryEngine, key: str = "/a") -> bool:
    return (await engine.read(key)).record is not None


def test_expiry_is_a_deletion_with_its_own_revision_and_one_event(clock: Any) -> None:
    async def scenario() -> None:
        engine = MemoryEngine(clock=clock)
        watch = await engine.watch(*ALL, after=1)
        await put(engine, "/a", ttl=10)
        clock.now += 10
        assert engine.expire_due() == 1
        assert engine.expire_due() == 0
        await put(engine, "/b")
        assert await watch.batch() == [
            EngineEvent("/a", 2, b"v", None, True),
            EngineEvent("/a", 3, None, Record("/a", b"v", 2, 2), False),
            EngineEvent("/b", 4, b"v", None, True),
        ]
        assert (await engine.read("/a", at=2)).record == Record("/a", b"v", 2, 2)

    asyncio.run(scenario())


@pytest.mark.parametrize("call", ["read", "scan", "revision", "write", "watch", "size", "compact", "request_progress"])
def test_whatever_is_called_first_the_expired_record_is_gone_and_the_deletion_told(clock: Any, call: str) -> None:
    async def scenario() -> None:
        engine = MemoryEngine(clock=clock, progress_interval=0)
        watch = await engine.watch(*ALL, after=2, progress=True)
        await put(engine, "/a", ttl=10)
        clock.now += 9.999
        assert await alive(engine)
        clock.now += 0.001
        calls: dict[str, Any] = {
            "read": lambda: engine.read("/a"),
            "scan": lambda: engine.scan(*ALL, count=True),
            "revision": engine.revision,
            "write": lambda: engine.write("/a", b"stale", expect=2),
            "watch": lambda: engine.watch(*ALL, after=1),
            "size": engine.size,
            "compact": lambda: engine.compact(3),
            "request_progress": engine.request_progress,
        }
        answer = await calls[call]()
        events = await watch.batch()
        assert (events[0].key, events[0].revision, events[0].value) == ("/a", 3, None)
        if call == "read":
            assert (answer.record, answer.revision) == (None, 3)
        elif call == "scan":
            assert (list(answer.records), answer.total, answer.revision) == ([], 0, 3)
        elif call == "write":
            assert answer == Conflict(None, 3)
        elif call == "request_progress":
            assert [event.revision for event in events] == [3, 3]

    asyncio.run(scenario())


def test_an_update_keeps_clears_or_renews_the_time_to_live(clock: Any) -> None:
    async def scenario() -> None:
        for ttl, lives_at_10, lives_at_15 in ((None, False, False), (0, True, True), (10, True, False)):
            engine = MemoryEngine(clock=clock)
            await put(engine, "/a", ttl=10)
            clock.now += 5
            await put(engine, "/a", ttl=ttl, value=b"2")
            clock.now += 5
            assert await alive(engine) is lives_at_10
            clock.now += 5
            assert await alive(engine) is lives_at_15
            clock.now += 10**9
            assert await alive(engine) is (ttl == 0)

    asyncio.run(scenario())


def test_a_shorter_time_to_live_takes_effect(clock: Any) -> None:
    async def scenario() -> None:
        engine = MemoryEngine(clock=clock)
        await put(engine, "/a", ttl=100)
        await put(engine, "/a", ttl=1)
        clock.now += 1
        assert not await alive(engine)

    asyncio.run(scenario())


def test_a_recreated_key_does_not_inherit(clock: Any) -> None:
    async def scenario() -> None:
        engine = MemoryEngine(clock=clock)
        revision = await put(engine, "/a", ttl=10)
        await engine.write("/a", None, expect=revision)
        await put(engine, "/a", ttl=None)
        clock.now += 100
        assert await alive(engine)
        # The same instant, the same duration: the old entry must not count for the new life.
        revision = await put(engine, "/b", ttl=10)
        await engine.write("/b", None, expect=revision)
        await put(engine, "/b", ttl=10)
        clock.now += 10
        assert engine.expire_due() == 1

    asyncio.run(scenario())


def test_a_record_refreshed_in_time_is_never_deleted_however_often(clock: Any) -> None:
    async def scenario() -> None:
        engine = MemoryEngine(clock=clock, history_limit=10)
        watch = await engine.watch("/a", "/a\0", after=1)
        await put(engine, "/a", ttl=10)
        for _ in range(1000):
            clock.now += 9.95
            await put(engine, "/a", ttl=10)
            assert [event.value for event in await watch.batch()][-1] is not None
        clock.now += 10
        assert not await alive(engine)

    asyncio.run(scenario())


def test_refreshes_do_not_pile_up_behind_an_earlier_deadline(clock: Any) -> None:
    async def scenario() -> None:
        engine = MemoryEngine(clock=clock)
        await put(engine, "/first", ttl=10)
        for _ in range(1000):
            await put(engine, "/lease", ttl=3600)
        assert len(engine._expiry._heap) < 100

    asyncio.run(scenario())


def test_a_conflicting_write_does_not_touch_the_time_to_live(clock: Any) -> None:
    async def scenario() -> None:
        engine = MemoryEngine(clock=clock)
        await put(engine, "/a", ttl=10)
        assert isinstance(await engine.write("/a", b"x", expect=99, ttl=0), Conflict)
        clock.now += 10
        assert not await alive(engine)

    asyncio.run(scenario())


def test_a_negative_time_to_live_is_refused_and_nothing_written(clock: Any) -> None:
    async def scenario() -> None:
        engine = MemoryEngine(clock=clock)
        with pytest.raises(ValueError, match="negative"):
            await engine.write("/a", b"v", expect=0, ttl=-1)
        assert await engine.revision() == 1

    asyncio.run(scenario())


def test_an_idle_engine_expires_by_its_one_timer_and_not_early(run_jumping: Any) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        begin = loop.time()
        engine = MemoryEngine(clock=loop.time)
        for number in range(100):
            await put(engine, f"/{number}", ttl=7200 if number % 2 else 3600)
        watch = await engine.watch(*ALL, after=101)
        for hours in (1, 2):
            deleted = await watch.batch()
            assert len(deleted) == 50
            assert 0 <= loop.time() - begin - hours * 3600 < 1
        assert not engine._alarm.armed

    run_jumping(scenario())


def test_a_refresh_moves_the_timer_and_the_old_one_does_no_harm(run_jumping: Any) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        begin = loop.time()
        engine = MemoryEngine(clock=loop.time)
        watch = await engine.watch(*ALL, after=11)
        for _ in range(10):
            await put(engine, "/a", ttl=30)
            await asyncio.sleep(29.95)
        (deletion,) = await watch.batch()
        assert (deletion.revision, deletion.value) == (12, None)
        assert 0 <= loop.time() - begin - (9 * 29.95 + 30) < 1

    run_jumping(scenario())


def test_later_deadlines_do_not_set_the_timer_again() -> None:
    async def scenario() -> None:
        engine = MemoryEngine()
        await put(engine, "/first", ttl=60)
        handle = engine._alarm._handle
        for number in range(100):
            await put(engine, f"/{number}", ttl=61)
        assert engine._alarm._handle is handle
        await put(engine, "/sooner", ttl=30)
        assert engine._alarm._handle is not handle
        await engine.aclose()

    asyncio.run(scenario())


def test_the_timer_waits_for_the_next_deadline_and_goes_with_the_last(clock: Any) -> None:
    async def scenario() -> None:
        engine = MemoryEngine(clock=clock)
        loop = asyncio.get_running_loop()
        await put(engine, "/slow", ttl=3600)
        await put(engine, "/fast", ttl=60)
        await put(engine, "/slower", ttl=7200)
        assert engine._alarm.due_within(60)
        assert not engine._alarm.due_within(59)
        scheduled = [handle for handle in loop._scheduled if not handle.cancelled()]  # type: ignore[attr-defined]
        assert len(scheduled) == 1
        for key in ("/slow", "/fast", "/slower"):
            await put(engine, key, ttl=0)
        assert not engine._alarm.armed
        await put(engine, "/a", ttl=5)
        await engine.aclose()
        assert not engine._alarm.armed

    asyncio.run(scenario())


@example([("set", "a", 1), ("set", "a", 5), ("wait", "", 1), ("look", "", 0), ("wait", "", 4)])
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("set"), st.sampled_from("abc"), st.integers(1, 5)),
            st.tuples(st.just("clear"), st.sampled_from("abc"), st.just(0)),
            st.tuples(st.just("wait"), st.just(""), st.integers(0, 5)),
            st.tuples(st.just("look"), st.just(""), st.just(0)),
        )
    )
)
def test_deadlines_behave_like_a_dictionary_of_times(steps: list[tuple[str, str, int]]) -> None:
    now = 0.0
    expiry = Expiry(lambda: now)
    model: dict[str, float] = {}
    for step, key, number in steps:
        if step == "set":
            expiry.set(key, number)
            model[key] = now + number
        elif step == "clear":
            expiry.clear(key)
            model.pop(key, None)
        elif step == "look":
            assert expiry.wait() == (max(0.0, min(model.values()) - now) if model else None)
        else:
            now += number
            due = sorted((when, key) for key, when in model.items() if when <= now)
            assert expiry.due() == [key for _, key in due]
            model = {key: when for key, when in model.items() if when > now}
        assert len(expiry) == len(model)
