"""What stands between a case and a backend's plain store: a watch cache, clusters, a second handle."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Final, Self, cast

from kplane_conformance.case import View
from kplane_core.cacher import CacherConfig
from kplane_core.errors import KplaneError, TooLargeResourceVersion, Unreachable
from kplane_core.multicluster import ClusterStore, KeyLayout
from kplane_core.storage.interface import (
    DeleteOptions,
    EventType,
    ListOptions,
    ObjectList,
    Store,
    StoredObject,
    UpdateFunc,
    ValidateFunc,
    Watch,
    WatchEvent,
)
from kplane_core.storage.preconditions import Preconditions
from kplane_core.storage.resource import Resource

_CLUSTER: Final = "c1"
_READY_TIMEOUT: Final = 5.0
_READ_TIMEOUT: Final = 0.5
"""Shorter than in production, because some cases ask for what never comes."""
_WRITES: Final = frozenset({"create", "delete", "guaranteed_update"})


class SettledStore(ClusterStore):
    """A cached store whose writers return when the cache has seen what they wrote.

    Reads that may be old then have one right answer, and a case asks for nothing that the contract does not promise.
    """

    async def create(self, key: str, obj: dict[str, Any], *, ttl: int = 0) -> StoredObject:
        """Create, and wait; see `Store.create`."""
        return await self._settled(await super().create(key, obj, ttl=ttl))

    async def delete(
        self,
        key: str,
        *,
        preconditions: Preconditions | None = None,
        validate: ValidateFunc | None = None,
        suggestion: StoredObject | None = None,
        options: DeleteOptions | None = None,
    ) -> StoredObject:
        """Delete, and wait; see `Store.delete`."""
        return await self._settled(
            await super().delete(
                key, preconditions=preconditions, validate=validate, suggestion=suggestion, options=options
            )
        )

    async def guaranteed_update(
        self,
        key: str,
        try_update: UpdateFunc,
        *,
        ignore_not_found: bool = False,
        preconditions: Preconditions | None = None,
        suggestion: StoredObject | None = None,
    ) -> StoredObject:
        """Update, and wait; see `Store.guaranteed_update`."""
        return await self._settled(
            await super().guaranteed_update(
                key,
                try_update,
                ignore_not_found=ignore_not_found,
                preconditions=preconditions,
                suggestion=suggestion,
            )
        )

    async def _settled(self, written: StoredObject) -> StoredObject:
        # A cache that cannot read on is the business of whoever reads next, not of this writer.
        with contextlib.suppress(TooLargeResourceVersion):
            if self.cacher.readiness.ready:
                await self.cacher.freshness.wait(written.revision)
        return written

    async def start_anew(self) -> None:
        """Start the cache and return when it is ready, or after a while: it starts over after a failure."""
        self.cacher.start()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _READY_TIMEOUT
        while not self.cacher.readiness.ready and loop.time() < deadline:
            await self.cacher.readiness.wait(deadline - loop.time())


class HeldStore:
    """What feeds a cache: a plain store whose first list fails, and whose watch a case can hold or cut.

    The failing list is there so that every cache of the suite has started over once.

    Attributes:
        plain: the store itself.
        lists: how often it was listed.
    """

    def __init__(self, store: Store) -> None:
        self.plain = store
        self.lists = 0
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._failure: KplaneError | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.plain, name)

    def hold(self) -> None:
        """Let the cache see no further event, without an end of its watch."""
        self._flowing.clear()

    def release(self) -> None:
        """Let the cache see what was held."""
        self._flowing.set()

    def fail(self, error: KplaneError) -> None:
        """Let the cache see this error instead of the next events."""
        self._failure = error

    async def get_list(self, key: str, options: ListOptions | None = None) -> ObjectList:
        """Fail once, then list; see `Store.get_list`."""
        self.lists += 1
        if self.lists == 1:
            raise Unreachable(key, "the suite lets the first list of every cache fail")
        return await self.plain.get_list(key, options)

    async def watch(self, key: str, options: ListOptions | None = None) -> "_HeldWatch":
        """Watch; see `Store.watch`."""
        return _HeldWatch(self, await self.plain.watch(key, options))

    async def pass_on(self, events: Sequence[WatchEvent]) -> Sequence[WatchEvent]:
        """Return what the cache sees of these events, once it may see any."""
        await self._flowing.wait()
        failure, self._failure = self._failure, None
        return (WatchEvent(EventType.ERROR, error=failure),) if failure else events


class _HeldWatch:
    """The watch that feeds a cache."""

    def __init__(self, owner: HeldStore, watch: Watch) -> None:
        self._owner = owner
        self._watch = watch

    async def batch(self) -> Sequence[WatchEvent]:
        return await self._owner.pass_on(await self._watch.batch())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._watch.__aexit__(*exc)


class _TwoHandles:
    """Writes through one handle; everything else goes through the other."""

    def __init__(self, writer: Store, reader: Store) -> None:
        self._writer = writer
        self._reader = reader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writer if name in _WRITES else self._reader, name)


class Viewer:
    """Opens stores as a view sees them.

    Attributes:
        resource_prefix: of the store of pods.
        prefix: the directory below which the cases work.

    Args:
        view: which.
        prefix: the resource prefix where nothing stands in between.
    """

    def __init__(self, view: View, prefix: str) -> None:
        self._view = view
        self._layout = KeyLayout(prefix) if view is View.CLUSTERS else None
        self.resource_prefix = self._layout.kind_root_prefix() if self._layout else prefix
        self.prefix = self._layout.per_cluster_prefix(_CLUSTER) if self._layout else prefix

    async def cached(self, store: Store, resource: Resource) -> Store:
        """Return the store behind a watch cache that is ready."""
        layout = self._layout if resource.resource_prefix == self.resource_prefix else None
        identity: Callable[[str], str] | None = layout.cluster_from_key if layout else None
        config = CacherConfig(
            identity=identity,
            indexed_fields=("spec.nodeName",),
            exact_reads=self._view is not View.CACHE_NO_HISTORY,
            restart_delay=0.01,
            read_timeout=_READ_TIMEOUT,
        )
        cached = SettledStore(cast("Store", HeldStore(store)), resource, config, layout)
        await cached.start_anew()
        return cached

    @staticmethod
    def two_handles(writer: Store, reader: Store) -> Store:
        """Return a store that writes through one handle and reads through another."""
        return cast("Store", _TwoHandles(writer, reader))
