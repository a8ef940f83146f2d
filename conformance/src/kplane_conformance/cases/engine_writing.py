"""The engine: writing one key and reading it back."""

import asyncio

from kplane_conformance.case import Capability, Hook, case
from kplane_conformance.context import Context
from kplane_conformance.engines import delete, put, revision_of
from kplane_conformance.expect import raises
from kplane_core.engine.interface import Conflict, Engine, FutureRevision, Record, Written
from kplane_core.storage.interface import INT64_MAX


@case("engine.write.create", hooks=[Hook.ENGINE])
async def create(ctx: Context) -> None:
    """A write that expects nothing creates the key; create and mod revision are the write's own."""
    engine, key = ctx.engine, ctx.full_key("a")
    revision = revision_of(await engine.write(key, b"1", expect=0))
    read = await engine.read(key)
    assert read.record == Record(key, b"1", revision, revision)
    assert read.revision >= revision > 0


@case("engine.write.create-taken", hooks=[Hook.ENGINE])
async def create_taken(ctx: Context) -> None:
    """A write that expects nothing is refused where something is, and is told what; nothing changes."""
    engine, key = ctx.engine, ctx.full_key("a")
    await put(engine, key, b"1")
    before = await engine.read(key)
    answer = await engine.write(key, b"2", expect=0)
    assert isinstance(answer, Conflict)
    assert answer.record == before.record
    assert answer.revision >= before.revision
    assert (await engine.read(key)).record == before.record


@case("engine.write.update", hooks=[Hook.ENGINE])
async def update(ctx: Context) -> None:
    """A write that expects the current mod revision replaces the value and keeps the create revision."""
    engine, key = ctx.engine, ctx.full_key("a")
    first = await put(engine, key, b"1")
    second = revision_of(await engine.write(key, b"2", expect=first))
    assert second > first
    assert (await engine.read(key)).record == Record(key, b"2", first, second)


@case("engine.write.stale", hooks=[Hook.ENGINE])
async def stale(ctx: Context) -> None:
    """A write or delete that expects an older mod revision is refused and told the current record."""
    engine, key = ctx.engine, ctx.full_key("a")
    first = await put(engine, key, b"1")
    await put(engine, key, b"2")
    current = (await engine.read(key)).record
    for value in (b"3", None):
        answer = await engine.write(key, value, expect=first)
        assert isinstance(answer, Conflict)
        assert answer.record == current
    assert (await engine.read(key)).record == current


@case("engine.write.absent", hooks=[Hook.ENGINE])
async def absent(ctx: Context) -> None:
    """A write or delete that expects a record where none is is refused, and is told of none."""
    engine, key = ctx.engine, ctx.full_key("a")
    revision = await put(engine, ctx.full_key("other"), b"1")
    for value in (b"2", None):
        answer = await engine.write(key, value, expect=revision)
        assert isinstance(answer, Conflict)
        assert answer.record is None
    assert (await engine.read(key)).record is None


@case("engine.write.delete", hooks=[Hook.ENGINE])
async def delete_and_recreate(ctx: Context) -> None:
    """A delete has a revision of its own; a key created again starts a new life."""
    engine, key = ctx.engine, ctx.full_key("a")
    first = await put(engine, key, b"1")
    deleted = await delete(engine, key)
    assert deleted > first
    assert (await engine.read(key)).record is None
    second = revision_of(await engine.write(key, b"2", expect=0))
    assert second > deleted
    assert (await engine.read(key)).record == Record(key, b"2", second, second)


@case("engine.write.atomic", hooks=[Hook.ENGINE])
async def atomic(ctx: Context) -> None:
    """Of concurrent writes that expect the same, one wins: counting up with eight writers loses nothing."""
    engine, key = ctx.engine, ctx.full_key("counter")
    await put(engine, key, b"0")
    written: list[int] = []
    async with asyncio.TaskGroup() as tasks:
        for _ in range(8):
            tasks.create_task(_count_up(engine, key, 20, written))
    record = (await engine.read(key)).record
    assert record is not None
    assert record.value == b"160"
    assert len(set(written)) == 160, "two writes got one revision"
    assert record.mod_revision == max(written)


async def _count_up(engine: Engine, key: str, times: int, written: list[int]) -> None:
    while times:
        record = (await engine.read(key)).record
        assert record is not None
        value = str(int(record.value) + 1).encode()
        answer = await engine.write(key, value, expect=record.mod_revision)
        if isinstance(answer, Written):
            written.append(answer.revision)
            times -= 1


@case("engine.write.bytes", hooks=[Hook.ENGINE])
async def any_bytes(ctx: Context) -> None:
    """Values are bytes: zero bytes, every other byte and several hundred kilobytes come back as they were."""
    engine = ctx.engine
    for name, value in (("zero", b"\0"), ("all", bytes(range(256))), ("large", b"\xff\0" * 200_000)):
        await put(engine, ctx.full_key(name), value)
        record = (await engine.read(ctx.full_key(name))).record
        assert record is not None
        assert record.value == value, f"{name} came back different"


@case("engine.read.absent", hooks=[Hook.ENGINE])
async def read_absent(ctx: Context) -> None:
    """An absent key is no error: there is no record, and the revision it was read at."""
    engine = ctx.engine
    revision = await put(engine, ctx.full_key("a"), b"1")
    read = await engine.read(ctx.full_key("b"))
    assert read.record is None
    assert read.revision >= revision


@case("engine.read.linearizable", hooks=[Hook.ENGINE])
async def linearizable(ctx: Context) -> None:
    """A read that begins after a write was acknowledged sees it, also through another connection."""
    engine, key = ctx.engine, ctx.full_key("a")
    other = await ctx.second_engine()
    for number in range(20):
        value = str(number).encode()
        revision = await put(engine, key, value)
        read = await other.read(key)
        assert read.record is not None
        assert (read.record.value, read.record.mod_revision) == (value, revision)
        assert read.revision >= revision
        assert await other.revision() >= revision


@case("engine.read.at", requires=[Capability.EXACT_RV_LIST], hooks=[Hook.ENGINE])
async def read_at(ctx: Context) -> None:
    """A read at a revision answers as of exactly then: before, between and after the changes of a key."""
    engine, key = ctx.engine, ctx.full_key("a")
    before = await put(engine, ctx.full_key("other"), b"")
    first = await put(engine, key, b"1")
    between = await put(engine, ctx.full_key("other"), b"x")
    second = await put(engine, key, b"2")
    deleted = await delete(engine, key)
    again = await put(engine, key, b"3")
    expected = {
        before: None,
        first: Record(key, b"1", first, first),
        between: Record(key, b"1", first, first),
        second: Record(key, b"2", first, second),
        deleted: None,
        again: Record(key, b"3", again, again),
    }
    for revision, record in expected.items():
        read = await engine.read(key, at=revision)
        assert (read.record, read.revision) == (record, revision), f"as of {revision}"


@case("engine.read.future", requires=[Capability.EXACT_RV_LIST], hooks=[Hook.ENGINE])
async def read_future(ctx: Context) -> None:
    """A read or scan at a revision that does not exist yet is refused, never answered with the newest state."""
    engine, key = ctx.engine, ctx.full_key("a")
    newest = await put(engine, key, b"1")
    with raises(FutureRevision) as caught:
        await engine.read(key, at=INT64_MAX)
    assert (caught.error.revision, caught.error.current >= newest) == (INT64_MAX, True)
    with raises(FutureRevision):
        await engine.scan(*ctx.span(), at=INT64_MAX)
