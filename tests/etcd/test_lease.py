"""Leases: shared as Kubernetes shares them, never too short."""

import asyncio

import pytest

from kplane_core.engine.interface import EngineUnreachable
from kplane_etcd.lease import LeaseManager
from kplane_etcd.metrics import Metrics


class Granting:
    """In place of a transport: grants leases and remembers how long each is."""

    def __init__(self, delay: float = 0.0) -> None:
        self.metrics = Metrics()
        self.lengths: list[int] = []
        self.delay = delay
        self.fail = False

    async def call(self, _method, request):
        await asyncio.sleep(self.delay)
        if self.fail:
            raise EngineUnreachable("no answer")
        self.lengths.append(request.TTL)
        return type("Answer", (), {"ID": len(self.lengths), "TTL": request.TTL})


class Clock:
    """Seconds that a test sets."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_records_share_a_lease_that_lives_long_enough() -> None:
    """An hour: the lease is a minute longer, and serves for that minute."""
    granting, clock = Granting(), Clock()
    leases = LeaseManager(granting, clock=clock)

    async def scenario() -> None:
        assert [await leases.lease_for(3600) for _ in range(3)] == [1, 1, 1]
        clock.now += 60
        assert await leases.lease_for(3600) == 1
        clock.now += 0.001
        assert await leases.lease_for(3600) == 2
        assert granting.lengths == [3660, 3660]

    asyncio.run(scenario())


@pytest.mark.parametrize(("ttl", "length"), [(1, 1), (19, 19), (20, 21), (100, 105), (1200, 1260), (86400, 86460)])
def test_a_lease_is_at_most_a_twentieth_longer_and_a_minute(ttl, length) -> None:
    granting = Granting()
    asyncio.run(LeaseManager(granting).lease_for(ttl))
    assert granting.lengths == [length]


def test_a_lease_holds_so_many_records_and_no_more() -> None:
    granting = Granting()
    leases = LeaseManager(granting, max_objects=3)

    async def scenario() -> None:
        assert [await leases.lease_for(3600) for _ in range(7)] == [1, 1, 1, 2, 2, 2, 3]

    asyncio.run(scenario())


def test_different_lives_have_different_leases() -> None:
    granting = Granting()
    leases = LeaseManager(granting)

    async def scenario() -> None:
        assert [await leases.lease_for(ttl) for ttl in (100, 200, 100, 200)] == [1, 2, 1, 2]

    asyncio.run(scenario())


def test_many_at_once_share_but_nobody_gets_a_lease_that_was_asked_for_before_he_came() -> None:
    """With no second to spare, a lease on its way already would end too soon: two grants serve a hundred."""
    granting = Granting(delay=0.3)
    leases = LeaseManager(granting)

    async def scenario() -> None:
        first = asyncio.create_task(leases.lease_for(2))
        await asyncio.sleep(0.005)
        later = []
        for _ in range(3):
            later += [asyncio.create_task(leases.lease_for(2)) for _ in range(33)]
            await asyncio.sleep(0.001)
        assert await first == 1
        assert {await one for one in later} == {2}

    asyncio.run(scenario())


def test_a_lease_that_has_ended_is_handed_out_no_more() -> None:
    leases = LeaseManager(Granting())

    async def scenario() -> None:
        ident = await leases.lease_for(3600)
        leases.forget(ident)
        assert await leases.lease_for(3600) != ident

    asyncio.run(scenario())


def test_one_who_gives_up_or_fails_harms_no_other() -> None:
    granting = Granting(delay=0.02)
    leases = LeaseManager(granting)

    async def scenario() -> None:
        first, second = (asyncio.create_task(leases.lease_for(3600)) for _ in range(2))
        await asyncio.sleep(0.005)
        first.cancel()
        assert await second == 1
        granting.fail = True
        with pytest.raises(EngineUnreachable):
            await leases.lease_for(50)
        granting.fail = False
        assert await leases.lease_for(50) == 2
        await leases.aclose()

    asyncio.run(scenario())
