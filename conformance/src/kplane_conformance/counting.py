"""An engine that counts the reads which pass through it."""

from typing import Any

from kplane_core.engine.interface import Engine, Page, Read


class CountingEngine:
    """Delegates everything to an engine and counts reads and scans.

    Attributes:
        scans: calls of `scan` so far.
        point_reads: calls of `read` so far.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.scans = 0
        self.point_reads = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def read(self, key: str, *, at: int = 0) -> Read:
        """Count and read."""
        self.point_reads += 1
        return await self._engine.read(key, at=at)

    async def scan(self, start: str, end: str, *, at: int = 0, limit: int = 0, count: bool = False) -> Page:
        """Count and scan."""
        self.scans += 1
        return await self._engine.scan(start, end, at=at, limit=limit, count=count)
