"""The database goes away, comes back empty, or never answers."""

import asyncio
import os
import signal

import pytest

from kplane_core.engine.interface import Compacted, EngineUnreachable, Written
from kplane_core.errors import Unreachable
from kplane_spanner.engine import open_engine


def test_a_killed_emulator_ends_watches_and_calls_with_an_error_and_a_new_one_is_used(
    make_emulator, make_options, open_engines, monkeypatch
):
    """No silence, no hanging; what comes back has lost everything, and old revisions are told so."""
    monkeypatch.setattr("kplane_spanner.watching._PATIENCE", 0.5)
    emulator = make_emulator()
    options = make_options(emulator.address, timeout=2.0)

    async def scenario():
        async with open_engines(options) as engine:
            engine.hub._patience = 0.5
            old = await engine.write("/a", b"1", expect=0)
            watch = await engine.watch("/", "0", after=old.revision)
            waiting = asyncio.create_task(watch.batch())
            await asyncio.sleep(0.1)
            emulator.kill()
            with pytest.raises(EngineUnreachable):
                await engine.read("/a")
            with pytest.raises(EngineUnreachable):
                await engine.check()
            with pytest.raises(EngineUnreachable):
                await asyncio.wait_for(waiting, 10)

            emulator.start()
            with pytest.raises(EngineUnreachable):
                await engine.read("/a")  # there is no database yet
            await asyncio.sleep(2.5)  # the longest that a broken connection waits before it tries again
            async with open_engines(options) as fresh:
                written = await fresh.write("/b", b"1", expect=0)
                assert written.revision > old.revision
                # The old connection goes on, with new sessions; it answers what is there now.
                assert (await engine.read("/a")).record is None
                assert (await engine.read("/b")).record.mod_revision == written.revision
                for one in (engine, fresh):
                    with pytest.raises(Compacted):
                        await one.watch("/", "0", after=old.revision)

    asyncio.run(scenario())


def test_a_stopped_emulator_is_unreachable_within_the_deadline(make_emulator, make_options, open_engines):
    """It accepts connections and says nothing; when it goes on, so does the watch, without a gap."""
    emulator = make_emulator()

    async def scenario():
        async with open_engines(make_options(emulator.address, timeout=0.5)) as engine:
            first = await engine.write("/a", b"1", expect=0)
            watch = await engine.watch("/", "0", after=first.revision)
            os.kill(emulator.pid, signal.SIGSTOP)
            try:
                started = asyncio.get_running_loop().time()
                with pytest.raises(EngineUnreachable, match="DEADLINE"):
                    await engine.read("/a")
                assert asyncio.get_running_loop().time() - started < 2.0
            finally:
                os.kill(emulator.pid, signal.SIGCONT)
            second = await engine.write("/b", b"1", expect=0)
            assert [event.revision for event in await watch.batch()] == [second.revision]

    asyncio.run(scenario())


def test_closing_does_not_wait_for_a_database_that_is_gone(make_emulator, make_options):
    emulator = make_emulator()

    async def scenario():
        engine = await open_engine(make_options(emulator.address))
        await engine.watch("/", "0", after=await engine.revision())
        os.kill(emulator.pid, signal.SIGSTOP)
        try:
            async with asyncio.timeout(5):
                await engine.aclose()
        finally:
            os.kill(emulator.pid, signal.SIGCONT)

    asyncio.run(scenario())


def test_nobody_there_is_one_error_in_time(make_options):
    async def scenario():
        with pytest.raises(Unreachable, match=r"127\.0\.0\.1"):
            await open_engine(make_options("127.0.0.1:1"))

    asyncio.run(scenario())


def test_lost_sessions_are_replaced(options, open_engines):
    """Spanner forgets sessions that were idle for an hour."""

    async def scenario():
        async with open_engines(options) as engine:
            first = await engine.write("/a", b"1", expect=0)
            for _, session in list(engine.database.pool._idle):
                await engine.database._calls.delete_session(session.name, 5.0)
            assert isinstance(await engine.write("/a", b"2", expect=first.revision), Written)
            assert (await engine.read("/a")).record.value == b"2"
            assert engine.database.pool.open >= 1

    asyncio.run(scenario())
