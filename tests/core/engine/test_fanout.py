"""The index of watches and the waiting reader that backends share."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kplane_core.engine.fanout import Wakeup, WatchIndex, directory_of

KEYS = st.text("/0ab", max_size=6)


def directory(prefix):
    return prefix, prefix[:-1] + "0"


@given(KEYS, KEYS, KEYS)
def test_a_range_is_filed_under_a_directory_that_holds_all_its_keys(start, end, key):
    place = directory_of(start, end)
    assert place == "" or place.endswith("/")
    if start <= key < end:
        assert key.startswith(place)
    if place:
        assert directory_of(*directory(place)) == place


RANGES = (
    KEYS.map(lambda key: (key, key + "\0")) | KEYS.map(lambda prefix: directory(prefix + "/")) | st.tuples(KEYS, KEYS)
)


@given(st.lists(RANGES, max_size=12), st.sets(st.integers(0, 11)), KEYS)
def test_a_key_finds_exactly_the_watches_whose_range_holds_it_whoever_left(ranges, leaving, key):
    index = WatchIndex()
    for number, bounds in enumerate(ranges):
        index.add(number, *bounds)
    for number in leaving:
        index.discard(number)
        index.discard(number)
    left = {number: bounds for number, bounds in enumerate(ranges) if number not in leaving}
    found = index.holding(key)
    assert len(set(found)) == len(found)
    assert set(found) == {number for number, (start, end) in left.items() if start <= key < end}
    assert list(index) == list(left)
    assert len(index) == len(left)


class Counted:
    """A watch that counts how often it is looked at."""

    looks = 0

    def __hash__(self):
        Counted.looks += 1
        return id(self)

    def __eq__(self, other):
        return self is other


@pytest.mark.parametrize(
    "idle", [lambda name: directory(f"/pods/clusters/{name}/"), lambda name: (f"/pods/{name}", f"/pods/{name}\0")]
)
def test_the_watches_of_other_keys_are_not_looked_at(idle):
    index = WatchIndex()
    for number in range(1_000):
        index.add(Counted(), *idle(f"idle-{number}"))
    mine = Counted()
    index.add(mine, *idle("mine"))
    Counted.looks = 0
    start, end = idle("mine")
    assert index.holding(start if end.endswith("\0") else f"{start}ns/a") == [mine]
    assert Counted.looks == 0


def test_what_was_found_stays_while_watches_close_and_nothing_is_left_of_them():
    index = WatchIndex()
    where = (directory("/pods/c1/"), ("/pods/c1/a", "/pods/c1/a\0"), ("", "\U0010ffff"), ("/pods/c1/", "/pods/c1/m"))
    for number, bounds in enumerate(where):
        index.add(number, *bounds)
    found = index.holding("/pods/c1/a")
    for watch in found:
        index.discard(watch)
    assert sorted(found) == [0, 1, 2, 3]
    assert not index
    assert not any((index._ranges, index._keys, index._shelves, index._lengths))


# --- the reader -------------------------------------------------------------------------------------------------------


def test_a_reader_that_is_woken_several_times_in_one_turn_runs_once(run):
    async def scenario():
        wakeup, turns = Wakeup(), []

        async def read():
            while len(turns) < 2:
                await wakeup.wait()
                turns.append(len(turns))

        reader = asyncio.create_task(read())
        await asyncio.sleep(0)
        for _ in range(3):
            wakeup.wake()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert turns == [0]
        wakeup.wake()
        await reader

    run(scenario())


def test_a_second_reader_is_refused_and_the_first_goes_on(run):
    async def scenario():
        wakeup = Wakeup()
        first = asyncio.create_task(wakeup.wait())
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="one reader"):
            await wakeup.wait()
        wakeup.wake()
        await first

    run(scenario())


def test_a_reader_that_gave_up_leaves_the_place_to_another_one(run):
    async def scenario():
        wakeup = Wakeup()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(wakeup.wait(), 1)
        wakeup.wake()  # nobody waits: it is not kept
        second = asyncio.create_task(wakeup.wait())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not second.done()
        wakeup.wake()
        await second

    run(scenario())
