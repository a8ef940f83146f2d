"""Aborted transactions: the emulator runs one at a time, and is told whom to abort."""

import asyncio

import pytest
from google.cloud.spanner_v1.services.spanner import SpannerAsyncClient
from google.cloud.spanner_v1.services.spanner.transports import SpannerGrpcAsyncIOTransport

from kplane_core.engine.interface import EngineUnreachable, Written
from kplane_spanner import schema
from kplane_spanner.errors import Aborted
from kplane_spanner.messages import key_set

_COUNTS = 15


async def count_up(engine, key, times):
    """Add one so many times, as a client with compare-and-set does."""
    while times:
        record = (await engine.read(key)).record
        done = await engine.write(key, str(int(record.value) + 1).encode(), expect=record.mod_revision)
        times -= isinstance(done, Written)


@pytest.mark.parametrize("probability", [0, 20, 100])
def test_no_increment_is_lost_whoever_is_aborted(make_emulator, make_options, open_engines, probability):
    """0: the newcomer always loses; 100: the holder always does; 20: as the emulator comes."""
    emulator = make_emulator(f"--abort_current_transaction_probability={probability}")

    async def scenario():
        async with open_engines(make_options(emulator.address, min_sessions=4), 2) as pair:
            await pair[0].write("/counter", b"0", expect=0)
            async with asyncio.TaskGroup() as tasks:
                for engine in pair * 2:
                    tasks.create_task(count_up(engine, "/counter", _COUNTS))
            assert (await pair[1].read("/counter")).record.value == str(4 * _COUNTS).encode()
            # One of two processes had to give way now and then, or the test shows nothing.
            assert sum(engine.database.aborts for engine in pair) > 0

    asyncio.run(scenario())


def test_commits_that_fail_by_chance_are_done_again(make_emulator, make_options, open_engines):
    """The emulator aborts commits at random."""
    emulator = make_emulator("--enable_fault_injection")

    async def scenario():
        async with open_engines(make_options(emulator.address)) as engine:
            done = [await engine.write(f"/a/{number}", b"1", expect=0) for number in range(60)]
            done += [await engine.write(f"/a/{n}", b"2", expect=done[n].revision) for n in range(60)]
            assert all(isinstance(one, Written) for one in done)
            watch = await engine.watch("/", "0", after=done[0].revision - 1)
            events = []
            while len(events) < 120:
                events += await watch.batch()
            assert [event.revision for event in events] == [one.revision for one in done]

    asyncio.run(scenario())


def test_retries_are_bounded(make_emulator, make_options, open_engines, monkeypatch):
    """Somebody who keeps a transaction open for ever makes others fail in the end, not hang."""
    emulator = make_emulator("--abort_current_transaction_probability=0")

    async def scenario():
        async with open_engines(make_options(emulator.address), 2) as (one, two):
            first = await one.write("/a", b"1", expect=0)
            monkeypatch.setattr(one.database, "_patience", 0.3)
            release, held = asyncio.Event(), asyncio.Event()

            async def hold(transaction):
                await transaction.read(schema.RECORDS, ("key",), key_set([("/a",)]))
                held.set()
                await release.wait()

            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(two.database.transact(hold, reads=True))
                await held.wait()
                with pytest.raises(EngineUnreachable, match="aborted for"):
                    await one.write("/a", b"2", expect=first.revision)
                assert (await one.read("/a")).record.value == b"1"
                release.set()
            assert isinstance(await one.write("/a", b"2", expect=first.revision), Written)

    asyncio.run(scenario())


@pytest.mark.slow
def test_ten_thousand_aborted_transactions_leak_no_session(emulator, options, open_engines):
    """Neither in this process nor in the database."""

    async def scenario():
        async with open_engines(options) as engine:
            database = engine.database
            await engine.write("/a", b"1", expect=0)

            async def abort(_transaction):
                await _transaction.read(schema.RECORDS, ("key",), key_set([("/a",)])) if number % 10 == 0 else None
                raise Aborted

            async def abort_many():
                nonlocal number
                while number < 10_000:
                    number += 1
                    with pytest.raises(EngineUnreachable):
                        await database.transact(abort, reads=False)

            number = 0
            database._patience = -1.0
            await asyncio.gather(*[abort_many() for _ in range(8)])
            database._patience = 30.0
            assert database.aborts >= 10_000
            assert database.pool.open <= 12
            assert len(database.pool._idle) >= database.pool.open - 2  # but for the sweeper's and the hub's
            listed = await sessions_of(engine, database.name)
            assert len(listed) == database.pool.open
            assert isinstance(await engine.write("/b", b"1", expect=0), Written)

        # A closed engine leaves none behind.
        async with open_engines(options) as engine:
            assert len(await sessions_of(engine, engine.database.name)) == engine.database.pool.open

    asyncio.run(scenario())


async def sessions_of(engine, name):
    """Return the sessions that the database itself counts."""
    client = SpannerAsyncClient(transport=SpannerGrpcAsyncIOTransport(channel=engine._channel))
    return [session.name async for session in await client.list_sessions(database=name)]
