"""Lanes: the history of one cluster, its capacity and its floor."""

from hypothesis import given, settings
from hypothesis import strategies as st

from kplane_core.cacher.events import change
from kplane_core.cacher.history import KEPT_IDLE, MAX_CAPACITY, MIN_CAPACITY, History, Lane
from kplane_core.storage.interface import StoredObject

WINDOW = 75.0


def event(revision, at=0.0):
    key = f"/pods/ns/{revision}"
    return change(key, revision, "", new=StoredObject(key, revision, b"{}"), old=None, time=at)


def filled(count, *, step=0.0, floor=10):
    lane = Lane(floor, WINDOW)
    for index in range(count):
        lane.append(event(floor + 1 + index, index * step))
    return lane


def test_an_empty_lane_serves_from_its_list_revision_and_nothing_older():
    """EmptyWatchEventCache, D23: the oldest servable revision is exactly that of the list."""
    lane = Lane(10, WINDOW)
    assert lane.after(9) is None
    assert lane.after(10) == 0
    assert lane.after(11) == 0


def test_a_watch_starts_after_its_revision_never_at_it():
    lane = filled(5)
    assert [event.revision for event in lane.events(lane.after(12), 10)] == [13, 14, 15]
    assert lane.after(15) == lane.end


def test_a_full_lane_doubles_while_its_oldest_event_is_younger_than_the_window():
    """DynamicCache: within the window nothing is forgotten."""
    lane = filled(MIN_CAPACITY * 3, step=0.1)
    assert len(lane) == MIN_CAPACITY * 3
    assert lane.capacity == MIN_CAPACITY * 4
    assert lane.floor == 10


def test_a_full_lane_forgets_what_is_older_than_the_window():
    lane = filled(MIN_CAPACITY + 50, step=WINDOW / MIN_CAPACITY)
    assert lane.capacity == MIN_CAPACITY
    assert len(lane) == MIN_CAPACITY
    assert lane.floor == 10 + 50
    assert lane.after(59) is None
    assert lane.after(60) == lane.start == 50


def test_the_capacity_has_an_upper_bound():
    """CapacityUpperBound: a flood within the window cannot take all memory."""
    lane = filled(MAX_CAPACITY + 10)
    assert lane.capacity == MAX_CAPACITY
    assert len(lane) == MAX_CAPACITY


def test_a_longer_window_raises_the_upper_bound_by_powers_of_two():
    def bound(window):
        lane = Lane(0, window)
        return lane.limit

    assert [bound(window) for window in (75.0, 75.1, 150.0, 151.0, 600.0)] == [
        MAX_CAPACITY,
        2 * MAX_CAPACITY,
        2 * MAX_CAPACITY,
        4 * MAX_CAPACITY,
        8 * MAX_CAPACITY,
    ]


def test_trimming_drops_what_is_old_but_a_few_and_gives_room_back():
    lane = filled(MIN_CAPACITY * 4, step=0.01)
    lane.trim(now=4.0 + 2 * WINDOW)
    assert len(lane) == KEPT_IDLE
    for _ in range(5):
        lane.trim(now=4.0 + 2 * WINDOW)
    assert lane.capacity == MIN_CAPACITY
    assert lane.after(lane.floor) == lane.start


def test_a_lane_that_was_idle_for_long_keeps_no_objects_but_its_floor():
    lane = filled(20)
    lane.trim(now=100 * WINDOW)
    assert len(lane) == 0
    assert lane.floor == 30
    assert lane.after(30) == lane.end
    assert lane.after(29) is None


def test_forgetting_drops_up_to_and_with_the_revision():
    lane = filled(10)
    lane.forget(15)
    assert [event.revision for event in lane.events(lane.start, 99)] == [16, 17, 18, 19, 20]
    assert (lane.after(14), lane.after(15)) == (None, lane.start)


def test_a_growing_lane_leaves_positions_valid():
    """CacheIncreaseDoesNotBreakWatch: a cursor points to the same event before and after the lane grew."""
    lane = filled(MIN_CAPACITY, step=0.1)
    position = lane.after(50)
    before = lane.events(position, 5)
    for index in range(300):
        lane.append(event(1000 + index, at=10.0))
    assert lane.capacity > MIN_CAPACITY
    assert lane.events(position, 5) == before


def test_reading_a_cluster_that_nobody_wrote_to_keeps_nothing():
    history = History(10, WINDOW)
    for index in range(1000):
        assert history.seen(f"c{index}").floor == 10
    assert history.lanes == 0


def test_a_released_lane_is_kept_only_while_it_tells_something():
    history = History(10, WINDOW)
    history.lane("quiet")
    history.lane("busy").append(event(11))
    history.release("quiet")
    history.release("busy")
    assert history.lanes == 1


def test_forgetting_reaches_clusters_that_come_later():
    history = History(10, WINDOW)
    history.forget(50)
    assert history.lane("new").after(49) is None
    assert history.lane("new").after(50) == 0


@given(st.lists(st.tuples(st.floats(0, 40), st.integers(1, 5)), max_size=400), st.integers(0, 600))
def test_a_lane_always_answers_for_every_revision_from_its_floor_on(steps, asked):
    """Whatever was dropped: what is kept is exactly the log above the floor, and positions name the same event."""
    lane, log, now, revision = Lane(10, WINDOW), [], 0.0, 10
    for elapsed, jump in steps:
        now, revision = now + elapsed, revision + jump
        log.append(revision)
        position = lane.append(event(revision, now))
        assert position == len(log) - 1
        if jump == 5:
            lane.trim(now)
    kept = [found.revision for found in lane.events(lane.start, len(lane))]
    assert kept == log[lane.start :]
    assert all(revision > lane.floor for revision in kept)
    position = lane.after(asked)
    if asked < lane.floor:
        assert position is None
    else:
        assert log[position:] == [revision for revision in log if revision > asked]
    assert MIN_CAPACITY <= lane.capacity <= MAX_CAPACITY
    assert len(lane) <= lane.capacity


@given(st.lists(st.integers(0, 2), min_size=150, max_size=300))
@settings(max_examples=30)
def test_nothing_within_the_window_is_dropped_below_the_upper_bound(steps):
    lane, times, now = Lane(0, WINDOW), [], 0.0
    for index, step in enumerate(steps):
        now += step
        times.append(now)
        lane.append(event(index + 1, now))
    assert lane.start == 0 or now - times[lane.start - 1] >= WINDOW
