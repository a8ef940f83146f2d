"""The spanner backend on Google's emulator: against the bare client, and the time from a commit to its event.

The bare client is google-cloud-spanner's own `AsyncClient`, with the same reads and mutations in its transactions.
"""

import asyncio
import itertools
import json
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from statistics import quantiles
from typing import Any

from google.auth.credentials import AnonymousCredentials
from google.cloud.spanner_v1 import COMMIT_TIMESTAMP, AsyncBurstyPool, AsyncClient
from google.cloud.spanner_v1.keyset import KeySet

from benchmarks.harness.results import Result, Unavailable
from benchmarks.harness.timing import Rate, best_of
from kplane_spanner import schema
from kplane_spanner.emulator import Emulator, NoEmulator
from kplane_spanner.engine import SpannerEngine, open_engine
from kplane_spanner.plugin import SpannerOptions
from kplane_spanner.revisions import shard_of, tie_of

SUMMARY = "create, update, read against the bare client; time from commit to event, in this process and in another one"

_VALUE = b"x" * 1_000
_WRITERS = 8
_COUNT = 400
_EVENTS = 200
_RECORD = ("key", "value", "mod_ts", "create_ts", "lease_ts", "ttl")
_LOG = ("shard", "commit_ts", "tie", "key", "value", "prev_value", "prev_mod_ts", "prev_create_ts")

_WATCHER = """
import asyncio, json, sys, time
from kplane_spanner.engine import open_engine
from kplane_spanner.plugin import SpannerOptions
async def main():
    engine = await open_engine(SpannerOptions(**json.loads(sys.argv[1])))
    watch = await engine.watch("/told/", "/told0", after=await engine.revision())
    print("ready", flush=True)
    left = int(sys.argv[2])
    while left:
        for event in await watch.batch():
            print(event.revision, time.time(), flush=True)
            left -= 1
    await engine.aclose()
asyncio.run(main())
"""


def measure(tries: int) -> Iterable[Result]:
    """Measure everything, each as the best of `tries`."""
    # The emulator's clock drifts with each call, and linearizable reads wait for it: each part gets a fresh one.
    parts = (_against_the_client, _told_here, _told_elsewhere)
    return [result for part in parts for result in asyncio.run(_on_an_emulator(part, tries))]


async def _on_an_emulator(part: Any, tries: int) -> Sequence[Result]:
    emulator = Emulator()
    try:
        emulator.start()
    except NoEmulator as error:
        raise Unavailable(str(error)) from error
    options = {
        "project": "kplane",
        "instance": "bench",
        "database": "bench",
        "emulator_host": emulator.address,
        "create_instance": True,
    }
    try:
        engine = await open_engine(SpannerOptions(**options))
        try:
            results: Sequence[Result] = await part(engine, options, tries)
        finally:
            await engine.aclose()
    finally:
        emulator.stop()
    return results


async def _against_the_client(engine: SpannerEngine, options: dict[str, Any], tries: int) -> Sequence[Result]:
    results: list[Result] = []
    async with _client(options) as database:
        raw, ours = Bare(database), Ours(engine)
        for name in ("create", "update", "read"):
            bare = await best_of(tries, getattr(raw, name))
            mine = await best_of(tries, getattr(ours, name))
            results += _compared(name, bare, mine)
    return results


def _compared(name: str, bare: Rate, mine: Rate) -> Sequence[Result]:
    share = f"{name}, {_WRITERS} at once, against the bare client"
    return (
        Result(f"{name}, {_WRITERS} at once", mine.wall, "/s", by_cpu=mine.cpu),
        Result(f"{name}, {_WRITERS} at once, bare client", bare.wall, "/s", by_cpu=bare.cpu),
        Result(share, mine.wall / bare.wall, "x", by_cpu=mine.cpu / bare.cpu, floor=0.7),
    )


async def _spread(work: Any) -> int:
    numbers = iter(range(_COUNT))

    async def run() -> None:
        for number in numbers:
            await work(number)

    await asyncio.gather(*[run() for _ in range(_WRITERS)])
    return _COUNT


class Ours:
    """The engine's operations."""

    def __init__(self, engine: SpannerEngine) -> None:
        self._engine = engine
        self._rounds = itertools.count()
        self._revisions: dict[str, int] = {}

    async def create(self) -> int:
        mark = next(self._rounds)

        async def one(number: int) -> None:
            await self._engine.write(f"/ours/{mark}/{number}", _VALUE, expect=0)

        return await _spread(one)

    async def update(self) -> int:
        if not self._revisions:
            page = await self._engine.scan("/ours/0/", "/ours/00")
            self._revisions = {record.key: record.mod_revision for record in page.records}

        async def one(number: int) -> None:
            key = f"/ours/0/{number}"
            done = await self._engine.write(key, _VALUE, expect=self._revisions[key])
            self._revisions[key] = done.revision

        return await _spread(one)

    async def read(self) -> int:
        return await _spread(lambda number: self._engine.read(f"/ours/0/{number}"))


class Bare:
    """The same through google-cloud-spanner."""

    def __init__(self, database: Any) -> None:
        self._database = database
        self._rounds = itertools.count()
        self._value = b64encode(_VALUE)

    def _log(self, transaction: Any, key: str, before: Sequence[Any]) -> None:
        tie = tie_of(key)
        row = (shard_of(tie), COMMIT_TIMESTAMP, tie, key, self._value, *before)
        transaction.insert(schema.LOG, _LOG, [row])

    async def create(self) -> int:
        mark = next(self._rounds)

        async def one(number: int) -> None:
            key = f"/bare/{mark}/{number}"

            async def write(transaction: Any) -> None:
                row = (key, self._value, COMMIT_TIMESTAMP, COMMIT_TIMESTAMP, None, None)
                transaction.insert(schema.RECORDS, _RECORD, [row])
                self._log(transaction, key, (None, None, None))

            await self._database.run_in_transaction(write, default_retry_delay=0.005)

        return await _spread(one)

    async def update(self) -> int:
        # More than a few at once only abort each other on the emulator, and nothing in the client keeps them apart.
        slots = asyncio.Semaphore(1)

        async def one(number: int) -> None:
            key = f"/bare/0/{number}"

            async def write(transaction: Any) -> None:
                found = await transaction.read(schema.RECORDS, _RECORD, KeySet(keys=[(key,)]))
                ((_, value, modified, created, _, _),) = [row async for row in found]
                transaction.update(schema.RECORDS, ("key", "value", "mod_ts"), [(key, self._value, COMMIT_TIMESTAMP)])
                self._log(transaction, key, (value, modified, created))

            async with slots:
                await self._database.run_in_transaction(write, default_retry_delay=0.005)

        return await _spread(one)

    async def read(self) -> int:
        async def one(number: int) -> None:
            async with self._database.snapshot() as snapshot:
                found = await snapshot.read(schema.RECORDS, _RECORD, KeySet(keys=[(f"/bare/0/{number}",)]))
                assert len([row async for row in found]) == 1

        return await _spread(one)


@asynccontextmanager
async def _client(options: dict[str, Any]) -> AsyncIterator[Any]:
    client = AsyncClient(
        options["project"],
        credentials=AnonymousCredentials(),
        client_options={"api_endpoint": options["emulator_host"]},
        disable_builtin_metrics=True,
    )
    database = await client.instance(options["instance"]).database(options["database"], pool=AsyncBurstyPool())
    # Emulators lose writes or transactions on multiplexed sessions.
    database.sessions_manager._use_multiplexed = lambda _kind: False
    try:
        yield database
    finally:
        await database.close()
        await database.spanner_api.transport.close()


async def _told_here(engine: SpannerEngine, _options: dict[str, Any], _tries: int) -> Sequence[Result]:
    watch = await engine.watch("/told/", "/told0", after=await engine.revision())
    acknowledged: dict[int, float] = {}
    told: dict[int, float] = {}

    async def listen() -> None:
        while len(told) < _EVENTS:
            for event in await watch.batch():
                told[event.revision] = time.perf_counter()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(listen())
        for number in range(_EVENTS):
            done = await engine.write(f"/told/{number}", _VALUE, expect=0)
            acknowledged[done.revision] = time.perf_counter()
            await asyncio.sleep(0.01)
    delays = [told[revision] - moment for revision, moment in acknowledged.items()]
    middle, most = _percentiles(delays)
    return (
        Result("from the acknowledgement to the event, same process, p50", middle, "ms", floor=25.0, at_most=True),
        Result("from the acknowledgement to the event, same process, p99", most, "ms"),
    )


async def _told_elsewhere(engine: SpannerEngine, options: dict[str, Any], _tries: int) -> Sequence[Result]:
    command = [sys.executable, "-c", _WATCHER, json.dumps(options), str(_EVENTS)]
    watcher = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: ASYNC220 - it starts in no time
    assert watcher.stdout is not None
    try:
        assert await asyncio.to_thread(watcher.stdout.readline) == "ready\n"
        acknowledged: dict[int, float] = {}
        for number in range(_EVENTS):
            done = await engine.write(f"/told/{number}", _VALUE, expect=0)
            acknowledged[done.revision] = time.time()
            await asyncio.sleep(0.013)
        lines, _ = await asyncio.to_thread(watcher.communicate, timeout=60)
    finally:
        watcher.kill()
        watcher.wait()
    told = {int(revision): float(moment) for revision, moment in (line.split() for line in lines.splitlines())}
    middle, most = _percentiles([told[revision] - moment for revision, moment in acknowledged.items()])
    return (
        Result("from the acknowledgement to the event, other process, p50", middle, "ms", floor=60.0, at_most=True),
        Result("from the acknowledgement to the event, other process, p99", most, "ms", floor=250.0, at_most=True),
    )


def _percentiles(seconds: Sequence[float]) -> tuple[float, float]:
    """Return the 50th and the 99th percentile in milliseconds."""
    cuts = quantiles(seconds, n=100)
    return cuts[49] * 1000, cuts[98] * 1000
