"""Bookmarks: about once a minute, shortly before the deadline, never ahead of an event."""

import asyncio

import pytest

from kplane_core.cacher.bookmarks import BookmarkSchedule
from kplane_core.storage.interface import INITIAL_EVENTS_END, EventType


class Clock:
    def __init__(self, now=1000.25):
        self.now = now

    def __call__(self):
        return self.now


class Watcher:
    """What the schedule needs of a watcher."""

    def __init__(self, deadline=None):
        self.plan = self
        self.deadline = deadline
        self.next_bookmark = None
        self.due = []

    def bookmark_due(self):
        self.due.append(self.clock())


@pytest.fixture
def clock():
    return Clock()


def schedule_of(clock, *watchers):
    schedule = BookmarkSchedule(clock)
    for watcher in watchers:
        watcher.clock = clock
        schedule.add(watcher)
    return schedule


def pass_seconds(schedule, clock, seconds):
    for _ in range(seconds):
        clock.now += 1.0
        schedule.tick()


def test_a_watcher_gets_a_bookmark_every_minute(clock):
    watcher = Watcher()
    pass_seconds(schedule_of(clock, watcher), clock, 300)
    pauses = [later - earlier for earlier, later in zip([1000.25, *watcher.due], watcher.due, strict=False)]
    assert len(watcher.due) in {4, 5}
    assert all(58 < pause <= 61 for pause in pauses)


def test_a_watcher_gets_its_last_bookmark_two_seconds_before_its_deadline(clock):
    watcher = Watcher(deadline=1030.0)
    pass_seconds(schedule_of(clock, watcher), clock, 40)
    assert len(watcher.due) == 1
    assert 1027 < watcher.due[0] <= 1029.25
    assert watcher.next_bookmark is None


def test_a_deadline_that_is_too_near_gets_no_bookmark(clock):
    watcher = Watcher(deadline=1002.0)
    pass_seconds(schedule_of(clock, watcher), clock, 5)
    assert not watcher.due


def test_a_bookmark_due_within_the_current_second_is_not_lost(clock):
    schedule = schedule_of(clock)
    schedule.tick()
    watcher = Watcher(deadline=clock.now + 2.5)
    watcher.clock = clock
    schedule.add(watcher)
    pass_seconds(schedule, clock, 2)
    assert len(watcher.due) == 1


def test_a_sleeping_machine_sends_what_is_due_once(clock):
    watchers = [Watcher() for _ in range(3)]
    schedule = schedule_of(clock, *watchers)
    clock.now += 100_000
    schedule.tick()
    assert [len(watcher.due) for watcher in watchers] == [1, 1, 1]


def test_a_removed_watcher_is_forgotten(clock):
    watcher = Watcher()
    schedule = schedule_of(clock, watcher)
    schedule.remove(watcher)
    schedule.remove(watcher)
    pass_seconds(schedule, clock, 200)
    assert not watcher.due
    assert not schedule._buckets


def test_a_tick_touches_only_those_that_are_due(clock):
    watchers = [Watcher() for _ in range(1000)]
    schedule = schedule_of(clock, *watchers)
    pass_seconds(schedule, clock, 55)
    assert not any(watcher.due for watcher in watchers)
    early = Watcher(deadline=clock.now + 3)
    early.clock = clock
    schedule.add(early)
    pass_seconds(schedule, clock, 2)
    assert early.due
    assert not any(watcher.due for watcher in watchers)


def test_watchers_get_bookmarks_that_tell_how_far_they_are(world, tools, run):
    """CacherSendsMultipleWatchBookmarks: with a revision that covers the whole cache, and only who asked."""

    async def scenario():
        async with world() as w:
            with_bookmarks = await w.watch(await w.plain.get_current_resource_version(), bookmarks=True)
            without = await w.watch(await w.plain.get_current_resource_version())
            written = await w.put()
            for watch in (with_bookmarks, without):
                assert tools.told(await tools.taken(watch, 1)) == [("ADDED", written.key, written.revision)]
            bookmarks = await tools.taken(with_bookmarks, 3)
            assert {event.type for event in bookmarks} == {EventType.BOOKMARK}
            assert [event.object.revision for event in bookmarks] == [written.revision] * 3
            document = bookmarks[0].object.decode()
            assert document == {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"resourceVersion": str(written.revision)},
            }
            assert await tools.quiet(without, 200)

    run(scenario())


def test_progress_without_changes_moves_the_bookmark(world, tools, run):
    """BookmarksOnResourceVersionUpdates, D3: an idle resource's bookmarks follow the clock of the whole database."""

    async def scenario():
        async with world() as w:
            watch = await w.watch("0", bookmarks=True)
            revision = 0
            for _ in range(50):
                revision = await w.elsewhere()
            await w.plain.request_watch_progress()
            (bookmark,) = await tools.taken(watch, 1)
            assert (bookmark.type, bookmark.object.revision) == (EventType.BOOKMARK, revision)

    run(scenario())


def test_a_bookmark_follows_every_event_up_to_it(world, tools, run):
    """CacherSendBookmarkEvents, D27: however events and bookmarks fall together, none overtakes the other."""

    async def scenario():
        async with world(bookmark_period=1.0) as w:
            watch = await w.watch("0", bookmarks=True)
            written = []

            async def write():
                for index in range(200):
                    written.append((await w.put(f"p{index % 7}")).revision)
                    await asyncio.sleep(0.07)
                watch.stop()

            async with asyncio.TaskGroup() as group:
                group.create_task(write())
                events = await tools.drained(watch)
            last, changes, bookmarks = 0, [], 0
            for event in events:
                revision = event.object.revision
                if event.type is EventType.BOOKMARK:
                    bookmarks += 1
                    assert revision >= last
                    assert [known for known in written if known <= revision][-1:] == changes[-1:]
                else:
                    assert revision > last
                    changes.append(revision)
                last = revision
            assert changes == written
            assert bookmarks >= 10

    run(scenario())


def test_a_watch_from_the_future_gets_no_bookmark_below_its_start(world, tools, run):
    """WatcherNotGoingBackInTime: neither an event nor a bookmark may take a watcher back."""

    async def scenario():
        async with world(bookmark_period=1.0) as w:
            now = (await w.put()).revision
            watch = await w.watch(now + 3, bookmarks=True)
            assert await tools.quiet(watch, 10)
            revisions = [(await w.put()).revision for _ in range(6)]
            events = await tools.taken(watch, 3)
            assert [event.object.revision for event in events] == revisions[3:]
            (bookmark,) = await tools.taken(watch, 1)
            assert (bookmark.type, bookmark.object.revision) == (EventType.BOOKMARK, revisions[-1])

    run(scenario())


def test_watchers_may_stop_while_bookmarks_are_sent(world, tools, run):
    """DispatchingBookmarkEventsWithConcurrentStop."""

    async def scenario():
        async with world(bookmark_period=1.0) as w:
            watches = [await w.watch("0", bookmarks=True) for _ in range(100)]

            async def stop_at_first(watch, others):
                async for event in watch:
                    assert event.type is EventType.BOOKMARK
                    for other in others:
                        other.stop()

            async with asyncio.TaskGroup() as group:
                for index, watch in enumerate(watches):
                    group.create_task(stop_at_first(watch, watches[index : index + 10]))
            assert w.cacher.watcher_count == 0
            assert not w.cacher._schedule._buckets

    run(scenario())


def test_initial_events_end_with_an_annotated_bookmark(world, tools, run):
    """InitialEventsEndBookmark, WatchListIsSynchronisedWhenNoEventsFromStoreReceived, D30: at once, also when idle."""

    async def scenario():
        async with world() as w:
            first, second = await w.put("a"), await w.put("b")
            revision = await w.elsewhere()
            for after, wanted in (("", revision), ("0", None), (str(second.revision), None)):
                watch = await w.watch(after, bookmarks=True, send_initial_events=True)
                async with asyncio.timeout(1):
                    *added, bookmark = await tools.taken(watch, 3)
                assert tools.told(added) == [
                    ("ADDED", first.key, first.revision),
                    ("ADDED", second.key, second.revision),
                ]
                assert bookmark.type is EventType.BOOKMARK
                assert bookmark.object.decode()["metadata"]["annotations"] == {INITIAL_EVENTS_END: "true"}
                assert bookmark.object.revision >= (wanted or second.revision)
            empty = await w.watch("", bookmarks=True, send_initial_events=True, below="/pods/nowhere/")
            (only,) = await tools.taken(empty, 1)
            assert (only.type, only.object.revision) == (EventType.BOOKMARK, revision)

    run(scenario())


def test_no_end_of_initial_events_without_bookmarks(world, tools, run):
    async def scenario():
        async with world() as w:
            await w.put("a")
            watch = await w.watch("", send_initial_events=True)
            await tools.taken(watch, 1)
            assert await tools.quiet(watch, 200)

    run(scenario())


def test_a_bookmark_waits_for_the_last_of_many_events(world, tools, run):
    """D27: one that falls due while thousands of events are still to be read comes after all of them."""

    async def scenario():
        async with world() as w:
            watch = await w.watch("0", bookmarks=True)
            written = [(await w.put(f"p{index % 9}")).revision for index in range(2_500)]
            await w.synced()
            watch.bookmark_due()
            events = await tools.taken(watch, 2_501)
            assert [event.object.revision for event in events] == [*written, written[-1]]
            assert [event.type is EventType.BOOKMARK for event in events] == [False] * 2_500 + [True]

    run(scenario())
