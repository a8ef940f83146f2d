"""CachedStore: the storage contract served by the cache where it can be, and by the storage where it must be."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from kplane_core.cacher.cacher import Cacher, CacherConfig
from kplane_core.cacher.opening import open_watch
from kplane_core.cacher.reads import CacheReader
from kplane_core.errors import InternalError, StoreReadError, TooLargeResourceVersion, TooManyRequests
from kplane_core.storage.interface import (
    DeleteOptions,
    GetOptions,
    ListOptions,
    ObjectList,
    Stats,
    Store,
    StoredObject,
    UpdateFunc,
    ValidateFunc,
    Watch,
)
from kplane_core.storage.keys import prepare_key
from kplane_core.storage.paging import ListPlan, parse_or_bad_request, plan_list
from kplane_core.storage.preconditions import Preconditions
from kplane_core.storage.resource import Resource

_GET = GetOptions()
_LIST = ListOptions()


class CachedStore:
    """A Store with a watch cache in front; see `Store`.

    What differs from a plain store: an unset resourceVersion on a watch means "any", a limit is ignored for
    resourceVersion "0", watches with bookmarks get them, and a request that comes while the cache is not ready gets
    429.

    Args:
        store: where the truth is; closed with this one.
        resource: what is stored.
        config: how the cache behaves.
    """

    def __init__(self, store: Store, resource: Resource, config: CacherConfig | None = None) -> None:
        self._store = store
        self.cacher = Cacher(store, resource, config)
        self._reader = CacheReader(self.cacher)

    async def start(self, *, timeout: float = 3.0) -> None:  # noqa: ASYNC109 - the timeout belongs to the promise
        """Start the cache and wait a while for it to be ready; later callers find out by themselves.

        Args:
            timeout: seconds to wait.
        """
        self.cacher.start()
        await self.cacher.readiness.wait(timeout)

    @property
    def resource_prefix(self) -> str:
        """The directory that holds this store's records, with a trailing slash."""
        return self._store.resource_prefix

    async def create(self, key: str, obj: dict[str, Any], *, ttl: int = 0) -> StoredObject:
        """Store a new object; see `Store.create`."""
        return await self._store.create(key, obj, ttl=ttl)

    async def delete(
        self,
        key: str,
        *,
        preconditions: Preconditions | None = None,
        validate: ValidateFunc | None = None,
        suggestion: StoredObject | None = None,
        options: DeleteOptions | None = None,
    ) -> StoredObject:
        """Delete an object, with the cache's copy as suggestion; see `Store.delete`."""
        return await self._store.delete(
            key,
            preconditions=preconditions,
            validate=validate,
            suggestion=self._suggestion(key, suggestion),
            options=options,
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
        """Update an object, with the cache's copy as suggestion; see `Store.guaranteed_update`."""
        return await self._store.guaranteed_update(
            key,
            try_update,
            ignore_not_found=ignore_not_found,
            preconditions=preconditions,
            suggestion=self._suggestion(key, suggestion),
        )

    def _suggestion(self, key: str, suggestion: StoredObject | None) -> StoredObject | None:
        if self._unready():
            return suggestion
        cached = self.cacher.state.get(key)
        if cached is None or (suggestion is not None and suggestion.revision > cached.revision):
            return suggestion
        return cached

    def _unready(self) -> bool:
        return not self.cacher.readiness.ready

    async def get(self, key: str, options: GetOptions | None = None) -> StoredObject:
        """Read one object: the newest from the storage, "not older than" from the cache; see `Store.get`."""
        options = options or _GET
        if not options.resource_version or self._unready():
            return await self._store.get(key, options)
        key = prepare_key(key, self.resource_prefix, recursive=False)
        await self._fresh(parse_or_bad_request(options.resource_version))
        if self._unready():  # the cache lost its feed while this reader waited
            return await self._store.get(key, options)
        return self._reader.get(key, options)

    async def get_list(self, key: str, options: ListOptions | None = None) -> ObjectList:
        """List objects; see `Store.get_list`."""
        options = options or _LIST
        prefix = prepare_key(key, self.resource_prefix, recursive=options.recursive)
        plan = plan_list(
            prefix=prefix,
            recursive=options.recursive,
            resource_version=options.resource_version,
            match=options.resource_version_match,
            limit=options.predicate.limit,
            continue_token=options.predicate.continue_token,
        )
        if self._unready():
            return await self._list_unready(key, options)
        if plan.at:
            return await self._exact(key, prefix, options, plan)
        newest = plan.continued or not options.resource_version
        if newest:
            stored = await self._catch_up(key, options)
            if stored is not None:
                return stored
        else:
            await self._fresh(plan.minimum)
        if self._unready():  # the cache lost its feed while this reader waited
            return await self._list_unready(key, options)
        if not options.recursive:
            return self._reader.single(prefix, options)
        limited = plan.continued or options.resource_version != "0"
        return self._reader.latest(prefix, options, plan, limited=limited)

    async def _list_unready(self, key: str, options: ListOptions) -> ObjectList:
        predicate = options.predicate
        # Unreadable data keeps a cache from starting; the storage can say which keys it is about.
        unreadable = isinstance(self.cacher.readiness.error, StoreReadError | InternalError)
        if unreadable or (predicate.empty and predicate.limit > 0):
            return await self._store.get_list(key, options)
        raise self.cacher.readiness.too_many_requests()

    async def _exact(self, key: str, prefix: str, options: ListOptions, plan: ListPlan) -> ObjectList:
        if options.recursive and self.cacher.config.exact_reads:
            try:
                await self._fresh(plan.at)
            except TooLargeResourceVersion:
                return await self._store.get_list(key, options)
            if not self._unready() and (page := self._reader.exact(prefix, options, plan)) is not None:
                return page
        return await self._store.get_list(key, options)

    async def _catch_up(self, key: str, options: ListOptions) -> ObjectList | None:
        """Wait until the cache holds everything that was committed before this call.

        Returns:
            None; or, where that is allowed and the cache is too slow, the list from the storage.

        Raises:
            TooManyRequests: the cache is too slow.
        """
        metrics = self.cacher.metrics
        if not getattr(self._store, "watch_progress", True):
            # Nobody could say when the cache has caught up with writes to other resources.
            metrics.consistent_reads_stored += 1
            return await self._store.get_list(key, options)
        try:
            await self._fresh(await self._store.get_current_resource_version())
        except TooLargeResourceVersion as error:
            if self.cacher.config.storage_fallback:
                metrics.consistent_reads_stored += 1
                return await self._store.get_list(key, options)
            metrics.consistent_reads_refused += 1
            raise TooManyRequests(f"the watch cache is behind the storage: {error}", 1) from error
        metrics.consistent_reads_cached += 1
        return None

    async def _fresh(self, revision: int) -> None:
        if revision <= self.cacher.revision:
            return
        started = self.cacher.config.clock()
        try:
            await self.cacher.freshness.wait(revision)
        finally:
            self.cacher.metrics.waited(self.cacher.config.clock() - started)

    async def watch(self, key: str, options: ListOptions | None = None) -> Watch:
        """Watch objects through the cache; see `Store.watch`.

        Raises:
            TooManyRequests: the cache is not ready.
        """
        return await open_watch(self.cacher, key, options or _LIST)

    async def stats(self) -> Stats:
        """Return how much the store holds; see `Store.stats`."""
        return await self._store.stats()

    def readiness_check(self) -> None:
        """Return when the cache can serve; raises StorageNotReady otherwise."""
        self.cacher.readiness.check()

    async def request_watch_progress(self) -> None:
        """Ask for progress bookmarks; see `Store.request_watch_progress`."""
        await self._store.request_watch_progress()

    async def get_current_resource_version(self) -> int:
        """Return the newest committed revision; see `Store.get_current_resource_version`."""
        return await self._store.get_current_resource_version()

    def enable_resource_size_estimation(self, keys: Callable[[], Awaitable[Sequence[str]]]) -> None:
        """Let `stats` estimate the average object size; see `Store.enable_resource_size_estimation`."""
        self._store.enable_resource_size_estimation(keys)

    async def keys(self) -> Sequence[str]:
        """Return the keys that exist now; what size estimation needs."""
        await self._fresh(await self._store.get_current_resource_version())
        return self.cacher.state.keys()

    def compact_revision(self) -> int:
        """Return the newest known compaction revision; see `Store.compact_revision`."""
        return self._store.compact_revision()

    async def aclose(self) -> None:
        """Stop the cache, end its watches and close the store; idempotent."""
        await self.cacher.aclose()
        await self._store.aclose()
