"""The store on the memory backend, inside this process: what everything else is built on."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import attrs

from benchmarks.harness.results import Result
from benchmarks.harness.timing import Rate, best_of
from benchmarks.harness.workload import pod
from kplane_apiserver.kinds import builtin_kinds
from kplane_apiserver.requests import readers
from kplane_apiserver.serve import new_event_loop, tune_collector
from kplane_apiserver.storing.stores import Served
from kplane_core.engine import EngineConnection
from kplane_core.multicluster.decorator import DecoratorConfig, storage_with_cluster_identity
from kplane_core.multicluster.keylayout import KeyLayout
from kplane_core.storage import ListOptions, Resource, Store, Watch
from kplane_core.storage.selection import attribute_func
from kplane_memory.engine import MemoryEngine

SUMMARY = "create, get, update, delete, list and watch on the memory backend, in process"

_CLUSTERS = [f"c{number}" for number in range(40)]
_PER_CLUSTER = 500
_LAYOUT = KeyLayout("/pods")
_POD = pod("web-0")


@attrs.frozen
class _Stores:
    plain: Store
    cached: Store


def measure(tries: int) -> Iterable[Result]:
    """Measure everything, each as the best of `tries`."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(_measure(tries))


async def _measure(tries: int) -> list[Result]:
    async with _stores() as stores:
        results = [await _creates(stores.plain, tries)]
        tune_collector()
        results.extend([await _gets(stores.plain, tries), await _updates(stores.plain, tries)])
        results.append(await _deletes(stores.plain, tries))
        results.append(await _lists("list of 500, as bytes", stores.plain, tries, floor=1_000))
        await stores.cached.get_list(_LAYOUT.per_cluster_prefix(_CLUSTERS[0]))
        results.append(await _lists("list of 500 from the watch cache, as bytes", stores.cached, tries))
        for watchers in (1, 100):
            results.append(await _deliveries(stores.plain, "the store", watchers, tries))
            results.append(await _deliveries(stores.cached, "the watch cache", watchers, tries))
        return results


@asynccontextmanager
async def _stores() -> AsyncIterator[_Stores]:
    resource = Resource("pods", "/pods/clusters/", "v1", "Pod")
    connection = EngineConnection(MemoryEngine())
    plain = connection.store(resource)
    cached = storage_with_cluster_identity(DecoratorConfig(_LAYOUT, "pods", lambda _: plain, resource))
    await cached.start()
    try:
        yield _Stores(plain, cached)
    finally:
        await cached.aclose()
        await connection.aclose()


async def _creates(store: Store, tries: int) -> Result:
    """Fill the store; the best of the clusters counts, since each can be created only once."""
    share = max(len(_CLUSTERS) // (2 * tries), 1)
    batches: Iterator[list[str]] = iter([_CLUSTERS[at : at + share] for at in range(0, len(_CLUSTERS), share)])

    async def create_all(clusters: Iterable[str]) -> int:
        keys = [key for cluster in clusters for key in _keys(cluster)]
        for key in keys:
            await store.create(key, _POD)
        return len(keys)

    rate = await best_of(len(_CLUSTERS) // share, lambda: create_all(next(batches)))
    for rest in batches:
        await create_all(rest)
    return _rate("create", rate, floor=20_000, note="a pod of about 1,700 bytes, given as a dict")


async def _gets(store: Store, tries: int) -> Result:
    keys = [key for cluster in _CLUSTERS for key in _keys(cluster)]

    async def work() -> int:
        get = store.get
        for key in keys:
            await get(key)
        return len(keys)

    return _rate("get of stored bytes", await best_of(2 * tries, work), floor=150_000)


async def _updates(store: Store, tries: int) -> Result:
    keys = _keys(_CLUSTERS[1])
    counter = itertools.count()

    async def work() -> int:
        for key in keys:
            await _touch(store, key, next(counter))
        return len(keys)

    rate = await best_of(2 * tries, work)
    return _rate("guaranteed_update", rate, note="reads, decodes, sets a label, encodes and writes the pod")


async def _deletes(store: Store, tries: int) -> Result:
    keys = _keys("doomed")

    async def fill() -> None:
        for key in keys:
            await store.create(key, _POD)

    async def work() -> int:
        for key in keys:
            await store.delete(key)
        return len(keys)

    return _rate("delete", await best_of(2 * tries, work, prepare=fill))


async def _lists(name: str, store: Store, tries: int, floor: float | None = None) -> Result:
    prefixes = [_LAYOUT.per_cluster_prefix(cluster) for cluster in _CLUSTERS]

    served = Served(builtin_kinds()["", "v1", "pods"], store, _LAYOUT, attribute_func({}))

    async def work() -> int:
        for prefix in prefixes:
            page = await store.get_list(prefix)
            assert len(page.items) == _PER_CLUSTER
            for _ in readers._pieces(served, page.items, readers._start_of(served, page)):
                pass
        return len(prefixes)

    note = "0.7 MB, ready to be sent, made in pieces as the server does"
    return _rate(name, await best_of(3 * tries, work), floor=floor, note=note)


async def _deliveries(store: Store, where: str, watchers: int, tries: int) -> Result:
    """Update objects of one cluster in bursts, while `watchers` watches of that cluster take what comes."""
    cluster = _CLUSTERS[2]
    changes = 50 * max(20 // watchers, 1)
    keys = _keys(cluster)[:changes]
    now = str(await store.get_current_resource_version())
    prefix = _LAYOUT.per_cluster_prefix(cluster)
    watches = [await store.watch(prefix, ListOptions(resource_version=now)) for _ in range(watchers)]
    counter = itertools.count()

    async def work() -> int:
        async with asyncio.TaskGroup() as group:
            readers = [group.create_task(_take(watch, len(keys))) for watch in watches]
            for key in keys:
                await _touch(store, key, next(counter))
        return sum(reader.result() for reader in readers)

    rate = await best_of(2 * tries, work)
    for watch in watches:
        watch.stop()
        await watch.__aexit__(None, None, None)
    note = f"{len(keys)} guaranteed_updates in a burst, which are part of the time"
    reached = "a watcher" if watchers == 1 else f"{watchers} watchers"
    return _rate(f"deliveries to {reached} of {where}", rate, note=note)


async def _take(watch: Watch, expected: int) -> int:
    taken = 0
    while taken < expected:
        taken += len(await watch.batch())
    return taken


async def _touch(store: Store, key: str, number: int) -> None:
    await store.guaranteed_update(key, _labelled(number))


def _labelled(number: int) -> "_Label":
    return _Label(str(number))


@attrs.frozen
class _Label:
    value: str

    def __call__(self, found: dict[str, Any], _meta: object) -> tuple[dict[str, Any], None]:
        found["metadata"]["labels"]["number"] = self.value
        return found, None


def _keys(cluster: str) -> list[str]:
    return [_LAYOUT.key(cluster, "default", f"web-{number}") for number in range(_PER_CLUSTER)]


def _rate(name: str, rate: Rate, *, floor: float | None = None, note: str = "") -> Result:
    return Result(name, rate.wall, "/s", by_cpu=rate.cpu, floor=floor, note=note)
