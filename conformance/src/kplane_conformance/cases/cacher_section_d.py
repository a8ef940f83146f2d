"""Sharp edges of section D that only a watch cache can show."""

import asyncio
from typing import cast

from kplane_conformance.case import Capability, Layer, case
from kplane_conformance.context import Context, describe
from kplane_conformance.expect import raises
from kplane_conformance.objects import pod
from kplane_conformance.views import HeldStore, SettledStore
from kplane_core.errors import Expired, TooLargeResourceVersion, TooManyRequests
from kplane_core.storage.interface import EventType

_CACHE = (Layer.CACHE,)


async def open_cache(ctx: Context) -> tuple[SettledStore, HeldStore]:
    """Return a cached store, and the valve of its feed."""
    store = cast("SettledStore", await ctx.store())
    return store, cast("HeldStore", store.cacher.store)


@case("D1", layers=_CACHE, requires=[Capability.CONSISTENT_LIST, Capability.PROGRESS_NOTIFY])
async def d1_no_ghosts(ctx: Context) -> None:
    """A cache that lags behind shows what was deleted to a list at resourceVersion 0 only."""
    store, feed = await open_cache(ctx)
    stored = await ctx.put(store, pod("foo"))
    feed.hold()
    deleted = await store.delete(stored.key)
    ctx.expect_same((await ctx.list(store, resource_version="0")).items, [stored], "the list of what the cache has")
    with raises(TooManyRequests):
        await ctx.list(store)
    with raises(TooLargeResourceVersion):
        await ctx.list(store, resource_version=str(deleted.revision), resource_version_match="NotOlderThan")
    feed.release()
    assert not (await ctx.list(store)).items
    page = await ctx.list(store, resource_version=str(deleted.revision), resource_version_match="NotOlderThan")
    assert not page.items


@case("D2", layers=_CACHE, requires=[Capability.CONSISTENT_LIST, Capability.PROGRESS_NOTIFY])
async def d2_a_stopped_feed(ctx: Context) -> None:
    """A cache whose feed has stopped says so in time; it never passes off old data as the newest."""
    store, feed = await open_cache(ctx)
    feed.hold()
    written = await ctx.put(store, pod("foo"))
    for _ in range(2):
        with raises(TooManyRequests) as refused:
            await ctx.list(store)
        assert refused.error.status().retry_after
    feed.release()
    ctx.expect_same((await ctx.list(store)).items, [written], "the list once the feed goes on")


@case("D3", layers=_CACHE, requires=[Capability.CONSISTENT_LIST, Capability.PROGRESS_NOTIFY])
async def d3_an_idle_resource(ctx: Context) -> None:
    """A cache of an idle resource follows the clock of the whole database, by progress and not by writes."""
    store, _ = await open_cache(ctx)
    stored = await ctx.put(store, pod("foo"))
    newest = 0
    for _ in range(50):
        newest = await ctx.increase_rv()
    page = await ctx.list(store, resource_version=str(newest), resource_version_match="NotOlderThan")
    assert page.revision >= newest
    ctx.expect_same(page.items, [stored], "the list at the version of another resource's write")


@case(
    "D6",
    layers=_CACHE,
    requires=[Capability.CONSISTENT_LIST, Capability.CONTINUE_TOKEN, Capability.PROGRESS_NOTIFY],
)
async def d6_a_consistent_page(ctx: Context) -> None:
    """A cache answers a consistent page by itself, without turning it into an exact one."""
    store, feed = await open_cache(ctx)
    for name in ("a", "b", "c"):
        await ctx.put(store, pod(name))
    newest = await ctx.increase_rv()
    before = feed.lists
    page = await ctx.list(store, predicate=ctx.select(limit=2))
    assert page.revision >= newest
    assert (len(page.items), page.remaining) == (2, 1)
    rest = await ctx.list(store, predicate=ctx.select(limit=2, token=page.continue_token))
    assert rest.revision == page.revision
    if store.cacher.config.exact_reads:
        assert feed.lists == before, "the storage was listed"


@case("D7", layers=_CACHE)
async def d7_any_state(ctx: Context) -> None:
    """A watch without a resourceVersion begins with any state on a cache, with the newest on a store."""
    store, feed = await open_cache(ctx)
    stored = await ctx.put(store, pod("a"))
    feed.hold()
    later = await store.create(ctx.key("test-ns", "b"), pod("b"))
    watch = await ctx.watch(store)
    await ctx.expect_event(watch, EventType.ADDED, stored)
    feed.release()
    await ctx.expect_event(watch, EventType.ADDED, later)


@case("D23", layers=_CACHE, requires=[Capability.HISTORY_WINDOW])
async def d23_an_empty_window(ctx: Context) -> None:
    """A cache with an empty event window serves watches from its list's version on, none from before."""
    first, _ = await open_cache(ctx)
    await ctx.put(first, pod("a"))
    before = await ctx.put(first, pod("b"))
    store, _ = await open_cache(ctx)
    listed = store.cacher.revision
    assert listed >= before.revision
    expired = await ctx.watch(store, after=before.revision - 1)
    event = await ctx.expect_event(expired, EventType.ERROR)
    assert isinstance(event.error, Expired)
    await ctx.expect_closed(expired)
    at = await ctx.watch(store, after=listed)
    created = await ctx.put(store, pod("c"))
    await ctx.expect_event(at, EventType.ADDED, created)
    above = await ctx.watch(store, after=created.revision)
    later = await ctx.put(store, pod("d"))
    for watch in (at, above):
        await ctx.expect_event(watch, EventType.ADDED, later)


@case("D25", layers=_CACHE, requires=[Capability.HISTORY_WINDOW])
async def d25_starting_anew(ctx: Context) -> None:
    """A watch that is registered while its cache starts anew misses no event, or fails at its start."""
    store, feed = await open_cache(ctx)
    log: list[int] = []
    streams: list[tuple[int, list[int]]] = []

    async def follow(after: int) -> None:
        try:
            watch = await ctx.watch(store, after=after)
        except TooManyRequests:
            return
        seen: list[int] = []
        streams.append((after, seen))
        async for event in watch:
            if event.type is EventType.ERROR:
                assert isinstance(event.error, Expired)
                return
            assert event.object is not None
            seen.append(event.object.revision)

    async with asyncio.TaskGroup() as tasks:
        for number in range(100):
            log.append((await ctx.put(store, pod(f"foo-{number % 7}-{number}"))).revision)
            if number % 10 == 5:
                feed.fail(Expired(Expired.WATCH))
            tasks.create_task(follow(log[-1] - 1))
            await asyncio.sleep(0)
        await store.cacher.aclose()
    assert streams, "no watch could be opened"
    for after, seen in streams:
        due = [revision for revision in log if revision > after]
        assert seen == due[: len(seen)], f"a watch after {after} has a gap"


@case("D31.index", layers=_CACHE)
async def d31_an_index_only_narrows(ctx: Context) -> None:
    """A watch that an index of the cache finds sees exactly what it sees on a plain store, which has no index."""
    store, feed = await open_cache(ctx)
    start = await ctx.current(store)
    selectors = ("spec.nodeName=n1", "spec.nodeName=", "spec.nodeName=n1,metadata.namespace=ns1")
    pairs = []
    for text in selectors:
        predicate = ctx.select(fields=text)
        pairs.append([await ctx.watch(one, after=start, predicate=predicate) for one in (store, feed.plain)])
    for namespace, node in (("ns1", "n1"), ("ns2", "n1"), ("ns1", ""), ("ns1", "n2"), ("ns1", "n1"), ("ns2", "")):
        await ctx.update(store, pod("foo", namespace, node=node))
    ends = {(await ctx.put(store, pod(f"end{node}", "ns1", node=node))).revision for node in ("n1", "")}
    for indexed, plain in pairs:
        last = 0
        while last not in ends:
            got, want = await ctx.next_event(indexed), await ctx.next_event(plain)
            assert got is not None, "the indexed watch ended"
            assert want is not None, "the plain watch ended"
            assert got.type is want.type, f"{describe(got)} instead of {describe(want)}"
            ctx.expect_same(got.object, want.object, "what the index found")
            last = got.object.revision if got.object else 0
