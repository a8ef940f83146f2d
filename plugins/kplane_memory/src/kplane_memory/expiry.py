"""Who expires when.

The table of deadlines is the truth; the heap only finds the next one. A heap entry counts only while the table still
holds the same deadline for its key, so a refresh, a clearing or a deletion that committed first always wins over the
expiry, and no expiry happens twice.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush

_SLACK = 64  # stale heap entries that are not worth a rebuild


class Expiry:
    """The deadlines of the keys that have a time to live.

    Args:
        clock: seconds, never going backwards.
    """

    __slots__ = ("_clock", "_deadlines", "_heap")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._deadlines: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return len(self._deadlines)

    def set(self, key: str, seconds: int) -> None:
        """Let `key` expire `seconds` from now, whatever was set before."""
        deadline = self._clock() + seconds
        self._deadlines[key] = deadline
        heappush(self._heap, (deadline, key))
        # A lease that is refreshed often leaves one stale entry per refresh; they must not pile up.
        if len(self._heap) > 2 * len(self._deadlines) + _SLACK:
            self._heap = [(deadline, key) for key, deadline in self._deadlines.items()]
            heapify(self._heap)

    def clear(self, key: str) -> None:
        """Let `key` live for ever."""
        self._deadlines.pop(key, None)

    def due(self) -> list[str]:
        """Take out the keys whose time has come, the oldest deadline first."""
        heap = self._heap
        if not heap:
            return []
        now = self._clock()
        keys = []
        while heap and heap[0][0] <= now:
            deadline, key = heappop(heap)
            if self._deadlines.get(key) == deadline:
                del self._deadlines[key]
                keys.append(key)
        return keys

    def wait(self) -> float | None:
        """Return the seconds until the next deadline, None when there is none."""
        heap = self._heap
        while heap and self._deadlines.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        return max(0.0, heap[0][0] - self._clock()) if heap else None
