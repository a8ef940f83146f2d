"""Readiness: pending, ready, stopped, and those who wait for it."""

import asyncio

import pytest

from kplane_core.cacher.readiness import Readiness
from kplane_core.errors import InternalError, StorageNotReady


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def readiness(clock):
    return Readiness(clock)


def test_a_new_cache_is_pending_and_says_so(readiness):
    with pytest.raises(StorageNotReady, match=r"storage is \(re\)initializing$"):
        readiness.check()
    assert readiness.generation == 0


def test_each_step_from_pending_to_ready_is_a_generation(readiness):
    for expected in (1, 2, 3):
        readiness.set_ready()
        readiness.set_ready()
        assert readiness.generation == expected
        readiness.check()
        readiness.set_pending(None)


def test_what_made_the_cache_pending_is_told_until_it_is_ready_again(readiness):
    readiness.set_pending(InternalError("the disk is full"))
    with pytest.raises(StorageNotReady, match="the disk is full"):
        readiness.check()
    readiness.set_pending(None)
    assert "the disk is full" in str(readiness.too_many_requests())
    readiness.set_ready()
    readiness.set_pending(None)
    assert "the disk" not in str(readiness.too_many_requests())


def test_stopped_is_for_ever(readiness):
    """CacherDontAcceptRequestsStopped: nothing brings a stopped cache back, and it says what it is."""
    readiness.set_ready()
    readiness.stop()
    readiness.set_pending(InternalError("late"))
    readiness.set_ready()
    assert readiness.stopped
    assert readiness.generation == 1
    with pytest.raises(StorageNotReady, match="apiserver cacher is stopped"):
        readiness.check()
    assert "apiserver cacher is stopped" in str(readiness.too_many_requests())


@pytest.mark.parametrize(
    ("seconds", "retry_after"), [(0, 1), (11, 1), (12, 2), (20, 3), (30, 6), (45, 14), (56, 28), (57, 30), (1e6, 30)]
)
def test_retry_after_grows_with_the_time_that_the_cache_is_not_ready(readiness, clock, seconds, retry_after):
    """RetryAfterForUnreadyCache: 1 second at first, 30 at most, exponential between; counted from the last change."""
    clock.now += 500
    readiness.set_ready()
    readiness.set_pending(None)
    clock.now += seconds
    status = readiness.too_many_requests().status()
    assert (status.code, status.retry_after) == (429, retry_after)


def test_a_waiter_is_woken_by_ready(readiness, run):
    async def scenario():
        waiting = asyncio.create_task(readiness.wait(60))
        await asyncio.sleep(1)
        assert not waiting.done()
        readiness.set_ready()
        await asyncio.wait_for(waiting, 0.1)

    run(scenario())


def test_a_waiter_goes_on_waiting_when_ready_was_over_before_it_ran(readiness, run):
    """Pending, ready and pending again within one turn must not let anybody through."""

    async def scenario():
        waiting = asyncio.create_task(readiness.wait(60))
        await asyncio.sleep(1)
        readiness.set_ready()
        readiness.set_pending(None)
        await asyncio.sleep(1)
        assert not waiting.done()
        readiness.stop()
        await asyncio.wait_for(waiting, 0.1)

    run(scenario())


def test_a_waiter_returns_when_starting_failed(readiness, run):
    """WatchNotHangingOnStartupFailure: who waits for a cache that cannot start learns of it at once."""

    async def scenario():
        waiting = asyncio.create_task(readiness.wait(60))
        await asyncio.sleep(1)
        readiness.set_pending(InternalError("no list"))
        await asyncio.wait_for(waiting, 0.1)
        assert not readiness.ready

    run(scenario())


def test_a_waiter_returns_after_its_timeout_and_leaves_nothing(readiness, run):
    async def scenario():
        started = asyncio.get_running_loop().time()
        await readiness.wait(7)
        assert asyncio.get_running_loop().time() - started == pytest.approx(7)
        assert not readiness._waiters

    run(scenario())


def test_a_waiter_can_be_cancelled(readiness, run):
    async def scenario():
        waiting = asyncio.create_task(readiness.wait(60))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not readiness._waiters

    run(scenario())
