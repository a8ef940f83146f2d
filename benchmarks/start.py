"""From nothing to ready: `kplane serve` is started and asked until `/readyz` answers."""

import os
import statistics
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from benchmarks.harness import serving
from benchmarks.harness.results import Result, Unavailable

SUMMARY = "process start until /readyz answers"

_STARTS = 5


def measure(tries: int) -> Iterable[Result]:
    """Start the server five times; the medians count."""
    if not hasattr(os, "wait4"):
        raise Unavailable("this system does not tell what a child process used")
    del tries
    starts = [_start() for _ in range(_STARTS + 1)][1:]  # the first one compiles modules
    wall, cpu = (statistics.median(values) for values in zip(*starts, strict=True))
    yield Result(
        "start to ready, median of 5",
        wall,
        "s",
        by_cpu=cpu,
        floor=0.7,
        at_most=True,
        note="the processor time is that of the start; the wall clock also sees what else runs",
    )


def _start() -> tuple[float, float]:
    with tempfile.TemporaryDirectory(prefix="kplane-bench-") as name:
        folder, port = Path(name), serving.free_port()
        began = time.perf_counter()
        process = serving.start(folder, port)
        try:
            serving.wait_until_ready(process, port, folder)
            took = time.perf_counter() - began
            return took, serving.Server(process.pid, port).cpu_seconds()
        finally:
            serving.stop(process)
