"""Now and then, does the cache hold what the storage holds? If not, it starts over and says so loudly."""

import asyncio
import logging
from collections.abc import Iterable
from hashlib import blake2b
from typing import TYPE_CHECKING

from kplane_core.chance import CHANCE
from kplane_core.errors import Expired, KplaneError, TooLargeResourceVersion
from kplane_core.storage.interface import ListOptions, StoredObject
from kplane_core.storage.selection import Predicate

if TYPE_CHECKING:
    from kplane_core.cacher.cacher import Cacher

_log = logging.getLogger(__name__)
_PAGE = 10_000
_CHUNK = 1_000


class CacheInconsistent(KplaneError):
    """The cache holds something else than the storage does at the same revision."""


class ConsistencyChecker:
    """Compares keys and revisions of all objects, cache against storage, at one revision.

    Args:
        cacher: the cache.
    """

    def __init__(self, cacher: "Cacher") -> None:
        self._cacher = cacher

    async def run(self) -> None:
        """Check at intervals that no two servers share; runs until cancelled."""
        interval = self._cacher.config.consistency_interval
        while True:
            await asyncio.sleep(interval * CHANCE.uniform(1.0, 1.5))
            if self._cacher.readiness.ready:
                await self.check()

    async def check(self) -> bool | None:
        """Compare once; a cache that differs is told to start over.

        Returns:
            Whether cache and storage agree; None when that could not be found out.
        """
        cacher, metrics = self._cacher, self._cacher.metrics
        generation, revision = cacher.readiness.generation, cacher.revision
        cached = cacher.state.everything()
        try:
            stored = await self._stored_digest(revision)
        except (Expired, TooLargeResourceVersion):
            return None  # the storage forgot that revision meanwhile, or is not so far
        except KplaneError as error:
            metrics.consistency_errors += 1
            _log.info("the watch cache of %s could not be checked: %s", cacher.resource.group_resource, error)
            return None
        found = await _digest_of(cached)
        if cacher.readiness.generation != generation:
            return None
        if found == stored:
            metrics.consistency_successes += 1
            return True
        metrics.consistency_failures += 1
        name = cacher.resource.group_resource
        cacher.distrust(CacheInconsistent(f"the watch cache of {name} differs from the storage at revision {revision}"))
        return False

    async def _stored_digest(self, revision: int) -> bytes:
        digest, token = blake2b(digest_size=16), ""
        while True:
            options = ListOptions(
                resource_version="" if token else str(revision),
                resource_version_match="" if token else "Exact",
                predicate=Predicate(limit=_PAGE, continue_token=token),
            )
            page = await self._cacher.store.get_list(self._cacher.store.resource_prefix, options)
            kept = [found for found in page.items if self._cacher.cluster_of(found.key) is not None]
            digest.update(_line_of(kept))
            token = page.continue_token
            if not token:
                return digest.digest()


async def _digest_of(objects: list[StoredObject]) -> bytes:
    digest = blake2b(digest_size=16)
    for start in range(0, len(objects), _CHUNK):
        digest.update(_line_of(objects[start : start + _CHUNK]))
        await asyncio.sleep(0)  # a large cache must not hold up requests
    return digest.digest()


def _line_of(objects: Iterable[StoredObject]) -> bytes:
    return "".join(f"{found.key}\0{found.revision}\n" for found in objects).encode()
