"""Lists and gets from the cache: from the current state, or from the past by way of the history."""

from collections.abc import Callable, Sequence

from kplane_core.cacher.cacher import Cacher
from kplane_core.errors import KeyNotFound
from kplane_core.storage.interface import GetOptions, ListOptions, ObjectList, StoredObject
from kplane_core.storage.keys import prefix_end
from kplane_core.storage.paging import ListPlan, encode_continue


class CacheReader:
    """Reads from one cache; the caller has seen to it that the cache is ready and fresh enough.

    Args:
        cacher: the cache.
    """

    def __init__(self, cacher: Cacher) -> None:
        self._cacher = cacher

    def get(self, key: str, options: GetOptions) -> StoredObject:
        """Return the object of `key`.

        Raises:
            KeyNotFound: there is none, unless the options ignore that.
        """
        found = self._cacher.state.get(key)
        if found is not None:
            return found
        if options.ignore_not_found:
            return StoredObject(key, 0, b"")
        raise KeyNotFound(key, resource_version=self._cacher.revision)

    def single(self, key: str, options: ListOptions) -> ObjectList:
        """Return a list of the one object of `key`, if it is there and selected."""
        found = self._cacher.state.get(key)
        selects = self._cacher.state.selector(options.predicate)
        selected = found is not None and (selects is None or selects(found))
        return ObjectList((found,) if found is not None and selected else (), self._cacher.revision)

    def latest(self, prefix: str, options: ListOptions, plan: ListPlan, *, limited: bool = True) -> ObjectList:
        """Return a page of the current objects below `prefix`.

        Args:
            prefix: a directory.
            options: with the selector and the limit.
            plan: where to start.
            limited: False to ignore the limit, as upstream does for resourceVersion "0".
        """
        state = self._cacher.state
        candidates = None
        if not plan.start:
            candidates = state.indexed(prefix, self._cacher.scope_of(prefix), options.predicate)
        if candidates is None:
            candidates = state.scan(plan.start or prefix, prefix_end(prefix))
        limit = options.predicate.limit if limited else 0
        return self._page(candidates, prefix, options, limit, self._cacher.revision)

    def exact(self, prefix: str, options: ListOptions, plan: ListPlan) -> ObjectList | None:
        """Return a page of the objects below `prefix` as they were at the plan's revision.

        Returns:
            None when the history does not reach back so far.
        """
        lane = self._cacher.lane_of(prefix)
        if plan.at < lane.floor or plan.at < self._cacher.store.compact_revision():
            return None
        candidates: Sequence[StoredObject] = self._cacher.state.at(prefix, plan.at, lane)
        if plan.start:
            candidates = [found for found in candidates if found.key >= plan.start]
        return self._page(candidates, prefix, options, options.predicate.limit, plan.at)

    def _page(
        self, candidates: Sequence[StoredObject], prefix: str, options: ListOptions, limit: int, revision: int
    ) -> ObjectList:
        metrics = self._cacher.metrics
        metrics.list_total += 1
        selects = self._cacher.state.selector(options.predicate)
        limit = max(limit, 0)
        if selects is None:
            items = tuple(candidates[:limit]) if limit else tuple(candidates)
            looked_at = len(items)
        else:
            items, looked_at = _select(candidates, selects, limit)
        metrics.list_fetched_objects += looked_at
        metrics.list_returned_objects += len(items)
        if looked_at >= len(candidates):
            return ObjectList(items, revision)
        token = encode_continue(candidates[looked_at - 1].key + "\0", prefix, revision)
        return ObjectList(items, revision, token, len(candidates) - limit if selects is None else None)


def _select(
    candidates: Sequence[StoredObject], selects: Callable[[StoredObject], bool], limit: int
) -> tuple[tuple[StoredObject, ...], int]:
    """Return the selected candidates, at most `limit`, and how many were looked at for them."""
    if not limit:
        return tuple(filter(selects, candidates)), len(candidates)
    items: list[StoredObject] = []
    for looked_at, found in enumerate(candidates, start=1):
        if selects(found):
            items.append(found)
            if len(items) >= limit:
                return tuple(items), looked_at
    return tuple(items), len(candidates)
