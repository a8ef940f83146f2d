"""What was committed, in order, as far back as it is kept.

Revisions have no gaps, so the log is a queue of events of which the last has the newest revision. The history is also
filed by directory (the key up to its last slash): to resume a watch or to read the past of one cluster visits the
events of that cluster, not those of its busy neighbours.
"""

from collections import deque

from kplane_core.engine.interface import EngineEvent
from kplane_core.ordered import SortedKeys

_SHORT = 64  # so few events are walked faster than looked up
_WALKED_PER_LOOKUP = 8  # events that are passed over in the time that it takes to open one more directory


class _Lane:
    """The kept events of one directory; a list with a moving start, because a deque starts at 600 bytes."""

    __slots__ = ("events", "first")

    def __init__(self) -> None:
        self.events: list[EngineEvent | None] = []
        self.first = 0

    def drop_oldest(self) -> bool:
        """Forget the oldest event and return whether any is left."""
        self.events[self.first] = None
        self.first += 1
        if self.first * 2 > len(self.events):
            del self.events[: self.first]
            self.first = 0
        return bool(self.events)

    def since(self, revision: int) -> list[EngineEvent]:
        """Return the events after `revision`, the newest first."""
        found = []
        for event in reversed(self.events):
            if event is None or event.revision <= revision:
                break
            found.append(event)
        return found


class History:
    """The log of events, bounded in number and in bytes.

    Attributes:
        floor: reads at it and watches after `floor - 1` are served, older ones are not; 0 while nothing was dropped.
        bytes: keys and values of the superseded versions that the log still holds.

    Args:
        max_events: at most so many events are kept; the floor rises when more come.
        max_bytes: the same for `bytes`; the newest event is kept in any case.
    """

    __slots__ = ("_directories", "_lanes", "_log", "_max_bytes", "_overflow", "bytes", "floor", "max_events")

    def __init__(self, max_events: int, max_bytes: int) -> None:
        self.floor = 0
        self.bytes = 0
        self.max_events = max_events
        self._max_bytes = max_bytes
        self._overflow = 0
        self._log: deque[EngineEvent] = deque()
        self._lanes: dict[str, _Lane] = {}
        self._directories = SortedKeys()

    def __len__(self) -> int:
        return len(self._log)

    @property
    def overflow(self) -> int:
        """The revision below which events do not fit (those between it and `floor` went by compaction)."""
        return self._overflow

    def append(self, event: EngineEvent) -> None:
        """Add the newest event and drop what no longer fits."""
        self._log.append(event)
        previous = event.previous
        if previous is not None:
            self.bytes += len(previous.key) + len(previous.value)
        directory = event.key[: event.key.rfind("/") + 1]
        lane = self._lanes.get(directory)
        if lane is None:
            lane = self._lanes[directory] = _Lane()
            self._directories.add(directory)
        lane.events.append(event)
        while len(self._log) > self.max_events or (self.bytes > self._max_bytes and len(self._log) > 1):
            self._drop_oldest()
            self.floor = self._overflow = self._log[0].revision
        # Counted from the newest revision, because a compaction makes room in the log but not in a slow watch.
        self._overflow = max(self._overflow, event.revision - self.max_events + 1)

    def compact(self, revision: int) -> None:
        """Drop the events before `revision`, which is above the floor and not beyond the newest."""
        self.floor = revision
        while self._log and self._log[0].revision < revision:
            self._drop_oldest()

    def since(self, revision: int, start: str, end: str) -> list[EngineEvent]:
        """Return the events after `revision` (which is not below the floor - 1) on start <= key < end, in order."""
        behind = self._log[-1].revision - revision if self._log else 0
        lanes = self._lanes_between(start, end, behind // _WALKED_PER_LOOKUP) if behind > _SHORT else None
        if lanes is None:
            found = []
            for event in reversed(self._log):
                if event.revision <= revision:
                    break
                if start <= event.key < end:
                    found.append(event)
            found.reverse()
            return found
        found = [event for lane in lanes for event in lane.since(revision) if start <= event.key < end]
        found.sort(key=_revision_of)
        return found

    def _lanes_between(self, start: str, end: str, at_most: int) -> list[_Lane] | None:
        """Return the directories that may hold keys of the range; None when they are too many to be worth it."""
        directories = self._directories.between(start, end, at_most + 1)
        if len(directories) > at_most:
            return None
        return [self._lanes[directory] for directory in directories] + self._lanes_above(start)

    def _lanes_above(self, start: str) -> list[_Lane]:
        """Return the lanes of the directories above `start`: from `/a/b` on, `/a/` holds keys such as `/a/c`."""
        lanes = []
        cut = len(start)
        while cut > 0:
            cut = start.rfind("/", 0, cut - 1) + 1
            if (lane := self._lanes.get(start[:cut])) is not None:
                lanes.append(lane)
        return lanes

    def _drop_oldest(self) -> None:
        event = self._log.popleft()
        previous = event.previous
        if previous is not None:
            self.bytes -= len(previous.key) + len(previous.value)
        directory = event.key[: event.key.rfind("/") + 1]
        if not self._lanes[directory].drop_oldest():
            del self._lanes[directory]
            self._directories.remove(directory)


def _revision_of(event: EngineEvent) -> int:
    return event.revision
