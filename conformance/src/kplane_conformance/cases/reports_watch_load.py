"""What users reported of slow watches, many watches, and what they leave behind, each under its number."""

import asyncio
import gc
import itertools
import threading
import tracemalloc
from pathlib import Path

from kplane_conformance.case import Capability, Hook, Layer, case
from kplane_conformance.context import EVENT_TIMEOUT, Context, describe
from kplane_conformance.objects import pod
from kplane_conformance.oracle import Oracle, churn, collect, collect_resuming, same_events
from kplane_core.storage.interface import ListOptions, Store, Watch, WatchEvent

_DESCRIPTORS = Path("/proc/self/fd")


@case("R5", requires=[Capability.HISTORY_WINDOW])
async def hundreds_of_watches(ctx: Context) -> None:
    """Each of 500 watches on one connection tells every change, or ends where it can go on; none lags or skips."""
    store, oracle = await ctx.store(), Oracle()
    start = await ctx.current(store)
    watches = [await ctx.watch(store, ctx.key("ns1"), after=start) for _ in range(500)]
    await churn(ctx, oracle, store, ctx.session.seed, writes=40, namespaces=("ns1", "ns10"))
    want = oracle.events(ctx.key("ns1"), start)
    last = max(event.object.revision for event in want if event.object is not None)
    for watch in watches:
        same_events(
            await collect_resuming(ctx, store, watch, ctx.key("ns1"), after=start, last=last),
            want,
        )


# --- cancellation -----------------------------------------------------------------------------------------------------


@case("R39")
async def cancelled_anywhere(ctx: Context) -> None:
    """A reader that is cancelled at any point ends with CancelledError, promptly, and leaves no task behind."""
    ctx.jitter()
    store = await ctx.store()
    for number in range(5):
        await ctx.put(store, pod(f"foo-{number}"))
    before = asyncio.all_tasks()
    for turns in range(40):
        told: list[WatchEvent] = []
        reading = asyncio.create_task(_read(store, ctx.prefix, told))
        for turn in range(turns):
            await asyncio.sleep(0)
            if turn == 20:
                await ctx.update(store, pod("foo-0", annotations={"turn": str(turns)}))
        reading.cancel()
        await asyncio.wait({reading}, timeout=5)
        assert reading.done(), f"a reader cancelled after {turns} turns of the loop goes on"
        assert reading.cancelled(), f"a reader cancelled after {turns} turns swallowed it: {reading.exception()}"
        await ctx.eventually(lambda: asyncio.all_tasks() <= before, "what the cancelled reader started ends", within=2)


async def _read(store: Store, path: str, told: list[WatchEvent]) -> None:
    async with await store.watch(path) as watch:
        async for event in watch:
            told.append(event)
            await asyncio.sleep(0)


@case("R39.read-again")
async def cancelled_read_loses_nothing(ctx: Context) -> None:
    """A read that is given up, as by a time-out, takes no event with it: the next read goes on where that one was."""
    store, oracle = await ctx.store(), Oracle()
    start = await ctx.current(store)
    watch = await ctx.watch(store, after=start)
    events: list[WatchEvent] = []
    for turns in range(6):  # before there is anything to tell every read is given up
        reading = asyncio.create_task(_next(watch))
        await _turns(turns)
        reading.cancel()
        await asyncio.wait({reading}, timeout=5)
        assert reading.cancelled(), "a read that was cancelled goes on"
    # How many turns a read takes is the backend's affair: try every moment around a write.
    for before, after in itertools.product(range(6), range(6)):
        reading = asyncio.create_task(_next(watch))
        await _turns(before)
        await oracle.put(ctx, store, pod("foo", annotations={"turns": f"{before}-{after}"}))
        await _turns(after)
        reading.cancel()
        await asyncio.wait({reading}, timeout=5)
        assert reading.done(), "a read that was cancelled goes on"
        events += [] if reading.cancelled() else [reading.result()]
    while not events or _revision(events[-1]) < oracle.newest:
        async with asyncio.timeout(EVENT_TIMEOUT):
            events.append(await _next(watch))
    same_events(events, oracle.events(ctx.prefix, start))


async def _next(watch: Watch) -> WatchEvent:
    return await watch.__anext__()


async def _turns(turns: int) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)


def _revision(event: WatchEvent) -> int:
    assert event.object is not None, describe(event)
    return event.object.revision


# --- slow readers -----------------------------------------------------------------------------------------------------


@case("R41", requires=[Capability.HISTORY_WINDOW])
async def stalled_among_healthy(ctx: Context) -> None:
    """One stalled watcher does not slow down fifty healthy ones, and can go on without a gap when it reads again."""
    store, oracle = await ctx.store(), Oracle()
    start = await ctx.current(store)
    stalled = await ctx.watch(store, after=start)
    written: dict[int, float] = {}
    delays: list[float] = []
    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(50):
            tasks.create_task(_measure(await ctx.watch(store, after=start), ctx.key("zz", "end"), written, delays))
        for number in range(200):
            stored = await oracle.put(ctx, store, pod("foo", "ns", annotations={"n": str(number)}))
            written[stored.revision] = loop.time()
            await asyncio.sleep(0)
        await oracle.put(ctx, store, pod("end", "zz"))
    slow = sorted(delays)[len(delays) * 99 // 100]
    assert slow < 1.0, f"one event in a hundred took {slow:.2f} s to reach a healthy watcher"
    got = await collect_resuming(ctx, store, stalled, ctx.prefix, after=start, last=oracle.newest)
    same_events(got, oracle.events(ctx.prefix, start))


async def _measure(watch: Watch, end: str, written: dict[int, float], delays: list[float]) -> None:
    """Read up to an event of the key `end`, and note how long after its write each event came."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(EVENT_TIMEOUT):
        async for event in watch:
            assert event.object is not None, describe(event)
            if event.object.key == end:
                return
            # A fast watcher may hear of a write before its writer does.
            delays.append(loop.time() - written.get(event.object.revision, loop.time()))


# --- what is left behind ----------------------------------------------------------------------------------------------


async def _open_and_close(store: Store, path: str, watches: int) -> None:
    async with asyncio.timeout(EVENT_TIMEOUT):
        opened = [await store.watch(path, ListOptions(resource_version="0")) for _ in range(watches)]
        for watch in opened:
            async with watch:
                assert len(await watch.batch()) > 0


@case("R42", timeout=120.0)
async def memory_comes_back(ctx: Context) -> None:
    """Opening 500 watches with initial events and ending them all, again and again, takes no more memory each time."""
    store = await ctx.store()
    for number in range(20):
        await ctx.put(store, pod(f"foo-{number}", annotations={"ballast": "x" * 1_000}))
    await _open_and_close(store, ctx.prefix, 500)
    tracing = tracemalloc.is_tracing()
    tracemalloc.start()
    try:
        sizes = []
        for _ in range(3):
            await _open_and_close(store, ctx.prefix, 500)
            gc.collect()
            sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        if not tracing:
            tracemalloc.stop()
    # A watch that stays costs some hundred bytes at least; what is allowed here is the noise of the process.
    assert sizes[2] - sizes[0] < 1_000 * 100, f"two rounds of 500 watches left {sizes[2] - sizes[0]} bytes"


@case("R43")
async def nothing_is_left_behind(ctx: Context) -> None:
    """Opening and closing a watch 1000 times leaves no task, no thread, no file descriptor and no object behind."""
    store = await ctx.store()
    await ctx.put(store, pod("foo"))
    for _ in range(20):
        await _open_and_close(store, ctx.prefix, 10)
    before = _held()
    for _ in range(100):
        await _open_and_close(store, ctx.prefix, 10)
    await ctx.eventually(lambda: _held()[:1] <= before[:1], "the tasks of closed watches end", within=5)
    after = _held()
    for what, least, most in zip(("tasks", "threads", "file descriptors"), before[:3], after[:3], strict=True):
        # A pool may still grow by a few; it must not grow with the number of watches.
        assert most <= least + 5, f"{most - least} {what} were left behind by 1000 watches"
    assert after[3] < before[3] + 900, f"{after[3] - before[3]} objects were left behind by 1000 watches"


def _held() -> tuple[int, int, int, int]:
    """Return how many tasks, threads, file descriptors and objects there are."""
    gc.collect()
    descriptors = len(list(_DESCRIPTORS.iterdir())) if _DESCRIPTORS.is_dir() else 0
    return len(asyncio.all_tasks()), threading.active_count(), descriptors, len(gc.get_objects())


# --- decoding ---------------------------------------------------------------------------------------------------------


@case("R44", hooks=[Hook.SWAP_TRANSFORMER], layers=[Layer.CACHE])
async def decoded_once(ctx: Context) -> None:
    """However many watch a cache, a change is read from its stored form once, not once per watcher."""
    store = await ctx.store()
    reads = await _reads_for(ctx, store, watchers=100, writes=20)
    assert reads <= 20 * 4, f"20 changes for 100 watchers were read {reads} times"


@case("R44.store", hooks=[Hook.SWAP_TRANSFORMER], layers=[Layer.STORE])
async def decoded_once_per_watcher(ctx: Context) -> None:
    """A watcher of a plain store that selects everything costs one reading per change: the old value is not needed."""
    store = await ctx.store()
    reads = await _reads_for(ctx, store, watchers=20, writes=20)
    assert reads <= 20 * 20, f"20 changes for 20 watchers were read {reads} times"


async def _reads_for(ctx: Context, store: Store, *, watchers: int, writes: int) -> int:
    """Return how many stored values were read to tell some watchers of some updates."""
    oracle = Oracle()
    start = (await oracle.put(ctx, store, pod("foo", "ns"))).revision
    watches = [await ctx.watch(store, after=start) for _ in range(watchers)]
    for number in range(writes - 1):
        await oracle.put(ctx, store, pod("foo", "ns", annotations={"n": str(number), "ballast": "x" * 10_000}))
    before = ctx.transformer.reads
    await oracle.put(ctx, store, pod("end", "ns"))
    want = oracle.events(ctx.prefix, start)
    for watch in watches:
        same_events(await collect(watch, oracle.newest), want)
    return ctx.transformer.reads - before
