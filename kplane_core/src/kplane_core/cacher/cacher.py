"""The watch cache of one resource: fed by one list and one watch, it serves the reads and watches of all clusters."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

import attrs

from kplane_core.cacher.bookmarks import PERIOD, BookmarkSchedule
from kplane_core.cacher.consistency import ConsistencyChecker
from kplane_core.cacher.events import CacheEvent, change
from kplane_core.cacher.freshness import Freshness
from kplane_core.cacher.history import History, Lane
from kplane_core.cacher.metrics import CacherMetrics
from kplane_core.cacher.readiness import Readiness
from kplane_core.cacher.reflector import Reflector
from kplane_core.cacher.scopes import Scopes
from kplane_core.cacher.state import State
from kplane_core.cacher.watching import CacheWatch, WatchOwner
from kplane_core.errors import InternalError, InvalidKey, KplaneError, UsageError
from kplane_core.storage.bookmarks import Bookmarks
from kplane_core.storage.interface import EventType, Store, StoredObject, WatchEvent
from kplane_core.storage.resource import Resource
from kplane_core.storage.selection import Predicate
from kplane_core.tasks import end_task

_log = logging.getLogger(__name__)
MIN_WINDOW = 75.0
_TICK = 1.0
_TRIM_EVERY = 15


class OutOfOrder(KplaneError):
    """The storage delivered a revision that does not increase: what the cache knows can no longer be trusted."""


@attrs.frozen
class CacherConfig:
    """How a cache behaves.

    Attributes:
        identity: tells the cluster of a key; None where there are no clusters.
        indexed_fields: fields whose exact values are looked up instead of scanned for.
        window: seconds of history to keep; at least 75.
        read_timeout: seconds that a reader waits for the cache to be fresh.
        bookmark_period: seconds between two bookmarks of a watcher.
        restart_delay: seconds before the cache is filled anew after a failure.
        page_size: objects per page when the cache is filled.
        exact_reads: whether reads at a past revision are served from the history.
        storage_fallback: whether a consistent read that the cache cannot serve in time goes to the storage, instead of
            being refused with 429. That fallback is a known cause of overload.
        consistency_interval: seconds, at least, between two comparisons of the cache with the storage; 0 for none.
        clock: seconds that never go backwards.
    """

    identity: Callable[[str], str] | None = None
    indexed_fields: tuple[str, ...] = ()
    window: float = attrs.field(default=MIN_WINDOW)
    read_timeout: float = 3.0
    bookmark_period: float = PERIOD
    restart_delay: float = 1.0
    page_size: int = 10_000
    exact_reads: bool = True
    storage_fallback: bool = False
    consistency_interval: float = 300.0
    clock: Callable[[], float] = time.monotonic

    @window.validator
    def _check_window(self, _: object, value: float) -> None:
        if value < MIN_WINDOW:
            raise UsageError(f"the events history window must be at least {MIN_WINDOW:g} s, not {value:g} s")


class Cacher:
    """The cache in front of one store; the delegator decides which calls it answers.

    Everything that touches state, history and watchers is synchronous: a list, a registration and the intake of a
    batch of changes each happen between two turns of the loop, so nothing is missed or told twice.

    Args:
        store: where the truth is.
        resource: what is cached.
        config: how to behave.

    Raises:
        UsageError: the resource has no kind; nobody could tell the cache how far the storage is.
    """

    def __init__(self, store: Store, resource: Resource, config: CacherConfig | None = None) -> None:
        if not resource.kind:
            raise UsageError(f"the resource {resource.group_resource!r} needs a kind, which its bookmarks are of")
        self.config = config = config or CacherConfig()
        self.store = store
        self.resource = resource
        self.metrics = CacherMetrics()
        self.readiness = Readiness(config.clock)
        self.freshness = Freshness(store.request_watch_progress, timeout=config.read_timeout)
        self._identity = config.identity
        self._root = store.resource_prefix
        self.state = self._empty_state()
        self.history = History(0, config.window)
        self._scopes: dict[str | None, Scopes] = {}
        self._dirty: list[CacheWatch] = []
        self._schedule = BookmarkSchedule(config.clock, period=config.bookmark_period)
        self._owner = WatchOwner(
            current=lambda: self.freshness.revision,
            view=self._view,
            wake_soon=self._dirty.append,
            terminated=self._terminated,
            forget=self._forget,
            bookmark=Bookmarks(resource).at,
        )
        self._reflector = Reflector(self)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start filling the cache; `aclose` ends it."""
        if self._task is None and not self.readiness.stopped:
            self._task = asyncio.create_task(self._run(), name=f"kplane-cacher-{self.resource.group_resource}")

    async def aclose(self) -> None:
        """Stop the cache for good and end its watches; idempotent."""
        self.readiness.stop()
        await end_task(self._task)
        self._task = None
        self._drop_watchers()

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._reflector.run(), name="kplane-reflector")
            group.create_task(self.freshness.ask_for_progress(), name="kplane-progress")
            group.create_task(self._tick(), name="kplane-bookmarks")
            if self.config.consistency_interval:
                group.create_task(ConsistencyChecker(self).run(), name="kplane-consistency")

    async def _tick(self) -> None:
        ticks = 0
        while True:
            await asyncio.sleep(_TICK)
            self._schedule.tick()
            ticks += 1
            if ticks % _TRIM_EVERY == 0:
                self.history.trim(self.config.clock())

    # --- intake ------------------------------------------------------------------------------------------------------

    @property
    def revision(self) -> int:
        """Everything up to here is in the cache."""
        return self.freshness.revision

    def replace(self, objects: Sequence[StoredObject], revision: int) -> None:
        """Start anew from a full list."""
        self._drop_watchers()
        self.state = self._empty_state()
        for found in objects:
            cluster = self.cluster_of(found.key)
            if cluster is not None:
                self.state.put(found, cluster)
        self.history = History(revision, self.config.window)
        self.metrics.initializations += 1
        self.freshness.advance(revision)
        self.readiness.set_ready()

    def ingest(self, events: Sequence[WatchEvent]) -> None:
        """Take in what the storage's watch delivered, in order, and wake each concerned watcher once.

        Raises:
            OutOfOrder: a revision does not increase.
            KplaneError: the watch ended with this error.
        """
        try:
            for event in events:
                if event.type is EventType.BOOKMARK:
                    self._progress(event)
                elif event.type is EventType.ERROR:
                    raise event.error or InternalError("the storage's watch ended with an error that says nothing")
                else:
                    self._change(event)
        finally:
            for watch in self._dirty:
                watch.wake()
            self._dirty.clear()

    def _progress(self, event: WatchEvent) -> None:
        assert event.object is not None
        if event.object.revision < self.revision:
            # Late, as a replica that lags says it right after a reconnect: it promises nothing that is not known.
            return
        self.freshness.advance(event.object.revision)
        self.freshness.progressed()

    def _change(self, event: WatchEvent) -> None:
        found = event.object
        assert found is not None
        if found.revision <= self.revision:
            raise OutOfOrder(
                f"the {event.type} event of {found.key!r} has revision {found.revision}, but the cache has already "
                f"seen {self.revision}: the backend delivered changes out of order"
            )
        self.metrics.events_received += 1
        cluster = self.cluster_of(found.key)
        if cluster is None:
            self.freshness.advance(found.revision)
            return
        news = self._apply(event.type, found, cluster)
        for scope in (None,) if self._identity is None else (cluster, None):
            position = self.history.lane(scope).append(news)
            scopes = self._scopes.get(scope)
            if scopes is not None:
                scopes.offer(news, position, self.config.indexed_fields)
        self.metrics.events_dispatched += 1
        self.freshness.advance(found.revision)

    def _apply(self, kind: EventType, found: StoredObject, cluster: str) -> CacheEvent:
        state, indexed = self.state, bool(self.config.indexed_fields)
        known = state.get(found.key)
        before = known or (found if kind is EventType.DELETED else None)
        old_attributes = state.attributes_of(before) if indexed and before is not None else None
        now = self.config.clock()
        if kind is EventType.DELETED:
            old = state.remove(found.key, cluster) or found
            news = change(found.key, found.revision, cluster, new=None, old=old, time=now)
        else:
            old_object = state.put(found, cluster)
            news = change(found.key, found.revision, cluster, new=found, old=old_object, time=now)
            if indexed:
                news.new_attributes = state.attributes_of(found)
        news.old_attributes = old_attributes
        return news

    def lost(self, error: KplaneError | None) -> None:
        """Note that the feed is gone: nothing is served until the cache is filled anew."""
        self.metrics.initialization_errors += 1
        self.readiness.set_pending(error)
        self._drop_watchers()

    def distrust(self, error: KplaneError) -> None:
        """Let the cache be filled anew, because what it holds is wrong."""
        _log.error("%s; it starts over", error)
        self._reflector.interrupt(error)

    def forget_history(self, revision: int) -> None:
        """Drop the history up to and with `revision`, as a compaction does."""
        self.history.forget(revision)

    # --- scopes ------------------------------------------------------------------------------------------------------

    def cluster_of(self, key: str) -> str | None:
        """Return the cluster that a key belongs to; empty where there are no clusters.

        Returns:
            None for a stray record that belongs to no cluster. It is passed over: what one raw write left behind must
            not keep everybody's cache from filling.
        """
        if self._identity is None:
            return ""
        try:
            return self._identity(key)
        except InvalidKey:
            _log.warning("the record %r belongs to no cluster and is passed over", key)
            return None

    def scope_of(self, prefix: str) -> str | None:
        """Return the cluster that holds everything below `prefix`; None when it spans clusters."""
        if self._identity is None or len(prefix) <= len(self._root) or "/" not in prefix[len(self._root) :]:
            return None
        return self._identity(prefix)

    def lane_of(self, prefix: str) -> Lane:
        """Return the history that covers everything below `prefix`."""
        return self.history.seen(self.scope_of(prefix))

    def scopes_of(self, prefix: str) -> Scopes:
        """Return the watchers' register for everything below `prefix`."""
        scope = self.scope_of(prefix)
        scopes = self._scopes.get(scope)
        if scopes is None:
            scopes = self._scopes[scope] = Scopes(scope, self.history.lane(scope))
        return scopes

    @property
    def watcher_count(self) -> int:
        """How many watchers are open."""
        return sum(map(len, self._scopes.values()))

    @property
    def owner(self) -> WatchOwner:
        """What watchers need of this cache."""
        return self._owner

    def register(self, watch: CacheWatch, prefix: str) -> None:
        """Let a watcher hear of what happens from now on."""
        self.scopes_of(prefix).add(watch)
        if watch.plan.bookmarks:
            self._schedule.add(watch)

    def _view(self, predicate: Predicate) -> Callable[[CacheEvent], WatchEvent | None] | None:
        if predicate.empty:
            return None
        if predicate.attributes not in (None, self.resource.attributes):
            matches = predicate.matcher(self.resource.attributes)
            assert matches is not None
            return lambda event: event.seen_by(matches)
        return lambda event: event.seen_through(predicate, self.state.attributes_of)

    def _forget(self, watch: CacheWatch) -> None:
        self._schedule.remove(watch)
        scopes = watch.scopes
        if not scopes and self._scopes.get(scopes.scope) is scopes:
            del self._scopes[scopes.scope]
            self.history.release(scopes.scope)

    def _terminated(self, watch: CacheWatch) -> None:
        self.metrics.terminated_watchers += 1
        watch.drop()

    def _drop_watchers(self) -> None:
        for scopes in list(self._scopes.values()):
            for watch in list(scopes):
                watch.drop()
        self._scopes.clear()

    def _empty_state(self) -> State:
        return State(self.resource.attributes, self.config.indexed_fields)
