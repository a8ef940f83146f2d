"""Leases, shared: one lease for many records that live equally long."""

import asyncio
import time
from collections.abc import Callable
from typing import Final

import attrs

from kplane_etcd import wire
from kplane_etcd.methods import LEASE_GRANT
from kplane_etcd.transport import Transport, noticed

_SHARE: Final = 0.05
"""How much longer than asked a record may live, so that the next ones can share its lease."""


@attrs.define
class _Lease:
    ident: int
    expires: float
    objects: int = 0


class LeaseManager:
    """Hands out leases that live at least as long as asked, and at most 5 % (in whole seconds, up to `reuse`) longer.

    A lease is reused while it lives long enough and holds few enough records: one lease each would overload etcd, and
    the end of a lease with very many records would stall it. Leases are neither revoked nor kept alive, so a record's
    time is fixed when it is written.

    Args:
        transport: to etcd.
        reuse: seconds by which a lease may be longer than asked, at most.
        max_objects: records per lease.
        clock: seconds that never go backwards.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        reuse: float = 60.0,
        max_objects: int = 1000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._transport = transport
        self._reuse = reuse
        self._max_objects = max_objects
        self._clock = clock
        self._leases: dict[int, _Lease] = {}
        self._waiting: dict[int, asyncio.Task[_Lease]] = {}
        self._asked: dict[int, asyncio.Task[_Lease]] = {}

    async def lease_for(self, ttl: int) -> int:
        """Return the id of a lease that ends no sooner than `ttl` seconds from now.

        Raises:
            KplaneError: etcd gave none.
        """
        lease = self._leases.get(ttl)
        if lease is None or lease.objects >= self._max_objects or lease.expires < self._clock() + ttl:
            lease = await self._new(ttl)
        lease.objects += 1
        return lease.ident

    def forget(self, ident: int) -> None:
        """Hand out this lease no more: etcd says that it has ended."""
        for ttl, lease in list(self._leases.items()):
            if lease.ident == ident:
                del self._leases[ttl]

    async def _new(self, ttl: int) -> _Lease:
        """Return a lease that is asked for from now on, never one that is on its way already: it would end too soon.

        All who come while one is on its way share the next one.
        """
        task = self._waiting.get(ttl)
        if task is None:
            task = asyncio.create_task(self._ask_after(ttl, self._asked.get(ttl)), name="kplane-etcd-lease")
            task.add_done_callback(noticed)
            self._waiting[ttl] = task
        return await asyncio.shield(task)

    async def _ask_after(self, ttl: int, before: asyncio.Task[_Lease] | None) -> _Lease:
        if before is not None:
            await asyncio.wait([before])
        mine = self._asked[ttl] = self._waiting.pop(ttl)
        try:
            return await self._ask(ttl)
        finally:
            if self._asked.get(ttl) is mine:
                del self._asked[ttl]

    async def _ask(self, ttl: int) -> _Lease:
        now = self._clock()
        for other in [other for other, lease in self._leases.items() if lease.expires < now]:
            del self._leases[other]
        # etcd counts from when it grants, which is later than this: the lease never ends before we think it does.
        length = ttl + int(min(_SHARE * ttl, self._reuse))
        answer = await self._transport.call(LEASE_GRANT, wire.LeaseGrantRequest(TTL=length))
        lease = self._leases[ttl] = _Lease(answer.ID, now + length)
        self._transport.metrics.leases += 1
        return lease

    async def aclose(self) -> None:
        """Cancel what is being asked for."""
        tasks = [*self._waiting.values(), *self._asked.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
