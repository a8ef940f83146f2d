"""Sharp edges of watches: starts, deletes, order, errors and slow readers, each under its number in section D."""

import asyncio

import attrs

from kplane_conformance.case import Capability, Hook, Layer, case
from kplane_conformance.cases.watch_bookmarks import expect_plain_bookmark
from kplane_conformance.cases.watch_errors import expect_error
from kplane_conformance.cases.watch_initial import expect_initial_end
from kplane_conformance.context import Context, describe
from kplane_conformance.objects import pod
from kplane_conformance.oracle import (
    Oracle,
    Selector,
    churn,
    collect,
    collect_resuming,
    collect_to,
    everything,
    same_events,
)
from kplane_conformance.transformers import TransformFailed
from kplane_core.errors import Expired
from kplane_core.storage.interface import EventType, Store, StoredObject, Watch, WatchEvent

HISTORY = [Capability.COMPACTION, Capability.HISTORY_WINDOW]


def refused(event: WatchEvent | None) -> bool:
    """Whether an event says that the history no longer holds what was asked for."""
    if event is None or event.error is None:
        return False
    status = event.error.status()
    assert (status.code, status.reason) in {(410, "Expired"), (500, "InternalError")}, describe(event)
    return True


# --- deletes and compaction -------------------------------------------------------------------------------------------


@case("D9", requires=HISTORY, hooks=[Hook.COMPACT])
async def previous_value_compacted(ctx: Context) -> None:
    """An update at the compaction revision is told with its content, or the watch is refused; never without an object.

    With a selector that only the old value matched it is a DELETED event with that value, or an error; not silence.
    """
    store = await ctx.store()
    stored = await ctx.put(store, pod("k", node="a"))
    updated = await ctx.update(store, pod("k", node="b"))
    await ctx.compact(updated.revision)
    fence = await ctx.put(store, pod("l", node="a"))
    watch = await ctx.watch(store, after=updated.revision - 1)
    if not refused(event := await ctx.next_event(watch)):
        assert event is not None, "the watch ended without an error"
        assert event.type is EventType.MODIFIED, describe(event)
        ctx.expect_same(event.object, updated)
    left = await ctx.watch(store, after=updated.revision - 1, predicate=ctx.select(fields="spec.nodeName=a"))
    if not refused(event := await ctx.next_event(left)):
        assert event is not None, "the watch ended without an error"
        assert event.type is EventType.DELETED, f"the event at the compaction is missing, got {describe(event)}"
        ctx.expect_same(event.object, StoredObject(stored.key, updated.revision, stored.raw))
        await ctx.expect_event(left, EventType.ADDED, fence)


@case("D10", requires=HISTORY, hooks=[Hook.COMPACT])
async def delete_at_the_compaction(ctx: Context) -> None:
    """A delete at the compaction revision is told to a watch from just before it, or the watch is refused."""
    store = await ctx.store()
    stored = await ctx.put(store, pod("k"))
    deleted = await store.delete(stored.key)
    other = await ctx.put(store, pod("other"))
    await ctx.compact(deleted.revision)
    watch = await ctx.watch(store, after=deleted.revision - 1)
    if not refused(event := await ctx.next_event(watch)):
        assert event is not None, "the watch ended without an error"
        assert event.type is EventType.DELETED, f"the DELETED event is missing, got {describe(event)}"
        ctx.expect_same(event.object, StoredObject(stored.key, deleted.revision, stored.raw))
        await ctx.expect_event(watch, EventType.ADDED, other)


@case("D13", requires=[Capability.HISTORY_WINDOW])
async def deleted_by_selection(ctx: Context) -> None:
    """An update that takes an object out of a selection is a DELETED event with the update's resourceVersion."""
    store = await ctx.store()
    stored = await ctx.put(store, pod("foo", labels={"a": "b"}))
    predicate = ctx.select(labels="a=b")
    watch = await ctx.watch(store, after=stored.revision, predicate=predicate)
    updated = await ctx.update(store, pod("foo"))
    event = await ctx.expect_event(watch, EventType.DELETED)
    ctx.expect_same(event.object, StoredObject(stored.key, updated.revision, stored.raw))
    back = await ctx.update(store, pod("foo", labels={"a": "b"}))
    await ctx.expect_event(watch, EventType.ADDED, back)
    again = await ctx.watch(store, after=updated.revision, predicate=predicate)
    await ctx.expect_event(again, EventType.ADDED, back)


@case("D14")
async def delete_and_event_agree(ctx: Context) -> None:
    """What a delete returns and what its event carries are the same, also when the caller's suggestion was stale."""
    store = await ctx.store()
    watch = await ctx.watch(store, after=await ctx.current(store))
    for stale in (False, True):
        stored = await ctx.put(store, pod("foo", annotations={"stale": str(stale)}))
        await ctx.expect_event(watch, EventType.ADDED, stored)
        newest = stored
        if stale:
            newest = await ctx.update(store, pod("foo", node="a"))
            await ctx.expect_event(watch, EventType.MODIFIED, newest)
        deleted = await store.delete(stored.key, suggestion=stored)
        assert deleted.revision > newest.revision
        ctx.expect_same_content(deleted, newest)
        await ctx.expect_event(watch, EventType.DELETED, deleted)


@case("D15", requires=[Capability.PERSISTENCE, *HISTORY], hooks=[Hook.RESTORE, Hook.RESTART], layers=[Layer.STORE])
async def restored(ctx: Context) -> None:
    """After a restore no resourceVersion is given twice, and a watch from before the restore is refused."""
    store = await ctx.store()
    kept = await ctx.put(store, pod("kept"))
    backup = await ctx.backup()
    lost = [await ctx.put(store, pod(f"lost-{number}")) for number in range(10)]
    await ctx.restore(backup)
    store = await ctx.store()
    ctx.expect_same_content(await store.get(kept.key), kept)
    written = await ctx.put(store, pod("new"))
    assert written.revision > lost[-1].revision, f"{written.revision} was given again; {lost[-1].revision} was seen"
    watch = await ctx.watch(store, after=lost[3].revision)
    event = await ctx.expect_event(watch, EventType.ERROR)
    assert isinstance(event.error, Expired), describe(event)


# --- starts, order, gaps ----------------------------------------------------------------------------------------------


@case("D22", requires=[Capability.HISTORY_WINDOW])
async def exclusive_start(ctx: Context) -> None:
    """A watch from N begins with the first matching change after N: from every N, on a directory and on one key."""
    store, oracle = await ctx.store(), Oracle()
    start = await ctx.current(store)
    await churn(ctx, oracle, store, ctx.session.seed, writes=60)
    for after in (start, *(change.revision for change in oracle.log())):
        directory = await ctx.watch(store, ctx.key("ns1"), after=after)
        await oracle.check_watch(directory, ctx.key("ns1"), after)
        single = await ctx.watch(store, ctx.key("ns1", "a"), after=after, recursive=False)
        await oracle.check_watch(single, ctx.key("ns1", "a"), after, recursive=False)
        for watch in (directory, single):
            watch.stop()


@case("D24", requires=[Capability.HISTORY_WINDOW])
async def opened_among_writers(ctx: Context) -> None:
    """Watches that are opened while many write, from before they began, tell the whole log once and in order."""
    ctx.jitter()
    store, oracle = await ctx.store(), Oracle()
    start = await ctx.current(store)
    end = ctx.key("zz", "end")
    async with asyncio.TaskGroup() as tasks:
        writing = [
            tasks.create_task(churn(ctx, oracle, store, ctx.session.seed + number, writes=4)) for number in range(200)
        ]
        reading = []
        for _ in range(50):
            watch = await ctx.watch(store, after=start)
            reading.append(tasks.create_task(collect_to(watch, end)))
        await asyncio.wait(writing)
        await oracle.put(ctx, store, pod("end", "zz"))
    want = oracle.events(ctx.prefix, start)
    for reader in reading:
        same_events(reader.result(), want)


@case("D26", requires=[Capability.HISTORY_WINDOW])
async def congested(ctx: Context) -> None:
    """A reader that is too slow for a flood of large changes gets all of it, or its watch ends where it can go on."""
    store, oracle = await ctx.store(), Oracle()
    start = await ctx.current(store)
    watch = await ctx.watch(store, after=start)
    ballast = "x" * 8_000
    for number in range(1_500):
        key = f"k{number % 100}"
        if number % 7 == 3:
            await oracle.delete(store, ctx.key("ns", key))
        else:
            await oracle.put(ctx, store, pod(key, "ns", annotations={"n": str(number), "ballast": ballast}))
    want = oracle.events(ctx.prefix, start)
    got = await collect_resuming(ctx, store, watch, ctx.prefix, after=start, last=oracle.newest)
    same_events(got, want)
    rebuilt: dict[str, StoredObject] = {}
    for event in got:
        assert event.object is not None
        if event.type is EventType.DELETED:
            del rebuilt[event.object.key]
        else:
            rebuilt[event.object.key] = event.object
    page = await ctx.list(store)
    ctx.expect_same(page.items, [rebuilt[key] for key in sorted(rebuilt)], "the list after all events were told")


# --- bookmarks --------------------------------------------------------------------------------------------------------


@case("D27.overtaking", requires=[Capability.PROGRESS_NOTIFY], layers=[Layer.STORE])
async def bookmark_overtakes(ctx: Context) -> None:
    """However often progress is asked for while others write, no event comes that a bookmark said was delivered."""
    ctx.jitter()
    store, oracle = await ctx.store(), Oracle()
    start = await ctx.current(store)
    watch = await ctx.watch(store, ctx.key("ns1"), after=start, progress_notify=True)
    async with asyncio.TaskGroup() as tasks:
        writing = [
            tasks.create_task(churn(ctx, oracle, store, ctx.session.seed + number, writes=100)) for number in range(6)
        ]
        asking = tasks.create_task(ask_for_progress(store))
        reading = tasks.create_task(read_until_marked(ctx, watch, oracle, writing))
        await reading
        asking.cancel()
    want = oracle.events(ctx.key("ns1"), start)
    same_events(reading.result(), want)


async def ask_for_progress(store: Store) -> None:
    """Ask for progress again and again, until cancelled."""
    while True:
        await store.request_watch_progress()
        await asyncio.sleep(0.001)


async def read_until_marked(
    ctx: Context, watch: Watch, oracle: Oracle, writing: list[asyncio.Task[None]]
) -> list[WatchEvent]:
    """Read until a bookmark reaches the last of all writes; events must come before the bookmark that covers them."""
    events: list[WatchEvent] = []
    marked, bookmarks = 0, 0
    while not (all(task.done() for task in writing) and marked >= oracle.newest):
        async with asyncio.timeout(30):
            batch = await watch.batch()
        for event in batch:
            assert event.object is not None, describe(event)
            if event.type is EventType.BOOKMARK:
                bookmark = expect_plain_bookmark(ctx, event)
                assert bookmark >= marked, f"bookmarks went back from {marked} to {bookmark}"
                marked, bookmarks = bookmark, bookmarks + 1
            else:
                assert event.object.revision > marked, f"the bookmark at {marked} came before {describe(event)}"
                events.append(event)
    assert bookmarks > 1, "progress was hardly ever told while others wrote"
    return events


@case("D27.idle", requires=[Capability.PROGRESS_NOTIFY], layers=[Layer.STORE])
async def idle_watch_gets_bookmarks(ctx: Context) -> None:
    """A new watch of something idle gets a bookmark within five seconds, at the newest revision there was."""
    store = await ctx.store()
    newest = await ctx.increase_rv()
    watch = await ctx.watch(store, after=newest, progress_notify=True)
    async with asyncio.timeout(5):
        event = await ctx.expect_event(watch, EventType.BOOKMARK)
    assert expect_plain_bookmark(ctx, event) >= newest


@case("D27.future", requires=[Capability.HISTORY_WINDOW, Capability.PROGRESS_NOTIFY], layers=[Layer.STORE])
async def from_the_future(ctx: Context) -> None:
    """A watch from a future resourceVersion tells nothing up to it, neither event nor bookmark, then everything."""
    store, oracle = await ctx.store(), Oracle()
    current = (await ctx.put(store, pod("first"))).revision
    written = [await ctx.increase_rv() for _ in range(3)]
    # How far ten writes move the clock is the backend's affair: aim at some times as many as were just tried, because
    # on a backend whose revisions move with time the silence takes some, too.
    after = written[-1] + max(3, (written[-1] - current) * 8)
    watch = await ctx.watch(store, after=after, progress_notify=True)
    await store.request_watch_progress()
    await ctx.expect_silence(watch)
    number = 0
    while oracle.newest <= after + 3:
        number += 1
        await oracle.put(ctx, store, pod("foo", annotations={"n": str(number)}))
        await store.request_watch_progress()
    while (event := await ctx.next_event(watch)) is not None and event.object is not None:
        assert event.object.revision >= after, f"a watch from {after} told {describe(event)}"
        if event.type is not EventType.BOOKMARK:
            break
    assert event is not None, "the watch ended"
    (first, *rest) = oracle.events(ctx.prefix, after)
    same_events([event, *await collect(watch, oracle.newest)] if rest else [event], [first, *rest])


# --- errors and slow readers ------------------------------------------------------------------------------------------


@attrs.frozen
class PoisonRow:
    """When the watch of D28 is opened, and what it selects."""

    live: bool
    selector: str = ""


@case(
    "D28",
    rows=(PoisonRow(live=False), PoisonRow(live=True), PoisonRow(live=False, selector="spec.nodeName=a")),
    row_ids=("replayed", "live", "selecting"),
    requires=[Capability.HISTORY_WINDOW],
    hooks=[Hook.SWAP_TRANSFORMER],
    layers=[Layer.STORE],
)
async def poisoned(ctx: Context, row: PoisonRow) -> None:
    """Before an unreadable change everything is told, then an ERROR, and nothing of what follows."""
    store, oracle = await ctx.store(), Oracle()
    start = await ctx.current(store)

    def read(data: bytes) -> tuple[bytes, bool]:
        if b'"poisoned"' in data:
            raise TransformFailed("a poisoned record")
        return ctx.transformer.strip(data)

    ctx.transformer.set(read=read)
    predicate = ctx.select(fields=row.selector)
    watches = [await ctx.watch(store, after=start, predicate=predicate) for _ in range(10 if row.live else 0)]
    for number in range(50):
        await oracle.put(ctx, store, pod(f"p{number}", "ns", node="ab"[number % 2]))
    await ctx.update(store, pod("poisoned", "ns", node="b"))
    want = oracle.events(ctx.prefix, start, _on_node("a") if row.selector else everything)
    for number in range(50):
        await oracle.put(ctx, store, pod(f"p{number}", "ns", node="a", phase="Running"))
    watches = watches or [await ctx.watch(store, after=start, predicate=predicate) for _ in range(10)]
    for watch in watches:
        got = [await ctx.next_event(watch) for _ in want]
        same_events([event for event in got if event is not None], want)
        assert (await expect_error(ctx, watch)).code == 500


def _on_node(node: str) -> Selector:
    return lambda obj: obj.decode().get("spec", {}).get("nodeName", "") == node


@case("D29")
async def stuck_watchers(ctx: Context) -> None:
    """Fifty watchers that do not read cost one that does nothing; they end, or have every event when they read on."""
    store, oracle = await ctx.store(), Oracle()
    start = await ctx.current(store)
    stuck = [await ctx.watch(store, ctx.key("ns"), after=start) for _ in range(50)]
    reader = await ctx.watch(store, ctx.key("ns"), after=start)
    slowest = 0.0
    for number in range(100):
        began = asyncio.get_running_loop().time()
        created = await oracle.put(ctx, store, pod("foo", "ns", annotations={"n": str(number)}))
        event = await ctx.next_event(reader)
        ctx.expect_same(event.object if event else None, created)
        slowest = max(slowest, asyncio.get_running_loop().time() - began)
    assert slowest < 1.0, f"an event took {slowest:.2f} s with 50 stuck watchers"
    want = oracle.events(ctx.key("ns"), start)
    for watch in stuck:
        got = await collect_resuming(ctx, store, watch, ctx.key("ns"), after=start, last=oracle.newest)
        same_events(got, want)


@case("D30.store", requires=[Capability.INITIAL_EVENTS])
async def initial_end_in_time(ctx: Context) -> None:
    """The bookmark that ends the initial events comes within a second from every start, also of an empty directory."""
    store = await ctx.store()
    before = await store.get_current_resource_version()
    await ctx.put(store, pod("foo"))
    current = await store.get_current_resource_version()
    for after in ("", 0, before, current):
        for namespace, objects in (("test-ns", 1), ("empty", 0)):
            async with asyncio.timeout(1):
                watch = await ctx.watch(
                    store,
                    ctx.key(namespace),
                    after=after,
                    predicate=ctx.select(bookmarks=True),
                    send_initial_events=True,
                )
                for _ in range(objects):
                    await ctx.expect_event(watch, EventType.ADDED)
                await expect_initial_end(ctx, watch)


# --- indexes ----------------------------------------------------------------------------------------------------------


@attrs.frozen
class IndexRow:
    """A selector, and the index that a cache may answer it with."""

    fields: str = ""
    labels: str = ""
    index_fields: tuple[str, ...] = ()
    index_labels: tuple[str, ...] = ()

    def selects(self, obj: StoredObject) -> bool:
        """Whether the row's selector means this object, told apart from the code under test."""
        document = obj.decode()
        metadata = document["metadata"]
        values = {
            "metadata.name": metadata["name"],
            "metadata.namespace": metadata.get("namespace", ""),
            "spec.nodeName": document.get("spec", {}).get("nodeName", ""),
        }
        for term in filter(None, self.fields.split(",")):
            name, unequal, value = term.partition("!=") if "!=" in term else (*term.partition("="),)
            if (values[name] == value) is (unequal == "!="):
                return False
        name, _, value = self.labels.partition("=")
        return not name or metadata.get("labels", {}).get(name) == value


INDEX_ROWS = (
    IndexRow(fields="spec.nodeName=n1", index_fields=("spec.nodeName",)),
    IndexRow(fields="spec.nodeName!=n1", index_fields=("spec.nodeName",)),
    IndexRow(fields="spec.nodeName=", index_fields=("spec.nodeName",)),
    IndexRow(fields="metadata.namespace=ns1", index_fields=("metadata.namespace",)),
    IndexRow(fields="metadata.name=a,spec.nodeName=n2", index_fields=("spec.nodeName", "metadata.namespace")),
    IndexRow(labels="colour=red", index_labels=("colour",)),
    IndexRow(
        labels="colour=blue", fields="spec.nodeName=n1", index_labels=("colour",), index_fields=("spec.nodeName",)
    ),
)


@case("D31", rows=INDEX_ROWS)
async def indexes_only_narrow(ctx: Context, row: IndexRow) -> None:
    """An index changes nothing of what a watch tells, in any scope: it only leaves out what the selector rejects."""
    store, oracle = await ctx.store(), Oracle()
    plain = ctx.select(fields=row.fields, labels=row.labels)
    indexed = attrs.evolve(plain, index_fields=row.index_fields, index_labels=row.index_labels)
    start = await ctx.current(store)
    scopes = [(ctx.prefix, True), (ctx.key("ns1"), True), (ctx.key("ns10"), True), (ctx.key("ns1", "a"), False)]
    watches = [
        (await ctx.watch(store, path, after=start, recursive=recursive, predicate=predicate), path, recursive)
        for path, recursive in scopes
        for predicate in (plain, indexed)
    ]
    await churn(ctx, oracle, store, ctx.session.seed, writes=150)
    for watch, path, recursive in watches:
        await oracle.check_watch(watch, path, start, row.selects, recursive=recursive)
        await ctx.expect_stopped(watch)


@case("D31.clusters")
async def clusters_do_not_leak(ctx: Context) -> None:
    """A watch of one cluster tells nothing of a cluster whose id begins alike, selector or not."""
    store, oracle = await ctx.store(), Oracle()
    start = await ctx.current(store)
    clusters = ("c1", "c10", "c1-1", "c1.1", "c2")
    row = INDEX_ROWS[0]
    indexed = attrs.evolve(ctx.select(fields=row.fields), index_fields=row.index_fields)
    watches = [
        (await ctx.watch(store, f"{ctx.prefix}clusters/{cluster}", after=start, predicate=predicate), cluster, selects)
        for cluster in clusters
        for predicate, selects in ((ctx.select(), everything), (indexed, row.selects))
    ]
    for number in range(120):
        key = f"{ctx.prefix}clusters/{clusters[number % 5]}/ns/a"
        if number % 11 == 7:
            await oracle.delete(store, key)
        else:
            obj = pod("a", "ns", node=("n1", "n2")[number % 3 == 0], annotations={"n": str(number)})
            await oracle.put(ctx, store, obj, key=key)
    for watch, cluster, selects in watches:
        await oracle.check_watch(watch, f"{ctx.prefix}clusters/{cluster}/", start, selects)
        await ctx.expect_stopped(watch)


# --- commit order -----------------------------------------------------------------------------------------------------


@case("D39", requires=[Capability.CONSISTENT_LIST, Capability.HISTORY_WINDOW])
async def visible_in_order(ctx: Context) -> None:
    """Under 64 writers every list at r shows exactly the changes up to r, and every watch tells them in that order."""
    ctx.jitter()
    store = await ctx.store()
    await _check_commit_order(ctx, [store])


@case("D39.two-servers", requires=[Capability.MULTI_WRITER, Capability.CONSISTENT_LIST, Capability.HISTORY_WINDOW])
async def visible_in_order_on_two_servers(ctx: Context) -> None:
    """The same holds when half of the writers use another server's connection, for lists and watches of both."""
    ctx.jitter()
    await _check_commit_order(ctx, [await ctx.store(), await ctx.second_store()])


async def _check_commit_order(ctx: Context, stores: list[Store]) -> None:
    oracle = Oracle()
    start = await ctx.current(stores[0])
    end = ctx.key("zz", "end")
    pages = []
    async with asyncio.TaskGroup() as tasks:
        reading = [tasks.create_task(collect_to(await ctx.watch(store, after=start), end)) for store in stores * 2]
        writing = [
            tasks.create_task(churn(ctx, oracle, stores[n % len(stores)], ctx.session.seed + n, writes=8))
            for n in range(64)
        ]
        while not all(task.done() for task in writing):
            pages += [await ctx.list(store) for store in stores]
            await asyncio.sleep(0)  # a store that never waits must not keep the writers from writing
        await oracle.put(ctx, stores[0], pod("end", "zz"))
    for page in pages:
        oracle.check_list(page, ctx.prefix)
    want = oracle.events(ctx.prefix, start)
    for reader in reading:
        same_events(reader.result(), want)
