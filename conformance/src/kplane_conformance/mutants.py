"""Engines that are wrong on purpose, each in one way that real databases have been wrong in.

A suite that lets one of them through proves nothing, so each names the case that must fail on it.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

import attrs

from kplane_conformance.harness import Harness
from kplane_core.engine.factory import Connection, EngineConnection
from kplane_core.engine.interface import Conflict, Engine, EngineEvent, EngineWatch, Page, Read, Written


class _Wrapped:
    """Delegates everything to what it wraps."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _Watch(_Wrapped):
    """A watch whose batches go through a function.

    Args:
        inner: the watch.
        change: what becomes of a batch.
    """

    def __init__(self, inner: EngineWatch, change: Callable[[Sequence[EngineEvent]], Sequence[EngineEvent]]) -> None:
        super().__init__(inner)
        self._change = change

    async def batch(self) -> Sequence[EngineEvent]:
        while True:
            batch: Sequence[EngineEvent] = await self._inner.batch()
            changed = self._change(batch) if batch else batch
            if changed or not batch:
                return changed


class _WatchMutant(_Wrapped):
    """An engine whose watches are wrong in `change`."""

    async def watch(self, start: str, end: str, **options: Any) -> Any:
        return _Watch(await self._inner.watch(start, end, **options), self.change)

    def change(self, batch: Sequence[EngineEvent]) -> Sequence[EngineEvent]:
        raise NotImplementedError


class ReorderedEvents(_WatchMutant):
    """Delivers the last two changes of a batch in the wrong order."""

    def change(self, batch: Sequence[EngineEvent]) -> Sequence[EngineEvent]:
        """Swap the last two."""
        return [*batch[:-2], *reversed(batch[-2:])]


class LostIdentity(_WatchMutant):
    """Tells of changes without what was there before, so that nobody knows what was deleted."""

    def change(self, batch: Sequence[EngineEvent]) -> Sequence[EngineEvent]:
        """Leave out the records before."""
        return [EngineEvent(one.key, one.revision, one.value, None, one.created) for one in batch]


class ReusedRevision(_Wrapped):
    """Gives every second write the revision of the one before, as a clock that ticks too slowly does."""

    def __init__(self, inner: Engine) -> None:
        super().__init__(inner)
        self._last: Written | None = None

    async def write(self, key: str, value: bytes | None, **options: Any) -> Written | Conflict:
        """Write, and sometimes report an old revision."""
        answer: Written | Conflict = await self._inner.write(key, value, **options)
        if isinstance(answer, Conflict):
            return answer
        shown, self._last = self._last or answer, None if self._last else answer
        return shown


class EventLostAtCompaction(_WatchMutant):
    """Loses the deletion that stands at the very revision of a compaction."""

    def __init__(self, inner: Engine) -> None:
        super().__init__(inner)
        self._floor = 0

    async def compact(self, revision: int) -> None:
        """Compact, and remember where."""
        await self._inner.compact(revision)
        self._floor = revision

    def change(self, batch: Sequence[EngineEvent]) -> Sequence[EngineEvent]:
        """Leave out the deletion at the floor."""
        return [event for event in batch if event.value is not None or event.revision != self._floor]


class LeakedTTL(_Wrapped):
    """Lets the time to live of a key's first write go on after a refresh."""

    def __init__(self, inner: Engine) -> None:
        super().__init__(inner)
        self._timed: set[str] = set()

    async def write(self, key: str, value: bytes | None, *, expect: int, ttl: int | None = None) -> Written | Conflict:
        """Write, but leave a time to live alone that is already running."""
        refreshed = bool(ttl) and expect != 0 and key in self._timed
        if ttl:
            self._timed.add(key)
        answer: Written | Conflict = await self._inner.write(key, value, expect=expect, ttl=None if refreshed else ttl)
        return answer


class NoBoundary(_Wrapped):
    """Takes a directory for everything that begins like its name: cluster c1 holds cluster c10."""

    async def scan(self, start: str, end: str, **options: Any) -> Page:
        """Scan too much."""
        page: Page = await self._inner.scan(*_too_wide(start, end), **options)
        return page

    async def watch(self, start: str, end: str, **options: Any) -> EngineWatch:
        """Watch too much."""
        watch: EngineWatch = await self._inner.watch(*_too_wide(start, end), **options)
        return watch


def _too_wide(start: str, end: str) -> tuple[str, str]:
    return (start[:-1], start[:-1] + "\U0010ffff") if start.endswith("/") else (start, end)


class TwoSnapshots(_Wrapped):
    """Reads the rows of a scan first and the revision that it reports a little later."""

    async def scan(self, start: str, end: str, *, at: int = 0, limit: int = 0, count: bool = False) -> Page:
        """Scan, let others write, and report the revision after that."""
        page: Page = await self._inner.scan(start, end, at=at, limit=limit, count=count)
        if at:
            return page
        for _ in range(3):
            await asyncio.sleep(0)
        return Page(page.records, await self._inner.revision(), page.more, page.total)


class OvertakingBookmark(_Wrapped):
    """Sends a progress mark before the changes that it covers."""

    async def watch(self, start: str, end: str, *, after: int, progress: bool = False) -> Any:
        """Open a watch that is wrong where marks were asked for."""
        watch = await self._inner.watch(start, end, after=after, progress=progress)
        return _Watch(watch, self._hurry) if progress else watch

    def _hurry(self, batch: Sequence[EngineEvent]) -> Sequence[EngineEvent]:
        return [EngineEvent("", batch[-1].revision), *batch]


class StaleReads(_Wrapped):
    """Answers every third read with what an earlier read of the key found, as a replica that lags does."""

    def __init__(self, inner: Engine) -> None:
        super().__init__(inner)
        self._found: dict[str, Read] = {}
        self._count = 0

    async def read(self, key: str, *, at: int = 0) -> Read:
        """Read, sometimes from memory."""
        self._count += 1
        answer: Read = await self._inner.read(key, at=at)
        if not at and not self._count % 3:
            return self._found.get(key, answer)
        self._found[key] = answer
        return answer


@attrs.frozen
class Mutant:
    """An engine that is wrong, and the case that must notice.

    Attributes:
        name: what it is called in tests.
        wrap: makes a right engine wrong.
        killed_by: ids of leaf cases, each of which must fail on it.
    """

    name: str
    wrap: Callable[[Engine], Any]
    killed_by: tuple[str, ...]


MUTANTS: Final = (
    Mutant("reordered-events", ReorderedEvents, ("engine.watch.order", "D24")),
    Mutant("lost-identity", LostIdentity, ("engine.watch.changes", "D14")),
    Mutant("reused-revision", ReusedRevision, ("engine.write.atomic", "Model")),
    Mutant("event-lost-at-compaction", EventLostAtCompaction, ("engine.watch.compaction-boundary", "D10")),
    Mutant("leaked-ttl", LeakedTTL, ("engine.ttl.refreshed", "D38.watched")),
    Mutant("no-boundary", NoBoundary, ("engine.scan.cluster-boundary", "engine.watch.range", "D31.clusters", "Model")),
    Mutant("two-snapshots", TwoSnapshots, ("engine.scan.one-snapshot", "D39")),
    Mutant("overtaking-bookmark", OvertakingBookmark, ("engine.watch.progress", "D27.overtaking")),
    Mutant("stale-reads", StaleReads, ("Linearizability", "engine.read.linearizable")),
)


class MutantHarness(_Wrapped):
    """A harness whose connections go to a mutant of its engine.

    Args:
        harness: the harness of the right engine.
        mutant: what becomes of it.
    """

    def __init__(self, harness: Harness, mutant: Mutant) -> None:
        super().__init__(harness)
        self._mutant = mutant

    async def connect(self) -> Connection:
        """Return a connection to the mutant.

        Raises:
            TypeError: the harness's connections are not built on an engine.
        """
        connection = await self._inner.connect()
        if not isinstance(connection, EngineConnection):
            raise TypeError("only an engine can be mutated")
        return MutantConnection(connection, self._mutant.wrap(connection.engine))


class MutantConnection(EngineConnection):
    """Stores on a mutant; closes the connection that it was made from.

    Args:
        right: the connection to the right engine.
        engine: the mutant of its engine.
    """

    def __init__(self, right: EngineConnection, engine: Engine) -> None:
        super().__init__(engine)
        self._right = right

    async def aclose(self) -> None:
        """Close both."""
        await super().aclose()
        await self._right.aclose()
