"""The feed: how a cache is filled, what it does with nonsense, and how it starts over."""

import asyncio
import logging

import pytest

from kplane_core.cacher import CachedStore, CacherConfig, OutOfOrder
from kplane_core.errors import (
    Expired,
    InternalError,
    StorageNotReady,
    TooManyRequests,
    Unreachable,
    UsageError,
)
from kplane_core.storage import Resource


def cached(store, tools, **config):
    settings = {"clock": tools.loop_time, "restart_delay": 0.01} | config
    return CachedStore(store, Resource("pods", store.resource_prefix, kind="Pod"), CacherConfig(**settings))


def test_the_cache_is_filled_in_pages_of_one_snapshot(world, run):
    async def scenario():
        w = world(page_size=3)
        for index in range(10):
            await w.put(f"p{index}")
        async with w:
            assert w.tap.calls["get_list"] == 4
            assert len((await w.list("0")).items) == 10

    run(scenario())


def test_a_snapshot_that_expires_between_pages_is_read_again_at_once(world, run):
    async def scenario():
        w = world(page_size=3)
        for index in range(10):
            await w.put(f"p{index}")

        def expire(name):
            if name == "get_list" and w.tap.calls["get_list"] == 3:
                raise Expired(Expired.CONTINUE)

        w.tap.before = expire
        async with w:
            assert w.tap.calls["get_list"] == 4
            assert w.cacher.metrics.initialization_errors == 0
            assert len((await w.list("0")).items) == 10

    run(scenario())


def test_a_window_that_is_too_short_is_refused():
    with pytest.raises(UsageError, match=r"at least 75 s, not 74\.9 s"):
        CacherConfig(window=74.9)


def test_a_resource_without_a_kind_is_refused(scripted):
    """A store can build no progress marks for it: the cache would look alive and never be fresh."""
    with pytest.raises(UsageError, match="'pods' needs a kind"):
        CachedStore(scripted.Store(), Resource("pods", "/pods/"))


@pytest.mark.parametrize(
    "events",
    [
        [("ADDED", "/pods/ns/x", 20), ("ADDED", "/pods/ns/y", 20)],
        [("ADDED", "/pods/ns/x", 20), ("MODIFIED", "/pods/ns/x", 19)],
        [("ADDED", "/pods/ns/x", 10)],
        [("BOOKMARK", "", 30), ("ADDED", "/pods/ns/x", 30)],
        [("DELETED", "/pods/ns/a", 9)],
    ],
)
def test_a_revision_that_does_not_increase_fails_loudly_and_fills_the_cache_anew(
    world, tools, scripted, run, events, caplog
):
    """Strict intake: what comes out of order would be lost in silence, so the cache starts over and says why."""

    async def scenario():
        store = scripted.Store(items=[scripted.object("/pods/ns/a", 5)], revision=10)
        async with asyncio.timeout(60):
            front = cached(store, tools)
            await front.start()
            watch = await front.watch("/pods/")
            await tools.taken(watch, 1)
            for kind, key, revision in events:
                store.push(scripted.bookmark(revision) if kind == "BOOKMARK" else scripted.event(kind, key, revision))
            store.items, store.revision = [scripted.object("/pods/ns/b", 40)], 40
            assert len(await tools.drained(watch)) < len(events), "the watch ends, and without what came out of order"
            await front.cacher.readiness.wait(1)
            await tools.until(lambda: front.cacher.revision == 40)
            page = await front.get_list("/pods/", world.options(world, "0"))
            assert [found.key for found in page.items] == ["/pods/ns/b"]
            assert front.cacher.metrics.initializations == 2
            assert front.cacher.readiness.generation == 2
            await front.aclose()

    run(scenario())
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert any("out of order" in message and "starts over" in message for message in warnings)


def test_ingest_names_what_was_out_of_order(tools, scripted, run):
    async def scenario():
        front = cached(scripted.Store(), tools)
        front.cacher.replace([], 10)
        with pytest.raises(OutOfOrder, match=r"ADDED event of '/pods/ns/x' has revision 10.*already seen 10"):
            front.cacher.ingest([scripted.event("ADDED", "/pods/ns/x", 10)])

    run(scenario())


def test_a_late_progress_mark_is_passed_over(tools, scripted, run):
    """After a reconnect to a replica that lags: nobody's watch ends for it."""

    async def scenario():
        store = scripted.Store(revision=10)
        front = cached(store, tools)
        await front.start()
        watch = await front.watch("/pods/")
        store.push(scripted.event("ADDED", "/pods/ns/x", 20), scripted.bookmark(15), scripted.bookmark(25))
        store.push(scripted.event("ADDED", "/pods/ns/y", 26))
        assert [event.object.revision for event in await tools.taken(watch, 2)] == [20, 26]
        assert front.cacher.metrics.initializations == 1
        await front.aclose()

    run(scenario())


def test_an_expired_feed_ends_all_watches_and_fills_the_cache_anew(world, tools, run):
    async def scenario():
        async with world() as w:
            await w.put("a")
            watch = await w.watch("0")
            w.tap.feed.fail(Expired(Expired.WATCH))
            assert len(await tools.drained(watch)) <= 1
            await w.put("b")
            await w.until(lambda: w.cacher.metrics.initializations == 2)
            await w.synced()
            assert len((await w.list("0")).items) == 2

    run(scenario())


@pytest.mark.parametrize("error", [InternalError("leader lost"), Unreachable("", "leader lost")])
def test_losing_the_databases_leader_ends_no_watch(world, tools, run, error):
    """The history is still good: the feed goes on from where it was, and nothing is missed."""

    async def scenario():
        async with world() as w:
            watch = await w.watch("0")
            for index in range(5):
                w.tap.feed.fail(error)
                written = await w.put(f"p{index}")
                assert tools.told(await tools.taken(watch, 1)) == [("ADDED", written.key, written.revision)]
            assert w.cacher.metrics.initializations == 1
            assert w.tap.calls["watch"] == 6

    run(scenario())


def test_a_feed_that_fails_for_too_long_is_given_up(world, tools, run):
    """After half a minute of failures the cache is not ready any more, and lists anew."""

    async def scenario():
        async with world(restart_delay=1.0) as w:
            watch = await w.watch("0")
            started = tools.loop_time()

            def refuse(name):
                if name in {"watch", "get_list"}:
                    raise Unreachable("", "no route")

            w.tap.before = refuse
            w.tap.feed.fail(Unreachable("", "no route"))
            await tools.drained(watch)
            assert 29 < tools.loop_time() - started < 33
            with pytest.raises(StorageNotReady, match="no route"):
                w.store.readiness_check()
            w.tap.before = None
            await w.synced()
            w.store.readiness_check()

    run(scenario())


def test_failures_apart_from_each_other_do_not_add_up(world, tools, run):
    async def scenario():
        async with world() as w:
            watch = await w.watch("0")
            for index in range(10):
                w.tap.feed.fail(InternalError("hiccup"))
                await asyncio.sleep(10)
                await w.put(f"p{index}")
                await tools.taken(watch, 1)
            assert w.cacher.metrics.initializations == 1

    run(scenario())


def test_a_clean_end_of_the_feed_is_followed_by_a_new_watch_only(world, tools, run):
    async def scenario():
        async with world() as w:
            watch = await w.watch("0")
            w.tap.feed.inject()
            await w.until(lambda: w.tap.calls["watch"] == 2 and w.tap.feeds)
            written = await w.put("a")
            assert tools.told(await tools.taken(watch, 1)) == [("ADDED", written.key, written.revision)]
            assert (w.tap.calls["get_list"], w.cacher.metrics.initializations) == (1, 1)

    run(scenario())


def test_feeds_that_end_at_once_are_not_opened_in_a_hurry(world, scripted, tools, run):
    async def scenario():
        store = scripted.Store()
        front = cached(store, tools, restart_delay=1.0)
        await front.start()
        for _ in range(1000):
            store.push()
        await asyncio.sleep(10)
        assert 9 <= store.calls["watch"] <= 12
        await front.aclose()

    run(scenario())


def test_a_busy_database_is_given_the_time_that_it_asks_for(world, tools, run):
    async def scenario():
        async with world() as w:
            watch = await w.watch("0")
            started = tools.loop_time()

            def busy(name):
                if name == "watch" and tools.loop_time() < started + 5:
                    raise TooManyRequests("busy", 5)

            w.tap.before = busy
            w.tap.feed.inject()
            written = await w.put("a")
            assert tools.told(await tools.taken(watch, 1)) == [("ADDED", written.key, written.revision)]
            assert w.tap.calls["watch"] <= 3
            assert w.cacher.metrics.initializations == 1

    run(scenario())


def test_a_cache_that_cannot_be_filled_says_why_and_goes_on_trying(world, run, caplog):
    """WatchNotHangingOnStartupFailure."""

    async def scenario():
        w = world(restart_delay=0.5)

        def refuse(name):
            if name == "get_list" and w.tap.calls["get_list"] <= 3:
                raise Unreachable("", "connection refused")

        w.tap.before = refuse
        started = asyncio.get_running_loop().time()
        await w.store.start(timeout=60)
        assert asyncio.get_running_loop().time() - started < 0.1, "start does not wait for what cannot be"
        with pytest.raises(StorageNotReady, match="connection refused"):
            w.store.readiness_check()
        with pytest.raises(TooManyRequests, match="connection refused"):
            await w.watch("0")
        await w.synced()
        assert w.tap.calls["get_list"] == 4
        await w.store.aclose()

    run(scenario())


def test_a_fault_in_a_backend_does_not_leave_a_dead_cache_behind(world, run, caplog):
    """D2: a cache that is no longer fed must not look alive, whatever ended its feed."""

    async def scenario():
        async with world() as w:
            w.tap.before = lambda name: 1 / 0 if name == "watch" and w.tap.calls["watch"] == 2 else None
            w.tap.feed.inject()
            await w.until(lambda: w.cacher.metrics.initializations == 2)
            written = await w.put("a")
            await w.synced()
            assert (await w.list()).items == (written,)

    run(scenario())
    assert any("ZeroDivisionError" in (record.exc_text or "") for record in caplog.records)


def test_a_stalled_feed_is_found_out(world, run):
    """D2: a watch that says nothing more ends in 429 for those who want the newest, and never in old answers."""

    async def scenario():
        async with world() as w:
            await w.put("a")
            await w.synced()
            w.tap.hold()
            written = await w.put("b")
            for _ in range(3):
                with pytest.raises(TooManyRequests):
                    await w.list()
            w.tap.release()
            assert written in (await w.list()).items

    run(scenario())


async def follow(w, after, streams):
    """Watch until the end, and keep what came with the revision that it came after."""
    try:
        watch = await w.watch(after)
    except TooManyRequests:
        return
    seen = []
    streams.append((after, seen))
    async for event in watch:
        if event.error is not None:
            assert event.error.status().code == 410
            return
        seen.append(event.object.revision)


async def write_on(w, log):
    for index in range(600):
        log.append((await w.put(f"p{index % 20}")).revision)
        await asyncio.sleep(0.003)


async def break_the_feed(w):
    while True:
        await asyncio.sleep(0.05)
        if w.tap.feeds:
            w.tap.feed.fail(Expired(Expired.WATCH))


def test_nothing_is_missed_while_the_cache_starts_over_again_and_again(world, tools, run):
    """CacherDontMissEventsOnReinitialization, D25: each watch is a gapless part of the log, and then it ends.

    A thousand watches are opened while the feed breaks; a watch that comes across a new start is closed at once.
    """

    async def scenario():
        async with world() as w, asyncio.TaskGroup() as group:
            log, streams = [], []
            writing = group.create_task(write_on(w, log))
            breaking = group.create_task(break_the_feed(w))
            for _ in range(1000):
                await asyncio.sleep(0.0017)
                if w.cacher.readiness.ready:
                    page = await w.list("0")
                    group.create_task(follow(w, page.revision, streams))
            await writing
            breaking.cancel()
            await w.cacher.aclose()
        assert len(streams) > 300
        assert w.cacher.metrics.initializations > 10
        for after, seen in streams:
            due = [revision for revision in log if revision > after]
            assert seen == due[: len(seen)]
        assert sum(len(seen) for _, seen in streams) > 1000

    run(scenario())


def test_a_watch_is_not_registered_across_a_new_start(world, tools, run):
    """D25: what was known when the watch was asked for is gone, so it ends at once."""

    async def scenario():
        async with world() as w:
            await w.put("a")
            await w.synced()

            def start_over(name):
                if name == "get_current_resource_version":
                    w.cacher.lost(None)
                    w.cacher.replace([], w.cacher.revision)

            w.tap.before = start_over
            watch = await w.watch("", send_initial_events=True, bookmarks=True)
            assert await tools.drained(watch) == []
            assert w.cacher.watcher_count == 0

    run(scenario())


def test_closing_is_final_and_may_be_repeated(world, tools, run):
    async def scenario():
        w = world()
        async with w:
            watch = await w.watch("0")
            await w.store.aclose()
            assert await tools.drained(watch) == []
            await w.store.aclose()
            w.cacher.start()
            assert len(asyncio.all_tasks()) == 1
        never_started = world()
        await never_started.store.aclose()

    run(scenario())


def test_the_newest_revision_may_go_back_when_a_database_was_restored(tools, scripted, run):
    """D15: the cache follows the list; nobody who holds a revision of the lost time is told something older."""

    async def scenario():
        store = scripted.Store(items=[scripted.object("/pods/ns/a", 100)], revision=100)
        front = cached(store, tools)
        await front.start()
        watch = await front.watch("/pods/")
        await tools.taken(watch, 1)
        store.items, store.revision = [scripted.object("/pods/ns/a", 50)], 50
        store.push(*[scripted.event("MODIFIED", "/pods/ns/a", 51)])
        assert await tools.drained(watch) == []
        await tools.until(lambda: front.cacher.metrics.initializations == 2)
        assert front.cacher.revision == 50
        await front.aclose()

    run(scenario())
