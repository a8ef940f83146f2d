"""What was acknowledged stays, and no revision is given twice, whatever becomes of process and file."""

import asyncio
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from kplane_core.engine.interface import Compacted, Written
from kplane_sqlite.backup import back_up, put_back
from kplane_sqlite.opening import JUMP

# Prints every acknowledged write once it is acknowledged, from 8 writers, until it is killed.
WRITER = """
import asyncio, os, sys
from pathlib import Path
from kplane_sqlite.engine import SqliteEngine
from kplane_sqlite.opening import Settings

async def write(engine, writer):
    expect, number = 0, 0
    key = f"/{sys.argv[2]}/{writer}"
    while True:
        number += 1
        value = str(number).encode()
        expect = (await engine.write(key, value, expect=expect)).revision
        os.write(1, f"{key} {number} {expect}\\n".encode())

async def main():
    engine = await SqliteEngine.open(Settings(Path(sys.argv[1])))
    async def compact():
        while True:
            await asyncio.sleep(0.01)
            await engine.compact(await engine.revision())
    await asyncio.gather(compact(), *(write(engine, n) for n in range(8)))

asyncio.run(main())
"""


def killed_writer(database, name, lines):
    """Run a writer, kill it after so many acknowledged writes, and return them all."""
    command = [sys.executable, "-c", WRITER, str(database.path), name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        seen = [process.stdout.readline() for _ in range(lines)]
        process.send_signal(signal.SIGKILL)
        seen += process.stdout.readlines()
    whole = [line.split() for line in seen if line.endswith("\n")]
    return [(key, int(number), int(revision)) for key, number, revision in whole]


def test_kill_9_loses_no_acknowledged_write_and_repeats_no_revision(database):
    """Three times at different moments, with compaction under way."""
    given = set()
    for turn, lines in enumerate((1, 57, 333)):
        acknowledged = killed_writer(database, f"turn-{turn}", lines)
        assert len(acknowledged) >= lines
        revisions = [revision for _, _, revision in acknowledged]
        assert len(set(revisions)) == len(revisions)
        assert not given & set(revisions), "a revision was given twice"
        assert not given or min(revisions) > max(given)
        given |= set(revisions)
        newest = {key: (number, revision) for key, number, revision in acknowledged}

        async def look(engine, newest=newest):
            await engine.integrity.check()
            for key, (number, revision) in newest.items():
                record = (await engine.read(key)).record
                # At most one more write of this key was on its way.
                assert int(record.value) - number in {0, 1}, f"{key}: {record.value} after {number} was acknowledged"
                assert record.mod_revision >= revision
            return await engine.revision()

        assert database.run(look) < max(given) + 1000, "a mere crash was taken for a restore"


def test_a_deleted_newest_revision_is_not_given_again_after_compaction_and_restart(database, put):
    async def write_and_delete(engine):
        revision = await put(engine, "/a")
        deleted = (await engine.write("/a", None, expect=revision)).revision
        await engine.compact(deleted)
        return deleted

    deleted = database.run(write_and_delete)
    assert database.run(lambda engine: put(engine, "/b")) == deleted + 1


def test_a_restart_does_not_begin_the_time_to_live_anew(database, put):
    """Also when it expires while nothing runs: whoever comes next does not see it (kine#581)."""
    now = 1_800_000_000.0
    database.run(lambda engine: put(engine, "/a", ttl=30), clock=lambda: now)
    database.run(lambda engine: put(engine, "/b", ttl=90), clock=lambda: now + 10)

    async def look(engine):
        return [(await engine.read(key)).record is not None for key in ("/a", "/b")]

    assert database.run(look, clock=lambda: now + 29.9) == [True, True]
    assert database.run(look, clock=lambda: now + 30) == [False, True]


def test_what_expires_while_nobody_reads_is_deleted_by_itself(database, put):
    async def wait(engine):
        revision = await put(engine, "/a", ttl=1)
        watch = await engine.watch("/", "0", after=revision)
        (event,) = await asyncio.wait_for(watch.batch(), 10)
        return event.key, event.value, event.previous.mod_revision == revision

    assert database.run(wait) == ("/a", None, True)


# --- restored ---------------------------------------------------------------------------------------------------------


async def fill(engine, put, count):
    return [await put(engine, f"/{number}") for number in range(count)][-1]


def refused(database, revision):
    """Whether a watch from a revision is refused."""

    async def try_watch(engine):
        with pytest.raises(Compacted):
            await engine.watch("/", "0", after=revision)
        return await engine.revision()

    return database.run(try_watch)


def test_an_older_copy_of_the_file_is_noticed(database, put, caplog):
    """A plain copy, made while nobody had it open, of an earlier day."""
    database.run(lambda engine: fill(engine, put, 3))
    copy = database.path.with_name("copy")
    shutil.copyfile(database.path, copy)
    lost = database.run(lambda engine: fill(engine, put, 10))
    put_back(copy, database.path)
    assert refused(database, lost) == lost + JUMP
    assert f"this is an older copy: revision {lost} was given before" in caplog.text
    assert database.run(lambda engine: put(engine, "/new")) == lost + JUMP + 1
    caplog.clear()
    assert database.run(lambda engine: engine.revision()) == lost + JUMP + 1
    assert not caplog.records, "it was noticed again"


def test_a_backup_that_is_put_back_is_noticed_even_without_a_mark(database, put):
    """As on a new machine."""
    last = database.run(lambda engine: fill(engine, put, 3))
    backup = database.path.with_name("backup")
    assert back_up(database.path, backup) == last
    lost = database.run(lambda engine: fill(engine, put, 10))
    put_back(backup, database.path)
    database.path.with_name("kplane.db-mark").unlink()
    assert refused(database, lost) == last + JUMP


@pytest.mark.parametrize("mark", [b"garbage", b"kplane-sqlite mark: 0123 99"])
def test_a_foreign_or_unreadable_mark_is_no_reason_to_trust_the_file(database, put, mark):
    last = database.run(lambda engine: fill(engine, put, 3))
    database.path.with_name("kplane.db-mark").write_bytes(mark)
    assert refused(database, last) >= last + JUMP


def test_a_new_database_in_the_place_of_a_deleted_one_goes_on_after_it(database, put):
    last = database.run(lambda engine: fill(engine, put, 3))
    database.path.unlink()
    assert database.run(lambda engine: put(engine, "/new")) > last + JUMP


def test_a_crash_before_the_mark_was_raised_is_no_restore(database, put, caplog):
    """The mark may lag behind the database, never the other way round."""
    database.run(lambda engine: fill(engine, put, 3))
    mark = database.path.with_name("kplane.db-mark")
    old = mark.read_bytes()
    last = database.run(lambda engine: fill(engine, put, 5))
    mark.write_bytes(old)
    assert database.run(lambda engine: engine.revision()) == last
    assert not caplog.records


def test_closing_leaves_one_whole_file(database, put):
    """What is not in the write-ahead log cannot be forgotten by whoever copies the file."""

    async def use_all_connections(engine):
        await fill(engine, put, 3)
        return len((await engine.scan("/", "0")).records)

    assert database.run(use_all_connections) == 3
    assert not database.path.with_name("kplane.db-wal").exists()


# --- backup -----------------------------------------------------------------------------------------------------------


def test_a_backup_made_while_writers_write_is_one_moment_and_whole(database):
    """Two keys are written in turn: in no moment is the second ahead of the first."""

    async def write_and_back_up(engine):
        stop = asyncio.Event()

        async def write():
            first = second = number = 0
            while not stop.is_set():
                number += 1
                value = str(number).encode()
                first = (await engine.write("/first", value, expect=first)).revision
                second = (await engine.write("/second", value, expect=second)).revision

        task = asyncio.create_task(write())
        for turn in range(5):
            await asyncio.sleep(0.02)
            await asyncio.to_thread(back_up, database.path, database.path.with_name(f"backup-{turn}"))
        stop.set()
        await task

    database.run(write_and_back_up)
    for turn in range(5):
        with closing(sqlite3.connect(database.path.with_name(f"backup-{turn}"))) as copy, copy:
            rows = copy.execute("SELECT l.value FROM live v JOIN log l ON l.revision = v.revision ORDER BY v.key")
            first, second = (int(value) for (value,) in rows)
            assert first - second in {0, 1}
            assert copy.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        copy.close()


def test_a_written_answer_comes_after_the_sync(database, put, on_writer):
    """Durable by default: SQLite is told to sync every commit."""

    async def settings(engine):
        return (
            await on_writer(engine, "PRAGMA synchronous"),
            await on_writer(engine, "PRAGMA journal_mode"),
            await on_writer(engine, "PRAGMA auto_vacuum"),
            isinstance(await engine.write("/a", b"1", expect=0), Written),
        )

    assert database.run(settings, synchronous="full") == ([(2,)], [("wal",)], [(2,)], True)
