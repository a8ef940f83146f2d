"""Freshness: waiting for a revision, and asking the database how far it is."""

import asyncio
import contextlib

import pytest

from kplane_core.cacher.freshness import Freshness
from kplane_core.errors import TooLargeResourceVersion, Unreachable


class Database:
    """Counts the requests for progress; `answer` says what happens at each."""

    def __init__(self, answer=None):
        self.times = []
        self.answer = answer

    async def request_progress(self):
        self.times.append(asyncio.get_running_loop().time())
        if self.answer is not None and (outcome := self.answer()) is not None:
            await outcome


@contextlib.asynccontextmanager
async def asking(database):
    freshness = Freshness(database.request_progress, timeout=3.0)
    task = asyncio.create_task(freshness.ask_for_progress())
    try:
        yield freshness
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def test_what_the_cache_has_seen_needs_no_waiting_and_no_question(run):
    async def scenario():
        database = Database()
        async with asking(database) as freshness:
            freshness.advance(10)
            for revision in (0, 9, 10):
                await freshness.wait(revision)
            await asyncio.sleep(1)
        assert not database.times

    run(scenario())


def test_too_late_is_504_with_cause_and_a_second_to_wait(run):
    """WaitUntilFreshAndListTimeout: three seconds, then a Timeout whose cause clients recognise."""

    async def scenario():
        async with asking(Database()) as freshness:
            freshness.advance(10)
            started = asyncio.get_running_loop().time()
            with pytest.raises(TooLargeResourceVersion) as caught:
                await freshness.wait(20)
            assert asyncio.get_running_loop().time() - started == pytest.approx(3.0)
        status = caught.value.status()
        assert (status.code, status.reason, status.retry_after) == (504, "Timeout", 1)
        assert [cause.reason for cause in status.causes] == ["ResourceVersionTooLarge"]
        assert "Too large resource version: 20, current: 10" in status.message
        assert not freshness._waiters or all(waiter.done() for *_, waiter in freshness._waiters)

    run(scenario())


def test_readers_are_released_in_the_order_of_what_they_wait_for(run):
    async def scenario():
        released = []

        async def wait(revision):
            await freshness.wait(revision)
            released.append(revision)

        async with asking(Database()) as freshness, asyncio.TaskGroup() as group:
            for revision in (30, 10, 20, 10):
                group.create_task(wait(revision))
            await asyncio.sleep(0.01)
            freshness.advance(20)
            await asyncio.sleep(0.01)
            assert released == [10, 10, 20]
            freshness.advance(30)

    run(scenario())


def test_progress_is_asked_for_at_once_and_then_ten_times_a_second(run):
    async def scenario():
        database = Database()
        async with asking(database) as freshness:
            with pytest.raises(TooLargeResourceVersion):
                await freshness.wait(5)
            asked = len(database.times)
            await asyncio.sleep(10)
            assert len(database.times) <= asked + 1, "nobody waits any more"
        pauses = [later - earlier for earlier, later in zip(database.times, database.times[1:], strict=False)]
        assert 10 <= asked <= 31
        assert all(pause >= 0.0999 for pause in pauses)

    run(scenario())


def test_a_hundred_readers_share_one_question(run):
    async def scenario():
        database = Database()
        async with asking(database) as freshness, asyncio.TaskGroup() as group:
            for _ in range(100):
                group.create_task(freshness.wait(5))
            await asyncio.sleep(0.05)
            assert len(database.times) == 1
            freshness.advance(5)

    run(scenario())


@pytest.mark.parametrize("failure", [Unreachable("", "gone"), RuntimeError("a bug in a backend")])
def test_a_question_that_fails_does_not_end_the_asking(run, failure, caplog):
    """D2: whatever a backend does, later readers must still be able to become fresh."""

    async def scenario():
        def fail():
            if len(database.times) == 1:
                raise failure
            freshness.advance(5)

        database = Database(fail)
        async with asking(database) as freshness:
            await freshness.wait(5)
        assert len(database.times) == 2

    run(scenario())
    assert bool(caplog.records) is isinstance(failure, RuntimeError)


def test_a_question_that_hangs_does_not_end_the_asking(run):
    async def scenario():
        def hang():
            if len(database.times) == 1:
                return asyncio.sleep(3_000)
            freshness.advance(5)
            return None

        database = Database(hang)
        async with asking(database) as freshness:
            with pytest.raises(TooLargeResourceVersion):
                await freshness.wait(5)
            await freshness.wait(5)

    run(scenario())


def test_a_reader_that_goes_away_leaves_nothing(run):
    async def scenario():
        database = Database()
        async with asking(database) as freshness:
            waiting = asyncio.create_task(freshness.wait(5))
            await asyncio.sleep(0.01)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await asyncio.sleep(0.5)
            assert not freshness._waiters
            asked = len(database.times)
            await asyncio.sleep(10)
            assert len(database.times) == asked

    run(scenario())
