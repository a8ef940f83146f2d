"""A database that was restored from a backup: what lies between the two is refused, not passed over.

The emulator has no backups. What Spanner makes of one is made here: a new database with the rows as they were, and the
time of the restore as that of its creation, which the emulator does not tell either.
"""

import asyncio

import pytest

from kplane_core.engine.interface import Compacted
from kplane_spanner import schema
from kplane_spanner.connecting import _Preparation
from kplane_spanner.messages import delete, insert
from kplane_spanner.revisions import micros_of

TABLES = (schema.RECORDS, schema.LOG, schema.META)


def columns(table):
    return sorted(name for owner, name, _ in schema.COLUMNS if owner == table)


async def read_at(engine, micros):
    """Return all rows of all tables as they were at a microsecond."""
    rows = {}
    for table in TABLES:
        query = f"SELECT {', '.join(columns(table))} FROM {table}"
        rows[table] = (await engine.database.query(query, micros=micros)).rows
    return rows


async def write_into(engine, rows):
    async def write(transaction):
        transaction.mutations.append(delete(schema.META, ("1",)))
        for table in TABLES:
            transaction.mutations += [insert(table, columns(table), row) for row in rows[table]]

    await engine.database.transact(write, reads=False)


@pytest.fixture
def restored_now(monkeypatch):
    """From here on every database that is opened says that it was created when this was called."""

    def restored_now(micros):
        original = _Preparation._create_database

        async def tells(self):
            await original(self)
            return micros

        monkeypatch.setattr(_Preparation, "_create_database", tells)

    return restored_now


async def compacted(engine, after):
    """Whether a watch from a revision is refused, at once or by its first batch."""
    try:
        watch = await engine.watch("/a/", "/a0", after=after)
        await asyncio.wait_for(watch.batch(), 1)
    except Compacted:
        return True
    except TimeoutError:
        return False
    return False


def test_a_watch_from_what_a_restore_took_back_is_refused_and_no_revision_comes_twice(
    options, make_options, open_engines, restored_now
):
    async def scenario():
        async with open_engines(options) as engine:
            kept = await engine.write("/a/kept", b"1", expect=0)
            backup = await engine.revision()
            lost = [(await engine.write(f"/a/lost-{number}", b"1", expect=0)).revision for number in range(5)]
            rows = await read_at(engine, micros_of(backup))
            now = await engine.revision()
        other = make_options(options.emulator_host)
        async with open_engines(other) as engine:
            await write_into(engine, rows)
        restored_now(micros_of(now))
        async with open_engines(other) as engine:
            assert (await engine.read("/a/kept")).record.mod_revision == kept.revision
            assert (await engine.read("/a/lost-0")).record is None
            first = await engine.write("/a/new", b"1", expect=0)
            assert first.revision > lost[-1]
            assert [await compacted(engine, after) for after in (backup, lost[2], lost[-1])] == [True, True, True]
            with pytest.raises(Compacted):
                await engine.read("/a/kept", at=lost[2])
            watch = await engine.watch("/a/", "/a0", after=now)
            assert [event.key for event in await watch.batch()] == ["/a/new"]

    asyncio.run(scenario())
