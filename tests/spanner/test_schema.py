"""The tables: made once whoever comes first, checked always, and never made over something else."""

import asyncio
import subprocess
import sys
from pathlib import Path

import attrs
import pytest
from google.cloud.spanner_admin_database_v1 import DatabaseAdminAsyncClient
from google.cloud.spanner_admin_database_v1.services.database_admin.transports import DatabaseAdminGrpcAsyncIOTransport

from kplane_core.errors import UsageError
from kplane_spanner import connecting, schema
from kplane_spanner.engine import open_engine
from kplane_spanner.errors import SchemaError
from kplane_spanner.messages import COMMIT_TIMESTAMP, insert, update


async def make_database(options, statements):
    """Make the database as an operator would."""
    channel = await connecting._channel(options, options.emulator_host)
    preparation = connecting._Preparation(channel, None, options)
    await preparation._create_instance()
    admin = DatabaseAdminAsyncClient(transport=DatabaseAdminGrpcAsyncIOTransport(channel=channel))
    operation = await admin.create_database(
        request={
            "parent": f"projects/{options.project}/instances/{options.instance}",
            "create_statement": f"CREATE DATABASE `{options.database}`",
            "extra_statements": list(statements),
        }
    )
    await operation.result()
    await channel.close()


def test_processes_that_start_together_make_the_tables_once(options, open_engines):
    async def scenario():
        opened = await asyncio.gather(*[open_engine(options) for _ in range(6)])
        done = await opened[0].write("/a", b"1", expect=0)
        for engine in opened:
            assert (await engine.read("/a")).record.mod_revision == done.revision
            await engine.aclose()

    asyncio.run(scenario())


def test_an_empty_database_gets_the_tables(options, open_engines):
    async def scenario():
        await make_database(options, ["CREATE TABLE elsewhere (id INT64) PRIMARY KEY (id)"])
        async with open_engines(options, 3) as trio:
            await trio[0].write("/a", b"1", expect=0)
            assert (await trio[2].read("/a")).record

    asyncio.run(scenario())


def test_tables_that_the_operator_made_are_used_without_touching_the_schema(options, open_engines):
    """What `kplane spanner ddl` prints is what --spanner-skip-schema wants."""
    options = attrs.evolve(options, skip_schema=True, history_retention=2 * 3600.0)

    async def scenario():
        await make_database(options, schema.statements(options.database, options.history_retention))
        async with open_engines(options) as engine:
            await engine.write("/a", b"1", expect=0)

    asyncio.run(scenario())


@pytest.mark.parametrize("statements", [[], schema.statements("unused", 0)[:1], schema.statements("unused", 0)[:3]])
def test_with_skip_schema_missing_tables_are_an_error_and_stay_missing(options, statements):
    options = attrs.evolve(options, skip_schema=True)

    async def scenario():
        await make_database(options, statements)
        for _ in range(2):
            with pytest.raises(SchemaError, match=f"{options.database} does not hold kplane's tables: it lacks"):
                await open_engine(options)

    asyncio.run(scenario())


def test_half_made_tables_are_an_error_that_names_what_is_missing(options):
    """Nobody works on them any more; to go on where somebody stopped could hide what they wanted."""
    options = attrs.evolve(options, schema_patience=0.3)

    async def scenario():
        await make_database(options, schema.statements("unused", 0)[:2])
        with pytest.raises(SchemaError, match=r"it lacks kplane_meta\.born, .*kplane_records_by_expiry; use another"):
            await open_engine(options)

    asyncio.run(scenario())


def test_tables_in_the_making_are_waited_for(options):
    """Another process is in the middle of making them."""

    async def scenario():
        await make_database(options, schema.statements("unused", 0)[:2])
        opening = asyncio.create_task(open_engine(options))
        await asyncio.sleep(0.2)
        channel = await connecting._channel(options, options.emulator_host)
        preparation = connecting._Preparation(channel, None, options)
        await preparation._apply(schema.statements("unused", 0)[2:])
        await channel.close()
        await (await opening).aclose()

    asyncio.run(scenario())


def test_foreign_tables_under_our_names_are_an_error(options):
    options = attrs.evolve(options, schema_patience=0.0)
    foreign = "CREATE TABLE kplane_log (id INT64 NOT NULL, shard STRING(9)) PRIMARY KEY (id)"

    async def scenario():
        await make_database(options, [foreign])
        with pytest.raises(SchemaError, match=r"it has kplane_log\.id INT64, kplane_log\.shard STRING\(9\)"):
            await open_engine(options)

    asyncio.run(scenario())


def test_another_schema_version_is_an_error_that_names_both(options, open_engines):
    async def scenario():
        async with open_engines(options) as engine:

            async def write(transaction):
                transaction.mutations.append(update(schema.META, ("id", "schema_version"), ("1", "7")))

            await engine.database.transact(write, reads=False)
        with pytest.raises(SchemaError, match="has schema version 7, this kplane-spanner knows version 1"):
            await open_engine(options)

    asyncio.run(scenario())


@pytest.mark.parametrize(("kept", "raised"), [("1h", True), ("3600s", True), ("2h", False), ("7d", False), ("", False)])
def test_a_retention_that_is_too_short_is_raised(options, open_engines, monkeypatch, kept, raised):
    """The emulator does not tell how long it keeps versions; the cloud does."""
    options = attrs.evolve(options, history_retention=2 * 3600.0)
    applied = []

    async def apply(_self, statements):
        applied.extend(statements)

    get_database = connecting._Preparation._get_database

    async def told(self):
        found = await get_database(self)
        found.version_retention_period = kept
        return found

    async def scenario():
        async with open_engines(options):
            pass
        monkeypatch.setattr(connecting._Preparation, "_apply", apply)
        monkeypatch.setattr(connecting._Preparation, "_get_database", told)
        async with open_engines(options):
            assert applied == [schema.retention_statement(options.database, 7200.0)] * raised

    asyncio.run(scenario())


def test_an_instance_is_made_on_an_emulator_only(options, monkeypatch):
    monkeypatch.delenv("SPANNER_EMULATOR_HOST", raising=False)

    async def scenario():
        with pytest.raises(UsageError, match="--spanner-create-instance works on an emulator only"):
            await open_engine(attrs.evolve(options, emulator_host=""))

    asyncio.run(scenario())


def test_the_environment_names_the_emulator_as_well(options, emulator, open_engines, monkeypatch):
    """SPANNER_EMULATOR_HOST is what every other Spanner client reads."""
    monkeypatch.setenv("SPANNER_EMULATOR_HOST", emulator.address)

    async def scenario():
        async with open_engines(attrs.evolve(options, emulator_host="")) as engine:
            await engine.write("/a", b"1", expect=0)

    asyncio.run(scenario())


def test_a_schema_that_takes_too_long_is_one_error(options, monkeypatch):
    """A database that never gets ready must not keep a server from saying so."""

    async def never(_self):
        await asyncio.Event().wait()

    monkeypatch.setattr(connecting._Preparation, "run", never)

    async def scenario():
        with pytest.raises(connecting.Unreachable, match=r"gave no answer for 0\.1 s"):
            await connecting.open_database(options, deadline=0.1)

    asyncio.run(scenario())


def test_the_database_refuses_rows_that_share_a_place_in_the_log(options, open_engines):
    """What keeps revisions unique is the primary key of the log, without the object's key in it."""
    columns = ("shard", "commit_ts", "tie", "key")

    async def scenario():
        async with open_engines(options) as engine:

            async def write(transaction):
                for key in ("/a", "/b"):
                    transaction.mutations.append(insert(schema.LOG, columns, ("1", COMMIT_TIMESTAMP, "17", key)))

            with pytest.raises(connecting.RowExists):
                await engine.database.transact(write, reads=False)

    asyncio.run(scenario())


def test_ddl_prints_the_schema():
    kplane = Path(sys.executable).with_name("kplane")
    command = [kplane, "spanner", "ddl", "--database", "mine", "--history-retention", "2h"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    printed = [statement.strip() for statement in done.stdout.split(";\n") if statement.strip()]
    assert printed == list(schema.statements("mine", 7200.0))
    assert printed[-1] == "ALTER DATABASE `mine` SET OPTIONS (version_retention_period = '7200s')"
    wrong = subprocess.run([kplane, "spanner"], capture_output=True, text=True, timeout=60, check=False)
    assert wrong.returncode == 2
    assert "kplane spanner ddl" in wrong.stderr
