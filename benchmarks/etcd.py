"""The etcd backend against raw calls of the same etcd: what the engine costs on top.

Both speak to one real etcd, found as the tests find it, in turns: only the ratio of neighbours means something on a
machine that is busy. CPU time is this process's alone; etcd's own is not in it. `KPLANE_BENCH_CHECK_PERF=1` also runs
`etcdctl check perf`, which takes a minute.
"""

import asyncio
import itertools
import os
import statistics
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import attrs

from benchmarks.harness.results import Result, Unavailable
from kplane_core.engine import Engine
from kplane_etcd import wire
from kplane_etcd.connection import EtcdConnection, Settings
from kplane_etcd.endpoints import Endpoint, TlsFiles
from kplane_etcd.methods import RANGE, TXN
from kplane_etcd.servers import EtcdServer, ServerFailed
from kplane_etcd.transport import Transport

SUMMARY = "create, get, list and watch of the etcd engine at 64 concurrent, against raw gRPC calls of the same etcd"

_AT_ONCE = 64
_EACH = 40
_VALUE = b"x" * 1024
_EVENTS = 10_000
_REPLAYS = 5


@attrs.frozen
class Cost:
    """What one round took, per operation, in seconds."""

    wall: float
    cpu: float


class Raw:
    """The calls as anybody would make them who knows the protocol."""

    def __init__(self, url: str) -> None:
        self.endpoint = Endpoint(url, TlsFiles())
        self._range = self.endpoint.call(RANGE)
        self._txn = self.endpoint.call(TXN)

    async def create(self, key: str) -> None:
        name = key.encode()
        request = wire.TxnRequest(
            compare=(wire.Compare(target=wire.TARGET_MOD, key=name, mod_revision=0),),
            success=(wire.RequestOp(request_put=wire.PutRequest(key=name, value=_VALUE)),),
        )
        assert (await self._txn(request, timeout=10)).succeeded

    async def get(self, key: str) -> None:
        assert (await self._range(wire.RangeRequest(key=key.encode(), limit=1), timeout=10)).kvs

    async def list(self, start: str, end: str) -> None:
        answer = await self._range(wire.RangeRequest(key=start.encode(), range_end=end.encode(), limit=500), timeout=10)
        # Whoever lists wants to have the records; only then are they taken out of the message.
        assert len([(kv.key, kv.value, kv.create_revision, kv.mod_revision) for kv in answer.kvs]) == 500

    async def replay(self, start: str, end: str, after: int) -> None:
        call = self.endpoint.watch(())
        create = wire.WatchCreateRequest(
            key=start.encode(), range_end=end.encode(), start_revision=after + 1, prev_kv=True
        )
        await call.write(wire.WatchRequest(create_request=create))
        seen = 0
        while seen < _EVENTS:
            response = await call.read()
            seen += len([_told(event) for event in response.events])
        call.cancel()

    async def fill(self, prefix: str) -> None:
        """Put `_EVENTS` keys, a hundred per transaction."""
        for first in range(0, _EVENTS, 100):
            puts = [
                wire.RequestOp(request_put=wire.PutRequest(key=f"{prefix}{first + n:06}".encode(), value=_VALUE))
                for n in range(100)
            ]
            await self._txn(wire.TxnRequest(success=puts), timeout=10)


def _told(event: wire.Event) -> tuple[int, bytes, bytes, int, int, bytes | None]:
    kv = event.kv
    before = event.prev_kv.value if event.HasField("prev_kv") else None
    return event.type, kv.key, kv.value, kv.create_revision, kv.mod_revision, before


class Ours:
    """The same through the engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def create(self, key: str) -> None:
        await self._engine.write(key, _VALUE, expect=0)

    async def get(self, key: str) -> None:
        assert (await self._engine.read(key)).record

    async def list(self, start: str, end: str) -> None:
        assert len((await self._engine.scan(start, end, limit=500)).records) == 500

    async def replay(self, start: str, end: str, after: int) -> None:
        watch = await self._engine.watch(start, end, after=after)
        seen = 0
        while seen < _EVENTS:
            seen += len(await watch.batch())
        await watch.aclose()


def measure(tries: int) -> Iterable[Result]:
    """Measure everything, in `2 * tries` rounds of each side.

    Raises:
        Unavailable: no etcd is installed.
    """
    try:
        server = EtcdServer()
    except ServerFailed as error:
        raise Unavailable(str(error)) from error
    try:
        asyncio.run(server.start())
        return [*asyncio.run(_measure(server, 2 * tries)), *_check_perf(server)]
    finally:
        server.remove()


async def _measure(server: EtcdServer, rounds: int) -> list[Result]:
    transport = Transport([Endpoint(server.url, TlsFiles())])
    connection = EtcdConnection(transport, Settings(compaction_interval=0.0, poll_interval=0.0))
    await connection.start()
    raw, ours = Raw(server.url), Ours(connection.engine)
    try:
        return await _rows(raw, ours, connection.engine, rounds, str(server.binary))
    finally:
        await raw.endpoint.aclose()
        await connection.aclose()


async def _rows(raw: Raw, ours: Ours, engine: Engine, rounds: int, version: str) -> list[Result]:
    numbers = itertools.count()
    fresh = (f"/bench/created/{number:08}" for number in numbers)
    before = await engine.revision()
    await raw.fill("/bench/listed/")
    keys = itertools.cycle(f"/bench/listed/{number:06}" for number in range(0, _EVENTS, 7))

    def create(side: Any) -> Callable[[], Awaitable[int]]:
        return lambda: _many(lambda: side.create(next(fresh)), _EACH)

    def get(side: Any) -> Callable[[], Awaitable[int]]:
        return lambda: _many(lambda: side.get(next(keys)), _EACH)

    def listed(side: Any) -> Callable[[], Awaitable[int]]:
        return lambda: _many(lambda: side.list("/bench/listed/", "/bench/listed0"), 1)

    def replay(side: Any) -> Callable[[], Awaitable[int]]:
        async def work() -> int:
            # etcd begins to replay at its next tenth of a second: several replays even that out.
            for _ in range(_REPLAYS):
                await side.replay("/bench/listed/", "/bench/listed0", before)
            return _EVENTS * _REPLAYS

        return work

    results = []
    for name, work in (("create", create), ("get", get), ("list of 500", listed), ("watch, an event", replay)):
        results += await _compared(name, work(raw), work(ours), rounds)
    results[0] = attrs.evolve(
        results[0], note=f"{version}, values of 1 KiB, {_AT_ONCE} at once, medians of {rounds} rounds"
    )
    return results


async def _many(operation: Callable[[], Awaitable[None]], each: int) -> int:
    async def one() -> None:
        for _ in range(each):
            await operation()

    await asyncio.gather(*(one() for _ in range(_AT_ONCE)))
    return _AT_ONCE * each


async def _compared(
    name: str, raw: Callable[[], Awaitable[int]], ours: Callable[[], Awaitable[int]], rounds: int
) -> list[Result]:
    pairs = [(await _cost(raw), await _cost(ours)) for _ in range(rounds + 1)][1:]
    wall = statistics.median(theirs.wall / mine.wall for theirs, mine in pairs)
    cpu = statistics.median(mine.cpu / theirs.cpu for theirs, mine in pairs)
    ours_wall = statistics.median(mine.wall for _, mine in pairs)
    ours_cpu = statistics.median(mine.cpu for _, mine in pairs)
    return [
        Result(name, 1 / ours_wall, "/s", 1 / ours_cpu),
        # Who takes no more CPU than promised loses throughput to other processes only.
        Result(f"{name}: throughput against raw", wall, "x", by_cpu=1 / cpu, floor=0.85),
        Result(f"{name}: CPU against raw", cpu, "x", floor=1.3, at_most=True),
    ]


async def _cost(work: Callable[[], Awaitable[int]]) -> Cost:
    wall, cpu = time.perf_counter(), time.process_time()
    count = await work()
    return Cost((time.perf_counter() - wall) / count, (time.process_time() - cpu) / count)


def _check_perf(server: EtcdServer) -> list[Result]:
    """Return what etcd's own check says, if it is asked for."""
    if os.environ.get("KPLANE_BENCH_CHECK_PERF") != "1":
        return []
    printed = server.control("check", "perf", "--load=s", timeout=120)
    for line in printed.splitlines():
        if "Throughput is" in line:
            rate = float(line.split("Throughput is")[1].split()[0])
            return [
                Result("etcdctl check perf, load s", rate, "/s", note="etcd's own check; it limits its rate itself")
            ]
    raise Unavailable(f"etcdctl check perf prints no throughput: {printed}")
