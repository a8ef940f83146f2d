"""Letting go of the stores and caches of custom resources that no cluster defines any more."""

import asyncio
import logging
from collections.abc import Callable

from kplane_apiserver.clusters.garbage import Garbage
from kplane_apiserver.kinds import builtin_kinds
from kplane_apiserver.storing.stores import StoreSet
from kplane_core.errors import KplaneError
from kplane_core.tasks import end_task

_log = logging.getLogger(__name__)

FIRST_PAUSE = 5.0
"""Seconds that requests have which were under way when a resource's last definition went."""

LONGEST_PAUSE = 60.0


class UnusedCaches:
    """Closes what nobody can ask for any more, with a task that lives only while there is something to close.

    Args:
        stores: where the stores are.
        garbage: follows some resources for itself.
        defined: whether any cluster defines a resource.
    """

    def __init__(self, stores: StoreSet, garbage: Garbage, defined: Callable[[str], bool]) -> None:
        self._stores = stores
        self._garbage = garbage
        self._defined = defined
        self._builtin = frozenset(kind.storage_resource for kind in builtin_kinds().values())
        self._pending: set[str] = set()
        self._task: asyncio.Task[None] | None = None

    def undefined(self, resource: str) -> None:
        """Take note that no cluster defines a resource any more; it may be defined again."""
        if resource in self._builtin:
            return  # a definition of that name never was served
        self._pending.add(resource)
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="kplane-unused-caches")

    async def aclose(self) -> None:
        """Stop; idempotent. The stores that are left are closed with all others."""
        await end_task(self._task)
        self._task = None

    async def _run(self) -> None:
        pause = FIRST_PAUSE
        while self._pending:
            await asyncio.sleep(pause)
            closed = [await self._close(resource) for resource in list(self._pending)]
            pause = FIRST_PAUSE if any(closed) else min(pause * 2, LONGEST_PAUSE)
        self._task = None

    async def _close(self, resource: str) -> bool:
        """Close what there is of a resource; it is looked at again until there is nothing."""
        if self._defined(resource) or not self._stores.has(resource):
            self._pending.discard(resource)
            return False
        try:
            await self._garbage.unfollow(resource)
            return await self._stores.let_go(resource)
        except KplaneError as error:
            _log.warning("the store of the %s could not be closed: %s", resource, error)
            return False
