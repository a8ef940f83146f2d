"""A backend that can do nothing optional: whatever the suite asks of it in vain lacks a guard.

It has two forms. Stores without an engine that anybody could see have nothing at all. An engine without a time to live,
compaction and progress has the rest, because kplane makes it of any engine. Neither gives a hook. It is no backend for
anybody; tests hold it to the suite and look at what fails.
"""

from collections.abc import Sequence
from typing import Final

import attrs

from kplane_core.engine.factory import Connection, EngineConnection
from kplane_core.engine.fanout import Wakeup, WatchIndex
from kplane_core.engine.interface import (
    Compacted,
    Conflict,
    EngineEvent,
    EngineUnreachable,
    FutureRevision,
    Page,
    Read,
    Record,
    Written,
)
from kplane_core.engine.store import EngineStore
from kplane_core.errors import BadRequest, UsageError
from kplane_core.ordered import SortedKeys
from kplane_core.plugins.backends import Backend, Backends
from kplane_core.plugins.capabilities import Capability, Support, Supported, Unsupported
from kplane_core.plugins.hookspecs import hookimpl
from kplane_core.storage.interface import ListOptions, ObjectList, Store, Watch
from kplane_core.storage.resource import Resource

_NONE: Final = Unsupported("it has nothing that is optional")

NOTHING: Final[dict[Capability, Support]] = dict.fromkeys(Capability, _NONE)
"""What the stores declare."""

FROM_ENGINE: Final[dict[Capability, Support]] = {
    **dict.fromkeys(Capability, Supported("what an engine owes, and what kplane makes of it")),
    **dict.fromkeys(
        (
            Capability.TTL,
            Capability.COMPACTION,
            Capability.PROGRESS_NOTIFY,
            Capability.PERSISTENCE,
            Capability.MULTI_WRITER,
        ),
        _NONE,
    ),
}
"""What the engine declares."""


class BareWatch:
    """A watch that collects what happens while it is open; made by `BareEngine.watch`."""

    def __init__(self, owner: "BareEngine", after: int, told: Sequence[EngineEvent]) -> None:
        self._owner = owner
        self._after = after
        self._pending = list(told)
        self._reader = Wakeup()
        self._closed = False

    def offer(self, event: EngineEvent) -> None:
        """Add an event of the range."""
        if event.revision > self._after:
            self._pending.append(event)
            self._reader.wake()

    async def batch(self) -> Sequence[EngineEvent]:
        """Wait for events and return all that are ready; empty once closed."""
        while not self._pending and not self._closed:
            await self._reader.wait()
        events, self._pending = self._pending, []
        return events

    def close(self) -> None:
        """End the watch; idempotent."""
        self._closed = True
        self._pending = []
        self._owner.forget(self)
        self._reader.wake()

    async def aclose(self) -> None:
        """Do what `close` does."""
        self.close()


@attrs.define
class BareData:
    """What several engines share, as connections share a database.

    Attributes:
        past: whether earlier states can be read, and watches can begin in them.
        log: every change, in the order of their revisions.
        watches: the open ones, which hear of each change.
    """

    past: bool
    log: list[EngineEvent] = attrs.field(factory=list)
    watches: WatchIndex[BareWatch] = attrs.field(factory=WatchIndex)
    _versions: dict[str, list[tuple[int, Record | None]]] = attrs.field(factory=dict)
    _keys: SortedKeys = attrs.field(factory=SortedKeys)

    @property
    def revision(self) -> int:
        """The newest revision; a new database has 1, as nothing may have 0."""
        return len(self.log) + 1

    def state(self, start: str, end: str, at: int) -> list[Record]:
        """Return the records of a range at a revision."""
        found = []
        for key in self._keys.between(start, end):
            record = next((record for revision, record in reversed(self._versions[key]) if revision <= at), None)
            if record is not None:
                found.append(record)
        return found

    def add(self, key: str, value: bytes | None, before: Record | None) -> int:
        """Write a version of a key, tell the watches, and return the revision."""
        revision = self.revision + 1
        created = before.create_revision if before else revision
        if key not in self._versions:
            self._keys.add(key)
        record = None if value is None else Record(key, value, created, revision)
        self._versions.setdefault(key, []).append((revision, record))
        event = EngineEvent(key, revision, value, before, before is None)
        self.log.append(event)
        for watch in self.watches.holding(key):
            watch.offer(event)
        return revision


class BareEngine:
    """Ten methods over a log in memory.

    Attributes:
        watch_progress: the watch cache is not to wait for progress marks.

    Args:
        data: the log.
    """

    watch_progress = False

    def __init__(self, data: BareData) -> None:
        self._data = data
        self._mine: set[BareWatch] = set()
        self._closed = False

    async def read(self, key: str, *, at: int = 0) -> Read:
        """Return the record of a key."""
        page = await self.scan(key, key + "\0", at=at)
        return Read(page.records[0] if page.records else None, page.revision)

    async def scan(self, start: str, end: str, *, at: int = 0, limit: int = 0, count: bool = False) -> Page:
        """Return the records of a range."""
        at = self._allowed(at)
        records = self._data.state(start, end, at)
        shown = records[:limit] if limit else records
        return Page(shown, at, len(shown) < len(records), len(records) if count else 0)

    async def write(self, key: str, value: bytes | None, *, expect: int, ttl: int | None = None) -> Written | Conflict:
        """Compare-and-set one key; a time to live is taken and has no effect."""
        del ttl
        before = (await self.read(key)).record
        if expect != (before.mod_revision if before else 0) or (before is None and value is None):
            return Conflict(before, self._data.revision)
        return Written(self._data.add(key, value, before))

    async def watch(self, start: str, end: str, *, after: int, progress: bool = False) -> BareWatch:
        """Open a watch; there are no progress marks."""
        del progress
        self._allowed(min(after, self._data.revision))
        told = [event for event in self._data.log[after - 1 :] if start <= event.key < end]
        watch = BareWatch(self, after, told)
        self._data.watches.add(watch, start, end)
        self._mine.add(watch)
        return watch

    def forget(self, watch: BareWatch) -> None:
        """Tell a watch nothing more."""
        self._data.watches.discard(watch)
        self._mine.discard(watch)

    async def revision(self) -> int:
        """Return the newest revision."""
        return self._allowed(0)

    async def request_progress(self) -> None:
        """Do nothing."""
        self._allowed(0)

    async def compact(self, revision: int) -> None:
        """Refuse.

        Raises:
            UsageError: always.
        """
        raise UsageError(f"revision {revision} cannot be compacted: this engine does not compact")

    async def compacted(self) -> int:
        """Return 0: nothing was ever compacted."""
        return 0

    async def check(self) -> None:
        """Return while the engine is open."""
        self._allowed(0)

    async def size(self) -> int:
        """Return the bytes of all keys and values that were ever written."""
        self._allowed(0)
        return sum(len(event.key) + len(event.value or b"") for event in self._data.log)

    async def aclose(self) -> None:
        """End this engine's watches; afterwards nothing works any more."""
        self._closed = True
        for watch in list(self._mine):
            watch.close()

    def _allowed(self, at: int) -> int:
        """Return the revision that is meant, if it can be read."""
        newest = self._data.revision
        if self._closed:
            raise EngineUnreachable("this engine is closed")
        if at > newest:
            raise FutureRevision(at, newest)
        if at and at < newest and not self._data.past:
            raise Compacted(at, newest)
        return at or newest


class BareStore(EngineStore):
    """A store that refuses what it does not have, as a backend without an engine would."""

    async def get_list(self, key: str, options: ListOptions | None = None) -> ObjectList:
        """List everything in one page; see `Store.get_list`."""
        options = options or ListOptions()
        whole = attrs.evolve(options, predicate=attrs.evolve(options.predicate, limit=0))
        return await super().get_list(key, whole)

    async def watch(self, key: str, options: ListOptions | None = None) -> Watch:
        """Watch without initial events; see `Store.watch`.

        Raises:
            BadRequest: they were demanded.
        """
        if options is not None and options.send_initial_events:
            raise BadRequest("sendInitialEvents is not supported by this backend")
        return await super().watch(key, options)


class BareConnection:
    """Stores on a bare engine that nobody sees; see `Connection`.

    Args:
        engine: where the stores keep their objects.
    """

    def __init__(self, engine: BareEngine) -> None:
        self._engine = engine

    def store(self, resource: Resource) -> Store:
        """Return a store for a resource."""
        return BareStore(self._engine, resource)

    async def check_health(self) -> None:
        """Return while the engine is open."""
        await self._engine.check()

    async def check_ready(self) -> None:
        """Return while the engine is open."""
        await self._engine.check()

    async def size(self) -> int:
        """Return the bytes of all keys and values."""
        return await self._engine.size()

    async def aclose(self) -> None:
        """Close the engine."""
        await self._engine.aclose()


class BareHarness:
    """Stores without an engine, and no hook.

    Attributes:
        name: the backend's name.
        silence: seconds without an event after which there is none.
        past: whether the engine knows earlier states.
    """

    name = "bare"
    silence = 0.05
    past = False

    def __init__(self) -> None:
        self._data = BareData(self.past)

    async def start(self) -> None:
        """Begin with an empty log."""
        self._data = BareData(self.past)

    async def stop(self) -> None:
        """Do nothing: the connections were closed."""

    async def connect(self) -> Connection:
        """Return another connection to the one log."""
        return BareConnection(BareEngine(self._data))


class BareEngineHarness(BareHarness):
    """The engine itself, and no hook."""

    capabilities = FROM_ENGINE
    past = True

    async def connect(self) -> Connection:
        """Return another connection to the one log."""
        return EngineConnection(BareEngine(self._data))


async def connect(_options: object) -> Connection:
    """Return stores on a log of their own, as each process of a backend without persistence has it."""
    return BareConnection(BareEngine(BareData(past=False)))


@attrs.frozen
class BareOptions:
    """It has no options."""


@hookimpl
def kplane_register_backends(registry: Backends) -> None:
    """Register the backend, where a test installs it."""
    registry.register(
        Backend(
            name="bare",
            summary="nothing that is optional",
            options=BareOptions,
            capabilities=NOTHING,
            connect=connect,
        )
    )
