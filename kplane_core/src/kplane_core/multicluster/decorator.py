"""A store with a watch cache that knows the clusters: composed once, used by servers and controllers alike."""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Self

import attrs

from kplane_core.cacher import CachedStore, CacherConfig
from kplane_core.errors import UsageError
from kplane_core.multicluster.identity import ObjectWithClusterIdentity
from kplane_core.multicluster.keylayout import KeyLayout
from kplane_core.storage.interface import EventType, ListOptions, Store, Watch, WatchEvent
from kplane_core.storage.resource import Resource

_ANY_API_VERSION, _ANY_KIND = "meta.k8s.io/v1", "PartialObjectMetadata"
"""What a bookmark is of which only the metadata is known: Kubernetes' own name for that."""


@attrs.frozen
class DecoratorConfig:
    """What `storage_with_cluster_identity` puts together.

    Attributes:
        key_layout: where clusters stand in the keys; None for a resource without clusters, whose store then behaves
            exactly like a plain cached one.
        group_resource: the resource, for example `pods`.
        backend_factory: builds the plain store.
        resource: more of what the store needs to know; None for the defaults, with bookmarks of no special kind.
        cacher: how the cache behaves; its `identity` is set from the layout.
    """

    key_layout: KeyLayout | None
    group_resource: str
    backend_factory: Callable[[Resource], Store]
    resource: Resource | None = None
    cacher: CacherConfig = attrs.field(factory=CacherConfig)


class ClusterEvent(WatchEvent, frozen=True):
    """A watch event whose object comes with its cluster.

    Attributes:
        identified: the object in its envelope; None for bookmarks and errors, which stay plain.
    """

    identified: ObjectWithClusterIdentity | None = None


class ClusterWatch:
    """A watch whose ADDED, MODIFIED and DELETED events carry the cluster; see `Watch`.

    Args:
        watch: the plain watch.
        layout: tells the cluster of a key; None leaves every event plain.
    """

    def __init__(self, watch: Watch, layout: KeyLayout | None) -> None:
        self._watch = watch
        self._layout = layout

    async def batch(self) -> Sequence[ClusterEvent]:
        """Return all events that are ready, waiting for at least one; empty once the watch has ended."""
        return [self._identified(event) for event in await self._watch.batch()]

    def stop(self) -> None:
        """End the watch soon; idempotent."""
        self._watch.stop()

    def __aiter__(self) -> AsyncIterator[ClusterEvent]:
        return self

    async def __anext__(self) -> ClusterEvent:
        return self._identified(await self._watch.__anext__())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._watch.__aexit__(*exc)

    def _identified(self, event: WatchEvent) -> ClusterEvent:
        found = event.object
        plain = event.type in {EventType.BOOKMARK, EventType.ERROR} or found is None or self._layout is None
        if plain or found is None or self._layout is None:
            return ClusterEvent(event.type, found, event.error)
        envelope = ObjectWithClusterIdentity(self._layout.cluster_from_key(found.key), found.key, found)
        return ClusterEvent(event.type, found, event.error, envelope)


class ClusterStore(CachedStore):
    """A cached store that can tell whose objects its events are about.

    It is a plain `Store` for everybody who does not ask; the envelope is made at the edge, after filtering.

    Args:
        store: where the truth is.
        resource: what is stored.
        config: how the cache behaves.
        layout: tells the cluster of a key.
    """

    def __init__(self, store: Store, resource: Resource, config: CacherConfig, layout: KeyLayout | None) -> None:
        super().__init__(store, resource, config)
        self.layout = layout

    async def watch_with_identity(self, key: str | None = None, options: ListOptions | None = None) -> ClusterWatch:
        """Watch objects, each with its cluster.

        Args:
            key: a directory or key; None for all clusters.
            options: as for `watch`.

        Raises:
            TooManyRequests: the cache is not ready.
        """
        return ClusterWatch(await self.watch(key or self.resource_prefix, options), self.layout)

    async def list_with_identity(
        self, key: str | None = None, options: ListOptions | None = None
    ) -> tuple[tuple[ObjectWithClusterIdentity, ...], int]:
        """List objects, each with its cluster, and the revision of the list.

        Args:
            key: a directory or key; None for all clusters.
            options: as for `get_list`.

        Raises:
            UsageError: the resource has no clusters.
        """
        if self.layout is None:
            raise UsageError(f"{self.cacher.resource.group_resource} is stored without clusters")
        page = await self.get_list(key or self.resource_prefix, options)
        cluster_of = self.layout.cluster_from_key
        items = tuple(ObjectWithClusterIdentity(cluster_of(found.key), found.key, found) for found in page.items)
        return items, page.revision


def storage_with_cluster_identity(config: DecoratorConfig) -> ClusterStore:
    """Return a store behind a watch cache that knows the clusters; `start` it before use.

    Args:
        config: what to put together.
    """
    layout = config.key_layout
    resource = config.resource
    if resource is None:
        prefix = layout.kind_root_prefix() if layout else f"/{config.group_resource}/"
        resource = Resource(config.group_resource, prefix, api_version=_ANY_API_VERSION, kind=_ANY_KIND)
    cacher = attrs.evolve(config.cacher, identity=layout.cluster_from_key if layout else None)
    return ClusterStore(config.backend_factory(resource), resource, cacher, layout)
