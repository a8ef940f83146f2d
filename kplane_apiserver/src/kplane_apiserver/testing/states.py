"""All objects of one cluster as they were, and how to get there again."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import attrs

from kplane_apiserver.clusters.registry import CLUSTER_KEY, NAMESPACE_KEY
from kplane_apiserver.kinds import EVENTS, Kind, KindKey
from kplane_apiserver.schemas import fit_copied
from kplane_apiserver.services import DEFINITION_KEY, Services
from kplane_apiserver.storing.stores import Served
from kplane_core.errors import KeyNotFound
from kplane_core.storage.codec import decode_object
from kplane_core.storage.interface import ListOptions, ResponseMeta, StoredObject, UpdateResult


class Place(NamedTuple):
    """Where an object is.

    Attributes:
        kind: of what kind it is.
        namespace: in which namespace; empty for what is in none.
        name: what it is called.
    """

    kind: KindKey
    namespace: str
    name: str


@attrs.frozen(repr=False)
class Snapshot:
    """The objects of one cluster at one moment.

    Attributes:
        cluster: whose they are.
        objects: their bytes.
    """

    cluster: str
    objects: Mapping[Place, bytes]

    def __repr__(self) -> str:
        return f"<snapshot of {self.cluster}: {len(self.objects)} objects>"


async def take(services: Services, cluster: str, revision: int = 0) -> Snapshot:
    """Return the state of a cluster.

    Args:
        services: the server's parts.
        cluster: which.
        revision: as of which revision; 0 for now.

    Raises:
        Expired: the revision is no longer kept.
    """
    found = await _objects(services, cluster, revision)
    return Snapshot(cluster, {place: stored.raw for place, (_, stored) in found.items()})


async def put_back(services: Services, cluster: str, snapshot: Snapshot) -> None:
    """Give a cluster the objects of a snapshot again, and no others.

    What did not change is not written. Objects that are made again have the uid and the timestamps that they had; every
    resourceVersion is new, for it never goes back. Finalizers hold nothing.

    Raises:
        KplaneError: the storage refuses something.
    """
    present = await _objects(services, cluster, 0)
    for place in sorted(present.keys() - snapshot.objects.keys(), key=_order, reverse=True):
        served, stored = present[place]
        try:
            deleted = await served.store.delete(stored.key)
        except KeyNotFound:
            continue
        services.removed(served, cluster, place.namespace, deleted)
    for place in sorted(snapshot.objects, key=_order):
        raw = snapshot.objects[place]
        if place not in present or present[place][1].raw != raw:
            await _write(services, cluster, place, decode_object(raw))


async def _write(services: Services, cluster: str, place: Place, document: dict[str, Any]) -> None:
    group, version, plural = place.kind
    kind = services.catalog.lookup(cluster, group, version, plural)
    assert kind is not None, f"the snapshot has {plural} and not what defines them"
    served = services.stores.serve(kind)
    fit_copied(kind, document)
    ttl = services.settings.event_ttl if kind.storage_resource == EVENTS else None

    def replace(_old: dict[str, Any], _meta: ResponseMeta) -> UpdateResult:
        return document, ttl

    key = served.key(cluster, place.namespace, place.name)
    services.wrote(served, cluster, await served.store.guaranteed_update(key, replace, ignore_not_found=True))


async def _objects(services: Services, cluster: str, revision: int) -> dict[Place, tuple[Served, StoredObject]]:
    options = ListOptions()
    if revision:
        options = ListOptions(resource_version=str(revision), resource_version_match="Exact")
    found: dict[Place, tuple[Served, StoredObject]] = {}
    for kind in _one_of_each(services, cluster):
        served = services.stores.serve(kind)
        for stored in (await served.plain.get_list(served.prefix(cluster), options)).items:
            path = served.layout.relative(stored.key)
            found[Place(kind.key, path.namespace, path.name)] = (served, stored)
    return found


def _one_of_each(services: Services, cluster: str) -> list[Kind]:
    """Return one kind per resource: versions share their objects."""
    first: dict[str, Kind] = {}
    for kind in services.catalog.kinds(cluster):
        if "delete" in kind.verbs and kind.key != CLUSTER_KEY:
            first.setdefault(kind.storage_resource, kind)
    return list(first.values())


def _order(place: Place) -> tuple[int, Place]:
    """What holds others comes before them."""
    return (0 if place.kind == DEFINITION_KEY else 1 if place.kind == NAMESPACE_KEY else 2), place
