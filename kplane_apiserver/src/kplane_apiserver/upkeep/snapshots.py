"""A snapshot of a virtual cluster: every object that it holds, as of one revision."""

from collections.abc import Iterator, Sequence
from functools import cache

import attrs
import msgspec

from kplane_apiserver.kinds import builtin_kinds
from kplane_apiserver.services import Services
from kplane_apiserver.storing.stores import Served
from kplane_apiserver.upkeep.contents import each_resource
from kplane_apiserver.wire.http import Request, Response, json_response
from kplane_core.errors import BadRequest, Expired, not_found
from kplane_core.storage.codec import decode_object, encode_object, splice_resource_version
from kplane_core.storage.interface import ListOptions, ObjectList, StoredObject
from kplane_core.storage.selection import Predicate

_PAGE = 500
_TRIES = 3
_MANAGED = b'"managedFields"'


@attrs.frozen
class Snapshot:
    """What a cluster holds.

    Attributes:
        revision: the revision of all of it.
        resources: every resource that the cluster serves, with its objects in the order of their keys.
    """

    revision: int
    resources: tuple[tuple[Served, tuple[StoredObject, ...]], ...]


async def take(services: Services, cluster: str) -> Snapshot:
    """Return everything that a cluster holds, as of one revision; the root cluster without its clusters and fleets.

    Raises:
        Expired: the history is compacted faster than it can be read.
        KplaneError: the store failed.
    """
    for attempt in range(_TRIES):
        try:
            return await _take(services, cluster)
        except Expired:
            if attempt + 1 == _TRIES:
                raise
    raise AssertionError


async def _take(services: Services, cluster: str) -> Snapshot:
    kinds = [kind for kind in services.catalog.kinds(cluster) if not kind.root_only]
    resources = each_resource(services, kinds)
    revision = await resources[0].plain.get_current_resource_version()
    return Snapshot(
        revision,
        tuple([(served, await _objects(served, cluster, revision)) for served in resources]),
    )


async def _objects(served: Served, cluster: str, revision: int) -> tuple[StoredObject, ...]:
    prefix = served.prefix(cluster)
    options = ListOptions(
        resource_version=str(revision), resource_version_match="Exact", predicate=Predicate(limit=_PAGE)
    )
    page = await served.plain.get_list(prefix, options)
    if not page.continue_token:
        return page.items
    pages: list[ObjectList] = [page]
    while token := pages[-1].continue_token:
        options = ListOptions(predicate=Predicate(limit=_PAGE, continue_token=token))
        pages.append(await served.plain.get_list(prefix, options))
    return tuple(stored for page in pages for stored in page.items)


# --- over HTTP --------------------------------------------------------------------------------------------------------


async def of_path(services: Services, request: Request) -> Response:
    """Answer `GET /clusters/<id>/control-plane/snapshot`."""
    return await _respond(services, request, request.route.cluster)


async def of_object(services: Services, request: Request, served: Served) -> Response:
    """Answer `GET /apis/kplane.dev/v1/clusters/<id>/snapshot`.

    Raises:
        ApiError: 404; there is no such cluster.
    """
    name = request.route.name
    if name not in services.clusters.known:
        raise not_found(served.subject(name))
    return await _respond(services, request, name)


async def _respond(services: Services, request: Request, cluster: str) -> Response:
    wanted = {name for name in request.query.get("resource", "").split(",") if name}
    managed, empty = request.flag("managedFields"), request.flag("includeEmpty")
    snapshot = await take(services, cluster)
    known = {name for served, _ in snapshot.resources for name in _names(served)}
    if unknown := sorted(wanted - known):
        raise BadRequest(
            f"the cluster {cluster} serves no resource {unknown[0][:80]!r}; name resources by their plural"
        )
    now = services.now()
    chosen = [
        (served, items)
        for served, items in snapshot.resources
        if (items or empty) and (not wanted or wanted.intersection(_names(served)))
    ]
    response = json_response(
        {
            "apiVersion": "kplane.dev/v1",
            "kind": "Snapshot",
            "cluster": cluster,
            "snapshotTime": now,
            "resourceVersion": str(snapshot.revision),
            "liveResources": sum(1 for _, items in chosen if items),
            "resources": [_shown(served, items, managed=managed) for served, items in chosen],
        }
    )
    response.headers = (
        (b"x-snapshot-cluster", cluster.encode()),
        (b"x-snapshot-time", now.encode()),
        (b"x-snapshot-resource-version", b"%d" % snapshot.revision),
    )
    return response


def _names(served: Served) -> Sequence[str]:
    """Return the names that a resource may be asked for by; Events are one resource with two."""
    kind = served.kind
    if kind.custom is not None:
        return kind.plural, kind.group_resource
    return (kind.plural, *_names_of_store()[kind.storage_resource])


@cache
def _names_of_store() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for kind in builtin_kinds().values():
        found.setdefault(kind.storage_resource, set()).add(kind.group_resource)
    return found


def _shown(served: Served, items: Sequence[StoredObject], *, managed: bool) -> dict[str, object]:
    kind = served.kind
    return {
        "group": kind.group,
        "version": kind.version,
        "resource": kind.plural,
        "kind": kind.kind,
        "synced": True,
        "itemCount": len(items),
        "items": [msgspec.Raw(data) for data in _data(served, items, managed=managed)],
    }


def _data(served: Served, items: Sequence[StoredObject], *, managed: bool) -> Iterator[bytes]:
    for stored in items:
        if managed or _MANAGED not in stored.raw:
            yield served.data(stored)
            continue
        document = decode_object(served.raw(stored))
        document["metadata"].pop("managedFields", None)
        yield splice_resource_version(encode_object(document), stored.revision)
