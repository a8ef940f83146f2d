"""The watch cache, inside this process: what idle clusters and watchers cost, and what busy ones can have."""

import asyncio
import gc
import itertools
import json
import resource as system
import statistics
import time
import tracemalloc
from collections.abc import Iterable, Sequence

from benchmarks.harness.results import Result
from benchmarks.harness.timing import best_of
from benchmarks.harness.workload import pod
from kplane_apiserver.serve import new_event_loop
from kplane_core.cacher import CachedStore, CacherConfig
from kplane_core.engine import EngineConnection
from kplane_core.multicluster import KeyLayout
from kplane_core.storage import ListOptions, Resource
from kplane_core.storage.interface import EventType, StoredObject, WatchEvent
from kplane_memory.engine import MemoryEngine

SUMMARY = "dispatch of the watch cache beside idle clusters and watchers, fan-out, memory"

_LAYOUT = KeyLayout("/pods")
_RESOURCE = Resource("pods", _LAYOUT.kind_root_prefix(), "v1", "Pod")
_RAW = json.dumps(pod("web-0"), separators=(",", ":")).encode()
_NOISE = "of two counts in turn, by CPU time; around 1.0 is noise"


def measure(tries: int) -> Iterable[Result]:
    """Measure everything, each as the best of `tries`."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(_measure(tries))


async def _measure(tries: int) -> list[Result]:
    return [
        await _idle_clusters(tries),
        await _idle_watchers(tries),
        await _fan_out(tries),
        await _stalled(tries),
        await _overhead(selected=False),
        await _overhead(selected=True),
        *await _open_and_close(),
    ]


class _Bench:
    """A cache that is fed by hand, so that nothing but the cache is measured."""

    def __init__(self) -> None:
        self.connection = EngineConnection(MemoryEngine())
        plain = self.connection.store(_RESOURCE)
        self.store = CachedStore(plain, _RESOURCE, CacherConfig(identity=_LAYOUT.cluster_from_key))
        self.cacher = self.store.cacher
        self.cacher.replace([], 1)
        self.delivered = 0
        self._revision = itertools.count(2)

    def events(self, cluster: str, count: int, *, names: int = 100) -> list[WatchEvent]:
        """Return the next changes of some pods of a cluster."""
        keys = [_LAYOUT.key(cluster, "default", f"web-{number}") for number in range(names)]
        return [
            WatchEvent(EventType.MODIFIED, StoredObject(keys[number % names], next(self._revision), _RAW))
            for number in range(count)
        ]

    async def watch(self, cluster: str) -> "asyncio.Task[None]":
        """Return a task that reads a watch of a cluster from now on."""
        options = ListOptions(resource_version=str(self.cacher.revision))
        watch = await self.store.watch(_LAYOUT.per_cluster_prefix(cluster), options)

        async def read() -> None:
            async with watch:
                while events := await watch.batch():
                    self.delivered += len(events)

        return asyncio.create_task(read())

    async def aclose(self) -> None:
        """Close everything."""
        await self.store.aclose()
        await self.connection.aclose()


async def _dispatch(bench: _Bench, events: Sequence[WatchEvent]) -> float:
    """Return the CPU seconds that intake and delivery of events took."""
    began = time.process_time()
    for at in range(0, len(events), 10):
        bench.cacher.ingest(events[at : at + 10])
        await asyncio.sleep(0)
    return time.process_time() - began


async def _ratio(few: _Bench, many: _Bench, tries: int) -> float:
    """Return how many times longer the second takes for the same; the least of each counts."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(max(tries, 3)):
        for spent, bench in zip(seconds, (few, many), strict=True):
            events = bench.events("busy", 5_000)
            gc.collect()
            spent.append(await _dispatch(bench, events))
    return min(seconds[1]) / min(seconds[0])


async def _with_idle_clusters(count: int) -> _Bench:
    bench = _Bench()
    for number in range(count):
        bench.cacher.ingest(bench.events(f"idle-{number}", 10, names=10))
    await bench.watch("busy")
    return bench


async def _idle_clusters(tries: int) -> Result:
    few, many = await _with_idle_clusters(10), await _with_idle_clusters(1_000)
    value = await _ratio(few, many, tries)
    await few.aclose()
    await many.aclose()
    return Result("an event among 1,000 idle clusters, against 10", value, "x", floor=1.2, at_most=True, note=_NOISE)


async def _with_idle_watchers(count: int) -> _Bench:
    bench = _Bench()
    for number in range(count):
        await bench.watch(f"idle-{number % 1_000}")
    await bench.watch("busy")
    await asyncio.sleep(0)
    return bench


async def _idle_watchers(tries: int) -> Result:
    none, many = await _with_idle_watchers(0), await _with_idle_watchers(10_000)
    value = await _ratio(none, many, tries)
    await none.aclose()
    await many.aclose()
    return Result(
        "an event beside 10,000 idle watchers, against none", value, "x", floor=1.3, at_most=True, note=_NOISE
    )


async def _fan_out(tries: int) -> Result:
    bench = _Bench()
    for _ in range(1_000):
        await bench.watch("busy")
    await asyncio.sleep(0)

    async def deliver() -> int:
        events, before = bench.events("busy", 500), bench.delivered
        for at in range(0, len(events), 50):
            bench.cacher.ingest(events[at : at + 50])
            await asyncio.sleep(0)
        while bench.delivered < before + len(events) * 1_000:  # noqa: ASYNC110 - measured: the readers tell nobody
            await asyncio.sleep(0)
        return bench.delivered - before

    rate = await best_of(tries, deliver)
    await bench.aclose()
    what = "deliveries to 1,000 watchers of one cluster, 50 changes at a time"
    return Result(what, rate.wall, "/s", by_cpu=rate.cpu, floor=150_000)


async def _latencies(*, stalled: bool) -> list[float]:
    """Return how long each of 50 healthy watchers waited for each of some changes."""
    bench = _Bench()
    prefix = _LAYOUT.per_cluster_prefix("busy")
    options = ListOptions(resource_version=str(bench.cacher.revision))
    waited: list[float] = []
    told = 0.0

    async def read() -> None:
        watch = await bench.store.watch(prefix, options)
        while events := await watch.batch():
            waited.extend([time.perf_counter() - told] * len(events))

    tasks = [asyncio.create_task(read()) for _ in range(50)]
    if stalled:  # opened and never read
        await bench.store.watch(prefix, options)
    await asyncio.sleep(0)
    for event in bench.events("busy", 500):
        told = time.perf_counter()
        bench.cacher.ingest([event])
        await asyncio.sleep(0)
    await bench.aclose()
    await asyncio.gather(*tasks)
    return waited


async def _stalled(tries: int) -> Result:
    def p99(waited: list[float]) -> float:
        return statistics.quantiles(waited, n=100)[98]

    without, beside = [], []
    for _ in range(max(tries, 3)):
        without.append(p99(await _latencies(stalled=False)))
        beside.append(p99(await _latencies(stalled=True)))
    name = "p99 of 50 watchers beside a stalled one, against none"
    return Result(name, min(beside) / min(without), "x", floor=1.5, at_most=True, note=_NOISE)


async def _overhead(*, selected: bool) -> Result:
    bench, count = _Bench(), 20_000
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    objects = []
    for number in range(count):
        key = _LAYOUT.key(f"c{number % 200}", "default", f"web-{number:06}")
        objects.append(StoredObject(key, number + 1, bytes(bytearray(_RAW))))
    bench.cacher.replace(objects, count)
    del objects
    if selected:
        found = list(bench.cacher.state.scan(_LAYOUT.kind_root_prefix(), "0"))
        for one in found:
            bench.cacher.state.attributes_of(one)
        del found
    gc.collect()
    used = (tracemalloc.get_traced_memory()[0] - before) / count - len(_RAW)
    tracemalloc.stop()
    await bench.aclose()
    if selected:
        return Result("memory per cached object once its labels were read", used, "B", note="beyond its JSON and key")
    return Result("memory per cached object beyond its JSON", used, "B", floor=600, at_most=True, note="the key counts")


async def _open_and_close() -> Sequence[Result]:
    """Return what 2,000 watches leave when they were opened and closed three times, and how long one takes."""
    bench = _Bench()

    async def round_trip() -> None:
        readers = [await bench.watch(f"c{number % 100}") for number in range(2_000)]
        await asyncio.sleep(0)
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)

    await round_trip()
    gc.collect()
    tasks = len(asyncio.all_tasks())
    peak = system.getrusage(system.RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    for _ in range(3):
        await round_trip()
    each = (time.process_time() - began) / 6_000 * 1e6
    gc.collect()
    grown = system.getrusage(system.RUSAGE_SELF).ru_maxrss - peak
    left = len(asyncio.all_tasks()) - tasks + bench.cacher.watcher_count + bench.cacher.history.lanes
    await bench.aclose()
    return [
        Result("tasks, watchers and histories left by 3 x 2,000 watches", left, "", floor=0, at_most=True),
        Result("growth of the peak of memory by 3 x 2,000 watches", grown, "KiB", floor=4_096, at_most=True),
        Result("opening and closing a watch, by CPU time", each, "us"),
    ]
