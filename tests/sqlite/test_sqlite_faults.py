"""What goes wrong with files and disks is told in one clear line, and nothing is half done."""

import asyncio
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

from kplane_core.engine.interface import EngineUnreachable, ValueTooLarge
from kplane_core.errors import InvalidKey, UsageError
from kplane_sqlite.backup import back_up
from kplane_sqlite.changes import Change
from kplane_sqlite.engine import SqliteEngine
from kplane_sqlite.opening import Settings
from kplane_sqlite.schema import DatabaseFull, DatabaseReadOnly


def test_a_full_disk_refuses_writes_clearly_and_goes_on_when_there_is_room(database, put, on_writer):
    async def fill_up(engine):
        await put(engine, "/a", b"kept")
        (pages,) = (await on_writer(engine, "PRAGMA page_count"))[0]
        await on_writer(engine, f"PRAGMA max_page_count = {pages}")
        with pytest.raises(DatabaseFull, match=r"kplane\.db: no room is left for the database; free space"):
            await put(engine, "/b", b"x" * 100_000)
        with pytest.raises(DatabaseFull):
            await engine.check()
        revision = await engine.revision()
        assert (await engine.read("/a")).record.value == b"kept"
        assert (await engine.read("/b")).record is None
        await on_writer(engine, "PRAGMA max_page_count = 1000000")
        assert await put(engine, "/b", b"x" * 100_000) == revision + 1, "a refused write took a revision"
        await engine.check()

    database.run(fill_up)


def test_deleting_and_compacting_make_room_again(database, put, on_writer):
    """A full database must not be beyond help (kubernetes#94029)."""

    async def recover(engine):
        for number in range(50):
            await put(engine, f"/{number}", b"x" * 10_000)
        (pages,) = (await on_writer(engine, "PRAGMA page_count"))[0]
        await on_writer(engine, f"PRAGMA max_page_count = {pages + 3}")
        with pytest.raises(DatabaseFull):
            await put(engine, "/more", b"x" * 100_000)
        for number in range(50):
            record = (await engine.read(f"/{number}")).record
            await engine.write(f"/{number}", None, expect=record.mod_revision)
        await engine.compact(await engine.revision())
        await put(engine, "/more", b"x" * 100_000)
        return await engine.size()

    assert database.run(recover) < 300_000


def test_a_file_that_becomes_read_only_refuses_writes_clearly(database, put, on_writer):
    async def lose_the_right(engine):
        await put(engine, "/a")
        await on_writer(engine, "PRAGMA query_only = ON")
        with pytest.raises(DatabaseReadOnly, match="cannot be written; check the permissions"):
            await put(engine, "/b")
        assert (await engine.read("/a")).record is not None

    database.run(lose_the_right)


OPEN = """
import asyncio, os, sys
from pathlib import Path
import kplane_core.cli
from kplane_sqlite.engine import SqliteEngine
from kplane_sqlite.opening import Settings
if os.getuid() == 0:
    os.setuid(65534)  # root may write everything
try:
    asyncio.run(SqliteEngine.open(Settings(Path(sys.argv[1]))))
except Exception as error:
    print(f"{type(error).__name__}: {error}")
"""


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_read_only_file_or_folder_is_an_operators_mistake(database, put, what):
    database.run(lambda engine: put(engine, "/a"))
    folder = database.path.parent
    database.path.chmod(0o444 if what == "file" else 0o666)
    folder.chmod(0o777 if what == "file" else 0o555)
    for parent in folder.parents:  # pytest's own folders are for their owner alone
        if parent == Path(tempfile.gettempdir()):
            break
        parent.chmod(0o755)
    try:
        done = subprocess.run(
            [sys.executable, "-c", OPEN, str(database.path)], capture_output=True, text=True, check=True, timeout=60
        )
    finally:
        folder.chmod(0o700)
    named = database.path if what == "file" else folder
    assert done.stdout == f"UsageError: --sqlite-path: {str(named)!r} is read-only for this user\n"


def refusal(path):
    with pytest.raises(UsageError) as caught:
        asyncio.run(SqliteEngine.open(Settings(path)))
    return str(caught.value)


def test_a_file_that_is_something_else_is_left_alone(tmp_path):
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as other, other:
        other.execute("CREATE TABLE notes (text)")
    other.close()
    before = path.read_bytes()
    assert refusal(path) == f"--sqlite-path: {str(path)!r} is a database of something else, not of kplane"
    path.write_bytes(b"no database at all, but longer than the header of one would be: " * 10)
    assert "the database is damaged" in refusal(path)
    path.write_bytes(before)
    assert "something else" in refusal(path)


def test_a_missing_folder_and_a_newer_format_are_named(tmp_path, database, put):
    assert "does not exist" in refusal(tmp_path / "nowhere" / "kplane.db")
    database.run(lambda engine: put(engine, "/a"))
    with closing(sqlite3.connect(database.path)) as newer, newer:
        newer.execute("PRAGMA user_version = 9")
    newer.close()
    assert "has format 9, this kplane-sqlite knows 2: pip install -U kplane-sqlite" in refusal(database.path)


def test_a_damaged_file_is_found_by_the_integrity_check(database, put):
    async def fill(engine):
        for number in range(300):
            await put(engine, f"/{number}", b"x" * 500)

    database.run(fill)
    with database.path.open("r+b") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(size // 2 // 4096 * 4096)
        file.write(b"\xff" * 4096)

    async def check(engine):
        engine.integrity.raise_damage()  # nothing is known yet
        with pytest.raises(EngineUnreachable, match="the database is damaged"):
            await engine.integrity.check()
        with pytest.raises(EngineUnreachable, match="restore a backup"):
            engine.integrity.raise_damage()

    database.run(check)


def test_a_file_that_is_replaced_or_removed_while_it_is_served_is_noticed(database, put):
    async def replace(engine):
        await put(engine, "/a")
        await engine.check()
        copy = database.path.with_name("copy")
        shutil.copyfile(database.path, copy)
        copy.replace(database.path)
        with pytest.raises(EngineUnreachable, match="was replaced while it was open; restart kplane"):
            await engine.check()
        database.path.unlink()
        with pytest.raises(EngineUnreachable, match="the file is gone"):
            await engine.check()

    database.run(replace)


@pytest.mark.parametrize("key", ["", "/a\0", "/\ud800"])
def test_a_key_that_the_file_cannot_hold_is_refused(database, key):
    async def write(engine):
        with pytest.raises(InvalidKey):
            await engine.write(key, b"1", expect=0)
        return await engine.revision()

    assert database.run(write) == 1


def test_a_cancelled_write_harms_no_other(database):
    async def cancel(engine):
        given_up = asyncio.create_task(engine.write("/a", b"1", expect=0))
        await asyncio.sleep(0)
        given_up.cancel()
        await engine.write("/b", b"1", expect=0)
        assert given_up.cancelled()

    database.run(cancel)


def test_what_is_queued_at_the_end_is_written_before_it_is_closed(database):
    async def write_and_leave(engine):
        return [engine._writer.write(change(f"/{number}")) for number in range(100)]

    def change(key):
        return Change(key, b"1", 0, None)

    database.run(write_and_leave)
    assert database.run(lambda engine: engine.revision()) == 101


def test_a_backup_that_cannot_be_made_says_why_and_leaves_nothing(tmp_path, database, put):
    database.run(lambda engine: put(engine, "/a"))
    junk = tmp_path / "junk"
    junk.write_bytes(b"no database at all, but longer than the header of one would be: " * 10)
    folder = tmp_path / "nowhere" / "backup"
    target = tmp_path / "backup"
    for source, where, message in (
        (tmp_path / "missing", target, "there is no database"),
        (junk, target, f"--sqlite-path: {str(junk)!r} is no kplane database"),
        (database.path, junk, "exists already; a backup never replaces a file"),
        (database.path, folder, "cannot be written"),
    ):
        with pytest.raises(UsageError, match=re.escape(message)):
            back_up(source, where)
    assert not target.exists()
    assert not list(tmp_path.glob("*.partial"))


def test_a_value_that_no_row_can_hold_is_refused_with_the_limit(database, put, monkeypatch):
    monkeypatch.setattr("kplane_sqlite.engine._LARGEST", 1000)

    async def write(engine):
        with pytest.raises(ValueTooLarge, match="1001 bytes, the storage backend takes at most 1000"):
            await put(engine, "/a", b"x" * 1001)
        return await put(engine, "/a", b"x" * 1000)

    assert database.run(write) == 2


def test_nothing_stays_open_of_what_is_refused(tmp_path, monkeypatch):
    made = []

    class Noted(sqlite3.Connection):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.closed = False
            made.append(self)

        def close(self):
            self.closed = True
            super().close()

    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **kwargs: connect(*args, factory=Noted, **kwargs))
    damaged, foreign = tmp_path / "damaged.db", tmp_path / "foreign.db"
    damaged.write_bytes(b"SQLite format 3\0" + b"\xff" * 4096)
    with closing(sqlite3.connect(foreign)) as other:
        other.execute("CREATE TABLE theirs (a)")
    for path in (damaged, foreign):
        assert refusal(path)
        with pytest.raises(UsageError):
            back_up(path, tmp_path / "copy.db")
        with pytest.raises(UsageError):
            back_up(path, tmp_path / "no-such-folder" / "copy.db")
    assert len(made) > len((damaged, foreign))
    assert [one for one in made if not one.closed] == []
