"""One watcher of the cache: a cursor over the history of its scope.

A watcher that has read everything has no cursor; the first event of its scope gives it one. So a watcher of a quiet
namespace never falls behind because its neighbours are noisy, and one that does not read costs nothing: it stalls,
resumes where it was, and is closed only when the history has passed it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Self

import attrs

from kplane_core.cacher.events import CacheEvent
from kplane_core.errors import KplaneError
from kplane_core.storage.interface import EventType, StoredObject, WatchEvent
from kplane_core.storage.selection import Predicate

if TYPE_CHECKING:
    from kplane_core.cacher.scopes import Place, Scopes

_BATCH = 1_000
_ENDED: Sequence[WatchEvent] = ()


@attrs.frozen
class WatchPlan:
    """What a watcher wants, worked out once.

    Attributes:
        start: first key, inclusive.
        end: first key not watched.
        place: where it is filed in its scope.
        predicate: the selector.
        after: live events up to this revision are not delivered.
        bookmarks: whether it wants bookmarks.
        end_bookmark: the revision of the bookmark that ends the initial events; 0 for none.
        deadline: loop time at which the watch ends; None for never.
    """

    start: str
    end: str
    place: "Place"
    predicate: Predicate
    after: int
    bookmarks: bool
    end_bookmark: int = 0
    deadline: float | None = None


class CacheWatch:
    """A watch served by the cache; see `Watch`.

    Args:
        plan: what it wants.
        scopes: the watchers of its lane.
        owner: what it needs of the cache.
        initial: objects that come first as ADDED.
        cursor: position of the first live event, None for "whatever comes next".
    """

    __slots__ = (
        "_cursor",
        "_deadline_handle",
        "_due_bookmark",
        "_ended",
        "_error",
        "_given",
        "_initial",
        "_initial_at",
        "_owner",
        "_ready",
        "_scopes",
        "_sees",
        "_stopped_at",
        "_waiter",
        "next_bookmark",
        "plan",
    )

    def __init__(
        self,
        plan: WatchPlan,
        scopes: "Scopes",
        owner: "WatchOwner",
        *,
        initial: Sequence[StoredObject] = (),
        cursor: int | None = None,
    ) -> None:
        self.plan = plan
        self.next_bookmark: float | None = None
        self._scopes = scopes
        self._owner = owner
        self._sees = owner.view(plan.predicate)
        self._stopped_at: int | None = None
        self._initial = initial
        self._initial_at = 0
        self._cursor = cursor
        self._given = 0
        self._ready: list[WatchEvent] = []
        self._due_bookmark = False
        self._error: KplaneError | None = None
        self._ended = False
        self._waiter: asyncio.Future[None] | None = None
        self._deadline_handle: asyncio.TimerHandle | None = None
        if plan.deadline is not None:
            self._deadline_handle = asyncio.get_running_loop().call_at(plan.deadline, self.stop)

    @property
    def place(self) -> "Place":
        """Where the watcher is filed in its scope."""
        return self.plan.place

    @property
    def scopes(self) -> "Scopes":
        """The register that it stands in."""
        return self._scopes

    def offer(self, position: int) -> None:
        """Note that the event at `position` of the lane may be for this watcher."""
        if self._cursor is None:
            self._cursor = position
            if self._waiter is not None:
                self._owner.wake_soon(self)

    def bookmark_due(self) -> None:
        """Send a bookmark once everything before it was read."""
        self._due_bookmark = True
        self.wake()

    def wake(self) -> None:
        """Let a waiting `batch` look again."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def batch(self) -> Sequence[WatchEvent]:
        """Return all events that are ready, waiting for at least one; empty once the watch has ended."""
        if self._ready:
            # Left over from a reader that took events one by one.
            left, self._ready = self._ready[::-1], []
            return left
        while True:
            events = self._initial_events() or self._live_events()
            if events:
                return events
            if self._ended:
                return _ENDED
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

    def _initial_events(self) -> Sequence[WatchEvent]:
        if self._initial_at >= len(self._initial):
            if self.plan.end_bookmark and not self._given:
                return [self._give_end_bookmark()]
            return _ENDED
        chunk = self._initial[self._initial_at : self._initial_at + _BATCH]
        self._initial_at += len(chunk)
        events = [WatchEvent(EventType.ADDED, found) for found in chunk]
        if self._initial_at >= len(self._initial):
            self._initial, self._initial_at = (), 0
            if self.plan.end_bookmark:
                events.append(self._give_end_bookmark())
        return events

    def _give_end_bookmark(self) -> WatchEvent:
        self._given = self.plan.end_bookmark
        return self._owner.bookmark(self.plan.end_bookmark, initial_events_end=True)

    def _live_events(self) -> Sequence[WatchEvent]:
        events: list[WatchEvent] = []
        while self._cursor is not None and len(events) < _BATCH:
            lane = self._scopes.lane
            if self._cursor < lane.start:
                # What was missed is gone: the client comes back with its last revision and gets 410.
                self._owner.terminated(self)
                return _ENDED
            last = lane.end if self._stopped_at is None else self._stopped_at
            changes = lane.events(self._cursor, min(_BATCH, last - self._cursor))
            self._cursor = self._cursor + len(changes) if self._cursor + len(changes) < last else None
            self._convert(changes, events)
        if self._cursor is None and self._error is not None:
            events.append(WatchEvent(EventType.ERROR, error=self._error))
            self._error = None
        elif self._cursor is None and self._due_bookmark and not self._ended:
            self._due_bookmark = False
            if (revision := self._owner.revision) >= max(self.plan.after, self._given):
                self._given = revision
                events.append(self._owner.bookmark(revision))
        return events

    def _convert(self, changes: Sequence[CacheEvent], events: list[WatchEvent]) -> None:
        plan, sees = self.plan, self._sees
        start, end, after = plan.start, plan.end, plan.after
        for change in changes:
            if change.revision <= after or not start <= change.key < end:
                continue
            event = change.told if sees is None else sees(change)
            if event is not None:
                events.append(event)

    def fail(self, error: KplaneError) -> None:
        """Make `error` the last event, after what is already due."""
        if not self._ended:
            self._error = error
            self.stop()

    def stop(self) -> None:
        """End the watch soon; idempotent. What was already due may still be read."""
        if self._ended:
            return
        self._ended = True
        self._stopped_at = self._scopes.lane.end
        self._due_bookmark = False
        if self._deadline_handle is not None:
            self._deadline_handle.cancel()
        self._scopes.remove(self)
        self._owner.forget(self)
        self.wake()

    def drop(self) -> None:
        """End the watch at once: nothing that it missed could be told in order."""
        self._initial, self._initial_at, self._cursor = (), 0, None
        self.stop()

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
        self.stop()


@attrs.frozen
class WatchOwner:
    """What a watcher needs of its cache.

    Attributes:
        current: tells the revision up to which events were dispatched.
        view: returns what a selector makes of a change, or None for the selector that sees all.
        wake_soon: wakes the watcher at the end of this turn.
        terminated: is told of a watcher that the history has passed.
        forget: is told of a watcher that has ended.
        bookmark: builds a bookmark.
    """

    current: Callable[[], int]
    view: Callable[[Predicate], Callable[[CacheEvent], WatchEvent | None] | None]
    wake_soon: Callable[[CacheWatch], None]
    terminated: Callable[[CacheWatch], None]
    forget: Callable[[CacheWatch], None]
    bookmark: Callable[..., WatchEvent]

    @property
    def revision(self) -> int:
        """The revision up to which events were dispatched."""
        return self.current()
