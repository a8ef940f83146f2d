"""Engines on a file of the test's own."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from kplane_core.engine.interface import Written
from kplane_sqlite.engine import SqliteEngine
from kplane_sqlite.opening import Settings


class Database:
    """One file and ways to use it."""

    def __init__(self, path):
        self.path = path

    @asynccontextmanager
    async def engine(self, **options):
        """An engine on the file, closed at the end."""
        synchronous = options.pop("synchronous", "off")  # most tests are not about power cuts
        busy_timeout = options.pop("busy_timeout", 5.0)
        engine = await SqliteEngine.open(Settings(self.path, synchronous, busy_timeout), **options)
        try:
            yield engine
        finally:
            await engine.aclose()

    def run(self, work: Callable[[SqliteEngine], Awaitable[object]], **options):
        """Run work on an engine of its own and return its result."""

        async def main():
            async with self.engine(**options) as engine:
                return await work(engine)

        return asyncio.run(main())


@pytest.fixture
def database(tmp_path):
    return Database(tmp_path / "kplane.db")


@pytest.fixture
def put():
    """A function that writes a key whatever it holds, and returns the revision."""

    async def put(engine, key, value=b"1", ttl=None):
        record = (await engine.read(key)).record
        written = await engine.write(key, value, expect=record.mod_revision if record else 0, ttl=ttl)
        assert isinstance(written, Written)
        return written.revision

    return put


@pytest.fixture
def on_writer():
    """A function that runs a statement on the connection that writes."""

    async def execute(engine, statement):
        return await engine._writer.call(lambda one: one.execute(statement).fetchall(), atomic=False)

    return execute
