"""Several connections and several processes on one file."""

import asyncio
import subprocess
import sys
import time

from kplane_core.engine.interface import Conflict, Written

OPEN = """
import asyncio, sys
from pathlib import Path
from kplane_sqlite.engine import SqliteEngine
from kplane_sqlite.opening import Settings

async def main():
    engine = await SqliteEngine.open(Settings(Path(sys.argv[1])))
    expect = 0
    for number in range(int(sys.argv[3])):
        answer = await engine.write(f"/{sys.argv[2]}/{number}", b"1", expect=0)
        print(answer.revision)
    await engine.aclose()

asyncio.run(main())
"""


def test_processes_that_open_a_new_file_at_once_share_one_database_and_one_clock(database):
    processes = [
        subprocess.Popen([sys.executable, "-c", OPEN, str(database.path), name, "50"], stdout=subprocess.PIPE)
        for name in "abcd"
    ]
    outputs = [process.communicate(timeout=60)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * 4
    revisions = [[int(line) for line in output.split()] for output in outputs]
    assert all(each == sorted(each) for each in revisions)
    assert sorted(revision for each in revisions for revision in each) == list(range(2, 202))


def test_a_watch_is_told_of_the_other_connection_s_write_within_50_ms(database, put):
    """The median of ten, because a loaded machine may be late with anything."""

    async def measure(engine):
        async with database.engine() as other:
            watch = await engine.watch("/", "0", after=await engine.revision())
            delays = []
            for number in range(10):
                await put(other, f"/{number}")
                start = time.perf_counter()
                (event,) = await asyncio.wait_for(watch.batch(), 10)
                delays.append(time.perf_counter() - start)
                assert event.key == f"/{number}"
            return sorted(delays)[5]

    assert database.run(measure) < 0.05


def test_a_watch_is_told_of_its_own_connection_s_write_without_a_look_at_the_file(database, put, monkeypatch):
    monkeypatch.setattr("kplane_sqlite.watching._POLL", 3600.0)

    async def write_and_watch(engine):
        watch = await engine.watch("/", "0", after=await engine.revision())
        revision = await put(engine, "/a")
        (event,) = await asyncio.wait_for(watch.batch(), 5)
        return event.revision == revision

    assert database.run(write_and_watch)


def test_two_connections_that_write_at_once_show_every_watch_one_order_without_a_gap(database):
    async def write_and_watch(engine):
        async with database.engine() as other:
            start = await engine.revision()
            watches = [await one.watch("/", "0", after=start) for one in (engine, other)]
            async with asyncio.TaskGroup() as tasks:
                for number in range(8):
                    tasks.create_task(self_incrementing((engine, other)[number % 2], f"/{number}"))
            last = await engine.revision()
            return start, last, [await collect(watch, last) for watch in watches]

    start, last, (mine, theirs) = database.run(write_and_watch)
    assert [event.revision for event in mine] == list(range(start + 1, last + 1))
    assert mine == theirs
    assert last - start == 8 * 40


async def self_incrementing(engine, key):
    expect = 0
    for number in range(40):
        answer = await engine.write(key, str(number).encode(), expect=expect)
        assert isinstance(answer, Written)
        expect = answer.revision


async def collect(watch, last):
    events = []
    while not events or events[-1].revision < last:
        events += await asyncio.wait_for(watch.batch(), 10)
    return events


def test_one_of_two_connections_wins_each_comparison(database):
    async def count_up(engine):
        async with database.engine() as other:
            async with asyncio.TaskGroup() as tasks:
                for number in range(6):
                    tasks.create_task(add((engine, other)[number % 2], 10))
            return (await engine.read("/counter")).record.value

    assert database.run(count_up) == b"60"


async def add(engine, times):
    while times:
        record = (await engine.read("/counter")).record
        value, expect = (int(record.value), record.mod_revision) if record else (0, 0)
        answer = await engine.write("/counter", str(value + 1).encode(), expect=expect)
        times -= not isinstance(answer, Conflict)


def hold_the_lock(connection):
    connection.execute("BEGIN IMMEDIATE")
    time.sleep(0.5)


def test_reads_do_not_wait_for_a_writer_that_holds_the_lock(database, put):
    """While another connection is in the middle of a transaction, reads, scans and watches answer."""

    async def read_beside(engine):
        await put(engine, "/a")
        async with database.engine() as other:
            held = other._writer.call(hold_the_lock, atomic=False)
            await asyncio.sleep(0.05)
            start = time.perf_counter()
            assert (await engine.read("/a")).record.value == b"1"
            assert len((await engine.scan("/", "0")).records) == 1
            assert await engine.revision() == 2
            (await engine.watch("/", "0", after=1)).close()
            took = time.perf_counter() - start
            assert not held.done()
            await held
            await other._writer.call(lambda connection: connection.execute("ROLLBACK"), atomic=False)
            return took

    assert database.run(read_beside) < 0.4


def test_a_watch_that_nobody_reads_goes_back_to_the_file_and_misses_nothing(database, put, monkeypatch):
    monkeypatch.setattr("kplane_sqlite.watching._PENDING", 10)
    monkeypatch.setattr("kplane_sqlite.watching._PAGE", 7)

    async def fall_behind(engine):
        start = await engine.revision()
        for number in range(5):
            await put(engine, f"/{number % 3}", str(number).encode())
        # It begins in the past: what is pending was read from the file already when it is sent back there.
        watch = await engine.watch("/", "0", after=start, progress=True)
        for number in range(5, 100):
            await put(engine, f"/{number % 3}", str(number).encode())
        assert len(watch._pending) <= 10
        await engine.request_progress()
        events = []
        while not events or not events[-1].is_progress:
            events += await asyncio.wait_for(watch.batch(), 10)
        return start, events

    start, events = database.run(fall_behind)
    changes = [event.revision for event in events if not event.is_progress]
    assert changes == list(range(start + 1, start + 101))
    assert events[-1].revision == changes[-1]
    assert all(event.previous is not None for event in events[3:-1])


def test_each_of_many_watches_is_told_of_its_own_range_and_of_nothing_else(database, put):
    """Ranges of all shapes: everything, a directory, one key, neighbours that begin alike, a range without a slash."""
    ranges = [
        ("/", "0"),
        ("/a/", "/a0"),
        ("/ab/", "/ab0"),
        ("/a/b", "/a/b\0"),
        ("/a", "/b"),
        ("", "\U0010ffff"),
        ("b", "x"),
    ]
    keys = ["/a/b", "/a/c", "/ab/c", "/a/b/c", "/b", "c", "/a", "/zz/z", "/a/b0"]

    async def write_and_watch(engine):
        start = await engine.revision()
        watches = [await engine.watch(*bounds, after=start) for bounds in ranges]
        for key in keys:
            await put(engine, key)
        told = []
        for (first, end), watch in zip(ranges, watches, strict=True):
            expected = [key for key in keys if first <= key < end]
            events = []
            while len(events) < len(expected):
                events += await asyncio.wait_for(watch.batch(), 10)
            told.append(([event.key for event in events], expected))
            watch.close()
        assert not engine._hub._watches
        return told

    assert all(keys == expected for keys, expected in database.run(write_and_watch))
