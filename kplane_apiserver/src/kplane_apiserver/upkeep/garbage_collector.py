"""What becomes of an object whose owners went, and of an owner that is deleted in the foreground or leaves orphans."""

import asyncio
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from enum import Enum, auto
from functools import cache
from typing import Any

from kplane_apiserver.clusters.garbage import FOREGROUND, ORPHAN, Metadata, OwnerKey, Reference, metadata_of
from kplane_apiserver.kinds import Kind, builtin_kinds
from kplane_apiserver.requests.params import RemoveOptions
from kplane_apiserver.requests.removers import Removal
from kplane_apiserver.requests.writers import store_change
from kplane_apiserver.services import Services
from kplane_apiserver.storing.stores import Served
from kplane_apiserver.upkeep.contents import Release, drop_finalizer, pages
from kplane_apiserver.upkeep.fleets import enqueue_all
from kplane_core.errors import InvalidKey, KeyNotFound
from kplane_core.storage.interface import GetOptions, ResponseMeta, StoredObject, UpdateResult
from kplane_core.storage.preconditions import Preconditions

Document = dict[str, Any]

_MAYBE_ABSENT = GetOptions(ignore_not_found=True)


class _Owner(Enum):
    PRESENT = auto()
    ABSENT = auto()
    WAITING = auto()  # it is deleted in the foreground: once its dependents are gone
    UNKNOWN = auto()  # of a kind that the cluster does not serve, or that a cluster-scoped object cannot name


async def scan(services: Services) -> None:
    """Tell the index of every stored object that has owners or waits for its dependents.

    Raises:
        KplaneError: a store cannot be listed.
    """
    for served in _stored_resources(services):
        async for page in pages(served, served.layout.kind_root_prefix()):
            for stored in page.items:
                services.garbage.wrote(served, served.layout.relative(stored.key).cluster, stored)
            await asyncio.sleep(0)
    await enqueue_all(services)


async def process(services: Services, served: Served, key: str) -> bool:
    """Do what the object at a key needs.

    Returns:
        False when it has to be looked at again.

    Raises:
        KplaneError: the store failed, or the object changed meanwhile.
    """
    stored = await served.store.get(key, _MAYBE_ABSENT)
    cluster = served.layout.relative(key).cluster
    if not stored.exists:
        services.garbage.index.drop(key)
        return True
    if cluster not in services.clusters.known:
        return False  # it is being filled, so owners may be missing still; or it is being removed as a whole
    metadata = metadata_of(stored.raw)
    # What was read at the start may have been older than a write that was noticed before.
    served = services.present(served, cluster)
    services.garbage.refresh(served, cluster, key, metadata)
    if not metadata.deletion_timestamp:
        if metadata.owner_references:
            await _judge(services, served, stored, metadata)
        return True
    finalizers = metadata.finalizers or ()
    if FOREGROUND in finalizers:
        return await _finish_foreground(services, served, key, (cluster, metadata.uid))
    if ORPHAN in finalizers:
        await _finish_orphan(services, served, key, (cluster, metadata.uid))
    return True


async def _judge(services: Services, served: Served, stored: StoredObject, metadata: Metadata) -> None:
    """Delete an object none of whose owners is left, or take those off that are gone."""
    path, garbage = served.layout.relative(stored.key), services.garbage
    found: dict[_Owner, set[str]] = {state: set() for state in _Owner}
    for reference in metadata.owner_references or ():
        state = await _owner_state(services, path.cluster, path.namespace, reference)
        found[state].add(reference.uid)
    if found[_Owner.UNKNOWN]:
        return
    absent, waiting = found[_Owner.ABSENT], found[_Owner.WAITING]
    orphaned = {uid for uid in absent if (path.cluster, uid) in garbage.orphaned}
    if found[_Owner.PRESENT] or orphaned:
        if absent or waiting:
            await _strip(services, served, stored.key, (absent | waiting) if found[_Owner.PRESENT] else orphaned)
        return
    options = RemoveOptions(
        preconditions=Preconditions(uid=metadata.uid, resource_version=str(stored.revision)),
        propagation=_propagation(services, (path.cluster, metadata.uid), metadata, waited_for=bool(waiting)),
    )
    await Removal(services, served, path.cluster, options).run(stored.key, path.namespace)


def _propagation(services: Services, item: OwnerKey, metadata: Metadata, *, waited_for: bool) -> str:
    finalizers = metadata.finalizers or ()
    if ORPHAN in finalizers:
        return "Orphan"
    if FOREGROUND in finalizers:
        return "Foreground"
    if not waited_for:
        return "Background"
    # What is waited for has to wait for its own dependents, unless they wait for it in turn.
    index = services.garbage.index
    dependents = index.owned_by(item)
    in_circle = any(services.garbage.waits(key) for key in dependents)
    return "Foreground" if dependents and not in_circle else "Background"


async def _owner_state(services: Services, cluster: str, namespace: str, reference: Reference) -> _Owner:
    kind = _kind_of(services, cluster, reference)
    if kind is None or (kind.namespaced and not namespace):
        return _Owner.UNKNOWN
    served = services.stores.serve(kind)
    services.garbage.follow(served)
    try:
        key = served.key(cluster, namespace if kind.namespaced else "", reference.name)
        owner = await served.store.get(key, _MAYBE_ABSENT)
    except InvalidKey:
        return _Owner.ABSENT
    if not owner.exists:
        return _Owner.ABSENT
    metadata = metadata_of(owner.raw)
    if metadata.uid != reference.uid:
        return _Owner.ABSENT
    waits = metadata.deletion_timestamp and FOREGROUND in (metadata.finalizers or ())
    return _Owner.WAITING if waits else _Owner.PRESENT


async def _finish_foreground(services: Services, served: Served, key: str, owner: OwnerKey) -> bool:
    garbage = services.garbage
    for dependent in garbage.index.owned_by(owner):
        known = garbage.index.get(dependent)
        if known is not None and not garbage.waits(dependent):
            garbage.look(known.served, dependent)
    if garbage.index.blocking(owner):
        garbage.wait_for_dependents(owner, served, key)
        return False
    await _release(services, served, key, FOREGROUND)
    return True


async def _finish_orphan(services: Services, served: Served, key: str, owner: OwnerKey) -> None:
    for dependent in services.garbage.index.owned_by(owner):
        known = services.garbage.index.get(dependent)
        if known is not None:
            await _strip(services, services.present(known.served, owner[0]), dependent, {owner[1]})
    await _release(services, served, key, ORPHAN)


async def _strip(services: Services, served: Served, key: str, uids: AbstractSet[str]) -> None:
    """Take the references to some owners off an object."""
    path = served.layout.relative(key)
    try:
        await store_change(services, served, path.cluster, path.namespace, key, _Strip(uids))
    except KeyNotFound:
        services.garbage.index.drop(key)


async def _release(services: Services, served: Served, key: str, finalizer: str) -> None:
    path = served.layout.relative(key)
    try:
        await store_change(services, served, path.cluster, path.namespace, key, Release(drop_finalizer(finalizer)))
    except KeyNotFound:
        return


class _Strip:
    """An update that takes references to some owners away."""

    def __init__(self, uids: AbstractSet[str]) -> None:
        self._uids = uids
        self.released: Document | None = None

    def __call__(self, old: Document, _meta: ResponseMeta) -> UpdateResult:
        metadata = old["metadata"]
        kept = [one for one in metadata.get("ownerReferences") or () if one.get("uid") not in self._uids]
        if kept:
            metadata["ownerReferences"] = kept
        else:
            metadata.pop("ownerReferences", None)
        return old, None


def _kind_of(services: Services, cluster: str, reference: Reference) -> Kind | None:
    name = (reference.api_version, reference.kind)
    kind = _builtin_by_kind().get(name)
    if kind is not None:
        return kind if not kind.root_only or services.catalog.is_root(cluster) else None
    custom = services.catalog.view(cluster).kinds
    return next((kind for kind in custom if (kind.api_version, kind.kind) == name), None)


@cache
def _builtin_by_kind() -> dict[tuple[str, str], Kind]:
    return {(kind.api_version, kind.kind): kind for kind in builtin_kinds().values() if not kind.create_only}


def _stored_resources(services: Services) -> Iterator[Served]:
    """Yield every resource once that objects can be stored of, custom ones of any cluster too."""
    seen: set[str] = set()
    kinds = [kind for kind in builtin_kinds().values() if not kind.create_only]
    kinds.extend(kind for cluster in services.clusters.known for kind in services.catalog.view(cluster).kinds)
    for kind in kinds:
        if kind.storage_resource not in seen:
            seen.add(kind.storage_resource)
            yield services.stores.serve(kind)
