"""What users of such systems reported of watches: lost, repeated and wrong events, each under its number."""

import asyncio

import attrs

from kplane_conformance.case import Capability, Hook, Layer, case
from kplane_conformance.cases.section_d_watch import ask_for_progress, read_until_marked, refused
from kplane_conformance.cases.watch_bookmarks import expect_plain_bookmark
from kplane_conformance.cases.watch_initial import expect_initial_end
from kplane_conformance.context import Context, describe
from kplane_conformance.listed import Listed, enter
from kplane_conformance.objects import pod
from kplane_conformance.oracle import Oracle, churn, collect, same_events
from kplane_core.errors import Expired, KeyNotFound, TooLargeResourceVersion, Unreachable
from kplane_core.storage.interface import EventType, ObjectList, Store, StoredObject, Watch

HISTORY = [Capability.COMPACTION, Capability.HISTORY_WINDOW]


async def _neighbour(ctx: Context) -> Store:
    """Return a store of another resource beside the case's pods."""
    prefix = ctx.prefix.replace("pods", "things")
    return await ctx.store(attrs.evolve(ctx.resource, resource_prefix=prefix, group_resource="things", kind="Thing"))


async def _write_elsewhere(store: Store, writes: int) -> int:
    """Write to another resource and return the last resourceVersion."""
    key, last = f"{store.resource_prefix}ns/busy", 0
    for number in range(writes):
        document = {"apiVersion": "v1", "kind": "Thing", "metadata": {"name": "busy"}, "number": number}
        written = await store.guaranteed_update(key, lambda *_, obj=document: (obj, None), ignore_not_found=True)
        last = written.revision
    return last


# --- ordering and lost events -----------------------------------------------------------------------------------------


@case("R1", requires=[Capability.CONSISTENT_LIST, Capability.HISTORY_WINDOW])
async def nothing_becomes_visible_late(ctx: Context) -> None:
    """A list and a watch from its resourceVersion show each change once, though writes commit in any order."""
    ctx.jitter()
    store, oracle = await ctx.store(), Oracle()
    followed: list[tuple[ObjectList, Watch]] = []
    async with asyncio.TaskGroup() as tasks:
        writing = [
            tasks.create_task(churn(ctx, oracle, store, ctx.session.seed + number, writes=20)) for number in range(16)
        ]
        while not all(task.done() for task in writing):
            page = await ctx.list(store, ctx.key("ns1"))
            if len(followed) < 40:
                followed.append((page, await ctx.watch(store, ctx.key("ns1"), after=page.revision)))
            await asyncio.sleep(0)  # a store that never waits must not keep the writers from writing
    for page, watch in followed:
        oracle.check_list(page, ctx.key("ns1"))
        await oracle.check_watch(watch, ctx.key("ns1"), page.revision)


@case("R2", requires=[Capability.HISTORY_WINDOW])
async def jump_of_the_clock(ctx: Context) -> None:
    """After the resourceVersions have jumped, the next change is told within a second, and only that."""
    store, other = await ctx.store(), await _neighbour(ctx)
    watch = await ctx.watch(store, after=await ctx.current(store))
    last = await _write_elsewhere(other, 2_000)
    created = await ctx.put(store, pod("foo"))
    assert created.revision > last
    await ctx.expect_event(watch, EventType.ADDED, created, within=1.0)
    await ctx.expect_silence(watch)


@case("R3", requires=[Capability.HISTORY_WINDOW])
async def conflicts_do_not_freeze_watches(ctx: Context) -> None:
    """Many conflicting updates with stale suggestions: one event per success, and the last within a second."""
    ctx.jitter()
    store, oracle = await ctx.store(), Oracle()
    keys = [ctx.key("ns", f"k{number}") for number in range(20)]
    for key in keys:
        await oracle.put(ctx, store, pod(key.rpartition("/")[2], "ns", annotations={"n": "0"}))
    start = oracle.newest
    watch = await ctx.watch(store, after=start)
    async with asyncio.TaskGroup() as tasks:
        for writer in range(8):
            tasks.create_task(_count_up(oracle, store, keys, writer))
    written_at = asyncio.get_running_loop().time()
    want = oracle.events(ctx.prefix, start)
    got = await collect(watch, oracle.newest)
    lag = asyncio.get_running_loop().time() - written_at
    same_events(got, want)
    assert lag < 1.0, f"the last event came {lag:.2f} s after the last write"
    total = sum(_number(obj.decode()) for obj in oracle.state().values())
    assert total == len(want) == 8 * 100, f"{len(want)} changes and {total} counted of 800 increments"


async def _count_up(oracle: Oracle, store: Store, keys: list[str], writer: int) -> None:
    remembered: dict[str, StoredObject] = {}
    for number in range(100):
        key = keys[(number * 7 + writer) % len(keys)]
        stored = await store.guaranteed_update(
            key, lambda obj, _meta: (_incremented(obj), None), suggestion=remembered.get(key)
        )
        remembered[key] = oracle.note(stored)


def _number(document: dict[str, object]) -> int:
    metadata = document["metadata"]
    assert isinstance(metadata, dict)
    return int(metadata["annotations"]["n"])


def _incremented(document: dict[str, object]) -> dict[str, object]:
    metadata = document["metadata"]
    assert isinstance(metadata, dict)
    return document | {"metadata": metadata | {"annotations": {"n": str(_number(document) + 1)}}}


@case("R4", requires=[Capability.PROGRESS_NOTIFY], layers=[Layer.STORE])
async def progress_for_many(ctx: Context) -> None:
    """Progress that is asked for by many at once never overtakes an event of any watch, and reaches quiet ones too."""
    ctx.jitter()
    store, oracle = await ctx.store(), Oracle()
    start = await ctx.current(store)
    paths = [ctx.key("ns1"), ctx.key("ns10"), ctx.key("quiet"), ctx.prefix]
    watches = [await ctx.watch(store, path, after=start, progress_notify=True) for path in paths]
    async with asyncio.TaskGroup() as tasks:
        writing = [
            tasks.create_task(churn(ctx, oracle, store, ctx.session.seed + number, writes=80)) for number in range(4)
        ]
        asking = [tasks.create_task(ask_for_progress(store)) for _ in range(4)]
        reading = [tasks.create_task(read_until_marked(ctx, watch, oracle, writing)) for watch in watches]
        await asyncio.wait(reading)
        for task in asking:
            task.cancel()
    for path, reader in zip(paths, reading, strict=True):
        same_events(reader.result(), oracle.events(path, start))


@case("R6", requires=HISTORY, hooks=[Hook.COMPACT])
async def delete_at_compaction_among_others(ctx: Context) -> None:
    """Create a and b, delete b, write a, compact at the delete: a watch over it tells the delete, or is refused."""
    store, oracle = await ctx.store(), Oracle()
    for name in "abc":
        await oracle.put(ctx, store, pod(name))
    deleted = await oracle.delete(store, ctx.key("test-ns", "b"))
    assert deleted is not None
    await oracle.put(ctx, store, pod("a", node="x"))
    await ctx.compact(deleted.revision)
    watch = await ctx.watch(store, after=deleted.revision - 1)
    first = await ctx.next_event(watch)
    if not refused(first):
        assert first is not None, "the watch ended without an error"
        want = oracle.events(ctx.prefix, deleted.revision - 1)
        same_events([first, *await collect(watch, oracle.newest)], want)
    later = await ctx.watch(store, after=deleted.revision)
    await oracle.check_watch(later, ctx.prefix, deleted.revision)


@case("R7")
async def deleted_is_newer_than_all_before(ctx: Context) -> None:
    """A DELETED event is newer than everything told before it, so that nobody who remembers it goes back."""
    store = await ctx.store()
    watch = await ctx.watch(store, after=await ctx.current(store))
    seen = 0
    for _ in range(3):
        created = await ctx.put(store, pod("foo"))
        deleted = await store.delete(created.key)
        for kind, revision in ((EventType.ADDED, created.revision), (EventType.DELETED, deleted.revision)):
            event = await ctx.expect_event(watch, kind)
            assert event.object is not None
            assert event.object.revision == revision > seen, describe(event)
            seen = revision


@case("R8", requires=[Capability.HISTORY_WINDOW])
async def resumed_in_the_middle_of_a_burst(ctx: Context) -> None:
    """Whoever stops after any event of a burst and goes on from its resourceVersion misses and repeats nothing."""
    store, oracle = await ctx.store(), Oracle()
    start = await ctx.current(store)
    await churn(ctx, oracle, store, ctx.session.seed, writes=60)
    want = oracle.events(ctx.prefix, start)
    for cut in range(1, len(want)):
        watch = await ctx.watch(store, after=start)
        got = [event for _ in range(cut) if (event := await ctx.next_event(watch)) is not None]
        watch.stop()
        last = got[-1].object
        assert last is not None, describe(got[-1])
        resumed = await ctx.watch(store, after=last.revision)
        got += await collect(resumed, oracle.newest)
        resumed.stop()
        same_events(got, want)


@case("R9", requires=[Capability.PROGRESS_NOTIFY, *HISTORY], hooks=[Hook.COMPACT], layers=[Layer.STORE])
async def quiet_type_keeps_up(ctx: Context) -> None:
    """Bookmarks move a quiet watch along, so that it can be resumed after the history it began in is gone."""
    store, other = await ctx.store(), await _neighbour(ctx)
    stored = await ctx.put(store, pod("foo"))
    watch = await ctx.watch(store, after=stored.revision, progress_notify=True)
    newest = await _write_elsewhere(other, 200)
    reached = 0
    while reached < newest:
        await store.request_watch_progress()
        reached = expect_plain_bookmark(ctx, await ctx.expect_event(watch, EventType.BOOKMARK))
    watch.stop()
    await ctx.compact(reached)
    resumed = await ctx.watch(store, after=reached)
    updated = await ctx.update(store, pod("foo", node="a"))
    await ctx.expect_event(resumed, EventType.MODIFIED, updated)
    old = await ctx.watch(store, after=stored.revision)
    event = await ctx.expect_event(old, EventType.ERROR)
    assert isinstance(event.error, Expired), describe(event)


# --- compaction and staleness -----------------------------------------------------------------------------------------


@case("R13", requires=HISTORY, hooks=[Hook.COMPACT])
async def compacted_start_is_refused_at_once(ctx: Context) -> None:
    """A watch from a compacted resourceVersion is told 410 Expired within a second and ends."""
    store = await ctx.store()
    first = await ctx.put(store, pod("foo"))
    for number in range(5):
        last = await ctx.update(store, pod("foo", annotations={"n": str(number)}))
    await ctx.compact(last.revision)
    for path, recursive in ((ctx.prefix, True), (ctx.key("test-ns"), True), (first.key, False)):
        async with asyncio.timeout(1):
            watch = await ctx.watch(store, path, after=first.revision, recursive=recursive)
            event = await ctx.expect_event(watch, EventType.ERROR)
            assert event.error is not None
            status = event.error.status()
            assert (status.code, status.reason) == (410, "Expired"), describe(event)
            await ctx.expect_closed(watch)


@case("R27")
async def deleted_does_not_come_back(ctx: Context) -> None:
    """Who has seen a deletion is not shown the object by another server: neither as the newest nor as not older."""
    store, other = await ctx.store(), await ctx.second_store()
    for number in range(30):
        created = await ctx.put(store, pod(f"foo-{number}"))
        deleted = await store.delete(created.key)
        try:
            page = await ctx.list(other, resource_version=str(deleted.revision), resource_version_match="NotOlderThan")
        except TooLargeResourceVersion:
            continue
        assert page.revision >= deleted.revision
        assert created.key not in {item.key for item in page.items}, f"{created.key} was deleted at {page.revision}"
        try:
            found = await other.get(created.key)
        except KeyNotFound:
            continue
        raise AssertionError(f"{created.key} was deleted at {deleted.revision}, but is there at {found.revision}")


@case("R36", requires=[Capability.PERSISTENCE], hooks=[Hook.RESTORE, Hook.RESTART], layers=[Layer.STORE])
async def restored_to_an_older_backup(ctx: Context) -> None:
    """A watch from a resourceVersion that a restore took back is refused, or tells the next change; it misses none."""
    store = await ctx.store()
    await ctx.put(store, pod("kept"))
    backup = await ctx.backup()
    for number in range(20):
        lost = await ctx.put(store, pod(f"lost-{number}"))
    await ctx.restore(backup)
    store = await ctx.store()
    watch = await ctx.watch(store, after=lost.revision)
    created = await ctx.put(store, pod("new"))
    event = await ctx.next_event(watch)
    assert event is not None, "the watch ended without an error"
    if event.error is None:
        ctx.expect_same(event.object, created)
    else:
        assert isinstance(event.error, Expired | TooLargeResourceVersion), describe(event)


@case("R37", hooks=[Hook.FAULT], layers=[Layer.STORE], timeout=120.0)
async def database_falls_silent(ctx: Context) -> None:
    """While the database is silent readiness fails; afterwards a watch goes on or ends, and no change is missed."""
    store, oracle = await ctx.store(), Oracle()
    connection = await ctx.connect()
    start = (await oracle.put(ctx, store, pod("foo"))).revision
    watch = await ctx.watch(store, after=start)
    await ctx.fault.pause()
    try:
        await ctx.eventually(lambda: _unready(connection.check_ready()), "readiness fails while the database is silent")
    finally:
        await ctx.fault.resume()
    await ctx.eventually(lambda: _ready(connection.check_ready()), "readiness comes back with the database")
    await oracle.put(ctx, store, pod("foo", node="a"))
    event = await ctx.next_event(watch)
    if event is None or event.type is EventType.ERROR:
        watch = await ctx.watch(store, after=start)
        event = await ctx.next_event(watch)
    assert event is not None, "the watch ended again"
    same_events([event], oracle.events(ctx.prefix, start))


async def _ready(check: object) -> bool:
    return not await _unready(check)


async def _unready(check: object) -> bool:
    assert asyncio.iscoroutine(check)
    try:
        await check
    except Unreachable:
        return True
    return False


# --- initial events and clients ---------------------------------------------------------------------------------------


@case("R48", requires=[Capability.INITIAL_EVENTS])
async def initial_events_end_once(ctx: Context) -> None:
    """The end of the initial events is marked exactly once, not before any of them, also when there are none."""
    store = await ctx.store()
    created = [await ctx.put(store, pod(f"foo-{number}", "full")) for number in range(3)]
    for namespace, objects in (("full", created), ("empty", [])):
        watch = await ctx.watch(
            store, ctx.key(namespace), predicate=ctx.select(bookmarks=True), send_initial_events=True
        )
        for obj in objects:
            await ctx.expect_event(watch, EventType.ADDED, obj)
        end = await expect_initial_end(ctx, watch)
        assert end >= created[-1].revision
        for number in range(3):
            live = await ctx.put(store, pod(f"bar-{number}", namespace))
            event = await ctx.expect_event(watch, EventType.ADDED, live)
            assert event.object is not None
            assert event.object.revision > end, describe(event)
        await ctx.expect_silence(watch)


# --- elsewhere --------------------------------------------------------------------------------------------------------

enter(
    __name__,
    "the tests of each backend against its real database",
    Layer.DATABASE,
    Listed("R8.headers", "A client resumes from the revisions of events, never from that of a response that has half."),
)
enter(
    __name__,
    "the tests of the API server over HTTP",
    Layer.HTTP,
    Listed("R38", "A watch that is refused is an ERROR event with a Status of code 410, and then the end."),
    Listed("R40", "A watch that times out ends cleanly, with a last bookmark, and is resumed without a repetition."),
    Listed("R49", "After the end of the initial events a quiet watch gets its next bookmark within the interval."),
)
