"""EngineStore: the whole storage contract over any engine."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from kplane_core.engine.interface import Conflict, Engine, EngineEvent, Record
from kplane_core.engine.listing import Listing, plan_single
from kplane_core.engine.reading import RecordReader, Unreadable
from kplane_core.engine.sizes import SizeEstimator
from kplane_core.engine.translate import translated
from kplane_core.engine.updating import Deletion, Update
from kplane_core.engine.watching import EngineStoreWatch, EventBuilder, watch_range
from kplane_core.errors import (
    InternalError,
    KeyExists,
    KeyNotFound,
    RVSetOnCreate,
    TooLargeResourceVersion,
    UsageError,
)
from kplane_core.storage.codec import encode_object
from kplane_core.storage.interface import (
    DeleteOptions,
    GetOptions,
    ListOptions,
    ObjectList,
    Stats,
    StoredObject,
    UpdateFunc,
    ValidateFunc,
    Watch,
)
from kplane_core.storage.keys import normalize_path_prefix, prefix_end, prepare_key
from kplane_core.storage.paging import parse_or_bad_request
from kplane_core.storage.preconditions import Preconditions
from kplane_core.storage.resource import Resource

_GET = GetOptions()
_LIST = ListOptions()
_DELETE = DeleteOptions()


class EngineStore:
    """The storage contract for one resource, over an engine that many stores share; see `Store`.

    Args:
        engine: where the records are; not closed by this store.
        resource: what is stored.
        path_prefix: what precedes the resource prefix in the database.
        compact_revision: tells the newest compaction revision known to this process.
    """

    def __init__(
        self,
        engine: Engine,
        resource: Resource,
        *,
        path_prefix: str = "/registry",
        compact_revision: Callable[[], int] = lambda: 0,
    ) -> None:
        self._engine = engine
        self._resource = resource
        self._prefix = resource.resource_prefix
        self._path_prefix = normalize_path_prefix(path_prefix)[:-1]
        self._reader = RecordReader(resource, self._path_prefix)
        self._compact_revision = compact_revision
        self._sizes: SizeEstimator | None = None
        self._live_keys: Callable[[], Awaitable[Sequence[str]]] | None = None

    @property
    def resource(self) -> Resource:
        """The resource that this store serves."""
        return self._resource

    @property
    def resource_prefix(self) -> str:
        """The directory that holds this store's records, with a trailing slash."""
        return self._prefix

    async def create(self, key: str, obj: dict[str, Any], *, ttl: int = 0) -> StoredObject:
        """Store a new object; see `Store.create`."""
        full_key = self._full_key(key)
        metadata = obj.get("metadata")
        if isinstance(metadata, dict) and metadata.get("resourceVersion") not in (None, "", "0"):
            raise RVSetOnCreate
        raw = encode_object(obj)
        value = self._reader.seal(full_key, raw)
        with translated(key):
            result = await self._engine.write(full_key, value, expect=0, ttl=ttl)
        if isinstance(result, Conflict):
            raise KeyExists(key)
        self._reader.remember(full_key, result.revision)
        if self._sizes:
            self._sizes.seen(full_key, len(value), result.revision)
        return StoredObject(key, result.revision, raw)

    async def delete(
        self,
        key: str,
        *,
        preconditions: Preconditions | None = None,
        validate: ValidateFunc | None = None,
        suggestion: StoredObject | None = None,
        options: DeleteOptions | None = None,
    ) -> StoredObject:
        """Delete an object; see `Store.delete`."""
        full_key = self._full_key(key)
        deletion = Deletion(self._engine, self._reader, key, full_key)
        if (options or _DELETE).expect_transform_or_decode_error:
            deleted = await deletion.run_unsafe(preconditions=preconditions, validate=validate)
        else:
            deleted = await deletion.run(preconditions=preconditions, validate=validate, suggestion=suggestion)
        if self._sizes:
            self._sizes.deleted(full_key, deleted.revision)
        return deleted

    async def get(self, key: str, options: GetOptions | None = None) -> StoredObject:
        """Read one object; see `Store.get`."""
        options = options or _GET
        full_key = self._full_key(key)
        minimum = parse_or_bad_request(options.resource_version)
        with translated(key):
            read = await self._engine.read(full_key)
        if minimum > read.revision:
            raise TooLargeResourceVersion(minimum, read.revision)
        if read.record is None:
            if options.ignore_not_found:
                return StoredObject(key, 0, b"")
            raise KeyNotFound(key)
        return self._object(read.record)

    async def get_list(self, key: str, options: ListOptions | None = None) -> ObjectList:
        """List objects; see `Store.get_list`."""
        options = options or _LIST
        full_key = self._full_key(key, recursive=options.recursive)
        if not options.recursive:
            return await self._single(key, full_key, options)
        seen = self._seen_record if self._sizes else None
        return await Listing(self._engine, self._reader, self._resource, full_key, options, seen).run()

    async def _single(self, key: str, full_key: str, options: ListOptions) -> ObjectList:
        plan = plan_single(full_key, options)
        with translated(key):
            read = await self._engine.read(full_key, at=plan.at)
        if plan.minimum > read.revision:
            raise TooLargeResourceVersion(plan.minimum, read.revision)
        revision = plan.at or read.revision
        if read.record is None:
            return ObjectList((), revision)
        found = self._object(read.record)
        matches = options.predicate.matcher(self._resource.attributes)
        return ObjectList((found,) if matches is None or matches(found.raw) else (), revision)

    async def guaranteed_update(
        self,
        key: str,
        try_update: UpdateFunc,
        *,
        ignore_not_found: bool = False,
        preconditions: Preconditions | None = None,
        suggestion: StoredObject | None = None,
    ) -> StoredObject:
        """Update an object; see `Store.guaranteed_update`."""
        update = Update(self._engine, self._reader, key, self._full_key(key))
        return await update.run(
            try_update, ignore_not_found=ignore_not_found, preconditions=preconditions, suggestion=suggestion
        )

    async def watch(self, key: str, options: ListOptions | None = None) -> Watch:
        """Watch objects; see `Store.watch`."""
        options = options or _LIST
        full_key = self._full_key(key, recursive=options.recursive)
        revision = parse_or_bad_request(options.resource_version)
        if options.progress_notify and not self._resource.kind:
            raise InternalError(f"the store of {self._resource.group_resource} cannot build bookmarks: it has no kind")
        start, end = watch_range(full_key, recursive=options.recursive)
        matches = options.predicate.matcher(self._resource.attributes)
        builder = EventBuilder(self._resource, self._reader, matches, self._seen_event)
        watch = EngineStoreWatch(
            self._engine,
            builder,
            start=start,
            end=end,
            options=options,
            revision=revision,
            single=not options.recursive,
        )
        await watch.open()
        return watch

    async def stats(self) -> Stats:
        """Return how much the store holds; see `Store.stats`."""
        start = self._path_prefix + self._prefix
        with translated(self._prefix):
            page = await self._engine.scan(start, prefix_end(start), limit=1, count=True)
        if self._sizes is None or self._live_keys is None:
            return Stats(page.total)
        live = [self._path_prefix + key for key in await self._live_keys()]
        return Stats(page.total, self._sizes.average(live))

    def readiness_check(self) -> None:
        """Return: a store without a cache is always ready."""

    async def request_watch_progress(self) -> None:
        """Ask for progress bookmarks; see `Store.request_watch_progress`."""
        with translated(self._prefix):
            await self._engine.request_progress()

    @property
    def watch_progress(self) -> bool:
        """Whether `request_watch_progress` has an effect; a cache in front of this store asks."""
        return getattr(self._engine, "watch_progress", True)

    async def get_current_resource_version(self) -> int:
        """Return the newest committed revision; see `Store.get_current_resource_version`."""
        with translated(self._prefix):
            revision = await self._engine.revision()
        if revision <= 0:
            raise InternalError("the storage backend answered with revision 0, which no backend may have")
        return revision

    def enable_resource_size_estimation(self, keys: Callable[[], Awaitable[Sequence[str]]]) -> None:
        """Let `stats` estimate the average object size; see `Store.enable_resource_size_estimation`."""
        if self._live_keys is not None:
            raise UsageError(f"size estimation of {self._resource.group_resource} is already enabled")
        self._live_keys = keys
        self._sizes = SizeEstimator()

    def compact_revision(self) -> int:
        """Return the newest known compaction revision; see `Store.compact_revision`."""
        return self._compact_revision()

    async def aclose(self) -> None:
        """Release nothing: the connection owns the engine."""

    def _full_key(self, key: str, *, recursive: bool = False) -> str:
        return self._path_prefix + prepare_key(key, self._prefix, recursive=recursive)

    def _object(self, record: Record) -> StoredObject:
        try:
            return self._reader.object(record)
        except Unreadable as error:
            raise error.error from error

    def _seen_record(self, record: Record) -> None:
        assert self._sizes is not None
        self._sizes.seen(record.key, len(record.value), record.mod_revision)

    def _seen_event(self, event: EngineEvent) -> None:
        # Asked at each event: the watch that feeds a cache is older than the wish to know sizes.
        if self._sizes is None:
            return
        if event.value is None:
            self._sizes.deleted(event.key, event.revision)
        else:
            self._sizes.seen(event.key, len(event.value), event.revision)
