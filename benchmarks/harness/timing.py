"""Timing of work inside this process, by the wall clock and by processor time, best of several tries."""

import gc
import time
from collections.abc import Awaitable, Callable

import attrs

Work = Callable[[], Awaitable[int]]
"""Does the work and returns how many operations that was."""


@attrs.frozen
class Rate:
    """Operations per second.

    Attributes:
        wall: by the clock on the wall.
        cpu: by the processor time that this process used.
    """

    wall: float
    cpu: float


async def best_of(tries: int, work: Work, *, prepare: Callable[[], Awaitable[None]] | None = None) -> Rate:
    """Return the best rate of several tries; wall and processor time each take their own best.

    Args:
        tries: how often to do the work.
        work: what to measure.
        prepare: done before each try, not measured.
    """
    wall = cpu = 0.0
    for _ in range(tries):
        if prepare is not None:
            await prepare()
        gc.collect()
        used, began = time.process_time(), time.perf_counter()
        count = await work()
        took, used = time.perf_counter() - began, time.process_time() - used
        wall = max(wall, count / took)
        cpu = max(cpu, count / max(used, 1e-9))
    return Rate(wall, cpu)
