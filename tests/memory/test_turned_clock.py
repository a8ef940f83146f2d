"""A clock that a test turns forward: what is due expires at once, and nothing else does."""

import asyncio

import pytest

from kplane_memory.engine import MemoryEngine


def test_turning_the_clock_expires_what_is_due_and_keeps_the_rest():
    async def work():
        engine = MemoryEngine()
        await engine.write("/short", b"{}", expect=0, ttl=10)
        await engine.write("/long", b"{}", expect=0, ttl=100)
        await engine.write("/ever", b"{}", expect=0)
        watch = await engine.watch("/", "0", after=await engine.revision())
        engine.advance_clock(9)
        assert (await engine.read("/short")).record is not None
        engine.advance_clock(1.5)
        (event,) = await watch.batch()
        assert (event.key, event.value) == ("/short", None)
        await engine.write("/late", b"{}", expect=0, ttl=10)
        engine.advance_clock(9)
        assert [record.key for record in (await engine.scan("/", "0")).records] == ["/ever", "/late", "/long"]
        await watch.aclose()
        await engine.aclose()

    asyncio.run(work())


def test_the_clock_never_goes_back():
    async def work():
        engine = MemoryEngine()
        with pytest.raises(ValueError, match="only goes forward"):
            engine.advance_clock(-1)
        await engine.aclose()

    asyncio.run(work())
