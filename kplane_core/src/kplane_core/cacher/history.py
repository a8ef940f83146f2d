"""What happened, per cluster, as far back as it is kept.

A lane is the history of one cluster (and one more lane is that of all clusters together, for those who watch them all).
Each lane has a capacity of its own, so a noisy cluster forgets its own past and nobody else's. Positions in a lane are
counted from its first event ever, so that a cursor stays valid, or is known to be lost, whatever was dropped.
"""

import math
from bisect import bisect_right
from collections.abc import Iterator

from kplane_core.cacher.events import CacheEvent

MIN_CAPACITY = 100
MAX_CAPACITY = 102_400
"""Events that a lane keeps at most, for a window of up to 75 seconds; longer windows may keep more."""
KEPT_IDLE = 8
"""Events that a lane keeps beyond the window: enough for a client that comes back to a quiet cluster."""
_IDLE_WINDOWS = 10
"""Windows after which also those are dropped, so that clusters of the past do not hold on to their objects."""
_WINDOW = 75.0


class Lane:
    """The history of one scope.

    Attributes:
        floor: a watch may start after any revision that is not below this.
        limit: events that are kept at most, however young they are.

    Args:
        floor: the revision of the list that the cache started from.
        window: seconds for which events should be kept.
    """

    __slots__ = ("_base", "_capacity", "_events", "_first", "_window", "floor", "limit")

    def __init__(self, floor: int, window: float) -> None:
        self.floor = floor
        self._window = window
        self._events: list[CacheEvent | None] = []
        self._first = 0
        self._base = 0
        self._capacity = MIN_CAPACITY
        self.limit = MAX_CAPACITY * 2 ** math.ceil(math.log2(max(window / _WINDOW, 1.0)))

    def __len__(self) -> int:
        return len(self._events) - self._first

    @property
    def start(self) -> int:
        """The position of the oldest kept event."""
        return self._base + self._first

    @property
    def end(self) -> int:
        """The position after the newest event."""
        return self._base + len(self._events)

    @property
    def capacity(self) -> int:
        """How many events are kept before the oldest is dropped."""
        return self._capacity

    def append(self, event: CacheEvent) -> int:
        """Add the newest event and return its position."""
        if len(self) >= self._capacity:
            self._make_room(event.time)
        self._events.append(event)
        return self.end - 1

    def after(self, revision: int) -> int | None:
        """Return the position of the first event after `revision`, or None when that past is no longer kept."""
        if revision < self.floor:
            return None
        return self._base + bisect_right(self._events, revision, lo=self._first, key=_revision_of)

    def events(self, position: int, at_most: int) -> list[CacheEvent]:
        """Return the events from `position` on, which must not be below `start`."""
        at = position - self._base
        return self._events[at : at + at_most]  # type: ignore[return-value]  # only dropped places hold None

    def newest_first(self) -> Iterator[CacheEvent]:
        """Iterate over the events from the newest to the oldest."""
        for index in range(len(self._events) - 1, self._first - 1, -1):
            event = self._events[index]
            assert event is not None
            yield event

    def trim(self, now: float) -> None:
        """Drop what is much older than the window, but a few."""
        while len(self) > KEPT_IDLE and now - self._oldest().time > 2 * self._window:
            self._drop_oldest()
        while len(self) and now - self._newest().time > _IDLE_WINDOWS * self._window:
            self._drop_oldest()
        if len(self) * 4 < self._capacity > MIN_CAPACITY:
            self._capacity //= 2

    def forget(self, revision: int) -> None:
        """Drop the events up to and with `revision`."""
        while len(self) and self._oldest().revision <= revision:
            self._drop_oldest()
        self.floor = max(self.floor, revision)

    def _make_room(self, now: float) -> None:
        if now - self._oldest().time < self._window and self._capacity < self.limit:
            self._capacity = min(self._capacity * 2, self.limit)
        else:
            self._drop_oldest()

    def _oldest(self) -> CacheEvent:
        event = self._events[self._first]
        assert event is not None
        return event

    def _newest(self) -> CacheEvent:
        event = self._events[-1]
        assert event is not None
        return event

    def _drop_oldest(self) -> None:
        self.floor = max(self.floor, self._oldest().revision)
        self._events[self._first] = None
        self._first += 1
        if self._first * 2 > len(self._events) + 16:
            del self._events[: self._first]
            self._base += self._first
            self._first = 0


def _revision_of(event: CacheEvent | None) -> int:
    return event.revision if event is not None else 0


class History:
    """All lanes of one cache.

    Args:
        floor: the revision of the list that the cache started from.
        window: seconds for which events should be kept.
    """

    def __init__(self, floor: int, window: float) -> None:
        self._floor = floor
        self._window = window
        self.everything = Lane(floor, window)
        self._lanes: dict[str, Lane] = {}

    def lane(self, cluster: str | None) -> Lane:
        """Return the lane of a cluster, to write to or to follow; None is the one of all clusters."""
        if cluster is None:
            return self.everything
        lane = self._lanes.get(cluster)
        if lane is None:
            lane = self._lanes[cluster] = Lane(self._floor, self._window)
        return lane

    def seen(self, cluster: str | None) -> Lane:
        """Return the lane of a cluster for one look at it; asking for a cluster that is not there keeps nothing."""
        if cluster is None:
            return self.everything
        lane = self._lanes.get(cluster)
        return Lane(self._floor, self._window) if lane is None else lane

    def release(self, cluster: str | None) -> None:
        """Note that nobody follows a lane any more; one in which nothing ever happened is dropped."""
        if cluster is not None and (lane := self._lanes.get(cluster)) is not None and not lane.end:
            del self._lanes[cluster]

    @property
    def lanes(self) -> int:
        """How many clusters have a lane of their own."""
        return len(self._lanes)

    def trim(self, now: float) -> None:
        """Drop what is much older than the window."""
        self.everything.trim(now)
        for lane in self._lanes.values():
            lane.trim(now)

    def forget(self, revision: int) -> None:
        """Drop everything up to and with `revision`."""
        self._floor = max(self._floor, revision)
        self.everything.forget(revision)
        for lane in self._lanes.values():
            lane.forget(revision)

    def __len__(self) -> int:
        return len(self.everything)
