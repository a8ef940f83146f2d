"""An engine whose answers take a random number of turns of the event loop, so that calls really overlap."""

import asyncio
import random
from typing import Any

from kplane_core.engine.interface import Engine, Page, Read


class JitterEngine:
    """Delegates everything to an engine and waits some turns before and after each read, scan and write.

    Args:
        engine: the engine.
        seed: decides how many turns.
        turns: at most so many.
    """

    def __init__(self, engine: Engine, seed: int, turns: int = 3) -> None:
        self._engine = engine
        self._random = random.Random(seed)  # noqa: S311 - a schedule, no secret
        self._turns = turns

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def _wait(self) -> None:
        for _ in range(self._random.randint(0, self._turns)):
            await asyncio.sleep(0)

    async def read(self, key: str, *, at: int = 0) -> Read:
        """Read, with waits around it."""
        await self._wait()
        answer = await self._engine.read(key, at=at)
        await self._wait()
        return answer

    async def scan(self, start: str, end: str, *, at: int = 0, limit: int = 0, count: bool = False) -> Page:
        """Scan, with waits around it."""
        await self._wait()
        answer = await self._engine.scan(start, end, at=at, limit=limit, count=count)
        await self._wait()
        return answer

    async def write(self, key: str, value: bytes | None, *, expect: int, ttl: int | None = None) -> Any:
        """Write, with waits around it."""
        await self._wait()
        answer = await self._engine.write(key, value, expect=expect, ttl=ttl)
        await self._wait()
        return answer
