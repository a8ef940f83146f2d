"""What the conformance suite needs to try the memory backend; production code never loads it."""

import asyncio
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kplane_core.engine.factory import EngineConnection
from kplane_memory.engine import MemoryEngine
from kplane_memory.sharing import SharedEngine

if TYPE_CHECKING:
    from kplane_core.engine.factory import Connection


class TurnableClock:
    """The monotonic clock, which can also be turned forward."""

    def __init__(self) -> None:
        self._ahead = 0.0
        self._engine: MemoryEngine | None = None

    def __call__(self) -> float:
        """Return the seconds."""
        return time.monotonic() + self._ahead

    def drives(self, engine: MemoryEngine | None) -> None:
        """Name the engine whose timer cannot notice that the clock was turned."""
        self._engine = engine

    def advance(self, seconds: float) -> None:
        """Turn the clock forward and let what is due expire."""
        self._ahead += seconds
        if self._engine is not None:
            self._engine.expire_due()


class MemoryHarness:
    """One engine, to which every `connect` is another connection.

    There is no `restart`, because nothing would be left.

    Attributes:
        name: the backend's name.
        silence: seconds without an event after which there is none.
        clock: the time that TTLs are measured by.
        without: which hooks there are not, and why.
    """

    name = "memory"
    silence = 0.05
    without: Mapping[str, str] = {"fault": "there is no network within a process"}

    def __init__(self) -> None:
        self.clock = TurnableClock()
        self._engine: MemoryEngine | None = None

    async def start(self) -> None:
        """Make the engine."""
        # Short marks keep the cases about progress short.
        self._engine = MemoryEngine(progress_interval=0.5, clock=self.clock)
        self.clock.drives(self._engine)

    async def stop(self) -> None:
        """Close the engine."""
        if self._engine is not None:
            await self._engine.aclose()
        self._engine = None
        self.clock.drives(None)

    async def connect(self) -> "Connection":
        """Return a new connection to the engine."""
        if self._engine is None:
            raise RuntimeError("the memory harness was not started")
        connection = EngineConnection(SharedEngine(self._engine))
        await connection.start()
        return connection

    def shared_task(self, task: "asyncio.Task[object]") -> bool:
        """Return whether a task belongs to a connection: its compaction loop, or a probe that several wait for."""
        return task.get_name() in {"kplane-compaction", "kplane-probe"}


def harness() -> MemoryHarness:
    """Return a new harness; the suite finds this function through the entry point."""
    return MemoryHarness()
