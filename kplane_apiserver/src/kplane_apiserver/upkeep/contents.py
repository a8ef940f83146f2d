"""Removing the content of a namespace, of a CustomResourceDefinition or of a cluster, and then the owner itself."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

from kplane_apiserver.clusters.admission import NAMESPACE_FINALIZER, has_finalizers, is_deleting
from kplane_apiserver.clusters.garbage import metadata_of
from kplane_apiserver.clusters.lifecycle import Owner
from kplane_apiserver.clusters.namespaces import terminating
from kplane_apiserver.clusters.registry import CLUSTER_KEY, CONTENT_FINALIZER, NAMESPACE_KEY
from kplane_apiserver.clusters.ttl import end_of
from kplane_apiserver.kinds import Kind, KindKey, builtin_kinds
from kplane_apiserver.requests.params import RemoveOptions
from kplane_apiserver.requests.removers import DEFINITION_FINALIZER, Removal
from kplane_apiserver.requests.writers import store_change
from kplane_apiserver.services import DEFINITION_KEY, Services
from kplane_apiserver.storing.stores import Served
from kplane_apiserver.upkeep.contents_remaining import Remaining
from kplane_core.errors import KeyNotFound
from kplane_core.storage.interface import GetOptions, ListOptions, ObjectList, ResponseMeta, UpdateResult
from kplane_core.storage.preconditions import Preconditions
from kplane_core.storage.selection import Predicate

Document = dict[str, Any]

_PAGE = 500
_REMOVE = RemoveOptions(propagation="Background")


async def finish(services: Services, owner: Owner) -> bool:
    """Remove what can be removed of an owner's content, and the owner once nothing is left.

    Returns:
        Whether the owner is gone.

    Raises:
        KplaneError: the store failed; what was removed stays removed.
    """
    match owner.what:
        case "namespace":
            return await _finish_namespace(services, owner)
        case "definition":
            return await _finish_definition(services, owner)
        case "cluster":
            return await _finish_cluster(services, owner)
        case "expired":
            return await _finish_expired(services, owner)
        case "account":
            return await _finish_account(services, owner)
        case "fleet":
            raise LookupError("fleets are looked after by fleets.finish")


async def find_unfinished(services: Services) -> None:
    """Take up the deletions of CustomResourceDefinitions that an earlier process did not finish.

    Those of namespaces and clusters are found by the followers of their stores.

    Raises:
        KplaneError: the store cannot be listed.
    """
    served = _builtin(services, DEFINITION_KEY)
    async for page in pages(served, served.layout.kind_root_prefix()):
        for stored in page.items:
            if terminating(stored):
                path = served.layout.relative(stored.key)
                services.lifecycle.enqueue(Owner("definition", path.cluster, path.name))


async def _finish_namespace(services: Services, owner: Owner) -> bool:
    kinds = (kind for kind in services.catalog.kinds(owner.cluster) if kind.namespaced)
    left = Remaining(services.now())
    for served in each_resource(services, kinds):
        await _delete_all(services, served, owner.cluster, owner.name, left)
    if left:
        await _tell_remaining(services, owner, left)
        return False

    def release(document: Document) -> None:
        spec = document.get("spec") or {}
        kept = [name for name in spec.get("finalizers") or [] if name != NAMESPACE_FINALIZER]
        document["spec"] = {**spec, "finalizers": kept} if kept else {}

    return await _let_go(services, _builtin(services, NAMESPACE_KEY), owner.cluster, owner.name, release)


async def _tell_remaining(services: Services, owner: Owner, left: Remaining) -> None:
    served = _builtin(services, NAMESPACE_KEY)
    with contextlib.suppress(KeyNotFound):
        stored = await served.store.guaranteed_update(served.key(owner.cluster, "", owner.name), left)
        services.wrote(served, owner.cluster, stored)


async def _finish_expired(services: Services, owner: Owner) -> bool:
    """Delete a cluster whose time is over, unless it got more time meanwhile."""
    served = _builtin(services, CLUSTER_KEY)
    root = services.settings.root_cluster
    stored = await served.store.get(served.key(root, "", owner.name), GetOptions(ignore_not_found=True))
    end = end_of(stored) if stored.exists else None
    if end is not None and end <= services.settings.now() and not terminating(stored):
        options = RemoveOptions(preconditions=Preconditions(resource_version=str(stored.revision)))
        await Removal(services, served, root, options).run(stored.key, "")
    return True


async def _finish_account(services: Services, owner: Owner) -> bool:
    """Give a namespace its default service account; one that is gone or going needs none."""
    if services.namespaces.accepts(owner.cluster, owner.name):
        await services.clusters.ensure_account(owner.cluster, owner.name)
    return True


async def _finish_definition(services: Services, owner: Owner) -> bool:
    plural, _, group = owner.name.partition(".")
    kinds = [
        kind
        for kind in services.catalog.kinds(owner.cluster)
        if kind.custom is not None and kind.plural == plural and kind.group == group
    ]
    left = Remaining(services.now())
    for served in each_resource(services, kinds):
        await _delete_all(services, served, owner.cluster, "", left)
    if left:
        return False
    gone = await _let_go(
        services, _builtin(services, DEFINITION_KEY), owner.cluster, owner.name, drop_finalizer(DEFINITION_FINALIZER)
    )
    if gone:
        # An object that was being written while the others were removed must not outlive its definition.
        for served in each_resource(services, kinds):
            await _remove_all(services, served, owner.cluster)
        await services.catalog.reconsider(owner.cluster, group, services.now())
    return gone


async def _finish_cluster(services: Services, owner: Owner) -> bool:
    # The definitions are removed on the way, so what they define has to be known before. Instances go first.
    kinds = tuple(reversed(services.catalog.kinds(owner.cluster)))
    resources = [served for served in each_resource(services, kinds) if served.kind.key != CLUSTER_KEY]
    while sum([await _remove_all(services, served, owner.cluster) for served in resources]):
        pass  # a request that was under way may have written meanwhile: look again until a whole round finds nothing
    return await _let_go(
        services,
        _builtin(services, CLUSTER_KEY),
        services.settings.root_cluster,
        owner.name,
        drop_finalizer(CONTENT_FINALIZER),
    )


def _builtin(services: Services, key: KindKey) -> Served:
    return services.stores.serve(builtin_kinds()[key])


def each_resource(services: Services, kinds: Iterable[Kind]) -> list[Served]:
    """Return one kind per store: versions share their objects, and so do the two groups of Events."""
    first = {kind.storage_resource: kind for kind in reversed(list(kinds)) if "delete" in kind.verbs}
    return [services.stores.serve(kind) for kind in reversed(first.values())]


async def _delete_all(services: Services, served: Served, cluster: str, namespace: str, left: Remaining) -> None:
    """Delete objects as a client would; take those into `left` that finalizers hold."""
    async for page in pages(served, served.prefix(cluster, namespace)):
        for stored in page.items:
            await asyncio.sleep(0)  # a store in memory never waits, and everybody else's requests must not
            removal = Removal(services, served, cluster, _REMOVE)
            try:
                held = await removal.run(stored.key, served.layout.relative(stored.key).namespace)
            except KeyNotFound:
                continue
            if removal.held:
                left.add(served.kind, metadata_of(held.raw).finalizers or [])


async def _remove_all(services: Services, served: Served, cluster: str) -> int:
    """Remove a cluster's objects whatever holds them; return how many there were."""
    removed = 0
    async for page in pages(served, served.prefix(cluster)):
        for stored in page.items:
            await asyncio.sleep(0)
            try:
                deleted = await served.store.delete(stored.key, suggestion=stored)
            except KeyNotFound:
                continue
            removed += 1
            services.removed(served, cluster, served.layout.relative(stored.key).namespace, deleted)
    return removed


async def pages(served: Served, prefix: str) -> AsyncIterator[ObjectList]:
    """Yield the objects below a prefix, page by page.

    Raises:
        KplaneError: the store cannot be listed.
    """
    token = ""
    while True:
        predicate = Predicate(limit=_PAGE, continue_token=token)
        # Past the cache: a removal should not fill the caches of all the resources that nobody reads.
        page = await served.plain.get_list(prefix, ListOptions(predicate=predicate))
        yield page
        token = page.continue_token
        if not token:
            return


def drop_finalizer(finalizer: str) -> Callable[[Document], None]:
    """Return what takes one finalizer off an object."""

    def drop(document: Document) -> None:
        metadata = document["metadata"]
        metadata["finalizers"] = [name for name in metadata.get("finalizers", ()) if name != finalizer]
        if not metadata["finalizers"]:
            del metadata["finalizers"]

    return drop


class Release:
    """An update that takes the server's own finalizer away."""

    def __init__(self, release: Callable[[Document], None]) -> None:
        self._release = release
        self.released: Document | None = None

    def __call__(self, old: Document, _meta: ResponseMeta) -> UpdateResult:
        """Return the object without what the server holds it by."""
        self.released = None
        if not is_deleting(old):
            return old, None  # it was deleted and made anew meanwhile
        new = {**old, "metadata": dict(old["metadata"])}
        self._release(new)
        if has_finalizers(new):
            return new, None
        self.released = new
        return old, None


async def _let_go(
    services: Services, served: Served, cluster: str, name: str, release: Callable[[Document], None]
) -> bool:
    """Take the server's own finalizer off an owner, which deletes it if that was the last one.

    Returns:
        True: the server has no part in it any more. If others hold it, their last update deletes it.
    """
    with contextlib.suppress(KeyNotFound):
        await store_change(services, served, cluster, "", served.key(cluster, "", name), Release(release))
    return True
