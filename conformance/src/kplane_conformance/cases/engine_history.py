"""The engine: the clock, compaction, times to live, and the end."""

import asyncio

from kplane_conformance.case import Capability, Hook, case
from kplane_conformance.context import EVENT_TIMEOUT, Context
from kplane_conformance.engines import collect, delete, keys, put
from kplane_conformance.expect import raises
from kplane_core.engine.interface import Compacted, EngineUnreachable, FutureRevision, Record
from kplane_core.storage.interface import INT64_MAX


@case("engine.revision", hooks=[Hook.ENGINE])
async def revision(ctx: Context) -> None:
    """The newest revision covers every acknowledged write, grows with every change and stays without one."""
    engine, key = ctx.engine, ctx.full_key("a")
    seen = [await engine.revision()]
    assert seen[0] > 0
    for number in range(5):
        written = await put(engine, key, str(number).encode())
        assert written > seen[-1], "a write got a revision that somebody had already seen"
        seen.append(await engine.revision())
        assert seen[-1] >= written
    assert seen == sorted(seen)
    assert seen[-1] < INT64_MAX


@case("engine.compact", requires=[Capability.COMPACTION, Capability.EXACT_RV_LIST], hooks=[Hook.ENGINE])
async def compact(ctx: Context) -> None:
    """Compaction refuses reads below it, serves reads at it, and keeps the live version of every key."""
    engine, a, b = ctx.engine, ctx.full_key("a"), ctx.full_key("b")
    lives = await put(engine, b, b"old and alive")
    first = await put(engine, a, b"1")
    second = await put(engine, a, b"2")
    third = await put(engine, a, b"3")
    await ctx.compact(second)
    assert await engine.compacted() == second
    with raises(Compacted) as caught:
        await engine.read(a, at=first)
    assert (caught.error.revision, caught.error.compacted) == (first, second)
    with raises(Compacted):
        await engine.scan(*ctx.span(), at=first)
    assert (await engine.read(a, at=second)).record == Record(a, b"2", first, second)
    assert (await engine.read(a)).record == Record(a, b"3", first, third)
    assert (await engine.read(b)).record == Record(b, b"old and alive", lives, lives)


@case("engine.compact.deleted", requires=[Capability.COMPACTION], hooks=[Hook.ENGINE])
async def compact_deleted(ctx: Context) -> None:
    """A key that was deleted stays deleted through a compaction, and can be created again."""
    engine, key = ctx.engine, ctx.full_key("a")
    await put(engine, key, b"1")
    await delete(engine, key)
    await ctx.compact(await put(engine, ctx.full_key("b"), b"1"))
    assert (await engine.read(key)).record is None
    assert keys((await engine.scan(*ctx.span())).records) == [ctx.full_key("b")]
    again = await put(engine, key, b"2")
    assert (await engine.read(key)).record == Record(key, b"2", again, again)


@case("engine.compact.refused", requires=[Capability.COMPACTION], hooks=[Hook.ENGINE])
async def compact_refused(ctx: Context) -> None:
    """Compaction never goes back, and never beyond the newest revision."""
    engine, key = ctx.engine, ctx.full_key("a")
    first = await put(engine, key, b"1")
    second = await put(engine, key, b"2")
    await engine.compact(second)
    for revision in (first, second):
        with raises(Compacted):
            await engine.compact(revision)
    with raises(FutureRevision):
        await engine.compact(INT64_MAX)
    assert await engine.compacted() == second


@case("engine.ttl.expires", requires=[Capability.TTL], hooks=[Hook.ENGINE])
async def ttl_expires(ctx: Context) -> None:
    """A record is deleted once its time has passed and not before, with a revision and one event of its own."""
    engine, key = ctx.engine, ctx.full_key("a")
    written = await put(engine, key, b"1", ttl=2)
    watch = await engine.watch(*ctx.span(), after=written)
    await ctx.elapse(1.0)
    assert (await engine.read(key)).record is not None, "it expired early"
    await ctx.elapse(1.0)
    async with asyncio.timeout(EVENT_TIMEOUT):
        batch = await watch.batch()
    assert [(event.key, event.value, event.previous) for event in batch] == [
        (key, None, Record(key, b"1", written, written))
    ]
    assert batch[0].revision > written
    assert (await engine.read(key)).record is None
    last = await put(engine, ctx.full_key("b"), b"1")
    assert [event.key for event in await collect(watch, last)] == [ctx.full_key("b")], "it was deleted twice"
    await watch.aclose()


@case("engine.ttl.kept", requires=[Capability.TTL], hooks=[Hook.ENGINE])
async def ttl_kept(ctx: Context) -> None:
    """A write without a time to live keeps the time that remains."""
    engine, key = ctx.engine, ctx.full_key("a")
    await put(engine, key, b"1", ttl=2)
    written = await put(engine, key, b"2", ttl=None)
    watch = await engine.watch(*ctx.span(), after=written)
    await ctx.elapse(2.0)
    async with asyncio.timeout(EVENT_TIMEOUT):
        batch = await watch.batch()
    await watch.aclose()
    assert [(event.key, event.value) for event in batch] == [(key, None)]


@case("engine.ttl.refreshed", requires=[Capability.TTL], hooks=[Hook.ENGINE])
async def ttl_refreshed(ctx: Context) -> None:
    """A write with a new time to live counts from that write: the old time has no more effect."""
    engine, key = ctx.engine, ctx.full_key("a")
    await put(engine, key, b"1", ttl=2)
    written = await put(engine, key, b"2", ttl=5)
    watch = await engine.watch(*ctx.span(), after=written)
    await ctx.elapse(3.0)
    assert (await engine.read(key)).record is not None, "the first time to live outlived its refresh"
    await ctx.elapse(2.0)
    async with asyncio.timeout(EVENT_TIMEOUT):
        batch = await watch.batch()
    await watch.aclose()
    assert [(event.key, event.value) for event in batch] == [(key, None)]


@case("engine.ttl.cleared", requires=[Capability.TTL], hooks=[Hook.ENGINE])
async def ttl_cleared(ctx: Context) -> None:
    """A write with a time to live of zero makes the record stay; a new life of a key inherits no time."""
    engine, cleared, again = ctx.engine, ctx.full_key("cleared"), ctx.full_key("again")
    await put(engine, cleared, b"1", ttl=1)
    await put(engine, cleared, b"2", ttl=0)
    await put(engine, again, b"1", ttl=1)
    await delete(engine, again)
    last = await put(engine, again, b"2")
    watch = await engine.watch(*ctx.span(), after=last)
    gone = ctx.full_key("witness")
    await put(engine, gone, b"1", ttl=2)
    await ctx.elapse(2.0)
    # The witness was due last: when it is gone, what was due before it would be gone too.
    async with asyncio.timeout(EVENT_TIMEOUT):
        await ctx.eventually(lambda: _is_gone(ctx, gone), "the witness expires")
    await watch.aclose()
    assert keys((await engine.scan(*ctx.span())).records) == [again, cleared]


async def _is_gone(ctx: Context, key: str) -> bool:
    return (await ctx.engine.read(key)).record is None


@case("engine.check", hooks=[Hook.ENGINE])
async def check(ctx: Context) -> None:
    """A reachable database passes the check and tells how many bytes it uses."""
    await ctx.engine.check()
    await put(ctx.engine, ctx.full_key("a"), b"x" * 10_000)
    assert await ctx.engine.size() >= 10_000


@case("engine.close", hooks=[Hook.ENGINE])
async def close(ctx: Context) -> None:
    """Closing a connection ends its watches and makes later calls fail; other connections go on."""
    connection = await ctx.connect()
    engine = ctx.engine_of(connection)
    watch = await engine.watch(*ctx.span(), after=await engine.revision())
    await connection.aclose()
    async with asyncio.timeout(EVENT_TIMEOUT):
        assert list(await watch.batch()) == []
    await connection.aclose()
    for call in (engine.read(ctx.full_key("a")), engine.revision(), engine.check()):
        with raises(EngineUnreachable):
            await call
    await ctx.engine.check()
