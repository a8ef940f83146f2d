"""The feed of a cache: one full list, then one watch from where the list ended, and again when that breaks."""

import asyncio
import logging
from typing import TYPE_CHECKING

from kplane_core.errors import Expired, InternalError, KplaneError, TooManyRequests, Unreachable
from kplane_core.storage.interface import ListOptions, ObjectList, StoredObject, Watch
from kplane_core.storage.selection import Predicate

if TYPE_CHECKING:
    from kplane_core.cacher.cacher import Cacher

_log = logging.getLogger(__name__)
_PATIENCE = 30.0
"""Seconds for which a failing watch is opened again before the cache is filled anew."""
_SHORT_LIVED = 1.0


class Reflector:
    """Keeps one cache fed.

    Args:
        cacher: the cache.
    """

    def __init__(self, cacher: "Cacher") -> None:
        self._cacher = cacher
        self._store = cacher.store
        self._root = cacher.store.resource_prefix
        self._clock = cacher.config.clock
        self._watch: Watch | None = None
        self._interruption: KplaneError | None = None

    def interrupt(self, error: KplaneError) -> None:
        """End the running watch, so that the cache is filled anew."""
        self._interruption = error
        if self._watch is not None:
            self._watch.stop()

    async def run(self) -> None:
        """Fill the cache and follow the storage; start over after every failure; runs until cancelled."""
        name = self._cacher.resource.group_resource
        while True:
            error: KplaneError | None = None
            try:
                await self._fill()
                await self._follow()
            except KplaneError as failure:
                error = failure
                _log.warning("the watch cache of %s lost its feed and starts over: %s", name, failure)
            except Exception as failure:  # noqa: BLE001 - logged with its traceback, and the cache starts over
                # A fault in a backend must not leave a cache behind that looks alive and is not fed.
                error = InternalError(f"the storage backend failed unexpectedly: {failure!r}")
                _log.exception("the watch cache of %s lost its feed and starts over", name)
            self._cacher.lost(error)
            await asyncio.sleep(self._cacher.config.restart_delay)

    async def _fill(self) -> None:
        started = self._clock()
        try:
            objects, revision = await self._pages()
        except Expired:
            # Too slow for the pages' snapshot: take everything at once.
            page = await self._store.get_list(self._root)
            objects, revision = list(page.items), page.revision
        self._cacher.replace(objects, revision)
        self._cacher.metrics.initialization_seconds = self._clock() - started

    async def _pages(self) -> tuple[list[StoredObject], int]:
        objects: list[StoredObject] = []
        token = ""
        while True:
            predicate = Predicate(limit=self._cacher.config.page_size, continue_token=token)
            page: ObjectList = await self._store.get_list(self._root, ListOptions(predicate=predicate))
            objects += page.items
            token = page.continue_token
            if not token:
                return objects, page.revision

    async def _follow(self) -> None:
        """Take in changes until only a new list helps; then raise."""
        failing_since: float | None = None
        while True:
            opened, before = self._clock(), self._cacher.metrics.events_received
            try:
                await self._watch_once()
            except TooManyRequests as error:
                await asyncio.sleep(error.status().retry_after or 1)
                continue
            except (InternalError, Unreachable) as error:
                # Losing a database's leader must not end every client's watch: the history is still good.
                now = self._clock()
                if self._cacher.metrics.events_received > before:
                    failing_since = None
                failing_since = failing_since or now
                if now - failing_since > _PATIENCE:
                    raise
                _log.info("watching %s failed and is tried again: %s", self._cacher.resource.group_resource, error)
                await asyncio.sleep(self._cacher.config.restart_delay)
                continue
            failing_since = None
            if self._clock() - opened < _SHORT_LIVED and self._cacher.metrics.events_received == before:
                await asyncio.sleep(self._cacher.config.restart_delay)

    async def _watch_once(self) -> None:
        options = ListOptions(
            resource_version=str(self._cacher.revision),
            predicate=Predicate(allow_watch_bookmarks=True),
            progress_notify=True,
        )
        async with await self._store.watch(self._root, options) as self._watch:
            while (events := await self._watch.batch()) and self._interruption is None:
                self._cacher.ingest(events)
        self._watch = None
        if self._interruption is not None:
            interruption, self._interruption = self._interruption, None
            raise interruption
