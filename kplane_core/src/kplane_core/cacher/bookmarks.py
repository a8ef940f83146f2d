"""When watchers get bookmarks: about once a minute, and once shortly before their deadline.

One timer per cache serves all watchers; they wait in buckets of one second, so a tick touches only those that are due.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kplane_core.cacher.watching import CacheWatch

PERIOD = 60.0
BEFORE_DEADLINE = 2.0


class BookmarkSchedule:
    """Which watcher is due when.

    Args:
        clock: loop time.
        period: seconds between two bookmarks of a watcher.
    """

    def __init__(self, clock: Callable[[], float], *, period: float = PERIOD) -> None:
        self._clock = clock
        self._period = period
        self._buckets: dict[int, set[CacheWatch]] = {}
        self._swept = int(clock())

    def add(self, watch: "CacheWatch") -> None:
        """Schedule the next bookmark of a watcher, if one is to come at all."""
        now = self._clock()
        due = now + self._period
        if watch.plan.deadline is not None:
            due = min(due, watch.plan.deadline - BEFORE_DEADLINE)
        if due > now:
            # A second that was swept already comes never again.
            watch.next_bookmark = due = max(due, self._swept)
            self._buckets.setdefault(int(due), set()).add(watch)

    def remove(self, watch: "CacheWatch") -> None:
        """Forget a watcher; idempotent."""
        if watch.next_bookmark is not None:
            bucket = self._buckets.get(int(watch.next_bookmark))
            if bucket is not None:
                bucket.discard(watch)
                if not bucket:
                    del self._buckets[int(watch.next_bookmark)]
            watch.next_bookmark = None

    def tick(self) -> None:
        """Send bookmarks to those that are due, and schedule their next ones."""
        now = int(self._clock())
        for second in (
            range(self._swept, now + 1) if now - self._swept < len(self._buckets) + 1 else sorted(self._buckets)
        ):
            if second > now:
                break
            for watch in self._buckets.pop(second, ()):
                watch.next_bookmark = None
                watch.bookmark_due()
                self.add(watch)
        self._swept = now + 1
