"""The session pool: bounded, shared fairly, and none lost when somebody gives up waiting."""

import asyncio

import pytest

from kplane_core.engine.interface import EngineUnreachable
from kplane_spanner.sessions import SessionPool


class Counted:
    """In place of Spanner: makes sessions, and counts those that exist."""

    def __init__(self):
        self.alive = 0
        self.fail = False

    def headers(self, name):
        return (("session", name),)

    async def create_sessions(self, count):
        await asyncio.sleep(0)
        if self.fail:
            raise EngineUnreachable("not now")
        self.alive += count
        return [f"session-{self.alive}-{number}" for number in range(count)]

    async def delete_session(self, _name, _within):
        self.alive -= 1


def test_no_more_sessions_than_allowed_whoever_wants_one():
    async def scenario():
        calls = Counted()
        pool = SessionPool(calls, 4)
        using = most = 0

        async def use():
            nonlocal using, most
            session = await pool.take()
            using += 1
            most = max(most, using)
            await asyncio.sleep(0)
            using -= 1
            pool.put(session)

        await asyncio.gather(*[use() for _ in range(100)])
        assert (most, calls.alive, pool.open) == (4, 4, 4)
        await pool.aclose()
        assert (calls.alive, pool.open) == (0, 0)

    asyncio.run(scenario())


def test_a_session_that_comes_to_somebody_who_gave_up_goes_to_the_next():
    async def scenario():
        pool = SessionPool(Counted(), 1)
        only = await pool.take()
        first, second = (asyncio.create_task(pool.take()) for _ in range(2))
        await asyncio.sleep(0)
        pool.put(only)
        first.cancel()  # it was woken already, and has not run since
        assert await asyncio.wait_for(second, 1) is only
        assert first.cancelled()

    asyncio.run(scenario())


def test_a_session_that_cannot_be_made_does_not_count():
    async def scenario():
        calls = Counted()
        pool = SessionPool(calls, 1)
        calls.fail = True
        for _ in range(3):
            with pytest.raises(EngineUnreachable):
                await pool.take()
        with pytest.raises(EngineUnreachable):
            await pool.fill(1)
        calls.fail = False
        pool.put(await pool.take())
        assert pool.open == 1

    asyncio.run(scenario())


def test_a_session_that_was_idle_too_long_is_replaced(monkeypatch):
    async def scenario():
        pool = SessionPool(Counted(), 2)
        old = await pool.take()
        pool.put(old)
        monkeypatch.setattr("kplane_spanner.sessions._STALE_AFTER", -1.0)
        assert await pool.take() is not old
        assert pool.open == 1

    asyncio.run(scenario())


def test_whoever_waits_when_the_pool_closes_is_told():
    async def scenario():
        pool = SessionPool(Counted(), 1)
        held = await pool.take()
        waiting = asyncio.create_task(pool.take())
        await asyncio.sleep(0)
        await pool.aclose()
        with pytest.raises(EngineUnreachable):
            await waiting
        pool.put(held)
        assert pool.open == 0

    asyncio.run(scenario())
