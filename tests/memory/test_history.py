"""How much history is kept, and what happens to those who need more."""

import asyncio
from unittest.mock import patch

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kplane_core.engine.interface import Compacted, EngineEvent
from kplane_memory import history
from kplane_memory.engine import MemoryEngine
from kplane_memory.history import History

ALL = ("", "\U0010ffff")


async def update(engine: MemoryEngine, key: str, value: bytes = b"v") -> None:
    record = (await engine.read(key)).record
    await engine.write(key, value, expect=record.mod_revision if record else 0)


def test_updates_of_few_keys_do_not_grow_without_bound() -> None:
    async def scenario() -> None:
        engine = MemoryEngine(history_limit=100)
        for number in range(5000):
            await update(engine, f"/leases/{number % 5}", b"x" * 50)
        assert len(engine._history) == 100
        assert sum(len(lane.events) for lane in engine._history._lanes.values()) <= 2 * 100
        # 5 live versions and the 100 that the kept events replaced.
        assert await engine.size() == 105 * (len("/leases/0") + 50)
        assert await engine.compacted() == await engine.revision() - 99

    asyncio.run(scenario())


def test_large_values_are_bounded_by_bytes() -> None:
    async def scenario() -> None:
        engine = MemoryEngine(history_bytes=10_000)
        for _ in range(100):
            await update(engine, "/a", b"x" * 1000)
        assert await engine.size() <= 10_000 + 1002
        with pytest.raises(Compacted):
            await engine.read("/a", at=50)
        assert (await engine.read("/a", at=await engine.compacted())).record is not None

    asyncio.run(scenario())


def test_the_size_is_that_of_the_live_records_once_everything_is_compacted() -> None:
    async def scenario() -> None:
        engine = MemoryEngine()
        assert await engine.size() == 0
        for number in range(10):
            await update(engine, f"/{number}", b"x" * 8)
        assert await engine.size() == 100
        for number in range(10):
            await update(engine, f"/{number}", b"x" * 3)
        assert await engine.size() == 150
        for number in range(5):
            record = (await engine.read(f"/{number}")).record
            assert record is not None
            await engine.write(record.key, None, expect=record.mod_revision)
        assert await engine.size() == 150
        await update(engine, "/z", b"")
        await engine.compact(await engine.revision())
        assert await engine.size() == 27

    asyncio.run(scenario())


def test_directories_without_kept_changes_are_forgotten() -> None:
    async def scenario() -> None:
        engine = MemoryEngine(history_limit=5)
        for number in range(50):
            await update(engine, f"/clusters/{number}/a")
        history = engine._history
        kept = [f"/clusters/{number}/" for number in range(45, 50)]
        assert sorted(history._lanes) == history._directories.all() == kept
        await engine.compact(await engine.revision())
        assert list(history._lanes) == history._directories.all() == kept[-1:]

    asyncio.run(scenario())


def test_the_floor_that_the_limit_sets_is_told_and_exact() -> None:
    async def scenario() -> None:
        engine = MemoryEngine(history_limit=3)
        for _ in range(5):
            await update(engine, "/a")  # revisions 2 to 6; the events 4, 5, 6 are kept
        assert await engine.compacted() == 4
        with pytest.raises(Compacted):
            await engine.read("/a", at=3)
        assert (await engine.read("/a", at=4)).revision == 4
        with pytest.raises(Compacted) as refused:
            await engine.watch(*ALL, after=2)
        assert (refused.value.revision, refused.value.compacted) == (2, 4)
        watch = await engine.watch(*ALL, after=3)
        assert [event.revision for event in await watch.batch()] == [4, 5, 6]

    asyncio.run(scenario())


def test_the_limit_counts_all_clusters_but_a_resume_visits_only_its_own_events() -> None:
    async def scenario() -> None:
        engine = MemoryEngine()
        await update(engine, "/pods/clusters/quiet/a")
        for number in range(2000):
            await update(engine, f"/pods/clusters/noisy-{number % 10}/a")
        await update(engine, "/pods/clusters/quiet/b")
        history = engine._history
        lanes = history._lanes_between("/pods/clusters/quiet/", "/pods/clusters/quiet0", 200)
        assert lanes is not None
        assert [len(lane.events) for lane in lanes] == [2]
        found = history.since(1, "/pods/clusters/quiet/", "/pods/clusters/quiet0")
        assert [event.key[-1] for event in found] == ["a", "b"]

    asyncio.run(scenario())


def test_a_watch_that_does_not_read_is_cut_off_not_given_a_gap() -> None:
    async def scenario() -> None:
        engine = MemoryEngine(history_limit=100)
        slow = await engine.watch(*ALL, after=1)
        quiet = await engine.watch("/quiet/", "/quiet0", after=1)
        await update(engine, "/quiet/a")
        for _ in range(99):
            await update(engine, "/a")
        assert (slow.position, quiet.position) == (2, 2)
        await update(engine, "/a")
        for watch in (slow, quiet):
            for _ in range(2):
                with pytest.raises(Compacted) as lost:
                    await watch.batch()
                assert (lost.value.revision, lost.value.compacted) == (1, 3)
        assert len(engine._watches) == 0
        slow.close()
        assert await slow.batch() == ()

    asyncio.run(scenario())


def test_compaction_gives_a_slow_watch_neither_more_nor_less_room() -> None:
    async def scenario() -> None:
        for behind in (9, 10):
            engine = MemoryEngine(history_limit=10)
            watch = await engine.watch("/quiet/", "/quiet0", after=1)
            await update(engine, "/quiet/a")
            for _ in range(5):
                await update(engine, "/a")
            await engine.compact(await engine.revision())
            for _ in range(behind - 5):
                await update(engine, "/a")
            if behind < 10:
                assert [event.revision for event in await watch.batch()] == [2]
            else:
                with pytest.raises(Compacted):
                    await watch.batch()

    asyncio.run(scenario())


def test_what_nobody_reads_any_more_is_freed() -> None:
    async def scenario() -> None:
        engine = MemoryEngine(history_limit=16)
        abandoned = await engine.watch("/quiet/", "/quiet0", after=1)
        await update(engine, "/quiet/a")
        for _ in range(40):
            await update(engine, "/a")
        assert abandoned._pending == []
        assert len(engine._watches) == 0

    asyncio.run(scenario())


def test_a_watch_that_has_read_everything_is_never_too_old() -> None:
    async def scenario() -> None:
        engine = MemoryEngine(history_limit=4, progress_interval=0)
        watch = await engine.watch("/quiet/", "/quiet0", after=1, progress=True)
        await engine.request_progress()  # an unread mark is no unread event
        for _ in range(100):
            await update(engine, "/a")
        await engine.compact(await engine.revision())
        await update(engine, "/quiet/a")
        assert [event.revision for event in await watch.batch()] == [1, 102]

    asyncio.run(scenario())


def test_compaction_does_not_take_away_what_a_watch_already_has() -> None:
    async def scenario() -> None:
        engine = MemoryEngine()
        watch = await engine.watch(*ALL, after=1)
        for _ in range(5):
            await update(engine, "/a")
        await engine.compact(6)
        assert [event.revision for event in await watch.batch()] == [2, 3, 4, 5, 6]

    asyncio.run(scenario())


def test_the_deletion_at_the_compacted_revision_is_still_told_with_what_was_deleted() -> None:
    async def scenario() -> None:
        engine = MemoryEngine()
        await update(engine, "/a", b"old")  # 2
        await engine.write("/a", None, expect=2)  # 3
        await update(engine, "/b")  # 4
        await engine.compact(3)
        watch = await engine.watch(*ALL, after=2)
        deletion, creation = await watch.batch()
        assert (deletion.key, deletion.revision, deletion.value) == ("/a", 3, None)
        assert deletion.previous is not None
        assert deletion.previous.value == b"old"
        assert creation.created
        with pytest.raises(Compacted):
            await engine.watch(*ALL, after=1)

    asyncio.run(scenario())


PATHS = st.sampled_from(["", "/", "/a", "/a/", "/a/b", "/a/b/c", "/a/b/d", "/a/b0", "/a0", "a", "//", "/𐀀/x"])


@example(["/a/b", "/a/b/c", "/a/c"], 20, "/a/b", "/a/b0", 1)  # begins in the middle of a directory
@given(st.lists(PATHS.filter(bool), max_size=40), st.integers(1, 20), PATHS, PATHS, st.integers(1, 45))
def test_looking_up_by_directory_and_walking_the_log_find_the_same(
    keys: list[str], kept: int, start: str, end: str, after: int
) -> None:
    log = History(max_events=kept, max_bytes=0)
    events = [EngineEvent(key, revision) for revision, key in enumerate(keys, start=2)]
    for event in events:
        log.append(event)
    after = max(after, log.floor - 1)
    expected = [event for event in events if event.revision > after and start <= event.key < end]
    assert log.since(after, start, end) == expected
    looked_up = History._lanes_between
    with (
        patch.object(history, "_SHORT", -1),
        patch.object(History, "_lanes_between", lambda self, start, end, _limit: looked_up(self, start, end, 1000)),
    ):
        assert log.since(after, start, end) == expected
