"""Deleting all objects of a kind in a cluster, as the deletion of their CustomResourceDefinition demands."""

from typing import Any

from kplane_core.errors import KeyNotFound, KplaneError
from kplane_core.multicluster.keylayout import KeyLayout
from kplane_core.storage.interface import ListOptions, ResponseMeta, Store, StoredObject, UpdateResult
from kplane_core.storage.selection import Predicate

_PAGE = 500


class _HeldByFinalizers(KplaneError):
    """The object names finalizers, so its deletion has to wait for them."""


async def delete_instances(store: Store, layout: KeyLayout, cluster: str, now: str) -> int:
    """Delete every object of a kind in a cluster; those with finalizers are only marked.

    Called before a definition is deleted; safe to call again, as often as something is left.

    Args:
        store: holds the kind's objects of all clusters.
        layout: where they stand.
        cluster: whose objects go; no other cluster's are touched.
        now: the time of deletion, in RFC 3339.

    Returns:
        How many objects are left, waiting for their finalizers.

    Raises:
        KplaneError: the store failed.
    """
    prefix, token, left = layout.per_cluster_prefix(cluster), "", 0
    while True:
        options = ListOptions(predicate=Predicate(limit=_PAGE, continue_token=token))
        page = await store.get_list(prefix, options)
        for stored in page.items:
            left += await _delete(store, stored, now)
        token = page.continue_token
        if not token:
            return left


async def _delete(store: Store, stored: StoredObject, now: str) -> int:
    """Delete one object, or mark it; return how many are left of it: 0 or 1."""
    try:
        await store.delete(stored.key, validate=_refuse_finalizers, suggestion=stored)
    except KeyNotFound:
        return 0
    except _HeldByFinalizers:
        return await _mark(store, stored, now)
    return 0


async def _mark(store: Store, stored: StoredObject, now: str) -> int:
    def mark(current: dict[str, Any], _meta: ResponseMeta) -> UpdateResult:
        metadata = current["metadata"]
        metadata.setdefault("deletionTimestamp", now)
        metadata.setdefault("deletionGracePeriodSeconds", 0)
        return current, None

    try:
        await store.guaranteed_update(stored.key, mark, suggestion=stored)
    except KeyNotFound:
        return 0
    return 1


def _refuse_finalizers(stored: StoredObject | None) -> None:
    if stored is not None and stored.decode().get("metadata", {}).get("finalizers"):
        raise _HeldByFinalizers(f"{stored.key} has finalizers")
