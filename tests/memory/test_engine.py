"""Reads, writes, scans, the past, and compaction."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kplane_core.engine.interface import Compacted, Conflict, Engine, EngineUnreachable, FutureRevision, Record, Written
from kplane_core.errors import InvalidKey
from kplane_memory.engine import MemoryEngine

ALL = ("", "\U0010ffff")


async def put(engine: MemoryEngine, key: str, value: bytes = b"v", *, ttl: int | None = None) -> int:
    """Write whatever is there now and return the revision."""
    record = (await engine.read(key)).record
    outcome = await engine.write(key, value, expect=record.mod_revision if record else 0, ttl=ttl)
    assert isinstance(outcome, Written)
    return outcome.revision


async def drop(engine: MemoryEngine, key: str) -> int:
    """Delete what is there now and return the revision."""
    record = (await engine.read(key)).record
    assert record is not None
    outcome = await engine.write(key, None, expect=record.mod_revision)
    assert isinstance(outcome, Written)
    return outcome.revision


async def keys_of(engine: MemoryEngine, *, at: int = 0) -> list[str]:
    return [record.key for record in (await engine.scan(*ALL, at=at)).records]


def test_an_empty_engine_is_at_revision_one_and_the_first_write_gets_two() -> None:
    async def scenario() -> None:
        engine: Engine = MemoryEngine()
        assert await engine.revision() == 1
        assert await engine.compacted() == 0
        assert await engine.write("/a", b"1", expect=0) == Written(2)
        assert await engine.revision() == 2

    asyncio.run(scenario())


def test_a_record_knows_who_created_and_who_last_wrote_it() -> None:
    async def scenario() -> None:
        engine = MemoryEngine()
        await put(engine, "/a", b"1")
        await put(engine, "/a", b"2")
        assert (await engine.read("/a")).record == Record("/a", b"2", 2, 3)
        await drop(engine, "/a")
        await put(engine, "/a", b"3")
        assert (await engine.read("/a")).record == Record("/a", b"3", 5, 5)

    asyncio.run(scenario())


@pytest.mark.parametrize("value", [b"new", None], ids=["put", "delete"])
def test_a_write_that_expects_something_else_changes_nothing_and_tells_what_is_there(value: bytes | None) -> None:
    async def scenario() -> None:
        engine = MemoryEngine()
        await put(engine, "/a", b"1")
        actual = (await engine.read("/a")).record
        for wrong in (0, 1, 3, 2**63 - 1):
            assert await engine.write("/a", value, expect=wrong) == Conflict(actual, 2)
        assert await engine.write("/absent", value, expect=2) == Conflict(None, 2)
        assert await engine.revision() == 2
        assert await keys_of(engine) == ["/a"]

    asyncio.run(scenario())


def test_deleting_what_is_absent_is_a_conflict_and_takes_no_revision() -> None:
    async def scenario() -> None:
        engine = MemoryEngine()
        assert await engine.write("/a", None, expect=0) == Conflict(None, 1)
        assert await engine.revision() == 1

    asyncio.run(scenario())


def test_of_many_writers_with_one_expectation_exactly_one_wins() -> None:
    async def scenario() -> None:
        engine = MemoryEngine()
        await put(engine, "/a")
        outcomes = await asyncio.gather(*(engine.write("/a", b"%d" % n, expect=2) for n in range(50)))
        assert [type(outcome) for outcome in outcomes].count(Written) == 1
        assert await engine.revision() == 3

    asyncio.run(scenario())


@pytest.mark.parametrize("key", ["", "/a\0", "\0", "/\ud800"])
def test_a_key_that_cannot_be_told_from_a_bound_or_not_be_encoded_is_refused(key: str) -> None:
    async def scenario() -> None:
        engine = MemoryEngine()
        with pytest.raises(InvalidKey, match="key"):
            await engine.write(key, b"v", expect=0)
        assert await engine.revision() == 1
        assert await engine.size() == 0

    asyncio.run(scenario())


def test_pages_of_one_scan_show_one_snapshot_in_byte_order() -> None:
    async def scenario() -> None:
        engine = MemoryEngine()
        odd = ["/é", "/e\u0301", "/%", "/_", "/ ", "/a", "/B", "/\U00010000", "/\uffff", "/a/b", "/a ", "/a0"]
        for key in odd:
            await put(engine, key)
        first = await engine.scan(*ALL, limit=5, count=True)
        assert (first.more, first.total, first.revision) == (True, len(odd), 1 + len(odd))
        for key in odd[::2]:
            await drop(engine, key)
        await put(engine, "/\uffff\uffff")
        start = first.records[-1].key + "\0"
        second = await engine.scan(start, ALL[1], at=first.revision, limit=100, count=True)
        assert (second.more, second.total, second.revision) == (False, len(odd) - 5, first.revision)
        found = [record.key for record in (*first.records, *second.records)]
        assert found == sorted(odd)
        assert [key.encode() for key in found] == sorted(key.encode() for key in odd)

    asyncio.run(scenario())


def test_exactly_limit_records_are_not_followed_by_more() -> None:
    async def scenario() -> None:
        engine = MemoryEngine()
        for name in "abc":
            await put(engine, f"/{name}")
        assert not (await engine.scan(*ALL, limit=3)).more
        assert (await engine.scan(*ALL, limit=2)).more
        assert not (await engine.scan(*ALL)).more
        assert not (await engine.scan(*ALL, at=3, limit=2)).more
        assert (await engine.scan(*ALL, at=3, limit=1)).more
        assert list((await engine.scan("/b", "/a")).records) == []

    asyncio.run(scenario())


def test_cluster_c1_does_not_see_cluster_c10() -> None:
    async def scenario() -> None:
        engine = MemoryEngine()
        for cluster in ("c1", "c10", "c1-a", "c"):
            await put(engine, f"/registry/pods/clusters/{cluster}/ns/a")
        page = await engine.scan("/registry/pods/clusters/c1/", "/registry/pods/clusters/c10", count=True)
        assert [record.key for record in page.records] == ["/registry/pods/clusters/c1/ns/a"]
        assert page.total == 1

    asyncio.run(scenario())


def test_every_kept_revision_reads_as_it_was() -> None:
    async def scenario() -> None:
        engine = MemoryEngine()
        await put(engine, "/a", b"1")  # 2
        await put(engine, "/b", b"1")  # 3
        await put(engine, "/a", b"2")  # 4
        await drop(engine, "/b")  # 5
        await put(engine, "/b", b"3")  # 6
        assert [await keys_of(engine, at=at) for at in range(1, 7)] == [
            [],
            ["/a"],
            ["/a", "/b"],
            ["/a", "/b"],
            ["/a"],
            ["/a", "/b"],
        ]
        assert (await engine.read("/a", at=3)).record == Record("/a", b"1", 2, 2)
        assert (await engine.read("/b", at=4)).record == Record("/b", b"1", 3, 3)
        assert (await engine.read("/b", at=5)).record is None
        assert (await engine.read("/b", at=6)).record == Record("/b", b"3", 6, 6)
        assert (await engine.read("/b", at=4)).revision == 4

    asyncio.run(scenario())


def test_a_page_of_the_past_is_full_however_many_keys_came_since() -> None:
    async def scenario() -> None:
        engine = MemoryEngine()
        await put(engine, "/y")
        await put(engine, "/z")
        for name in "abcdefgh":
            await put(engine, f"/{name}")
        page = await engine.scan(*ALL, at=3, limit=1, count=True)
        assert ([record.key for record in page.records], page.more, page.total) == (["/y"], True, 2)

    asyncio.run(scenario())


def test_a_revision_to_come_and_a_compacted_one_are_refused_never_answered_with_other_data() -> None:
    async def scenario() -> None:
        engine = MemoryEngine()
        for _ in range(4):
            await put(engine, "/a")
        await engine.compact(4)
        for ask in (lambda at: engine.read("/a", at=at), lambda at: engine.scan(*ALL, at=at)):
            for gone in (1, 3):
                with pytest.raises(Compacted) as compacted:
                    await ask(gone)
                assert (compacted.value.revision, compacted.value.compacted) == (gone, 4)
            for future in (6, 2**63 - 1):
                with pytest.raises(FutureRevision) as too_large:
                    await ask(future)
                assert (too_large.value.revision, too_large.value.current) == (future, 5)
            await ask(4)
            await ask(5)

    asyncio.run(scenario())


def test_compaction_goes_forward_only_and_not_beyond_the_newest_revision() -> None:
    async def scenario() -> None:
        engine = MemoryEngine()
        await put(engine, "/a")
        await put(engine, "/a")
        for not_above in (0, -1):
            with pytest.raises(Compacted):
                await engine.compact(not_above)
        with pytest.raises(FutureRevision):
            await engine.compact(4)
        await engine.compact(2)
        with pytest.raises(Compacted):
            await engine.compact(2)
        await engine.compact(3)
        assert await engine.compacted() == 3
        assert (await engine.read("/a")).record == Record("/a", b"v", 2, 3)

    asyncio.run(scenario())


def test_after_closing_every_method_says_so() -> None:
    async def scenario() -> None:
        engine = MemoryEngine()
        await put(engine, "/a", ttl=1)
        await engine.aclose()
        await engine.aclose()
        calls: list[Callable[[], Awaitable[Any]]] = [
            lambda: engine.read("/a"),
            lambda: engine.scan(*ALL),
            lambda: engine.write("/a", b"", expect=0),
            lambda: engine.watch(*ALL, after=0),
            engine.revision,
            engine.request_progress,
            lambda: engine.compact(1),
            engine.compacted,
            engine.check,
            engine.size,
        ]
        for call in calls:
            with pytest.raises(EngineUnreachable, match="the memory engine is closed"):
                await call()

    asyncio.run(scenario())


def test_impossible_limits_are_refused() -> None:
    for options in ({"history_limit": 0}, {"history_bytes": -1}, {"progress_interval": -1.0}):
        with pytest.raises(ValueError, match="must be"):
            MemoryEngine(**options)
