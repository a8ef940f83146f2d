"""Watch: the initial events of a watch, and the bookmark that ends them (WatchList)."""

import asyncio

import attrs

from kplane_conformance.case import Capability, case
from kplane_conformance.context import Context, describe
from kplane_conformance.objects import pod
from kplane_conformance.oracle import Oracle, churn, collect_to, same_events
from kplane_conformance.scripts import expect_only_bookmarks
from kplane_core.errors import TooLargeResourceVersion
from kplane_core.storage.interface import (
    INITIAL_EVENTS_END,
    INT64_MAX,
    EventType,
    Store,
    StoredObject,
    Watch,
    WatchEvent,
)


async def expect_initial_end(ctx: Context, watch: Watch) -> int:
    """Return the resourceVersion of the bookmark that must come next and end the initial events."""
    event = await ctx.expect_event(watch, EventType.BOOKMARK)
    assert event.object is not None
    assert event.object.decode() == {
        "apiVersion": ctx.resource.api_version,
        "kind": ctx.resource.kind,
        "metadata": {
            "annotations": {INITIAL_EVENTS_END: "true"},
            "resourceVersion": str(event.object.revision),
        },
    }, describe(event)
    return event.object.revision


async def create_seen(ctx: Context, store: Store, namespace: str, *names: str) -> list[StoredObject]:
    """Create pods and return them once a list that may come from a cache shows them."""
    created = [await store.create(ctx.key(namespace, name), pod(name, namespace)) for name in names]
    page = await ctx.list(
        store,
        ctx.key(namespace),
        resource_version=str(created[-1].revision),
        resource_version_match="NotOlderThan",
    )
    ctx.expect_same(page.items, created, "the list of what was just created")
    return created


@case(
    "SendInitialEventsBackwardCompatibility",
    upstream="RunSendInitialEventsBackwardCompatibility",
    requires=[Capability.INITIAL_EVENTS],
)
async def backward_compatibility(ctx: Context) -> None:
    """A watch that asks for initial events without bookmarks and without a resourceVersion is opened."""
    store = await ctx.store()
    watch = await ctx.watch(store, send_initial_events=True, recursive=False)
    await ctx.expect_silence(watch)


@attrs.frozen
class SemanticsRow:
    """A row of the table of WatchSemantics.

    Attributes:
        after: "", "0", "before" (the resourceVersion before anything was created) or "current".
        send: send_initial_events.
        bookmarks: whether bookmarks are allowed.
        initial: whether what is there already is told.
        end: whether a bookmark ends it.
    """

    after: str
    send: bool | None
    bookmarks: bool
    initial: bool
    end: bool


def _rows() -> tuple[SemanticsRow, ...]:
    rows = []
    for after in ("", "0", "before", "current"):
        replayed = after == "before"
        rows += [
            SemanticsRow(after, send=True, bookmarks=True, initial=True, end=True),
            SemanticsRow(after, send=False, bookmarks=True, initial=replayed, end=False),
            SemanticsRow(after, send=False, bookmarks=False, initial=replayed, end=False),
            SemanticsRow(after, send=True, bookmarks=False, initial=True, end=False),
        ]
    legacy = [SemanticsRow(after, send=None, bookmarks=False, initial=True, end=False) for after in ("0", "")]
    return (*rows, *legacy)


ROWS = _rows()


@case("WatchSemantics", upstream="RunWatchSemantics", rows=ROWS, requires=[Capability.INITIAL_EVENTS])
async def watch_semantics(ctx: Context, row: SemanticsRow) -> None:
    """Where a watch starts, whether it tells what is there, and whether a bookmark ends that, is as the table says."""
    await _check_semantics(ctx, await ctx.store(), row, "ns")


@case("WatchSemantics.concurrent", requires=[Capability.INITIAL_EVENTS])
async def watch_semantics_at_once(ctx: Context) -> None:
    """The table of WatchSemantics holds also when all its rows run at once on one store."""
    ctx.jitter()
    store = await ctx.store()
    async with asyncio.TaskGroup() as tasks:
        for number, row in enumerate(ROWS, 1):
            tasks.create_task(_check_semantics(ctx, store, row, f"ns-{number}"))


async def _check_semantics(ctx: Context, store: Store, row: SemanticsRow, namespace: str) -> None:
    known = {"": "", "0": "0", "before": str(await store.get_current_resource_version())}
    created = await create_seen(ctx, store, namespace, "1", "2", "3")
    known["current"] = str(await store.get_current_resource_version())
    watch = await ctx.watch(
        store,
        ctx.key(namespace),
        after=known[row.after],
        predicate=ctx.select(bookmarks=row.bookmarks),
        send_initial_events=row.send,
    )
    for obj in created if row.initial else ():
        await ctx.expect_event(watch, EventType.ADDED, obj)
    if row.end:
        assert await expect_initial_end(ctx, watch) >= created[-1].revision
    for name in ("4", "5"):
        obj = await store.create(ctx.key(namespace, name), pod(name, namespace))
        await ctx.expect_event(watch, EventType.ADDED, obj)
    await expect_only_bookmarks(ctx, watch)


@case(
    "WatchSemanticInitialEventsExtended",
    upstream="RunWatchSemanticInitialEventsExtended",
    requires=[Capability.INITIAL_EVENTS],
)
async def initial_events_extended(ctx: Context) -> None:
    """The bookmark that ends the initial events carries the newest resourceVersion, also if it was given elsewhere."""
    store = await ctx.store()
    created = await create_seen(ctx, store, "ns-foo", *"12345")
    (other,) = await create_seen(ctx, store, "other-ns-foo", "1")
    watch = await ctx.watch(store, ctx.key("ns-foo"), predicate=ctx.select(bookmarks=True), send_initial_events=True)
    for obj in created:
        await ctx.expect_event(watch, EventType.ADDED, obj)
    await _expect_newest(ctx, store, watch, other)
    await expect_only_bookmarks(ctx, watch)


@case("WatchListMatchSingle", upstream="RunWatchListMatchSingle", requires=[Capability.INITIAL_EVENTS])
async def match_single(ctx: Context) -> None:
    """A selector that pins one name gets that object and then the bookmark with the newest resourceVersion of all."""
    store = await ctx.store()
    created = await create_seen(ctx, store, "ns-foo", *(f"pod-{number}" for number in range(1, 6)))
    predicate = ctx.select(fields="metadata.name=pod-1", bookmarks=True)
    watch = await ctx.watch(store, predicate=predicate, send_initial_events=True)
    await ctx.expect_event(watch, EventType.ADDED, created[0])
    await _expect_newest(ctx, store, watch, created[-1])
    await expect_only_bookmarks(ctx, watch)


async def _expect_newest(ctx: Context, store: Store, watch: Watch, last: StoredObject) -> None:
    """Expect the end of the initial events at the revision of the last write, or of one made elsewhere since."""
    end = await expect_initial_end(ctx, watch)
    newest = await store.get_current_resource_version()
    assert last.revision <= end <= newest, (
        f"the bookmark says {end}, the last write {last.revision}, the store {newest}"
    )


@case("Watch.initial-from-the-future", requires=[Capability.INITIAL_EVENTS])
async def initial_from_the_future(ctx: Context) -> None:
    """Initial events not older than a resourceVersion that does not exist are refused as too large, with a pause."""
    store = await ctx.store()
    await ctx.put(store, pod("foo"))
    watch = await ctx.watch(store, after=INT64_MAX, send_initial_events=True)
    event = await ctx.expect_event(watch, EventType.ERROR)
    assert isinstance(event.error, TooLargeResourceVersion), describe(event)
    assert event.error.status().retry_after > 0
    await ctx.expect_closed(watch)


@case("Watch.initial-among-writers", requires=[Capability.INITIAL_EVENTS])
async def initial_among_writers(ctx: Context) -> None:
    """However many write meanwhile, the initial events are one state, and the stream goes on from there."""
    ctx.jitter()
    store, oracle = await ctx.store(), Oracle()
    end = ctx.key("zz", "end")
    followed: list[tuple[int, list[WatchEvent], asyncio.Task[list[WatchEvent]]]] = []
    async with asyncio.TaskGroup() as tasks:
        writing = [
            tasks.create_task(churn(ctx, oracle, store, ctx.session.seed + number, writes=30)) for number in range(16)
        ]
        while not all(task.done() for task in writing):
            watch = await ctx.watch(store, ctx.prefix, predicate=ctx.select(bookmarks=True), send_initial_events=True)
            initial, at = await _read_initial(ctx, watch)
            # Read through the context until here, and directly from here on: nothing is pending in between.
            followed.append((at, initial, tasks.create_task(collect_to(watch, end))))
            await asyncio.sleep(0)  # a store that never waits must not keep the writers from writing
        await oracle.put(ctx, store, pod("end", "zz"))
    assert followed, "no watch was opened among the writers"
    for at, initial, stream in followed:
        same_events(initial, [WatchEvent(EventType.ADDED, obj) for obj in oracle.items(ctx.prefix, at=at)])
        same_events(stream.result(), oracle.events(ctx.prefix, at))


async def _read_initial(ctx: Context, watch: Watch) -> tuple[list[WatchEvent], int]:
    """Return the initial events and the resourceVersion of the bookmark that ends them."""
    events: list[WatchEvent] = []
    while (event := await ctx.next_event(watch)) is not None:
        assert event.object is not None, describe(event)
        if event.type is EventType.BOOKMARK:
            return events, event.object.revision
        events.append(event)
    raise AssertionError("the watch ended before the end of its initial events was marked")
