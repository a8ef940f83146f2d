"""The engine: watches."""

import asyncio

from kplane_conformance.case import Capability, Hook, case
from kplane_conformance.context import EVENT_TIMEOUT, Context
from kplane_conformance.engines import collect, delete, put, revisions
from kplane_conformance.expect import raises
from kplane_core.engine.interface import Compacted, Engine, EngineEvent, Record


@case("engine.watch.changes", hooks=[Hook.ENGINE])
async def changes(ctx: Context) -> None:
    """A create, an update and a delete arrive with their revisions, values and what was there before."""
    engine, key = ctx.engine, ctx.full_key("a")
    watch = await engine.watch(*ctx.span(), after=await engine.revision())
    first = await put(engine, key, b"1")
    second = await put(engine, key, b"2")
    third = await delete(engine, key)
    fourth = await put(engine, key, b"3")
    events = await collect(watch, fourth)
    await watch.aclose()
    assert list(events) == [
        EngineEvent(key, first, b"1", None, created=True),
        EngineEvent(key, second, b"2", Record(key, b"1", first, first), created=False),
        EngineEvent(key, third, None, Record(key, b"2", first, second), created=False),
        EngineEvent(key, fourth, b"3", None, created=True),
    ]


@case("engine.watch.exclusive-start", requires=[Capability.HISTORY_WINDOW], hooks=[Hook.ENGINE])
async def exclusive_start(ctx: Context) -> None:
    """A watch after a revision replays every later change and not that of the revision itself."""
    engine = ctx.engine
    written = [await put(engine, ctx.full_key(f"{number}"), b"1") for number in range(6)]
    for skipped, after in enumerate(written, 1):
        watch = await engine.watch(*ctx.span(), after=after)
        last = await put(engine, ctx.full_key("last"), b"1")
        events = await collect(watch, last)
        await watch.aclose()
        assert [event.revision for event in events if event.revision in written] == written[skipped:]


@case("engine.watch.range", hooks=[Hook.ENGINE])
async def only_the_range(ctx: Context) -> None:
    """A watch on a directory sees nothing of a directory whose name begins alike, nor of the directory's own key."""
    engine = ctx.engine
    watch = await engine.watch(*ctx.span("clusters/c1"), after=await engine.revision())
    for other in ("c10/a", "c1", "c1-x/a", "c1.y/a", "c0/z", "c2/a"):
        await put(engine, ctx.full_key(f"clusters/{other}"), b"1")
    mine = ctx.full_key("clusters/c1/a")
    last = await put(engine, mine, b"1")
    events = await collect(watch, last)
    await watch.aclose()
    assert [event.key for event in events] == [mine]


@case("engine.watch.one-key", hooks=[Hook.ENGINE])
async def one_key(ctx: Context) -> None:
    """The range from a key to the key with a NUL appended is that key alone."""
    engine, key = ctx.engine, ctx.full_key("a")
    watch = await engine.watch(key, key + "\0", after=await engine.revision())
    for other in (key + "/b", key + "!", key + "a"):
        await put(engine, other, b"1")
    last = await put(engine, key, b"1")
    events = await collect(watch, last)
    await watch.aclose()
    assert revisions(events) == [last]


@case("engine.watch.order", hooks=[Hook.ENGINE])
async def order(ctx: Context) -> None:
    """Under concurrent writers every watch delivers every change exactly once, in the order of revisions."""
    engine = ctx.engine
    start = await engine.revision()
    watches = [await engine.watch(*ctx.span(), after=start) for _ in range(3)]
    written: list[int] = []
    async with asyncio.TaskGroup() as tasks:
        for writer in range(8):
            tasks.create_task(_write_some(engine, ctx.full_key(f"{writer}"), written))
    for watch in watches:
        events = await collect(watch, max(written))
        await watch.aclose()
        assert revisions(events) == sorted(written)
    assert len(set(written)) == len(written), "two writes got one revision"


async def _write_some(engine: Engine, key: str, written: list[int]) -> None:
    for number in range(25):
        written.append(await put(engine, key, str(number).encode()))
        await asyncio.sleep(0)


@case("engine.watch.slow-reader", hooks=[Hook.ENGINE])
async def slow_reader(ctx: Context) -> None:
    """A watch that nobody reads delays neither writers nor other watches, and has lost nothing when it is read."""
    engine = ctx.engine
    start = await engine.revision()
    slow = await engine.watch(*ctx.span(), after=start)
    fast = await engine.watch(*ctx.span(), after=start)
    written = []
    for number in range(300):
        written.append(await put(engine, ctx.full_key("a"), str(number).encode()))
        if not number % 50:
            await collect(fast, written[-1])
    assert revisions(await collect(slow, written[-1])) == written
    await slow.aclose()
    await fast.aclose()


@case("engine.watch.future", requires=[Capability.HISTORY_WINDOW], hooks=[Hook.ENGINE])
async def future(ctx: Context) -> None:
    """A watch after a revision that does not exist yet waits, and never delivers an older change."""
    engine, key = ctx.engine, ctx.full_key("a")
    after = await put(engine, key, b"0") + 5
    watch = await engine.watch(*ctx.span(), after=after)
    written = [0]
    while written[-1] <= after + 2:
        written.append(await put(engine, key, b"1"))
    events = await collect(watch, written[-1])
    await watch.aclose()
    assert revisions(events) == [revision for revision in written if revision > after]


@case("engine.watch.compacted", requires=[Capability.COMPACTION, Capability.HISTORY_WINDOW], hooks=[Hook.ENGINE])
async def compacted(ctx: Context) -> None:
    """A watch from before the kept history is refused, at once or by its first batch; it never starts with a gap."""
    engine, key = ctx.engine, ctx.full_key("a")
    first = await put(engine, key, b"1")
    for number in range(3):
        last = await put(engine, key, str(number).encode())
    await ctx.compact(last)
    with raises(Compacted) as caught:
        watch = await engine.watch(*ctx.span(), after=first)
        try:
            await asyncio.wait_for(watch.batch(), EVENT_TIMEOUT)
        finally:
            await watch.aclose()
    assert caught.error.compacted >= last


@case(
    "engine.watch.compaction-boundary", requires=[Capability.COMPACTION, Capability.HISTORY_WINDOW], hooks=[Hook.ENGINE]
)
async def compaction_boundary(ctx: Context) -> None:
    """Compacting at a revision keeps that very change, with what was before it, for a watch that starts just below.

    put k, delete k at C, put other, compact(C): a watch after C-1 begins with the deletion or is refused.
    """
    engine, key = ctx.engine, ctx.full_key("k")
    first = await put(engine, key, b"1")
    deleted = await delete(engine, key)
    last = await put(engine, ctx.full_key("other"), b"1")
    await ctx.compact(deleted)
    try:
        watch = await engine.watch(*ctx.span(), after=deleted - 1)
        events = await collect(watch, last)
    except Compacted:
        return
    await watch.aclose()
    assert revisions(events) == [deleted, last]
    assert events[0].value is None
    assert events[0].previous in {Record(key, b"1", first, first), None}


@case("engine.watch.progress", requires=[Capability.PROGRESS_NOTIFY], hooks=[Hook.ENGINE])
async def progress(ctx: Context) -> None:
    """A progress mark comes soon after it was asked for, reaches what was committed before, and overtakes nothing."""
    engine = ctx.engine
    watch = await engine.watch(*ctx.span("mine"), after=await engine.revision(), progress=True)
    written = [await put(engine, ctx.full_key(f"mine/{number}"), b"1") for number in range(10)]
    elsewhere = await put(engine, ctx.full_key("theirs/a"), b"1")
    seen: list[int] = []
    marks: list[int] = []
    async with asyncio.timeout(EVENT_TIMEOUT):
        while not marks or marks[-1] < elsewhere:
            await engine.request_progress()
            for event in await watch.batch():
                (marks if event.is_progress else seen).append(event.revision)
                assert event.is_progress or not marks or event.revision > marks[-1], "a mark overtook a change"
    await watch.aclose()
    assert seen == written
    assert marks == sorted(marks)


@case("engine.watch.progress-unasked", hooks=[Hook.ENGINE])
async def no_progress_unasked(ctx: Context) -> None:
    """A watch that did not ask for progress gets no marks."""
    engine = ctx.engine
    watch = await engine.watch(*ctx.span(), after=await engine.revision())
    await engine.request_progress()
    last = await put(engine, ctx.full_key("a"), b"1")
    async with asyncio.timeout(EVENT_TIMEOUT):
        batch = await watch.batch()
    await watch.aclose()
    assert revisions(batch) == [last]


@case("engine.watch.close", hooks=[Hook.ENGINE])
async def close(ctx: Context) -> None:
    """Closing a watch wakes a batch that waits, which returns nothing; closing again is fine."""
    engine = ctx.engine
    watch = await engine.watch(*ctx.span(), after=await engine.revision())
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(asyncio.wait_for(watch.batch(), EVENT_TIMEOUT))
        await asyncio.sleep(0.01)
        assert not waiting.done(), "a batch came although nothing was written"
        await watch.aclose()
    assert list(waiting.result()) == []
    await watch.aclose()
    assert list(await watch.batch()) == []
