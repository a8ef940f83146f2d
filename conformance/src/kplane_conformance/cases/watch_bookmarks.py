"""Watch: bookmarks."""

import asyncio

import attrs

from kplane_conformance.case import Capability, Hook, Layer, case
from kplane_conformance.context import Context, describe
from kplane_conformance.objects import pod
from kplane_core.storage.interface import EventType, Store, WatchEvent

_CREATED = 100


def expect_plain_bookmark(ctx: Context, event: WatchEvent) -> int:
    """Return the resourceVersion of a bookmark, which must be an empty object with nothing else."""
    assert event.type is EventType.BOOKMARK, f"expected BOOKMARK, got {describe(event)}"
    assert event.object is not None
    assert event.object.decode() == {
        "apiVersion": ctx.resource.api_version,
        "kind": ctx.resource.kind,
        "metadata": {"resourceVersion": str(event.object.revision)},
    }
    return event.object.revision


@case(
    "ProgressNotify",
    upstream="RunOptionalTestProgressNotify",
    requires=[Capability.PROGRESS_NOTIFY],
    hooks=[Hook.INCREASE_RV],
    layers=[Layer.STORE],
)
async def progress_notify(ctx: Context) -> None:
    """A watch with progress_notify on which nothing happens gets a bookmark by itself, from time to time."""
    store = await ctx.store()
    stored = await store.create(ctx.key("test-ns", "name"), pod("name"))
    await ctx.increase_rv()
    watch = await ctx.watch(store, stored.key, after=stored.revision, recursive=False, progress_notify=True)
    event = await ctx.expect_event(watch, EventType.BOOKMARK)
    assert expect_plain_bookmark(ctx, event) >= stored.revision


@attrs.frozen
class DispatchRow:
    """A row of the table of WatchDispatchBookmarkEvents."""

    bookmarks: bool


@case(
    "WatchDispatchBookmarkEvents",
    upstream="RunTestWatchDispatchBookmarkEvents",
    rows=(DispatchRow(bookmarks=False), DispatchRow(bookmarks=True)),
)
async def dispatch_bookmark_events(ctx: Context, row: DispatchRow) -> None:
    """Who asks for bookmarks may get them and nothing else; who does not ask for them gets nothing at all."""
    store = await ctx.store()
    stored = await ctx.put(store, pod("foo"))
    deadline = asyncio.get_running_loop().time() + 3.0
    watch = await ctx.watch(
        store,
        stored.key,
        after=stored.revision,
        recursive=False,
        predicate=ctx.select(bookmarks=row.bookmarks),
        deadline=deadline,
    )
    await ctx.put(store, pod("foo", "other-ns"))
    await store.request_watch_progress()
    if not row.bookmarks:
        await ctx.expect_silence(watch)
        return
    try:
        event = await ctx.next_event(watch, ctx.session.harness.silence)
    except AssertionError:
        return  # a plain store sends none
    assert event is not None, "the watch ended before its deadline"
    assert expect_plain_bookmark(ctx, event) >= stored.revision


@case("Watch.bookmark-unasked", layers=[Layer.STORE])
async def no_bookmark_without_progress_notify(ctx: Context) -> None:
    """A plain store sends progress bookmarks only with progress_notify: allowing bookmarks alone brings none."""
    store = await ctx.store()
    start = await ctx.current(store)
    watch = await ctx.watch(store, after=start, predicate=ctx.select(bookmarks=True))
    await ctx.increase_rv()
    await store.request_watch_progress()
    await ctx.expect_silence(watch)
    created = await ctx.put(store, pod("foo"))
    await ctx.expect_event(watch, EventType.ADDED, created)


@case("Watch.progress-on-request", requires=[Capability.PROGRESS_NOTIFY], layers=[Layer.STORE])
async def progress_on_request(ctx: Context) -> None:
    """Asking for progress brings every watch with progress_notify a bookmark that reaches what was committed before."""
    store = await ctx.store()
    start = await ctx.current(store)
    watches = [await ctx.watch(store, ctx.key(f"ns{n}"), after=start, progress_notify=True) for n in range(3)]
    newest = await ctx.increase_rv()
    for watch in watches:
        reached = 0
        while reached < newest:
            await store.request_watch_progress()
            bookmark = expect_plain_bookmark(ctx, await ctx.expect_event(watch, EventType.BOOKMARK))
            assert bookmark >= reached, f"bookmarks went back from {reached} to {bookmark}"
            reached = bookmark


@case(
    "OptionalWatchBookmarksWithCorrectResourceVersion",
    upstream="RunTestOptionalWatchBookmarksWithCorrectResourceVersion",
    layers=[Layer.CACHE],
)
async def bookmarks_with_correct_rv(ctx: Context) -> None:
    """Under a steady stream of creates no bookmark promises more than was delivered, and at least one comes."""
    store = await ctx.store()
    loop = asyncio.get_running_loop()
    watch = await ctx.watch(
        store,
        ctx.key("test-ns"),
        after=await ctx.current(store),
        predicate=ctx.select(bookmarks=True),
        deadline=loop.time() + 3.0,
    )
    bookmarks, told, last = 0, 0, 0
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_create_steadily(ctx, store))
        # What follows the last create is an idle watch: there is nothing left that a bookmark could overtake.
        while not (bookmarks and told == _CREATED) and (event := await ctx.next_event(watch)) is not None:
            assert event.object is not None, describe(event)
            if event.type is EventType.BOOKMARK:
                bookmarks += 1
                assert event.object.revision >= last, f"a bookmark went back from {last}: {describe(event)}"
            else:
                told += 1
                assert event.object.revision > last, f"told after {last} was: {describe(event)}"
            last = event.object.revision
    assert bookmarks, "no bookmark came before the deadline of the watch"


async def _create_steadily(ctx: Context, store: Store) -> None:
    for number in range(_CREATED):
        await store.create(ctx.key("test-ns", f"foo-{number}"), pod(f"foo-{number}"))
        await asyncio.sleep(0.01)
