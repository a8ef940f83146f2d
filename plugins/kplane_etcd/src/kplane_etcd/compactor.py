"""Keeping etcd's history short: of all processes on one etcd, one compacts per interval."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from kplane_core.engine.interface import Compacted, FutureRevision
from kplane_core.errors import KplaneError
from kplane_etcd.client import EtcdClient
from kplane_etcd.errors import DatabaseFull

_log = logging.getLogger(__name__)


class Compactor:
    """Takes part in the compaction of one etcd, as every Kubernetes API server on it does.

    The marker `compact_rev_key` is put once per interval by whoever sees first that nobody else has put it. That one
    compacts, at the revision it saw one interval before, so that history of one to two intervals is kept. The first
    round only looks.

    Attributes:
        round: how often the marker was put, as last seen.

    Args:
        client: to etcd.
        compact: compacts and lets the stores know.
    """

    def __init__(self, client: EtcdClient, compact: Callable[[int], Awaitable[None]]) -> None:
        self._client = client
        self._compact = compact
        self.round = 0
        self._seen = 0

    async def run(self, interval: float) -> None:
        """Take part until cancelled; a failure is logged, and the next interval tries again."""
        while True:
            await asyncio.sleep(interval)
            try:
                await self.once()
            except KplaneError as error:
                _log.warning("compaction failed and will be tried again: %s", error)

    async def once(self) -> bool:
        """Do what one interval asks for, and return whether this process compacted.

        Raises:
            KplaneError: etcd could not be asked; nothing was lost.
        """
        try:
            answer = await self._client.claim_compaction(self.round, self._seen)
        except DatabaseFull:
            # The marker cannot be put, but without a compaction that will not change.
            return await self._compact_at(self._seen)
        newest = answer.header.revision
        if not answer.succeeded:
            found = answer.responses[0].response_range.kvs
            self.round = found[0].version if found else 0
            self._seen = newest
            return False
        self.round += 1
        due, self._seen = self._seen, newest
        return await self._compact_at(due)

    async def _compact_at(self, revision: int) -> bool:
        if not revision:
            return False
        try:
            await self._compact(revision)
        except (Compacted, FutureRevision):
            return False  # somebody compacts without the marker, or the database was put back
        self._client.transport.metrics.compactions += 1
        _log.info("compacted at revision %d", revision)
        return True
