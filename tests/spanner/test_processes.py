"""Several processes on one database: three that write, two that watch, and one that dies in the middle of a write."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from kplane_core.engine.interface import Written

WRITES = 100

WRITER = """
import asyncio, json, sys, time
from kplane_spanner.engine import open_engine
from kplane_spanner.plugin import SpannerOptions
async def main():
    engine = await open_engine(SpannerOptions(**json.loads(sys.argv[1])))
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(int(sys.argv[3])):
        done = await engine.write(f"/p/{sys.argv[2]}-{number % 30}-{number}", str(number).encode(), expect=0)
        print(done.revision, time.time(), flush=True)
        await asyncio.sleep(0.005)
    await engine.aclose()
asyncio.run(main())
"""

WATCHER = """
import asyncio, json, sys, time
from kplane_spanner.engine import open_engine
from kplane_spanner.plugin import SpannerOptions
async def main():
    engine = await open_engine(SpannerOptions(**json.loads(sys.argv[1])))
    watch = await engine.watch("/p/", "/p0", after=await engine.revision())
    print("ready", flush=True)
    left = int(sys.argv[2])
    while left:
        for event in await watch.batch():
            print(event.revision, time.time(), event.key, flush=True)
            left -= 1
    await engine.aclose()
asyncio.run(main())
"""

HOLDER = """
import asyncio, json, sys
from kplane_spanner import schema
from kplane_spanner.engine import open_engine
from kplane_spanner.messages import key_set
from kplane_spanner.plugin import SpannerOptions
async def main():
    engine = await open_engine(SpannerOptions(**json.loads(sys.argv[1])))
    async def hold(transaction):
        await transaction.read(schema.RECORDS, ("key",), key_set([("/a",)]))
        print("holding", flush=True)
        await asyncio.Event().wait()
    await engine.database.transact(hold, reads=True)
asyncio.run(main())
"""


def as_json(options):
    return json.dumps(
        {
            "project": options.project,
            "instance": options.instance,
            "database": options.database,
            "emulator_host": options.emulator_host,
            "create_instance": True,
            "min_sessions": 2,
        }
    )


def spawn(code, *arguments):
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_five_processes_see_one_order(options, open_engines):
    """Every watcher tells every change once, in one order, which is that of the revisions, and soon."""

    async def prepare():
        async with open_engines(options):
            pass

    asyncio.run(prepare())
    watchers = [spawn(WATCHER, as_json(options), str(3 * WRITES)) for _ in range(2)]
    writers = [spawn(WRITER, as_json(options), f"w{number}", str(WRITES)) for number in range(3)]
    try:
        for process in watchers + writers:
            assert process.stdout.readline() == "ready\n"
        for process in writers:
            process.stdin.write("go\n")
            process.stdin.flush()
        written = {}
        for process in writers:
            for line in process.communicate(timeout=60)[0].splitlines():
                revision, moment = line.split()
                written[int(revision)] = float(moment)
        told = [[line.split() for line in process.communicate(timeout=60)[0].splitlines()] for process in watchers]
    finally:
        for process in watchers + writers:
            process.kill()
            process.wait()
    assert len(written) == 3 * WRITES
    for lines in told:
        assert [int(revision) for revision, _, _ in lines] == sorted(written)
    assert [line[2] for line in told[0]] == [line[2] for line in told[1]]
    delays = sorted(float(line[1]) - written[int(line[0])] for line in told[0])
    assert delays[len(delays) // 2] < 1.0, "half of the changes took longer than a second"


def test_a_process_that_is_killed_in_the_middle_of_a_write_blocks_nobody(options, open_engines):
    """Its transaction stays open in the database, which gives it up for others after a few attempts."""

    async def scenario():
        async with open_engines(options) as engine:
            first = await engine.write("/a", b"1", expect=0)
            holder = spawn(HOLDER, as_json(options))
            try:
                assert await asyncio.to_thread(holder.stdout.readline) == "holding\n"
                os.kill(holder.pid, signal.SIGKILL)
            finally:
                await asyncio.to_thread(holder.wait)
                holder.stdin.close()
                holder.stdout.close()
            started = time.monotonic()
            assert isinstance(await engine.write("/a", b"2", expect=first.revision), Written)
            assert time.monotonic() - started < 20

    asyncio.run(scenario())
