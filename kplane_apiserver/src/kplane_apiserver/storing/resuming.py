"""Watches that begin before a cache does: their past comes from the database, their present from the cache.

A cache knows nothing from before it was filled. A client that watches from an older version, because it created an
object before anybody listed, or because the server was started anew, would be told 410 although the database still has
what it missed. So it gets that from the database, and goes over to the cache as soon as it has caught up.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Self

from kplane_core.errors import KplaneError
from kplane_core.storage.interface import EventType, Store, Watch, WatchEvent
from kplane_core.tasks import end_task

_ASK_AGAIN = 0.2
_ENDED: Sequence[WatchEvent] = ()


class ResumedWatch:
    """A watch over past and present; see `Watch`.

    Args:
        store: asked how far it is, so that the end of the past is noticed although nothing happens.
        past: what happened, from the database; it ends at the boundary.
        present: what happens after the boundary, from the cache.
        boundary: the revision up to which everything is told by `past`.
    """

    def __init__(self, store: Store, past: Watch, present: Watch, boundary: int) -> None:
        self._store = store
        self._past: Watch | None = past
        self._present = present
        self._boundary = boundary
        self._ready: list[WatchEvent] = []

    async def batch(self) -> Sequence[WatchEvent]:
        """Return all events that are ready, waiting for at least one; empty once the watch has ended."""
        while self._past is not None:
            events = await self._next_of(self._past)
            if not events:
                self._present.stop()  # without the whole past, the present is of no use
                return _ENDED
            told = await self._up_to_boundary(self._past, events)
            if told:
                return told
        return await self._present.batch()

    def stop(self) -> None:
        """End the watch soon; idempotent. What was already due may still be read."""
        if self._past is not None:
            self._past.stop()
        self._present.stop()

    def __aiter__(self) -> AsyncIterator[WatchEvent]:
        return self

    async def __anext__(self) -> WatchEvent:
        if not self._ready:
            self._ready = list(reversed(await self.batch()))
        if not self._ready:
            raise StopAsyncIteration
        return self._ready.pop()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        past, self._past = self._past, None
        if past is not None:
            await past.__aexit__(*exc)
        await self._present.__aexit__(*exc)

    @property
    def catching_up(self) -> bool:
        """Whether the database is still read from."""
        return self._past is not None

    async def _next_of(self, past: Watch) -> Sequence[WatchEvent]:
        asking = asyncio.create_task(self._ask(), name="kplane-ask-progress")
        try:
            return await past.batch()
        finally:
            await end_task(asking)

    async def _ask(self) -> None:
        while True:
            with contextlib.suppress(KplaneError):  # the watch itself tells what is wrong
                await self._store.request_watch_progress()
            await asyncio.sleep(_ASK_AGAIN)

    async def _up_to_boundary(self, past: Watch, events: Sequence[WatchEvent]) -> Sequence[WatchEvent]:
        told: list[WatchEvent] = []
        for event in events:
            if event.object is None:
                return [*told, event]
            if event.type is not EventType.BOOKMARK and event.object.revision <= self._boundary:
                told.append(event)
            if event.object.revision >= self._boundary:
                self._past = None
                await past.__aexit__(None, None, None)
                break
        return told
