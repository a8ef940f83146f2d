"""The sqlite backend, inside this process, on the disk of the current folder, with every write synced."""

import asyncio
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import attrs

from benchmarks.harness import slowsync
from benchmarks.harness.results import Result, Unavailable
from benchmarks.harness.timing import Rate, best_of
from benchmarks.harness.workload import pod
from kplane_apiserver.serve import new_event_loop
from kplane_core.engine import Compacted, CompactionPolicy, EngineConnection, Written
from kplane_core.storage import Resource, Store
from kplane_memory.engine import MemoryEngine
from kplane_sqlite.engine import SqliteEngine
from kplane_sqlite.opening import Settings

SUMMARY = "create alone and at 64 concurrent, get, list and the size of the file on the sqlite backend, in process"

_POD = pod("web-0")
_PODS = Resource("pods", "/pods/", "v1", "Pod")
_WRITERS = 64
_GAIN = 10.0  # times as much as one writer alone, where the disk is what it waits for
_SLOW_SYNC = 0.001  # seconds; slower disks make group commit worth its while
_DELAYS = (0.001, 0.002, 0.005)  # seconds by which syncs are made slower, to see just that
_SIZE = 500  # bytes of a value in the test of the file's size
_KEYS = 1_000
_UPDATES = 200_000


@attrs.frozen
class Writes:
    """What the disk and the backend on it were found to do.

    Attributes:
        sync: seconds that the disk takes for a page to be safe.
        alone: creates one after the other.
        together: creates by many writers at once.
    """

    sync: float
    alone: Rate
    together: Rate

    @property
    def gain(self) -> float:
        """How many times as much the many get done."""
        return self.together.wall / self.alone.wall


def measure(tries: int) -> Iterator[Result]:
    """Measure everything, each as the best of `tries`."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner, tempfile.TemporaryDirectory(dir=Path.cwd()) as name:
        folder = Path(name)
        bare = runner.run(_memory(tries))
        yield from runner.run(_measure(tries, folder, bare))
        yield from runner.run(_size_of_file(folder))
        yield from _on_slower_disks(folder, tries)


async def _measure(tries: int, folder: Path, bare: Rate) -> list[Result]:
    sync = _sync_time(folder)
    connection = EngineConnection(await SqliteEngine.open(Settings(folder / "kplane.db")))
    store = connection.store(_PODS)
    try:
        writes = await _writes(store, sync, tries)
        return [*_of_writes(writes, bare), await _gets(store, tries), await _lists(store, tries)]
    finally:
        await connection.aclose()


def _of_writes(writes: Writes, bare: Rate) -> Iterator[Result]:
    yield _rate("create, one after the other", writes.alone, note="a pod of about 1,700 bytes; each waits for the disk")
    yield _rate(f"create, {_WRITERS} at once", writes.together, floor=5_000)
    yield _rate(f"create, {_WRITERS} at once, in memory", bare, note="the memory backend: all of it but the database")
    note = f"this disk syncs in {writes.sync * 1000:.2f} ms"
    if writes.sync < _SLOW_SYNC:
        note += (
            f"; below {_SLOW_SYNC * 1000:g} ms there is no floor: the processor is the bottleneck, and would allow "
            f"{bare.wall / writes.alone.wall:.1f} x if the database cost nothing"
        )
    yield Result(
        "create at once against one after the other",
        writes.gain,
        "x",
        # Alone it is the disk that takes the time, at once the processor.
        by_cpu=writes.together.cpu / writes.alone.wall,
        floor=_GAIN if writes.sync >= _SLOW_SYNC else None,
        note=note,
    )


def _on_slower_disks(folder: Path, tries: int) -> Iterator[Result]:
    """Measure the writes in processes whose syncs take longer, or say on standard error why not."""
    try:
        library = slowsync.build(folder)
    except Unavailable as reason:
        print(f"sqlite: no slower disk: {reason}", file=sys.stderr)
        return
    for delay in _DELAYS:
        slower = f"{delay * 1000:g} ms slower"
        writes = _in_child(folder, tries, library, delay)
        note = f"syncs take {writes.sync * 1000:.2f} ms there; one after the other {writes.alone.wall:.0f}/s"
        yield Result(f"create, {_WRITERS} at once, syncs {slower}", writes.together.wall, "/s", note=note)
        yield Result(f"create at once against alone, syncs {slower}", writes.gain, "x", floor=_GAIN)


def _in_child(folder: Path, tries: int, library: Path, delay: float) -> Writes:
    own = folder / f"slower-{delay}"
    own.mkdir()
    command = [sys.executable, "-m", "benchmarks.sqlite", str(own), str(tries)]
    done = subprocess.run(
        command, env=slowsync.environment(library, delay), capture_output=True, text=True, check=False, timeout=300
    )
    if done.returncode:
        raise Unavailable(f"the process with slower syncs failed: {done.stderr.strip()[-500:]}")
    found = json.loads(done.stdout)
    writes = Writes(found["sync"], Rate(**found["alone"]), Rate(**found["together"]))
    if writes.sync < delay:
        raise Unavailable(f"syncs were to take {delay * 1000:g} ms longer, and take {writes.sync * 1000:.2f} ms")
    return writes


async def _child(folder: Path, tries: int) -> Writes:
    """Measure the writes in a folder: all that the processes with slower syncs do."""
    sync = _sync_time(folder)
    connection = EngineConnection(await SqliteEngine.open(Settings(folder / "kplane.db")))
    try:
        return await _writes(connection.store(_PODS), sync, tries)
    finally:
        await connection.aclose()


async def _memory(tries: int) -> Rate:
    connection = EngineConnection(MemoryEngine())
    try:
        return await _creates(connection.store(_PODS), "together", _WRITERS, 40, tries)
    finally:
        await connection.aclose()


async def _writes(store: Store, sync: float, tries: int) -> Writes:
    alone = await _creates(store, "alone", 1, 200, tries)
    return Writes(sync, alone, await _creates(store, "together", _WRITERS, 40, tries))


def _sync_time(folder: Path) -> float:
    """Return the seconds that the disk takes for a page to be safe."""
    with (folder / "probe").open("wb", buffering=0) as probe:
        took = []
        for _ in range(50):
            probe.write(b"x" * 4096)
            began = time.perf_counter()
            os.fsync(probe.fileno())
            took.append(time.perf_counter() - began)
    return sorted(took)[len(took) // 2]


async def _creates(store: Store, name: str, writers: int, each: int, tries: int) -> Rate:
    rounds = itertools.count()

    async def create(prefix: str) -> None:
        for number in range(each):
            await store.create(f"/pods/{prefix}/{number}", _POD)

    async def work() -> int:
        mark = next(rounds)
        await asyncio.gather(*(create(f"{name}-{mark}-{writer}") for writer in range(writers)))
        return writers * each

    return await best_of(tries, work)


async def _gets(store: Store, tries: int) -> Result:
    keys = [f"/pods/together-0-{number % _WRITERS}/{number % 40}" for number in range(5_000)]

    async def work() -> int:
        for key in keys:
            await store.get(key)
        return len(keys)

    return _rate("get of stored bytes", await best_of(2 * tries, work), floor=20_000)


async def _lists(store: Store, tries: int) -> Result:
    for number in range(500):
        await store.create(f"/pods/listed/{number}", _POD)

    async def work() -> int:
        for _ in range(50):
            page = await store.get_list("/pods/listed/")
            b",".join([stored.data for stored in page.items])
            assert len(page.items) == 500
        return 50

    return _rate("list of 500, as bytes", await best_of(2 * tries, work), floor=300)


async def _size_of_file(folder: Path) -> list[Result]:
    """Overwrite 1,000 keys 200,000 times, compact every half second, and look at the file at the end and in between."""
    engine = await SqliteEngine.open(Settings(folder / "size.db"))
    connection = EngineConnection(engine, compaction=CompactionPolicy(interval=0.5, poll=0.5))
    await connection.start()
    largest = 0

    async def overwrite(writer: int) -> None:
        nonlocal largest
        mine = range(writer, _KEYS, _WRITERS)
        revisions = dict.fromkeys(mine, 0)
        for _, key in zip(range(_UPDATES // _WRITERS), itertools.cycle(mine), strict=False):
            answer = await engine.write(f"/registry/things/{key}", b"x" * _SIZE, expect=revisions[key])
            assert isinstance(answer, Written)
            revisions[key] = answer.revision
            if not answer.revision % 1000:
                largest = max(largest, await engine.size())

    try:
        await asyncio.gather(*(overwrite(writer) for writer in range(_WRITERS)))
        with suppress(Compacted):  # the loop was faster
            await connection.compact(await engine.revision())
        await engine.reclaim()
        live = sum(len(record.key) + len(record.value) for record in (await engine.scan("/", "0")).records)
        size = await engine.size()
    finally:
        await connection.aclose()
    note = f"{_UPDATES:,} updates of {_KEYS:,} keys with {_SIZE} bytes each"
    return [
        Result("file against live data, compacted", size / live, "x", floor=3.0, at_most=True, note=note),
        Result("file against live data, at its largest", largest / live, "x", note="with history of up to a second"),
    ]


def _rate(name: str, rate: Rate, floor: float | None = None, note: str = "") -> Result:
    return Result(name, rate.wall, "/s", rate.cpu, floor, note=note)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=new_event_loop) as own:
        print(json.dumps(attrs.asdict(own.run(_child(Path(sys.argv[1]), int(sys.argv[2]))))))
