"""Watch: where it starts, what it tells of one object, and how it ends."""

import asyncio

import attrs

from kplane_conformance.case import Capability, Hook, case
from kplane_conformance.context import EVENT_TIMEOUT, Context, describe
from kplane_conformance.objects import pod
from kplane_conformance.oracle import Oracle, churn, same_events
from kplane_conformance.scripts import play, selection
from kplane_core.storage.interface import EventType, Store, StoredObject, Watch, WatchEvent


@attrs.frozen
class WatchRow:
    """A row of the table of Watch."""

    selector: str
    script: str
    recursive: bool


_SCRIPTS = (
    ("*", "foo:A"),
    ("node=bar", "foo:. foo@bar:A"),
    ("*", "foo:A foo@bar:M"),
    ("node!=bar", "foo:A foo@bar:D"),
    ("label select=true", "foo+:A foo:D foo+:A foo+@bar:M -foo:D"),
)


@case(
    "Watch",
    upstream="RunTestWatch",
    rows=[WatchRow(*row, recursive=recursive) for recursive in (False, True) for row in _SCRIPTS],
)
async def watch_(ctx: Context, row: WatchRow) -> None:
    """A watch tells of each change as its selector sees it, and of nothing in a namespace whose name begins alike."""
    store = await ctx.store()
    predicate = selection(ctx, row.selector)
    start = await ctx.list(store, ctx.key("ns"), predicate=predicate)
    path = ctx.key("ns").rstrip("/") if row.recursive else ctx.key("ns", "foo")
    watch = await ctx.watch(store, path, after=start.revision, recursive=row.recursive, predicate=predicate)
    await ctx.put(store, pod("foo", "ns-bad", node="bar", labels={"select": "true"}))
    await play(ctx, store, watch, row.script, namespace="ns")


@case("DeleteTriggerWatch", upstream="RunTestDeleteTriggerWatch")
async def delete_trigger_watch(ctx: Context) -> None:
    """Deleting an object is told to those who watch it."""
    store = await ctx.store()
    stored = await ctx.put(store, pod("foo"))
    watch = await ctx.watch(store, stored.key, after=stored.revision, recursive=False)
    deleted = await store.delete(stored.key)
    await ctx.expect_event(watch, EventType.DELETED, _gone(stored, deleted))
    await ctx.expect_stopped(watch)


@case("WatchFromNonZero", upstream="RunTestWatchFromNonZero", requires=[Capability.HISTORY_WINDOW])
async def watch_from_non_zero(ctx: Context) -> None:
    """A watch from an object's resourceVersion begins with the next change of it."""
    store = await ctx.store()
    stored = await ctx.put(store, pod("foo"))
    watch = await ctx.watch(store, stored.key, after=stored.revision, recursive=False)
    updated = await ctx.update(store, pod("foo", annotations={"change": "1"}))
    await ctx.expect_event(watch, EventType.MODIFIED, updated)
    late = await ctx.watch(store, stored.key, after=stored.revision, recursive=False)
    await ctx.expect_event(late, EventType.MODIFIED, updated)


@case(
    "WatchFromZero",
    upstream="RunTestWatchFromZero",
    requires=[Capability.INITIAL_EVENTS, Capability.COMPACTION],
    hooks=[Hook.COMPACT],
)
async def watch_from_zero(ctx: Context) -> None:
    """A watch from "0" begins with the object as it is, whatever was compacted; one from before that is refused."""
    store = await ctx.store()
    stored = await ctx.put(store, pod("foo"))
    watch = await ctx.watch(store, stored.key, after=0, recursive=False)
    await ctx.expect_event(watch, EventType.ADDED, stored)
    updated = await ctx.update(store, pod("foo", annotations={"change": "1"}))
    await ctx.expect_event(watch, EventType.MODIFIED, updated)
    await ctx.expect_stopped(watch)
    await _expect_added_only(ctx, store, updated)
    newest = await ctx.update(store, pod("foo", annotations={"change": "2"}))
    await ctx.compact(newest.revision, store)
    await _expect_added_only(ctx, store, newest)
    old = await ctx.watch(store, stored.key, after=stored.revision, recursive=False)
    event = await ctx.expect_event(old, EventType.ERROR)
    assert event.error is not None
    status = event.error.status()
    assert (status.code, status.reason) in {(410, "Expired"), (500, "InternalError")}, describe(event)
    await ctx.expect_closed(old)


async def _expect_added_only(ctx: Context, store: Store, stored: StoredObject) -> None:
    watch = await ctx.watch(store, stored.key, after=0, recursive=False)
    await ctx.expect_event(watch, EventType.ADDED, stored)
    await ctx.expect_stopped(watch)


@case("WatchDeleteEventObjectHaveLatestRV", upstream="RunTestWatchDeleteEventObjectHaveLatestRV")
async def delete_event_has_latest_rv(ctx: Context) -> None:
    """A DELETED event carries the resourceVersion of the deletion, the same that the delete call returns."""
    store = await ctx.store()
    stored = await ctx.put(store, pod("foo"))
    watch = await ctx.watch(store, stored.key, after=stored.revision, recursive=False)
    deleted = await store.delete(stored.key)
    assert deleted.revision > stored.revision
    ctx.expect_same_content(deleted, stored)
    event = await ctx.expect_event(watch, EventType.DELETED, deleted)
    assert event.object is not None
    assert event.object.decode()["metadata"]["resourceVersion"] == str(deleted.revision)


@case("WatchContextCancel", upstream="RunTestWatchContextCancel")
async def watch_context_cancel(ctx: Context) -> None:
    """A watch whose deadline has passed ends at once without an error, and a cancelled reader leaves nothing behind."""
    store = await ctx.store()
    now = asyncio.get_running_loop().time()
    watch = await ctx.watch(store, ctx.key("not-existing").rstrip("/"), after=0, deadline=now - 1)
    await ctx.expect_closed(watch)
    # What a cache in front of the store opens for itself is open once a change came through it.
    settled = await ctx.watch(store, after=await ctx.current(store))
    await ctx.expect_event(settled, EventType.ADDED, await ctx.put(store, pod("foo")))
    before = asyncio.all_tasks()
    reading = asyncio.create_task(_read_for_ever(store, ctx.key("not-existing")))
    await asyncio.sleep(0.01)
    assert not reading.done(), "a watch of nothing ended by itself"
    reading.cancel()
    await asyncio.wait({reading}, timeout=5)
    assert reading.cancelled(), "a watch kept its reader from being cancelled"
    # A driver may need another turn of the loop to notice that its call is over.
    await ctx.eventually(lambda: asyncio.all_tasks() <= before, "nothing of the cancelled watch runs", within=2.0)


async def _read_for_ever(store: Store, path: str) -> None:
    async with await store.watch(path) as watch:
        async for event in watch:
            raise AssertionError(f"expected silence, got {describe(event)}")


@case("WatcherTimeout", upstream="RunTestWatcherTimeout")
async def watcher_timeout(ctx: Context) -> None:
    """Fifty watchers that never read do not delay one that does."""
    store = await ctx.store()
    start = await ctx.current(store)
    for _ in range(50):
        await ctx.watch(store, ctx.key("test-ns"), after=start)
    reader = await ctx.watch(store, ctx.key("test-ns"), after=start)
    async with asyncio.timeout(50 * 0.25):
        for number in range(22):
            created = await ctx.put(store, pod(f"foo-{number}"))
            await ctx.expect_event(reader, EventType.ADDED, created)


@case("DelayedWatchDelivery", upstream="RunTestDelayedWatchDelivery")
async def delayed_watch_delivery(ctx: Context) -> None:
    """What a watch has buffered when it is stopped can still be read, without a gap."""
    store = await ctx.store()
    start = await ctx.put(store, pod("foo"))
    delayed = await ctx.watch(store, ctx.key("test-ns"), after=start.revision)
    witness = await ctx.watch(store, ctx.key("test-ns"), after=start.revision)
    created = [await ctx.put(store, pod(f"foo-{number}")) for number in range(21)]
    for obj in created:
        await ctx.expect_event(witness, EventType.ADDED, obj)
    await ctx.expect_event(delayed, EventType.ADDED, created[0])
    await asyncio.sleep(ctx.session.harness.silence)
    delayed.stop()
    read = 1 + await _read_consecutive(ctx, delayed, created[1:])
    assert read >= 11, f"only {read} of 21 events could be read after a pause and a stop; at least 11 must be buffered"


async def _read_consecutive(ctx: Context, watch: Watch, want: list[StoredObject]) -> int:
    """Read to the end and return how many came; they must be the first of `want`."""
    read = 0
    while (event := await ctx.next_event(watch)) is not None:
        assert read < len(want), f"an event that was never written: {describe(event)}"
        assert event.type is EventType.ADDED, describe(event)
        ctx.expect_same(event.object, want[read], f"event {read + 2} of a stopped watch")
        read += 1
    return read


@case("WatchInitializationSignal", upstream="RunTestWatchInitializationSignal")
async def watch_initialization_signal(ctx: Context) -> None:
    """Opening a watch returns within five seconds, and from then on no change is missed."""
    store = await ctx.store()
    stored = await ctx.put(store, pod("foo"))
    async with asyncio.timeout(5):
        watch = await ctx.watch(store, stored.key, after=stored.revision, recursive=False)
    updated = await ctx.update(store, pod("foo", node="a"))
    await ctx.expect_event(watch, EventType.MODIFIED, updated)


@case("Watch.one-by-one-or-all")
async def one_by_one_or_all(ctx: Context) -> None:
    """Whoever takes events one by one and then all that are ready, in any order, gets each once."""
    store, oracle = await ctx.store(), Oracle()
    start = await ctx.current(store)
    watch = await ctx.watch(store, after=start)
    events: list[WatchEvent] = []
    for number in range(5):
        await churn(ctx, oracle, store, ctx.session.seed + number, writes=20)
        async with asyncio.timeout(EVENT_TIMEOUT):
            events += [await anext(watch), await anext(watch), *await watch.batch()]
    while events[-1].object is not None and events[-1].object.revision < oracle.newest:
        events += await watch.batch()
    same_events(events, oracle.events(ctx.prefix, start))


def _gone(stored: StoredObject, deleted: StoredObject) -> StoredObject:
    return StoredObject(key=stored.key, revision=deleted.revision, raw=stored.raw)
