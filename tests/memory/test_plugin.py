"""The plugin: what it registers, what it imports, and what connecting gives."""

import asyncio
import subprocess
import sys

import importlib_metadata
import pytest

from kplane_core.engine.factory import EngineConnection
from kplane_core.engine.interface import Engine, EngineUnreachable, Written
from kplane_core.plugins.backends import Backends
from kplane_core.plugins.capabilities import Capability, Unsupported
from kplane_memory.conformance import harness
from kplane_memory.engine import MemoryEngine
from kplane_memory.plugin import MemoryOptions, kplane_register_backends
from kplane_memory.sharing import SharedEngine

ALL = ("", "\U0010ffff")


@pytest.fixture
def backends() -> Backends:
    backends = Backends("kplane-memory 0")
    kplane_register_backends(backends)
    return backends


def test_the_distribution_declares_the_plugin_and_its_harness() -> None:
    declared = {
        (entry.group, entry.name, entry.value)
        for entry in importlib_metadata.distribution("kplane-memory").entry_points
    }
    assert declared == {
        ("kplane.backends", "memory", "kplane_memory.plugin"),
        ("kplane.conformance", "memory", "kplane_memory.conformance:harness"),
    }


def test_it_can_do_everything_but_outlive_its_process(backends: Backends) -> None:
    capabilities = backends.get("memory").capabilities
    lacking = {name for name, support in capabilities.items() if isinstance(support, Unsupported)}
    assert lacking == {Capability.PERSISTENCE, Capability.MULTI_WRITER}


def test_describing_the_backend_imports_neither_the_engine_nor_the_suite() -> None:
    heavy = ["asyncio", "msgspec", "kplane_core.engine.factory", "kplane_memory.engine", "kplane_memory.conformance"]
    script = f"import sys, kplane_memory.plugin\nprint([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_connecting_gives_a_working_store_of_its_own(backends: Backends) -> None:
    async def scenario() -> None:
        options = MemoryOptions(history_limit=2, compaction_interval=0.0)
        connections = [await backends.get("memory").connect(options) for _ in range(2)]
        for connection in connections:
            assert isinstance(connection, EngineConnection)
            engine = connection.engine
            assert await engine.write("/a", b"1", expect=0) == Written(2)
            for revision in (2, 3, 4):
                await engine.write("/a", b"2", expect=revision)
            assert await engine.compacted() == 4
            await connection.check_ready()
            await connection.aclose()
            with pytest.raises(EngineUnreachable):
                await engine.revision()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("field", "value"),
    [("history_limit", 0), ("history_bytes", -1), ("compaction_interval", -1.0), ("progress_interval", -0.1)],
)
def test_options_out_of_range_are_refused(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=field):
        MemoryOptions(**{field: value})  # type: ignore[arg-type]


def test_a_connection_that_closes_leaves_the_others_alone() -> None:
    async def scenario() -> None:
        engine = MemoryEngine()
        first: Engine = SharedEngine(engine)
        second = SharedEngine(engine)
        mine, other = await first.watch(*ALL, after=1), await second.watch(*ALL, after=1)
        await first.write("/a", b"1", expect=0)
        assert (await second.read("/a")).revision == 2
        assert [len(await watch.batch()) for watch in (mine, other)] == [1, 1]
        await first.aclose()
        assert await mine.batch() == ()
        with pytest.raises(EngineUnreachable, match="this connection"):
            await first.check()
        await second.write("/b", b"1", expect=0)
        assert len(await other.batch()) == 1
        await other.aclose()
        assert len(engine._watches) == 0

    asyncio.run(scenario())


def test_the_harness_gives_connections_to_one_engine_and_turns_its_clock() -> None:
    async def scenario() -> None:
        given = harness()
        with pytest.raises(RuntimeError, match="not started"):
            await given.connect()
        await given.start()
        first, second = await given.connect(), await given.connect()
        assert isinstance(first, EngineConnection)
        assert isinstance(second, EngineConnection)
        watch = await second.engine.watch(*ALL, after=1)
        await first.engine.write("/a", b"1", expect=0, ttl=3600)
        given.clock.advance(3599)
        assert (await second.engine.read("/a")).record is not None
        given.clock.advance(1.5)
        assert [event.value for event in await watch.batch()] == [b"1", None]
        await first.aclose()
        await second.check_ready()
        await second.aclose()
        await given.stop()
        await given.stop()

    asyncio.run(scenario())
