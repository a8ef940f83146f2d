"""Following one store across all clusters: what the server must know of it without asking on every request."""

import asyncio
import logging
from collections.abc import Callable

from kplane_core.errors import KplaneError
from kplane_core.storage.interface import EventType, ListOptions, ObjectList, Store, StoredObject
from kplane_core.tasks import end_task

_log = logging.getLogger(__name__)

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0

Apply = Callable[[StoredObject, bool], None]
"""Called with an object and whether it was deleted."""


class Follower:
    """Keeps a picture of a store current, with one task, for the life of the server.

    Several processes on one database see each other's changes through the watch. A process sees its own at once: it
    calls `observe` after each write, and the watch's later word on the same revision is then not news.

    Args:
        store: what is followed.
        prefix: the directory that is followed.
        reset: forgets everything; called before everything is told anew.
        apply: takes one object; called in revision order for each object.
    """

    def __init__(self, store: Store, prefix: str, *, reset: Callable[[], None], apply: Apply) -> None:
        self._store = store
        self._prefix = prefix
        self._reset = reset
        self._apply = apply
        self._ahead: dict[str, tuple[StoredObject, bool]] = {}
        self._seen = 0  # every change up to this revision was told
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Return when the picture is complete; from then on it is kept current.

        Raises:
            KplaneError: the store cannot be listed.
        """
        revision = self._tell(await self._store.get_list(self._prefix))
        self._task = asyncio.create_task(self._follow(revision), name=f"kplane-follow{self._prefix}")

    def observe(self, stored: StoredObject, *, deleted: bool = False) -> None:
        """Take this process's own write; `stored` carries the revision of the change."""
        if stored.revision <= self._seen:
            return
        known = self._ahead.get(stored.key)
        if known is not None and known[0].revision >= stored.revision:
            return
        self._ahead[stored.key] = (stored, deleted)
        self._apply(stored, deleted)

    async def aclose(self) -> None:
        """Stop following; idempotent."""
        await end_task(self._task)
        self._task = None

    def _tell(self, listed: ObjectList) -> int:
        self._reset()
        for stored in listed.items:
            self._apply(stored, False)
        self._ahead = {key: one for key, one in self._ahead.items() if one[0].revision > listed.revision}
        for stored, deleted in self._ahead.values():
            self._apply(stored, deleted)
        self._seen = listed.revision
        return listed.revision

    async def _follow(self, revision: int) -> None:
        pause = _FIRST_PAUSE
        while True:
            try:
                if not revision:
                    revision = self._tell(await self._store.get_list(self._prefix))
                if await self._watch(revision):
                    pause = _FIRST_PAUSE
            except KplaneError as error:
                _log.warning("watching %s was interrupted and is tried again: %s", self._prefix, error)
            # Whatever ended the watch, a list restores the picture; until then the old one is the best there is.
            revision = 0
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    async def _watch(self, revision: int) -> bool:
        """Apply events until the watch ends; return whether there were any."""
        anything = False
        async with await self._store.watch(self._prefix, ListOptions(resource_version=str(revision))) as watch:
            while events := await watch.batch():
                for event in events:
                    if event.error is not None:
                        raise event.error
                    if event.object is not None and event.type is not EventType.BOOKMARK:
                        self._take(event.object, deleted=event.type is EventType.DELETED)
                        anything = True
        return anything

    def _take(self, stored: StoredObject, *, deleted: bool) -> None:
        self._seen = stored.revision
        ahead = self._ahead.get(stored.key)
        if ahead is not None:
            if stored.revision >= ahead[0].revision:
                del self._ahead[stored.key]
            if stored.revision <= ahead[0].revision:
                return
        self._apply(stored, deleted)
