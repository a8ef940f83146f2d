"""Opening a watch on the cache: where it starts, what it gets first, where it is filed."""

import attrs

from kplane_core.cacher.cacher import Cacher
from kplane_core.cacher.scopes import Place
from kplane_core.cacher.watching import CacheWatch, WatchPlan
from kplane_core.errors import Expired, KplaneError
from kplane_core.storage.interface import ListOptions, StoredObject, Watch
from kplane_core.storage.keys import prefix_end, prepare_key
from kplane_core.storage.paging import parse_or_bad_request


async def open_watch(cacher: Cacher, key: str, options: ListOptions) -> Watch:
    """Return a watch served by the cache.

    Args:
        cacher: the cache.
        key: a directory, or one key when not recursive.
        options: as the caller gave them.

    Raises:
        InvalidKey, BadRequest: the request is not understood.
        TooManyRequests: the cache is not ready. Everything later arrives as an ERROR event.
    """
    key = prepare_key(key, cacher.store.resource_prefix, recursive=options.recursive)
    revision = parse_or_bad_request(options.resource_version)
    if not cacher.readiness.ready:
        raise cacher.readiness.too_many_requests()
    generation = cacher.readiness.generation
    try:
        if not options.resource_version and options.send_initial_events is not None:
            revision = await cacher.store.get_current_resource_version()
        if options.send_initial_events:
            await cacher.freshness.wait(revision)
    except KplaneError as error:
        return _failed(cacher, key, options, error)
    if not cacher.readiness.ready or cacher.readiness.generation != generation:
        # What was known when the watch was asked for is gone; the client lists and watches again.
        return _ended(cacher, key, options)
    return _register(cacher, key, options, revision)


def _register(cacher: Cacher, key: str, options: ListOptions, revision: int) -> Watch:
    now = cacher.revision
    wants = options.send_initial_events
    initial: list[StoredObject] = []
    cursor: int | None = None
    plan = _plan(cacher, key, options, after=max(revision, now))
    if wants or (wants is None and revision == 0):
        found = cacher.state.scan(plan.start, plan.end)
        selects = cacher.state.selector(options.predicate)
        initial = found if selects is None else list(filter(selects, found))
        cacher.metrics.init_events += len(initial)
        if wants and options.predicate.allow_watch_bookmarks:
            plan = attrs.evolve(plan, end_bookmark=now)
    elif revision and revision < now:
        plan = attrs.evolve(plan, after=revision)
        lane = cacher.lane_of(key)
        position = lane.after(revision)
        if position is None:
            return _failed(cacher, key, options, Expired(f"too old resource version: {revision} ({lane.floor})"))
        cursor = position if position < lane.end else None
    watch = CacheWatch(plan, cacher.scopes_of(key), cacher.owner, initial=initial, cursor=cursor)
    cacher.register(watch, key)
    return watch


def _plan(cacher: Cacher, key: str, options: ListOptions, *, after: int) -> WatchPlan:
    start, end = (key, prefix_end(key)) if options.recursive else (key, key + "\0")
    return WatchPlan(
        start=start,
        end=end,
        place=_place(cacher, key, options),
        predicate=options.predicate,
        after=after,
        bookmarks=options.predicate.allow_watch_bookmarks,
        deadline=options.deadline,
    )


def _place(cacher: Cacher, key: str, options: ListOptions) -> Place:
    if not options.recursive:
        return ("key", key)
    predicate = options.predicate
    if predicate.attributes in (None, cacher.resource.attributes):
        for field in cacher.config.indexed_fields:
            value = predicate.fields.exact(field)
            if value is not None:
                return ("field", field, value)
    return ("directory", key)


def _failed(cacher: Cacher, key: str, options: ListOptions, error: KplaneError) -> Watch:
    watch = CacheWatch(_plan(cacher, key, options, after=0), cacher.scopes_of(key), cacher.owner)
    watch.fail(error)
    return watch


def _ended(cacher: Cacher, key: str, options: ListOptions) -> Watch:
    watch = CacheWatch(_plan(cacher, key, options, after=0), cacher.scopes_of(key), cacher.owner)
    watch.stop()
    return watch
