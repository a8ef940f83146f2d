"""One informer for all clusters: a local copy of a resource, and handlers that hear of every change.

One watch feeds it, whatever the number of clusters. After a lost history it lists anew and tells handlers exactly the
differences: nothing is lost, and no version that was told is told again.
"""

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, Self

import attrs

from kplane_core.errors import KplaneError
from kplane_core.multicluster.identity import ObjectWithClusterIdentity
from kplane_core.multicluster.keylayout import KeyLayout
from kplane_core.storage.interface import EventType, ListOptions, Store, StoredObject, WatchEvent
from kplane_core.storage.selection import Predicate
from kplane_core.tasks import end_task

_log = logging.getLogger(__name__)

Change = Literal["added", "updated", "deleted"]
Callback = Callable[..., Awaitable[None] | None]


@attrs.frozen
class Handler:
    """What to call when something changes; each may be a plain or an async function, or None.

    A handler for all clusters gets envelopes (ObjectWithClusterIdentity), one for a single cluster gets plain objects
    (StoredObject).

    Attributes:
        added: gets the object.
        updated: gets the old and the new object.
        deleted: gets the last known object.
        failed: gets the exception that one of the others raised; without it, failures are logged.
    """

    added: Callback | None = None
    updated: Callback | None = None
    deleted: Callback | None = None
    failed: Callable[[Exception], None] | None = None


@attrs.frozen
class _News:
    change: Change
    cluster: str
    new: StoredObject | None
    old: StoredObject | None


class Registration:
    """A handler at an informer: a queue and the task that empties it.

    Every change is delivered at least once and in order; a handler that raises is told to `failed`, and goes on with
    the next change. A slow handler delays nobody else; its queue grows meanwhile.
    """

    def __init__(self, handler: Handler, cluster: str | None) -> None:
        self.handler = handler
        self.cluster = cluster
        self._queue: deque[_News] = deque()
        self._filled = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False
        self._task = asyncio.create_task(self._run(), name="kplane-informer-handler")

    @property
    def pending(self) -> int:
        """Changes that were not delivered yet."""
        return len(self._queue)

    async def drained(self) -> None:
        """Return when every change known so far was delivered."""
        await self._idle.wait()

    def tell(self, news: _News) -> None:
        """Queue a change, if it is about this handler's cluster."""
        if self.cluster is None or self.cluster == news.cluster:
            self._queue.append(news)
            self._idle.clear()
            self._filled.set()

    async def _run(self) -> None:
        while not self._closed:
            await self._filled.wait()
            while self._queue:
                await self._deliver(self._queue[0])
                if self._queue:  # unless it closed itself
                    self._queue.popleft()
            self._filled.clear()
            self._idle.set()

    async def _deliver(self, news: _News) -> None:
        callback: Callback | None = getattr(self.handler, news.change)
        if callback is None:
            return
        try:
            outcome = callback(*self._arguments(news))
            if inspect.isawaitable(outcome):
                await outcome
        except Exception as error:  # noqa: BLE001 - reported to the handler's owner
            # One handler's fault is its own: the informer and the other handlers go on.
            self._report(error, news)

    def _report(self, error: Exception, news: _News) -> None:
        try:
            if self.handler.failed is not None:
                self.handler.failed(error)
                return
        except Exception as another:  # noqa: BLE001 - logged below, with what it was about
            error = another
        what = "an informer's handler failed on an object %s in cluster %s"
        _log.error(what, news.change, news.cluster, exc_info=error)

    def _arguments(self, news: _News) -> list[Any]:
        objects = [found for found in (news.old, news.new) if found is not None]
        if self.cluster is not None:
            return objects
        return [ObjectWithClusterIdentity(news.cluster, found.key, found) for found in objects]

    async def aclose(self) -> None:
        """Stop delivering; idempotent. A handler that closes itself still ends its own call."""
        self._closed = True
        self._queue.clear()
        self._idle.set()
        if self._task is not asyncio.current_task():
            await end_task(self._task)


class MulticlusterInformer:
    """A local copy of one resource over all clusters.

    Use it as an async context manager, or call `start` and `aclose`.

    Args:
        store: a store (best a cached one) of the resource.
        layout: tells the cluster of a key.
        predicate: which objects to hold; None for all.
        retry_delay: seconds before a failed watch is opened again.
    """

    def __init__(
        self, store: Store, layout: KeyLayout, *, predicate: Predicate | None = None, retry_delay: float = 1.0
    ) -> None:
        self._store = store
        self._layout = layout
        self._predicate = attrs.evolve(predicate or Predicate(), allow_watch_bookmarks=True)
        self._retry_delay = retry_delay
        self._objects: dict[str, dict[str, StoredObject]] = {}
        self._registrations: list[Registration] = []
        self._revision = 0
        self._synced = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    # --- reading -----------------------------------------------------------------------------------------------------

    def has_synced(self) -> bool:
        """Whether the copy has once been complete."""
        return self._synced.is_set()

    async def wait_synced(self) -> None:
        """Return when the copy has once been complete."""
        await self._synced.wait()

    @property
    def resource_version(self) -> int:
        """Everything up to this revision is in the copy."""
        return self._revision

    def clusters(self) -> list[str]:
        """Return the clusters that have objects, sorted."""
        return sorted(self._objects)

    def list(self, cluster: str) -> list[StoredObject]:
        """Return a cluster's objects in key order."""
        objects = self._objects.get(cluster, {})
        return [objects[key] for key in sorted(objects)]

    def get(self, cluster: str, namespace: str, name: str) -> StoredObject | None:
        """Return one object, or None; the namespace is empty for a cluster-scoped resource."""
        return self._objects.get(cluster, {}).get(self._layout.key(cluster, namespace, name))

    # --- handlers ----------------------------------------------------------------------------------------------------

    def add_handler(self, handler: Handler, *, cluster: str | None = None) -> Registration:
        """Register a handler; what is already known is told to it as added.

        Args:
            handler: what to call.
            cluster: only this cluster, with plain objects; None for all clusters, with envelopes.
        """
        registration = Registration(handler, cluster)
        for name in self.clusters():
            for found in self.list(name):
                registration.tell(_News("added", name, found, None))
        self._registrations.append(registration)
        return registration

    async def remove_handler(self, registration: Registration) -> None:
        """Stop telling a handler; idempotent."""
        if registration in self._registrations:
            self._registrations.remove(registration)
        await registration.aclose()

    # --- feeding -----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start following the resource."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="kplane-informer")

    async def aclose(self) -> None:
        """Stop following, and stop every handler; idempotent."""
        await end_task(self._task)
        self._task = None
        for registration in list(self._registrations):
            await self.remove_handler(registration)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    async def _run(self) -> None:
        while True:
            before = self._revision
            try:
                await self._follow(resume=before > 0)
            except KplaneError as error:
                _log.info("the informer's watch failed and is opened again: %s", error)
                if error.status().code == 410 and before:  # noqa: PLR2004 - HTTP's Gone
                    self._revision = 0
                    continue
            except Exception:  # noqa: BLE001 - logged with its traceback, and the informer goes on
                # A fault in a store must not leave a copy behind that looks alive and is not fed.
                _log.exception("the informer's watch failed unexpectedly and is opened again")
            if self._revision == before:
                await asyncio.sleep(self._retry_delay)

    async def _follow(self, *, resume: bool) -> None:
        options = ListOptions(
            resource_version=str(self._revision) if resume else "",
            resource_version_match="" if resume else "NotOlderThan",
            predicate=self._predicate,
            send_initial_events=None if resume else True,
        )
        fresh: dict[str, StoredObject] | None = None if resume else {}
        async with await self._store.watch(self._store.resource_prefix, options) as watch:
            while events := await watch.batch():
                for event in events:
                    fresh = self._take(event, fresh)

    def _take(self, event: WatchEvent, fresh: dict[str, StoredObject] | None) -> dict[str, StoredObject] | None:
        """Take in one event; while the initial events come, they are only collected (in `fresh`)."""
        if event.type is EventType.ERROR:
            raise event.error or KplaneError("the watch ended with an error that says nothing")
        found = event.object
        assert found is not None
        if event.type is EventType.BOOKMARK:
            if fresh is not None:
                self._replace(fresh)
                self._synced.set()
            self._revision = found.revision
            return None
        if fresh is not None:
            fresh[found.key] = found
            return fresh
        self._change(found, deleted=event.type is EventType.DELETED)
        self._revision = found.revision
        return None

    def _replace(self, fresh: dict[str, StoredObject]) -> None:
        """Make the copy equal to a full list, and tell the differences."""
        known = {key: found for objects in self._objects.values() for key, found in objects.items()}
        for key, found in known.items():
            if key not in fresh:
                self._change(found, deleted=True)
        for key, found in sorted(fresh.items()):
            if key not in known or known[key].revision != found.revision:
                self._change(found, deleted=False)

    def _change(self, found: StoredObject, *, deleted: bool) -> None:
        cluster = self._layout.cluster_from_key(found.key)
        objects = self._objects.setdefault(cluster, {})
        old = objects.get(found.key)
        if deleted:
            objects.pop(found.key, None)
            if not objects:
                del self._objects[cluster]
            if old is not None:
                self._tell(_News("deleted", cluster, None, found))
            return
        objects[found.key] = found
        self._tell(_News("added" if old is None else "updated", cluster, found, old))

    def _tell(self, news: _News) -> None:
        for registration in self._registrations:
            registration.tell(news)


__all__: Sequence[str] = ["Handler", "MulticlusterInformer", "Registration"]
