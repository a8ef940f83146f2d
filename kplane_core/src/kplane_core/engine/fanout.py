"""For backends that hand out events themselves: which open watch hears of which key, and where its reader waits.

A database with watches of its own, such as etcd, needs only the waiting. One without follows its log once per process
and hands each change to the watches of its key. There may be tens of thousands of them, one per cluster and resource,
of which a change concerns three: the others are not even looked at.
"""

import asyncio
from collections import Counter
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

from kplane_core.storage.keys import prefix_end

W = TypeVar("W", bound=Hashable)


def directory_of(start: str, end: str) -> str:
    """Return the deepest directory that holds every key of start <= key < end; empty when there is none.

    A directory is a prefix that ends in a slash. All keys below `/a/b/` lie between it and `/a/b0`, as `0` follows
    the slash.

    Args:
        start: first key of the range, inclusive.
        end: first key after the range.
    """
    cut = start.rfind("/") + 1
    while cut and end > prefix_end(start[:cut]):
        cut = start.rfind("/", 0, cut - 1) + 1
    return start[:cut]


class _Shelf(Generic[W]):
    """The watches that are filed under one directory: those of all its keys, and those that have to be asked."""

    __slots__ = ("some", "whole")

    def __init__(self) -> None:
        self.whole: dict[W, None] = {}
        self.some: dict[W, None] = {}


class WatchIndex(Generic[W]):
    """The open watches, filed by their ranges: it finds those of a key without asking the others.

    A watch of one key is filed under it, every other one under the deepest directory that holds its range. An event
    looks under its key and under the directories above it. Iterating yields the watches in the order of their opening;
    whoever opens or closes watches meanwhile iterates over a copy.
    """

    __slots__ = ("_keys", "_lengths", "_longest", "_ranges", "_shelves", "_shortest")

    def __init__(self) -> None:
        self._ranges: dict[W, tuple[str, str]] = {}
        self._keys: dict[str, dict[W, None]] = {}
        self._shelves: dict[str, _Shelf[W]] = {}
        # No event looks under a directory that is shorter or longer than all that have a shelf.
        self._lengths: Counter[int] = Counter()
        self._shortest, self._longest = 0, -1

    def __len__(self) -> int:
        return len(self._ranges)

    def __iter__(self) -> Iterator[W]:
        return iter(self._ranges)

    def __contains__(self, watch: object) -> bool:
        return watch in self._ranges

    def add(self, watch: W, start: str, end: str) -> None:
        """File a watch.

        Args:
            watch: what `holding` is to return; not filed yet.
            start: first key of its range, inclusive.
            end: first key not watched.
        """
        self._ranges[watch] = (start, end)
        if _is_one_key(start, end):
            self._keys.setdefault(start, {})[watch] = None
            return
        directory = directory_of(start, end)
        shelf = self._shelves.get(directory)
        if shelf is None:
            shelf = self._shelves[directory] = _Shelf()
            self._count(directory, 1)
        _part(shelf, directory, start, end)[watch] = None

    def discard(self, watch: W) -> None:
        """Forget a watch; nothing happens when it is not filed.

        Args:
            watch: the watch.
        """
        if watch not in self._ranges:
            return
        start, end = self._ranges.pop(watch)
        if _is_one_key(start, end):
            del self._keys[start][watch]
            if not self._keys[start]:
                del self._keys[start]
            return
        directory = directory_of(start, end)
        shelf = self._shelves[directory]
        del _part(shelf, directory, start, end)[watch]
        if not shelf.whole and not shelf.some:
            del self._shelves[directory]
            self._count(directory, -1)

    def holding(self, key: str) -> list[W]:
        """Return the watches whose range holds a key.

        Args:
            key: the key of an event.

        Returns:
            A list of the caller's own: watches may be opened and closed while it goes through it.
        """
        found = list(self._keys.get(key, ()))
        shelves, longest = self._shelves, self._longest
        cut = key.find("/", self._shortest - 1) + 1 if self._shortest else 0
        while cut <= longest:
            shelf = shelves.get(key[:cut])
            if shelf is not None:
                found += shelf.whole
                if shelf.some:
                    ranges = self._ranges
                    found += [watch for watch in shelf.some if ranges[watch][0] <= key < ranges[watch][1]]
            cut = key.find("/", cut) + 1
            if not cut:
                break
        return found

    def _count(self, directory: str, change: int) -> None:
        length = len(directory)
        self._lengths[length] += change
        if not self._lengths[length]:
            del self._lengths[length]
        self._shortest, self._longest = min(self._lengths, default=0), max(self._lengths, default=-1)


def _is_one_key(start: str, end: str) -> bool:
    return end == start + "\0"


def _part(shelf: _Shelf[W], directory: str, start: str, end: str) -> dict[W, None]:
    is_whole = directory and start == directory and end == prefix_end(directory)
    return shelf.whole if is_whole else shelf.some


class Wakeup:
    """Where one task waits until others have something for it.

    The waiting task looks again when it wakes: however often it was woken in one turn of the loop, it runs once and
    takes all that came. A `wake` while nobody waits is not kept, so there must be no await between the look and the
    `wait`.
    """

    __slots__ = ("_waiter",)

    def __init__(self) -> None:
        self._waiter: asyncio.Future[None] | None = None

    async def wait(self) -> None:
        """Wait for the next `wake`.

        Raises:
            RuntimeError: another task waits already.
        """
        if self._waiter is not None:
            raise RuntimeError("another task already waits for this watch; a watch has one reader")
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def wake(self) -> None:
        """Wake the waiting task, if there is one."""
        # The future stays set until the task has run, hence the second check.
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
