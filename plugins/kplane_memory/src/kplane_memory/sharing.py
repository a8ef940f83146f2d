"""Several connections to one memory engine, as several processes connect to one database server."""

from collections.abc import Sequence

from kplane_core.engine.interface import Conflict, EngineEvent, EngineUnreachable, Page, Read, Written
from kplane_memory.engine import MemoryEngine
from kplane_memory.watching import MemoryWatch


class SharedEngine:
    """A connection to a memory engine: an `Engine` whose `aclose` ends its own watches and leaves the engine open.

    Args:
        engine: what to connect to; whoever made it closes it.
    """

    def __init__(self, engine: MemoryEngine) -> None:
        self._engine = engine
        self._watches: set[SharedWatch] = set()
        self._closed = False

    async def read(self, key: str, *, at: int = 0) -> Read:
        """Do what `MemoryEngine.read` does."""
        return await self._open().read(key, at=at)

    async def scan(self, start: str, end: str, *, at: int = 0, limit: int = 0, count: bool = False) -> Page:
        """Do what `MemoryEngine.scan` does."""
        return await self._open().scan(start, end, at=at, limit=limit, count=count)

    async def write(self, key: str, value: bytes | None, *, expect: int, ttl: int | None = None) -> Written | Conflict:
        """Do what `MemoryEngine.write` does."""
        return await self._open().write(key, value, expect=expect, ttl=ttl)

    async def watch(self, start: str, end: str, *, after: int, progress: bool = False) -> "SharedWatch":
        """Do what `MemoryEngine.watch` does, for as long as this connection is open."""
        watch = SharedWatch(self._watches, await self._open().watch(start, end, after=after, progress=progress))
        self._watches.add(watch)
        return watch

    async def revision(self) -> int:
        """Return the newest committed revision."""
        return await self._open().revision()

    async def request_progress(self) -> None:
        """Do what `MemoryEngine.request_progress` does: all connections' watches get a mark."""
        await self._open().request_progress()

    async def compact(self, revision: int) -> None:
        """Do what `MemoryEngine.compact` does."""
        await self._open().compact(revision)

    async def compacted(self) -> int:
        """Return the compaction revision."""
        return await self._open().compacted()

    async def check(self) -> None:
        """Return unless the connection or the engine was closed."""
        await self._open().check()

    async def size(self) -> int:
        """Do what `MemoryEngine.size` does."""
        return await self._open().size()

    async def aclose(self) -> None:
        """End the watches of this connection; afterwards every other method raises EngineUnreachable."""
        self._closed = True
        for watch in list(self._watches):
            watch.close()

    def _open(self) -> MemoryEngine:
        if self._closed:
            raise EngineUnreachable("this connection to the memory engine is closed")
        return self._engine


class SharedWatch:
    """A watch that its connection knows of while it is open."""

    def __init__(self, siblings: "set[SharedWatch]", watch: MemoryWatch) -> None:
        self._siblings = siblings
        self._watch = watch

    async def batch(self) -> Sequence[EngineEvent]:
        """Do what `MemoryWatch.batch` does."""
        return await self._watch.batch()

    def close(self) -> None:
        """End the watch; idempotent."""
        self._siblings.discard(self)
        self._watch.close()

    async def aclose(self) -> None:
        """Do what `close` does: there is nothing to wait for."""
        self.close()
