"""The watch cache in front of each store: made with the store, filled when somebody first lists or watches."""

from collections.abc import Callable
from weakref import WeakSet

import attrs

from kplane_apiserver.settings import Settings
from kplane_apiserver.storing.resuming import ResumedWatch
from kplane_core.cacher import Cacher, CacherConfig
from kplane_core.multicluster.decorator import DecoratorConfig, storage_with_cluster_identity
from kplane_core.multicluster.keylayout import KeyLayout
from kplane_core.storage.interface import ListOptions, ObjectList, Stats, Store, Watch
from kplane_core.storage.resource import Resource

FIRST_WAIT = 3.0
"""Seconds that those who come first wait for a cache to be filled; after that they get 429, as all others do."""

MAX_RESUMING = 64
"""Watches of a resource that may read from the database at a time what its cache does not know; more get 410."""

# As upstream's registries index them: a node's agent asks for the pods of its node again and again.
_INDEXED: dict[str, tuple[str, ...]] = {"pods": ("spec.nodeName",)}


class CacheOnDemand:
    """A store whose lists and watches start its cache; everything else costs what it costs without.

    Args:
        layout: where clusters stand in the keys.
        resource: what is stored.
        build: makes the plain store.
        settings: how often watchers get bookmarks.

    Attributes:
        plain: the store behind the cache.
        cacher: the cache.
        started: whether somebody asked for the cache.
    """

    def __init__(
        self, layout: KeyLayout, resource: Resource, build: Callable[[Resource], Store], settings: Settings
    ) -> None:
        self.plain = plain = build(resource)
        config = CacherConfig(
            indexed_fields=_INDEXED.get(resource.group_resource, ()), bookmark_period=settings.bookmark_interval
        )
        decorated = DecoratorConfig(layout, resource.group_resource, lambda _: plain, resource, config)
        self._cached = cached = storage_with_cluster_identity(decorated)
        self.cacher: Cacher = cached.cacher
        self.started = False
        self._resumed: WeakSet[ResumedWatch] = WeakSet()
        # Not wrapped: these are asked on every request and need no cache that runs.
        self.create = cached.create
        self.delete = cached.delete
        self.get = cached.get
        self.guaranteed_update = cached.guaranteed_update
        self.compact_revision = cached.compact_revision
        self.enable_resource_size_estimation = cached.enable_resource_size_estimation
        self.get_current_resource_version = cached.get_current_resource_version
        self.readiness_check = cached.readiness_check
        self.request_watch_progress = cached.request_watch_progress

    @property
    def resource_prefix(self) -> str:
        """The directory that holds this store's records, with a trailing slash."""
        return self._cached.resource_prefix

    @property
    def watched(self) -> bool:
        """Whether watches are open."""
        return bool(self.cacher.watcher_count) or any(watch.catching_up for watch in self._resumed)

    async def get_list(self, key: str, options: ListOptions | None = None) -> ObjectList:
        """List objects through the cache; see `Store.get_list`.

        Raises:
            TooManyRequests: the cache is not ready.
        """
        if not self.cacher.readiness.ready:
            await self._first_fill()
        return await self._cached.get_list(key, options)

    async def watch(self, key: str, options: ListOptions | None = None) -> Watch:
        """Watch objects through the cache; see `Store.watch`.

        Raises:
            TooManyRequests: the cache is not ready.
        """
        if not self.cacher.readiness.ready:
            await self._first_fill()
        if options is not None and self._begins_too_early(key, options):
            return await self._resume(key, options)
        return await self._cached.watch(key, options)

    async def stats(self) -> Stats:
        """Return how much the store holds."""
        return await self._cached.stats()

    async def aclose(self) -> None:
        """Stop the cache, end its watches and close the store; idempotent."""
        await self._cached.aclose()

    def _begins_too_early(self, key: str, options: ListOptions) -> bool:
        """Whether a watch begins at a version from before the cache's history."""
        version = options.resource_version
        if options.send_initial_events or not version.isascii() or not version.isdigit():
            return False
        return 0 < int(version) < self.cacher.lane_of(key).floor and self.cacher.readiness.ready

    async def _resume(self, key: str, options: ListOptions) -> Watch:
        resumed = self._resumed
        resumed.difference_update([watch for watch in resumed if not watch.catching_up])
        if len(resumed) >= MAX_RESUMING:
            return await self._cached.watch(key, options)  # which says 410
        past = await self.plain.watch(key, _with_progress(options))
        try:
            boundary = self.cacher.revision
            present = await self._cached.watch(key, attrs.evolve(options, resource_version=str(boundary)))
        except BaseException:
            await past.__aexit__(None, None, None)
            raise
        watch = ResumedWatch(self.plain, past, present, boundary)
        resumed.add(watch)
        return watch

    async def _first_fill(self) -> None:
        """Start the cache if nobody did, and wait while it is filled for the first time."""
        self.started = True
        readiness = self.cacher.readiness
        if not readiness.generation and readiness.error is None:
            await self._cached.start(timeout=FIRST_WAIT)


def _with_progress(options: ListOptions) -> ListOptions:
    predicate = attrs.evolve(options.predicate, allow_watch_bookmarks=True)
    return attrs.evolve(options, predicate=predicate, progress_notify=True)
