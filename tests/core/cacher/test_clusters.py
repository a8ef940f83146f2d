"""Many clusters in one cache: each by itself, and those that are idle for nothing."""

import asyncio
import gc
import sys
from collections import Counter

import pytest

from kplane_core.cacher import CachedStore, CacherConfig
from kplane_core.cacher.history import MIN_CAPACITY, Lane
from kplane_core.cacher.scopes import Scopes
from kplane_core.cacher.state import State
from kplane_core.cacher.watching import CacheWatch
from kplane_core.multicluster import KeyLayout
from kplane_core.storage import Resource
from kplane_core.storage.interface import EventType, StoredObject, WatchEvent


@pytest.fixture
def calls(monkeypatch):
    """Count the calls of a method, by `Class.method`."""
    counted = Counter()

    def count(owner, name):
        real = getattr(owner, name)

        def call(*args, **kwargs):
            counted[f"{owner.__name__}.{name}"] += 1
            return real(*args, **kwargs)

        monkeypatch.setattr(owner, name, call)

    counted.of = count
    return counted


def events_of(w, cluster, first, count, namespace="ns"):
    raw = b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"ns"}}'
    return [
        WatchEvent(EventType.ADDED, StoredObject(w.key(f"p{first + index}", namespace, cluster), first + index, raw))
        for index in range(count)
    ]


# --- each by itself ---------------------------------------------------------------------------------------------------


def test_the_same_names_in_two_clusters_never_meet(world, tools, run):
    """Gets, lists, indexes, watches and deletions of one cluster never show another's object of the same name."""

    async def scenario():
        async with world(clusters=True, indexed_fields=("spec.nodeName",)) as w:
            written = {cluster: await w.put("a", "ns", cluster=cluster, node="n") for cluster in ("c1", "c10", "c2")}
            await w.synced()
            watches = {cluster: await w.watch("0", below=f"{w.root}{cluster}/") for cluster in written}
            indexed = await w.watch("0", below=f"{w.root}c1/", fields="spec.nodeName=n")
            for cluster, found in written.items():
                for options in ({}, {"fields": "spec.nodeName=n"}, {"fields": "metadata.namespace=ns"}):
                    page = await w.list("0", below=f"{w.root}{cluster}/", **options)
                    assert page.items == (found,)
                assert tools.told(await tools.taken(watches[cluster], 1)) == [("ADDED", found.key, found.revision)]
            await tools.taken(indexed, 1)
            deleted = await w.delete("a", "ns", cluster="c10")
            assert tools.told(await tools.taken(watches["c10"], 1)) == [("DELETED", deleted.key, deleted.revision)]
            assert await tools.quiet(watches["c1"])
            assert await tools.quiet(watches["c2"])
            assert await tools.quiet(indexed)
            assert (await w.list("0")).items == (written["c1"], written["c2"])

    run(scenario())


def test_objects_that_even_share_their_revision_are_all_kept(tools, scripted, run):
    """A transaction over several keys gives several clusters' objects one revision; each keeps its own content."""

    async def scenario():
        layout = KeyLayout("/pods/")
        names = [f"c{index}" for index in range(20)]
        items = [
            StoredObject(
                layout.key(name, "ns", "a"), 7, b'{"metadata":{"name":"a","labels":{"c":"%s"}}}' % name.encode()
            )
            for name in sorted(names)
        ]
        store = scripted.Store(prefix=layout.kind_root_prefix(), items=items, revision=7)
        config = CacherConfig(identity=layout.cluster_from_key, clock=tools.loop_time)
        front = CachedStore(store, Resource("pods", store.resource_prefix, kind="Pod"), config)
        await front.start()
        everything = await front.watch(store.resource_prefix)
        assert [event.object for event in await tools.taken(everything, 20)] == items
        for found in items:
            cluster = layout.cluster_from_key(found.key)
            watch = await front.watch(layout.per_cluster_prefix(cluster))
            (event,) = await tools.taken(watch, 1)
            assert event.object == found
        await front.aclose()

    run(scenario())


def test_a_noisy_cluster_cannot_push_a_quiet_one_out_of_history(world, tools, run):
    """Each cluster's history has a capacity of its own: a resume in the quiet one goes on without 410."""

    async def scenario():
        async with world(clusters=True) as w:
            seen = (await w.put("a", cluster="quiet")).revision
            noisy = (await w.put("a", cluster="noisy")).revision
            missed = await w.put("b", cluster="quiet")
            for index in range(4 * MIN_CAPACITY):
                await w.put(f"p{index % 10}", cluster="noisy")
                await asyncio.sleep(1)
            resumed = await w.watch(seen, below=f"{w.root}quiet/")
            assert tools.told(await tools.taken(resumed, 1)) == [("ADDED", missed.key, missed.revision)]
            exact = await w.list(seen, below=f"{w.root}quiet/", resource_version_match="Exact")
            assert [found.revision for found in exact.items] == [seen]
            for below in (f"{w.root}noisy/", ""):
                (expired,) = await tools.drained(await w.watch(noisy, below=below))
                assert expired.error.status().code == 410

    run(scenario())


def test_a_quiet_namespace_in_a_noisy_cluster_closes_no_watcher(world, tools, run):
    """What does not concern a watcher cannot push it out, even while nobody reads it."""

    async def scenario():
        async with world(clusters=True) as w:
            quiet = await w.watch("0", below=f"{w.root}c1/quiet/")
            single = await w.watch("0", below=w.key("a", "quiet"), recursive=False)
            for index in range(4 * MIN_CAPACITY):
                await w.put(f"p{index % 10}", "noisy")
                await asyncio.sleep(1)
            written = await w.put("a", "quiet")
            for watch in (quiet, single):
                assert tools.told(await tools.taken(watch, 1)) == [("ADDED", written.key, written.revision)]
            assert w.cacher.metrics.terminated_watchers == 0

    run(scenario())


def test_a_watch_over_all_clusters_sees_them_in_the_order_of_revisions(world, tools, run):
    async def scenario():
        async with world(clusters=True) as w:
            watch = await w.watch("0")
            written = [await w.put("a", cluster=f"c{index % 7}") for index in range(50)]
            assert [event.object.revision for event in await tools.taken(watch, 50)] == [
                found.revision for found in written
            ]

    run(scenario())


def test_a_resource_that_is_called_clusters_is_nothing_special(world, tools, run):
    """The cluster is read from its position, wherever else the word stands."""

    async def scenario():
        async with world(clusters=True, prefix="/clusters/clusters/") as w:
            written = await w.put("clusters", "clusters", cluster="clusters")
            other = await w.put("clusters", "clusters", cluster="c1")
            await w.synced()
            assert w.cacher.cluster_of(written.key) == "clusters"
            page = await w.list("0", below=f"{w.root}clusters/")
            assert page.items == (written,)
            assert (await w.list("0", below=f"{w.root}c1/")).items == (other,)

    run(scenario())


# --- idle ones for nothing --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("idle", [10, 1000])
def test_an_event_touches_no_watcher_of_another_cluster_or_namespace(world, calls, run, idle):
    """However many clusters and watchers are idle, an event takes the same steps: counted, not timed."""

    async def scenario():
        async with world(clusters=True, indexed_fields=("spec.nodeName",)) as w:
            for index in range(idle):
                await w.put("a", cluster=f"idle{index}")
                await w.watch("0", below=f"{w.root}idle{index}/")
                await w.watch("0", below=f"{w.root}idle{index}/ns/", fields="spec.nodeName=n")
                await w.watch("0", below=f"{w.root}busy/other{index}/")
            await w.synced()
            await w.watch("0", below=f"{w.root}busy/ns/")
            calls.clear()
            for owner, name in ((CacheWatch, "offer"), (Scopes, "_tell"), (Lane, "append"), (CacheWatch, "wake")):
                calls.of(owner, name)
            first = w.cacher.revision + 1
            w.cacher.ingest(events_of(w, "busy", first, 100))
            # Per event: two histories, the one file of its namespace that has a watcher, and a look for its key and
            # the five directories above it.
            assert calls == {"CacheWatch.offer": 100, "Scopes._tell": 600, "Lane.append": 200}

    run(scenario())


def test_the_identity_is_parsed_once_per_change(world, tools, run):
    """Not per watcher, and not again on the way out."""
    parsed = Counter()

    async def scenario():
        layout = KeyLayout("/pods/")

        async with world(clusters=True) as w:
            w.cacher._identity = lambda key: (parsed.update([key]), layout.cluster_from_key(key))[1]
            watches = [await w.watch("0", below=f"{w.root}c1/") for _ in range(50)]
            watches += [await w.watch("0") for _ in range(50)]
            parsed.clear()
            written = await w.put("a", cluster="c1")
            for watch in watches:
                await tools.taken(watch, 1)
            assert parsed == {written.key: 1}

    run(scenario())


def test_initial_events_look_only_below_the_watched_directory(world, monkeypatch, run):
    scanned = []
    real = State.scan

    def scan(state, start, end):
        found = real(state, start, end)
        scanned.append(len(found))
        return found

    async def scenario():
        async with world(clusters=True) as w:
            for index in range(100):
                for name in ("a", "b"):
                    await w.put(name, cluster=f"c{index}")
            await w.synced()
            monkeypatch.setattr(State, "scan", scan)
            await w.watch("0", below=f"{w.root}c7/")
            await w.list("0", below=f"{w.root}c7/ns/")
            assert scanned == [2, 2]

    run(scenario())


def test_a_watcher_is_woken_once_per_turn(world, tools, calls, run):
    """A hundred changes that come together are one wake-up and one batch for each watcher that waits."""

    async def scenario():
        async with world(clusters=True) as w:
            batches = []

            async def read(watch):
                while events := await watch.batch():
                    batches.append(len(events))

            watches = [await w.watch("0", below=f"{w.root}c1/") for _ in range(20)]
            async with asyncio.TaskGroup() as group:
                for watch in watches:
                    group.create_task(read(watch))
                await asyncio.sleep(0.01)
                calls.of(CacheWatch, "wake")
                w.cacher.ingest(events_of(w, "c1", w.cacher.revision + 1, 100))
                assert calls["CacheWatch.wake"] == 20
                await asyncio.sleep(0.01)
                for watch in watches:
                    watch.stop()
            assert batches == [100] * 20

    run(scenario())


def test_clusters_bring_no_tasks_and_no_timers(world, run):
    """A thousand clusters with a watch each cost memory only."""

    async def scenario():
        async with world(clusters=True) as w:
            loop = asyncio.get_running_loop()
            before = len(asyncio.all_tasks())
            for index in range(1000):
                await w.put("a", cluster=f"c{index}")
                await w.watch("0", below=f"{w.root}c{index}/", bookmarks=True)
            await w.synced()
            timers = [handle for handle in loop._scheduled if not handle.cancelled()]
            assert len(asyncio.all_tasks()) == before
            assert len(timers) <= 3

    run(scenario())


# --- leaks ------------------------------------------------------------------------------------------------------------


def test_opening_and_closing_watches_leaves_everything_where_it_was(world, run):
    """CacherNoLeakWithMultipleWatchers: 2,000 watches, three times: tasks, registers and memory are as before."""

    async def scenario():
        async with world(clusters=True) as w:
            for index in range(20):
                await w.put("a", cluster=f"c{index}")
            await w.synced()
            await open_and_close(w)
            gc.collect()
            tasks, start = len(asyncio.all_tasks()), sys.getallocatedblocks()
            for _ in range(3):
                await open_and_close(w)
                assert w.cacher.watcher_count == 0
                assert not w.cacher._scopes
                assert not w.cacher._schedule._buckets
                assert w.cacher.history.lanes == 20
            gc.collect()
            grown = sys.getallocatedblocks() - start
            assert len(asyncio.all_tasks()) == tasks
            assert grown < 2_000, f"{grown} blocks of memory are left after 6,000 watches"

    async def open_and_close(w):
        watches, reading = [], []
        for index in range(2000):
            after = ("0", w.cacher.revision)[index % 2]
            below = f"{w.root}c{index % 40}/"
            deadline = asyncio.get_running_loop().time() + 300
            watches.append(await w.watch(after, below=below, bookmarks=True, deadline=deadline))
            reading.append(asyncio.create_task(drain(watches[-1])))
        await asyncio.sleep(0)
        for watch in watches:
            watch.stop()
        await asyncio.gather(*reading)
        # The loop sweeps cancelled timers out when they are many, or due.
        await asyncio.sleep(301)

    async def drain(watch):
        async for _ in watch:
            pass

    run(scenario())


def test_readers_that_are_cancelled_leave_nothing(world, run):
    async def scenario():
        async with world(clusters=True) as w:
            watches = [await w.watch("0", below=f"{w.root}c{index}/") for index in range(100)]

            async def follow(watch):
                async with watch:
                    await watch.batch()

            reading = [asyncio.create_task(follow(watch)) for watch in watches]
            await asyncio.sleep(0.01)
            for task in reading:
                task.cancel()
            await asyncio.gather(*reading, return_exceptions=True)
            assert w.cacher.watcher_count == 0
            assert w.cacher.history.lanes == 0

    run(scenario())


def test_clusters_of_the_past_hold_on_to_nothing_but_their_floor(world, run):
    """Clusters come and go; when they are long gone, the cache keeps no object of theirs."""

    async def scenario():
        async with world(clusters=True) as w:
            for index in range(100):
                for name in range(10):
                    await w.put(f"p{name}", cluster=f"gone{index}")
                for name in range(10):
                    await w.delete(f"p{name}", cluster=f"gone{index}")
            await w.synced()
            await asyncio.sleep(20 * w.cacher.config.window)
            assert len(w.cacher.state) == 0
            kept = sum(len(lane) for lane in w.cacher.history._lanes.values()) + len(w.cacher.history.everything)
            assert kept == 0
            assert not w.cacher.state._attributes
            watch = await w.watch(w.cacher.revision, below=f"{w.root}gone5/")
            written = await w.put("again", cluster="gone5")
            assert (await watch.__anext__()).object.revision == written.revision

    run(scenario())
