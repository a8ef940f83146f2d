"""New clusters that begin with the objects of another one: forks, and snapshots that are restored.

Objects keep their uids and creation times, so references between them hold; resourceVersions are new. While it is
filled a cluster has the phase Pending and takes no requests. A cluster that could not be filled is deleted again.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from kplane_apiserver.apierrors import field_required, invalid
from kplane_apiserver.authorization.questions import check_create
from kplane_apiserver.checks.validation import validate_metadata
from kplane_apiserver.clusters.admission import metadata_of, prepare_create
from kplane_apiserver.clusters.registry import CLUSTER_KEY, NAMESPACE_KEY
from kplane_apiserver.clusters.ttl import check_ttl
from kplane_apiserver.conversion import in_version, stored_form
from kplane_apiserver.definitions.crds import kinds_of_crd
from kplane_apiserver.kinds import EVENTS, Kind, builtin_kinds
from kplane_apiserver.requests.params import RemoveOptions
from kplane_apiserver.requests.removers import Removal
from kplane_apiserver.requests.writers import check_kind, generated_name
from kplane_apiserver.schemas import fit_copied
from kplane_apiserver.services import DEFINITION_KEY, Services
from kplane_apiserver.storing.stores import Served
from kplane_apiserver.upkeep.snapshots import Snapshot, take
from kplane_apiserver.wire.bodies import decode_body
from kplane_apiserver.wire.http import Request, Response
from kplane_core.chance import new_uid
from kplane_core.errors import BadRequest, InvalidKey, KeyExists, KplaneError, already_exists, not_found
from kplane_core.storage.interface import ResponseMeta, StoredObject, UpdateResult

Document = dict[str, Any]

_AT_A_TIME = 32


class Seed(NamedTuple):
    """An object that a new cluster begins with."""

    served: Served
    document: Document


Seeds = Callable[[], Iterable[Seed]]


async def fork(services: Services, request: Request, served: Served) -> Response:
    """Answer `POST .../clusters/<id>/fork`: make the Cluster in the body, with all objects of the one in the URL.

    Raises:
        ApiError: 403 for who may not create clusters, 404 when there is no such cluster, 409 when the new one exists.
        InvalidError: the new cluster has no valid name.
    """
    check_create(services.authorizer, request, name="", subresource="")
    document = decode_body(request.content_type, await request.body())
    check_kind(served.kind, document)
    source = request.route.name
    if source not in services.clusters.known:
        raise not_found(served.subject(source))
    metadata = metadata_of(document)
    if not metadata.get("name") and isinstance(metadata.get("generateName"), str):
        metadata["name"] = generated_name(metadata["generateName"])
    if not metadata.get("name"):
        cause = field_required("metadata.name", "name or generateName is required")
        raise invalid([cause], kind=served.kind.kind, name="", group=served.kind.group)
    stored = await make_fork(services, document, source)
    return Response(served.data(stored), 201)


async def restore(services: Services, request: Request, served: Served) -> Response:
    """Answer `POST .../clusters/<id>/restore`: make that cluster, with the objects of the snapshot in the body.

    Raises:
        BadRequest: the body is no snapshot, or the server has no such resource.
        ApiError: 403 for who may not create clusters, 409 when the cluster exists.
        InvalidError: an object has no valid metadata.
    """
    check_create(services.authorizer, request, name="", subresource="")
    snapshot = decode_body(request.content_type, await request.body())
    document: Document = {"metadata": {"name": request.route.name}}
    if ttl := request.integer("ttlSeconds"):
        document["spec"] = {"ttlSeconds": ttl}
    seeds = list(_restored(services, snapshot))
    origin = {"cluster": snapshot.get("cluster"), "snapshotTime": snapshot.get("snapshotTime")}
    kept = {key: value for key, value in origin.items() if isinstance(value, str)}
    stored = await make_cluster(services, document, lambda: seeds, {"restoredFrom": kept} if kept else {})
    return Response(served.data(stored), 201)


async def make_fork(services: Services, document: Document, source: str) -> StoredObject:
    """Make a cluster with all objects of another one, as of one revision.

    Args:
        services: the server's parts.
        document: the new Cluster; its metadata has a name.
        source: the cluster that exists.

    Raises:
        KplaneError: as `make_cluster` does.
    """
    snapshot = await take(services, source)
    origin = {"forkedFrom": {"cluster": source, "resourceVersion": str(snapshot.revision)}}
    return await make_cluster(services, document, lambda: copies(snapshot), origin)


async def make_cluster(services: Services, document: Document, seeds: Seeds, origin: Document) -> StoredObject:
    """Make a cluster with these objects, and return its Cluster once it can be used.

    Args:
        services: the server's parts.
        document: the Cluster; its metadata has a name.
        seeds: what it begins with; what every cluster has is added.
        origin: what its status tells of where it came from.

    Raises:
        ApiError: 409; the cluster exists. 403; it is the root cluster.
        InvalidError: the Cluster is not valid.
        KplaneError: an object could not be stored; the cluster is deleted again.
    """
    served = services.stores.serve(builtin_kinds()[CLUSTER_KEY])
    name = document["metadata"].get("name", "")
    document["apiVersion"], document["kind"] = served.kind.api_version, served.kind.kind
    prepare_create(served.kind, document, "", services.now())
    check_ttl(served.kind, document)
    services.clusters.check_new(name)
    document["status"] = {"phase": "Pending", **origin}
    made: list[StoredObject] = []

    async def work() -> None:
        made.append(await _make(services, served, document, seeds))

    await services.clusters.make_with(name, work())
    return made[0]


async def _make(services: Services, served: Served, document: Document, seeds: Seeds) -> StoredObject:
    root, name = services.settings.root_cluster, document["metadata"]["name"]
    key = served.key(root, "", name)
    try:
        stored = await served.store.create(key, document)
    except KeyExists:
        raise already_exists(served.subject(name)) from None
    services.wrote(served, root, stored)
    try:
        await fill(services, name, seeds())
        await services.clusters.bootstrap(name)
        stored = await served.store.guaranteed_update(key, _ready)
    except KplaneError:
        with contextlib.suppress(KplaneError):
            await Removal(services, served, root, RemoveOptions(propagation="Background")).run(key, "")
        raise
    services.wrote(served, root, stored)
    return stored


def _ready(old: Document, _meta: ResponseMeta) -> UpdateResult:
    old["status"] = {**(old.get("status") or {}), "phase": "Ready"}
    return old, None


async def fill(services: Services, cluster: str, seeds: Iterable[Seed]) -> None:
    """Store objects in a cluster that nobody uses yet.

    Raises:
        KplaneError: an object could not be stored.
    """
    written: list[tuple[Served, StoredObject]] = []
    for some in _batches(seeds):
        # Together, because a database far away takes its time for each.
        results = await asyncio.gather(*(_store(services, cluster, seed) for seed in some), return_exceptions=True)
        for seed, result in zip(some, results, strict=True):
            if isinstance(result, BaseException):
                raise result
            written.append((seed.served, result))
        await asyncio.sleep(0)  # a store in memory never waits, and everybody else's requests must not
    # Only now: the garbage collector must not meet an object whose owner is not there yet.
    for served, stored in sorted(written, key=_notice_order):
        services.wrote(served, cluster, stored)


async def _store(services: Services, cluster: str, seed: Seed) -> StoredObject:
    served, metadata = seed.served, seed.document["metadata"]
    key = served.key(cluster, metadata.get("namespace", ""), metadata["name"])
    ttl = services.settings.event_ttl if served.kind.storage_resource == EVENTS else 0
    return await served.store.create(key, seed.document, ttl=ttl)


def _notice_order(one: tuple[Served, StoredObject]) -> int:
    return {NAMESPACE_KEY: 0, DEFINITION_KEY: 1}.get(one[0].kind.key, 2)


def _batches(seeds: Iterable[Seed]) -> Iterator[Sequence[Seed]]:
    batch: list[Seed] = []
    for seed in seeds:
        batch.append(seed)
        if len(batch) == _AT_A_TIME:
            yield batch
            batch = []
    if batch:
        yield batch


def copies(snapshot: Snapshot) -> Iterator[Seed]:
    """Yield the objects of a snapshot as a new cluster begins with them."""
    for served, items in snapshot.resources:
        for stored in items:
            yield Seed(served, served.copied(stored))


# --- reading a snapshot -----------------------------------------------------------------------------------------------


def _restored(services: Services, snapshot: Document) -> Iterator[Seed]:
    resources = snapshot.get("resources")
    if not isinstance(resources, list) or not all(_is_resource(one) for one in resources):
        raise BadRequest("the body is no snapshot: it needs resources, each with group, resource and items")
    kinds = _kinds_of(resources)
    now = services.now()
    for resource in resources:
        name = f"{resource['resource']}.{resource['group']}" if resource["group"] else resource["resource"]
        kind = kinds.get(name)
        if kind is None:
            raise BadRequest(
                f"the snapshot has objects of the resource {name[:80]!r}, which is not builtin and for which it has no "
                "established CustomResourceDefinition"
            )
        served = services.stores.serve(kind)
        for item in resource["items"]:
            yield Seed(served, _seeded(served, item, now))


def _is_resource(value: object) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("group", ""), str)
        and isinstance(value.get("resource"), str)
        and isinstance(value.get("items"), list)
        and value.setdefault("group", "") is not None
    )


def _kinds_of(resources: Sequence[Document]) -> Mapping[str, Kind]:
    """Return the kinds that a snapshot can hold by group-resource: builtin ones, and those that it defines."""
    found: dict[str, Kind] = {}
    for resource in resources:
        if (resource["resource"], resource["group"]) == (DEFINITION_KEY[2], DEFINITION_KEY[0]):
            for item in resource["items"]:
                if isinstance(item, dict):
                    found.update((kind.group_resource, kind) for kind in reversed(kinds_of_crd(item)))
    builtin = [kind for kind in builtin_kinds().values() if not kind.create_only and not kind.root_only]
    found.update((kind.group_resource, kind) for kind in reversed(builtin))
    return found


def _seeded(served: Served, item: object, now: str) -> Document:
    kind = served.kind
    if not isinstance(item, dict) or not isinstance(item.get("metadata"), dict):
        raise BadRequest(f"the snapshot's {kind.group_resource} hold something that is no object with metadata")
    metadata: Document = {**item["metadata"]}
    metadata.pop("resourceVersion", None)
    metadata.setdefault("uid", new_uid())
    metadata.setdefault("creationTimestamp", now)
    found = item.get("apiVersion")
    api_version = found if found and isinstance(found, str) else kind.api_version
    document = in_version(kind, {**item, "apiVersion": api_version, "metadata": metadata})
    validate_metadata(kind, document)
    namespace = metadata.get("namespace", "")
    if not isinstance(namespace, str) or bool(namespace) is not kind.namespaced:
        need = "must" if kind.namespaced else "may not"
        raise BadRequest(f"the {kind.kind} {metadata['name']!r} in the snapshot {need} have a namespace")
    try:
        served.key("any", namespace, metadata["name"])
    except InvalidKey as error:
        raise BadRequest(f"the {kind.kind} {metadata['name']!r} in the snapshot: {error}") from None
    fit_copied(kind, document)
    return stored_form(kind, document)
