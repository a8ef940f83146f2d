"""Watchers: where they start, what they see, how they stall, resume and end."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kplane_core.cacher import CachedStore, CacherConfig
from kplane_core.cacher.history import MIN_CAPACITY
from kplane_core.errors import BadRequest, InternalError, InvalidKey, TooLargeResourceVersion
from kplane_core.storage import Resource
from kplane_core.storage.interface import INT64_MAX, EventType
from kplane_core.storage.selection import default_attributes

# --- where a watch starts ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("after", "initial_events", "state", "end"),
    [
        ("", None, True, False),
        ("0", None, True, False),
        ("", True, True, True),
        ("0", True, True, True),
        ("", False, False, False),
        ("0", False, False, False),
        ("R", None, False, False),
        ("R", True, True, True),
        ("R", False, False, False),
    ],
)
@pytest.mark.parametrize("bookmarks", [True, False])
def test_a_watch_starts_where_the_table_says(world, tools, run, after, initial_events, state, end, bookmarks):
    """StartingResourceVersion, D7, WatchSemantics: state or not, end of state or not, and every later change once."""

    async def scenario():
        async with world() as w:
            written = [await w.put("a"), await w.put("b")]
            await w.synced()
            start = written[-1].revision if after == "R" else after
            watch = await w.watch(start, send_initial_events=initial_events, bookmarks=bookmarks)
            later = await w.put("c")
            expected = [("ADDED", found.key, found.revision) for found in written] if state else []
            if end and bookmarks:
                expected.append(("BOOKMARK", "", written[-1].revision))
            expected.append(("ADDED", later.key, later.revision))
            assert tools.told(await tools.taken(watch, len(expected))) == expected

    run(scenario())


def test_an_unset_revision_means_any_on_the_cache(world, tools, run):
    """D7: a legacy watch without a revision starts from what the cache has, without asking the storage."""

    async def scenario():
        async with world() as w:
            first = await w.put("a")
            await w.synced()
            w.tap.hold()
            w.tap.calls.clear()
            second = await w.put("b")
            watch = await w.watch("")
            assert tools.told(await tools.taken(watch, 1)) == [("ADDED", first.key, first.revision)]
            assert not w.tap.calls
            w.tap.release()
            assert tools.told(await tools.taken(watch, 1)) == [("ADDED", second.key, second.revision)]

    run(scenario())


def test_initial_events_for_the_newest_wait_until_the_cache_has_it(world, tools, run):
    async def scenario():
        async with world() as w:
            w.tap.hold()
            written = await w.put("a")
            opening = asyncio.create_task(w.watch("", send_initial_events=True, bookmarks=True))
            await asyncio.sleep(1)
            assert not opening.done()
            w.tap.release()
            events = await tools.taken(await opening, 2)
            assert [event.object.revision for event in events] == [written.revision] * 2

    run(scenario())


def test_initial_events_at_a_revision_that_does_not_come_are_an_error_in_the_stream(world, tools, run):
    """After the request was understood, errors are events: 504 with its cause, and then the end."""

    async def scenario():
        async with world() as w:
            watch = await w.watch(INT64_MAX, send_initial_events=True, bookmarks=True)
            (event,) = await tools.drained(watch)
            assert event.type is EventType.ERROR
            assert isinstance(event.error, TooLargeResourceVersion)
            assert event.error.status().retry_after == 1

    run(scenario())


def test_a_failing_storage_is_an_error_in_the_stream(world, tools, run):
    async def scenario():
        async with world() as w:

            def refuse(name):
                if name == "get_current_resource_version":
                    raise InternalError("no quorum")

            w.tap.before = refuse
            watch = await w.watch("", send_initial_events=True)
            (event,) = await tools.drained(watch)
            assert "no quorum" in str(event.error)
            w.tap.before = None

    run(scenario())


def test_bad_requests_are_refused_at_once(world, run):
    async def scenario():
        async with world() as w:
            for key, after, kind in (
                ("/pods/../x", "", InvalidKey),
                ("/other/", "", InvalidKey),
                ("/pods/", "abc", BadRequest),
                ("/pods/", "-1", BadRequest),
            ):
                with pytest.raises(kind):
                    await w.watch(after, below=key)
            assert w.cacher.watcher_count == 0

    run(scenario())


def test_the_oldest_revision_to_start_from_is_that_of_the_list(world, tools, run):
    """D23: one below the list's revision is 410, at it and above it nothing is lost and nothing is too much."""

    async def scenario():
        w = world()
        await w.put("before")
        listed = (await w.put("a")).revision
        async with w:
            assert w.cacher.revision == listed
            (expired,) = await tools.drained(await w.watch(listed - 1))
            assert expired.error.status().code == 410
            assert f"too old resource version: {listed - 1} ({listed})" in str(expired.error)
            at, above = await w.watch(listed), await w.watch(listed + 1)
            first, second = await w.put("b"), await w.put("c")
            assert first.revision == listed + 1
            assert [event.object.revision for event in await tools.taken(at, 2)] == [first.revision, second.revision]
            assert [event.object.revision for event in await tools.taken(above, 1)] == [second.revision]
            again = await w.watch(listed)
            assert [event.object.revision for event in await tools.taken(again, 2)] == [first.revision, second.revision]

    run(scenario())


def test_a_watch_from_the_future_gets_only_what_comes_after_it(world, tools, run):
    """D27."""

    async def scenario():
        async with world() as w:
            now = (await w.put("a")).revision
            await w.synced()
            watch = await w.watch(now + 3)
            written = [(await w.put(f"p{index}")).revision for index in range(6)]
            events = await tools.taken(watch, 3)
            assert [event.object.revision for event in events] == [
                revision for revision in written if revision > now + 3
            ]

    run(scenario())


def test_replay_and_live_events_neither_overlap_nor_leave_a_gap(world, tools, run):
    """D24: two hundred writers while fifty watches are opened from the revision before."""

    async def scenario():
        async with world() as w:
            before = (await w.put("start")).revision
            await w.synced()
            log, watches = [], []

            async def write(index):
                for _ in range(3):
                    await asyncio.sleep(0.001 * (index % 7))
                    log.append((await w.put(f"p{index}")).revision)

            async def watch(index):
                await asyncio.sleep(0.0004 * index)
                watches.append(await w.watch(before))

            async with asyncio.TaskGroup() as group:
                for index in range(200):
                    group.create_task(write(index))
                for index in range(50):
                    group.create_task(watch(index))
            for opened in watches:
                events = await tools.taken(opened, len(log))
                assert [event.object.revision for event in events] == sorted(log)

    run(scenario())


# --- what a watch sees ------------------------------------------------------------------------------------------------


def test_deletions_carry_the_last_content_and_the_revision_of_the_deletion(world, tools, run):
    """CachingDeleteEvents, D13: also where an object only leaves the selection."""

    async def scenario():
        async with world() as w:
            plain = await w.watch("0")
            selecting = await w.watch("0", labels="app=x")
            first = await w.put("a", app="x", note="one")
            second = await w.put("a", app="y", note="two")
            third = await w.put("a", app="x", note="three")
            deleted = await w.delete("a")
            added, modified, again, gone = await tools.taken(plain, 4)
            assert [event.type.value for event in (added, modified, again, gone)] == [
                "ADDED",
                "MODIFIED",
                "MODIFIED",
                "DELETED",
            ]
            assert (gone.object.raw, gone.object.revision) == (third.raw, deleted.revision)
            events = await tools.taken(selecting, 4)
            assert [event.type.value for event in events] == ["ADDED", "DELETED", "ADDED", "DELETED"]
            assert (events[1].object.raw, events[1].object.revision) == (first.raw, second.revision)
            assert (events[3].object.raw, events[3].object.revision) == (third.raw, deleted.revision)
            assert events[1].object.decode()["metadata"]["resourceVersion"] == str(second.revision)

    run(scenario())


def test_the_directory_of_a_watch_ends_at_its_slash(world, tools, run):
    """D21: ns1 is not ns11, and a key is exactly that key."""

    async def scenario():
        async with world() as w:
            directory = await w.watch("0", below="/pods/ns1")
            single = await w.watch("0", below="/pods/ns1/a", recursive=False)
            wanted = [await w.put("a", "ns1"), await w.put("ab", "ns1")]
            for namespace in ("ns11", "ns1-x", "ns", "ns10"):
                await w.put("a", namespace)
            await w.put("z", "ns1")
            assert [event.object.key for event in await tools.taken(directory, 3)] == [
                *(found.key for found in wanted),
                "/pods/ns1/z",
            ]
            assert [event.object.key for event in await tools.taken(single, 1)] == ["/pods/ns1/a"]
            assert await tools.quiet(single)

    run(scenario())


def test_one_event_is_made_once_and_shared_by_all_who_see_it(world, tools, run):
    """One encode per event: watchers get the same event and the same bytes, not copies."""

    async def scenario():
        async with world() as w:
            watches = [await w.watch("0", below=below) for below in ("", "/pods/ns/", "/pods/ns/a") for _ in range(20)]
            selecting = [await w.watch("0", labels="app=x") for _ in range(20)]
            await w.put("a", app="x")
            (event,) = await tools.taken(watches[0], 1)
            for watch in [*watches[1:20], *watches[20:40], *selecting]:
                (other,) = await tools.taken(watch, 1)
                assert other is event

    run(scenario())


def test_attributes_are_extracted_once_per_version(world, tools, run):
    """However many watchers and lists select, an object is looked into once."""
    extracted = []

    async def scenario():
        async with world(attributes=counting) as w:
            watches = [await w.watch("0", labels=f"app={index}") for index in range(50)]
            await w.put("a", app="7")
            await w.put("a", app="8")
            await tools.taken(watches[7], 2)
            await tools.taken(watches[8], 1)
            for watch in watches:
                watch.stop()
                await tools.drained(watch)
            for index in range(10):
                await w.list("0", labels=f"app={index}")
            assert len(extracted) <= 3

    def counting(raw):
        extracted.append(raw)
        return default_attributes(raw)

    run(scenario())


def test_an_object_whose_attributes_cannot_be_read_is_not_selected_and_harms_nobody(tools, scripted, run, world):
    async def scenario():
        store = scripted.Store()
        config = CacherConfig(clock=tools.loop_time, indexed_fields=("metadata.name",))
        front = CachedStore(store, Resource("pods", "/pods/", kind="Pod"), config)
        await front.start()
        everything = await front.watch("/pods/")
        selecting = await front.watch("/pods/", world.options(world, "0", fields="metadata.name=a"))
        store.push(scripted.event("ADDED", "/pods/ns/bad", 11, raw=b'{"metadata":{"labels":7}}'))
        store.push(scripted.event("MODIFIED", "/pods/ns/bad", 12))
        store.push(scripted.event("MODIFIED", "/pods/ns/bad", 13, raw=b"[]"))
        assert [event.object.revision for event in await tools.taken(everything, 3)] == [11, 12, 13]
        assert [(event.type.value, event.object.revision) for event in await tools.taken(selecting, 2)] == [
            ("ADDED", 12),
            ("DELETED", 13),
        ]
        await front.aclose()

    run(scenario())


PLACES = st.sampled_from(["", "c1/", "c1/n/", "c10/", "c1/n/a", "d/"])
FIELDS = st.sampled_from(
    ["spec.nodeName=n1", "spec.nodeName=", "spec.nodeName=n2,metadata.name=a", "spec.nodeName!=n1", ""]
)
LABELS = st.sampled_from(["", "app=x"])
CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "put", "delete"]),
        st.sampled_from(["a", "b"]),
        st.sampled_from(["n", "n1"]),
        st.sampled_from(["c1", "c10", "d"]),
        st.sampled_from(["", "n1", "n2"]),
        st.sampled_from(["x", "y"]),
    ),
    max_size=30,
)


@given(CHANGES, CHANGES, PLACES, FIELDS, LABELS)
@settings(max_examples=150, deadline=None)
def test_indexed_and_unindexed_watchers_see_the_same_and_so_does_the_storage(
    world, tools, run, before, after, below, fields, labels
):
    """D31: for every scope and selector, watching by index, without it and on the plain store is one stream."""

    async def scenario():
        async with world(clusters=True, indexed_fields=("spec.nodeName",)) as indexed:
            unindexed = world(clusters=True, engine=indexed.engine)
            async with unindexed:
                alive = set()
                await change_all(indexed, before, alive)
                await indexed.synced()
                await unindexed.synced()
                options = {"fields": fields, "labels": labels, "recursive": below != "c1/n/a"}
                stores = (indexed.store, unindexed.store, indexed.plain)
                start = indexed.cacher.revision
                fresh = [await store.watch(indexed.root + below, indexed.options("0", **options)) for store in stores]
                resumed = [
                    await store.watch(indexed.root + below, indexed.options(start, **options)) for store in stores
                ]
                await change_all(indexed, after, alive)
                mark = await indexed.put("~end", "n", cluster="d", node="end")
                await indexed.synced()
                await unindexed.synced()
                for watches in (fresh, resumed):
                    streams = [await until_now(watch) for watch in watches]
                    assert streams[0] == streams[1] == streams[2]
                    assert all(revision <= mark.revision for _, _, revision, _ in streams[0])

    async def change_all(w, changes, alive):
        for kind, name, namespace, cluster, node, app in changes:
            if kind == "put":
                alive.add((name, namespace, cluster))
                await w.put(name, namespace, cluster=cluster, node=node, app=app)
            elif (name, namespace, cluster) in alive:
                alive.remove((name, namespace, cluster))
                await w.delete(name, namespace, cluster=cluster)

    async def until_now(watch):
        seen = []
        while not await tools.quiet_into(watch, seen):
            pass
        watch.stop()
        await watch.__aexit__(None, None, None)
        return [(event.type.value, event.object.key, event.object.revision, event.object.raw) for event in seen]

    run(scenario())


def test_a_watcher_by_index_sees_what_leaves_its_value(world, tools, run):
    """D31: the old value of an indexed field counts as much as the new one, for changes and for deletions."""

    async def scenario():
        async with world(clusters=True, indexed_fields=("spec.nodeName",)) as w:
            await w.put("a", node="n1")
            await w.put("b", node="n1")
            await w.synced()
            watch = await w.watch(w.cacher.revision, below=f"{w.root}c1/", fields="spec.nodeName=n1")
            moved = await w.put("a", node="n2")
            assert tools.told(await tools.taken(watch, 1)) == [("DELETED", moved.key, moved.revision)]
            gone = await w.delete("b")
            assert tools.told(await tools.taken(watch, 1)) == [("DELETED", gone.key, gone.revision)]

    run(scenario())


# --- slow watchers ----------------------------------------------------------------------------------------------------


def test_a_stalled_watcher_resumes_where_it_was(world, tools, run):
    """DispatchEventWillNotBeBlockedByTimedOutWatcher, D26, D29: it delays nobody and misses nothing."""

    async def scenario():
        async with world() as w:
            stalled = [await w.watch("0") for _ in range(50)]
            healthy = await w.watch("0")
            log, latencies = [], []

            async def write():
                for index in range(500):
                    log.append((await w.put(f"p{index % 9}")).revision)
                    await asyncio.sleep(0.01)

            async def read():
                for _ in range(500):
                    await healthy.__anext__()
                    latencies.append(w.cacher.revision)

            async with asyncio.TaskGroup() as group:
                group.create_task(write())
                group.create_task(read())
            assert latencies == log, "each was read before the next was written"
            for watch in stalled:
                assert [event.object.revision for event in await tools.taken(watch, 500)] == log
            assert w.cacher.metrics.terminated_watchers == 0

    run(scenario())


def test_a_stalled_watcher_is_closed_only_when_history_has_passed_it_and_then_gets_410(world, tools, run):
    """CacheIntervalInvalidationStopsWatch, D26: it ends instead of skipping, and the way back says so."""

    async def scenario():
        async with world() as w:
            watch = await w.watch("0")
            first = await w.put("a")
            assert tools.told(await tools.taken(watch, 1))[0][2] == first.revision
            revisions = []
            for index in range(MIN_CAPACITY):
                revisions.append((await w.put(f"p{index}")).revision)
                await asyncio.sleep(1)
            assert [event.object.revision for event in await tools.taken(watch, 1)] == revisions[:1]
            for index in range(2 * MIN_CAPACITY):
                await w.put(f"p{index}")
                await asyncio.sleep(1)
            left = await tools.drained(watch)
            assert [event.object.revision for event in left] == revisions[1:], "what it had taken, then the end"
            assert w.cacher.metrics.terminated_watchers == 1
            assert w.cacher.watcher_count == 0
            (expired,) = await tools.drained(await w.watch(revisions[0]))
            assert expired.error.status().code == 410

    run(scenario())


def test_a_flood_within_the_window_closes_nobody(world, tools, run):
    """SuggestedWatchChannelSize: there is no buffer to choose a size for; a burst of thousands is simply read later."""

    async def scenario():
        async with world() as w:
            watch = await w.watch("0")
            written = [(await w.put(f"p{index % 50}")).revision for index in range(5_000)]
            await w.synced()
            events = await tools.taken(watch, 5_000)
            assert [event.object.revision for event in events] == written

    run(scenario())


def test_forgetting_history_does_not_harm_who_has_read_it(world, tools, run):
    async def scenario():
        async with world() as w:
            reading, behind = await w.watch("0"), await w.watch("0")
            written = await w.put("a")
            await tools.taken(reading, 1)
            w.cacher.forget_history(written.revision)
            assert await tools.drained(behind) == []
            later = await w.put("b")
            assert tools.told(await tools.taken(reading, 1)) == [("ADDED", later.key, later.revision)]

    run(scenario())


# --- ends -------------------------------------------------------------------------------------------------------------


def test_stopping_leaves_what_was_due_to_be_read(world, tools, run):
    """ForgetWatcher: stop is idempotent, nothing new comes after it, and the cache forgets the watcher at once."""

    async def scenario():
        async with world() as w:
            initial = await w.put("a")
            await w.synced()
            watch = await w.watch("0")
            due = [await w.put("b"), await w.put("c")]
            await w.synced()
            watch.stop()
            watch.stop()
            assert w.cacher.watcher_count == 0
            await w.put("d")
            await w.synced()
            assert [event.object.revision for event in await tools.drained(watch)] == [
                found.revision for found in (initial, *due)
            ]
            assert await watch.batch() == ()

    run(scenario())


def test_stopping_wakes_a_waiting_reader(world, tools, run):
    async def scenario():
        async with world() as w:
            watch = await w.watch("0")
            reading = asyncio.create_task(tools.drained(watch))
            await asyncio.sleep(0.1)
            watch.stop()
            assert await reading == []

    run(scenario())


def test_a_watch_ends_at_its_deadline(world, tools, run):
    async def scenario():
        async with world() as w:
            started = tools.loop_time()
            watch = await w.watch("0", bookmarks=True, deadline=started + 30)
            events = await tools.drained(watch)
            assert tools.loop_time() - started == pytest.approx(30)
            assert [event.type for event in events] == [EventType.BOOKMARK]
            assert w.cacher.watcher_count == 0
            past = await w.watch("0", deadline=started - 1)
            assert await tools.drained(past) == []

    run(scenario())


def test_a_cancelled_reader_loses_nothing(world, tools, run):
    """WatchContextCancel: the reader goes, the watch stays until it is left, and no event is taken with it."""

    async def scenario():
        async with world() as w:
            async with await w.watch("0") as watch:
                for index in range(5):
                    reading = asyncio.create_task(watch.batch())
                    await asyncio.sleep(0.01)
                    reading.cancel()
                    written = await w.put(f"p{index}")
                    with pytest.raises(asyncio.CancelledError):
                        await reading
                    assert tools.told(await tools.taken(watch, 1)) == [("ADDED", written.key, written.revision)]
            assert w.cacher.watcher_count == 0

    run(scenario())


def test_waiting_for_initial_events_can_be_cancelled(world, run):
    async def scenario():
        async with world() as w:
            opening = asyncio.create_task(w.watch(INT64_MAX, send_initial_events=True))
            await asyncio.sleep(0.1)
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening
            assert w.cacher.watcher_count == 0

    run(scenario())
