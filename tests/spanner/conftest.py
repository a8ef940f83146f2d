"""A Spanner emulator for the tests of a process, and engines on databases of their own."""

import asyncio
import itertools
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kplane_spanner.emulator import Emulator, missing
from kplane_spanner.engine import SpannerEngine, open_engine
from kplane_spanner.plugin import SpannerOptions

_numbers = itertools.count(1)


@pytest.fixture(autouse=True)
def no_test_hangs() -> Iterator[None]:
    """A watch that misses an event would wait for ever: let the test fail instead."""

    def fail(_signal: int, _frame: object) -> None:
        raise TimeoutError("the test takes longer than 90 seconds")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(90)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what needs the emulator where there is none; `missing` says so in one line instead of eighty."""
    if missing() and not os.environ.get("KPLANE_REQUIRE_SPANNER"):
        left_out = [item for item in items if _needs_emulator(item)]
        items[:] = [item for item in items if not _needs_emulator(item)]
        config.hook.pytest_deselected(items=left_out)


def _needs_emulator(item: pytest.Item) -> bool:
    here = item.path.is_relative_to(Path(__file__).parent)
    return here and bool({"emulator", "make_emulator"} & set(getattr(item, "fixturenames", ())))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say that something was left out."""
    if line := missing():
        terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def emulator() -> Iterator[Emulator]:
    """The emulator that the tests of this process share."""
    running = Emulator()
    running.start()
    yield running
    running.stop()


@pytest.fixture
def make_emulator() -> Iterator[Any]:
    """Start emulators of a test's own, with flags; they end with the test."""
    running = []

    def make(*flags: str) -> Emulator:
        running.append(Emulator(*flags))
        running[-1].start()
        return running[-1]

    yield make
    for one in running:
        one.stop()


def options_for(address: str, **changes: Any) -> SpannerOptions:
    """Return options for a database on an emulator."""
    settings: dict[str, Any] = {
        "project": "kplane",
        "instance": "test",
        "database": f"test-{os.getpid()}-{next(_numbers)}",
        "emulator_host": address,
        "create_instance": True,
        "sweep_interval": 0.2,
        "progress_interval": 0.3,
        "min_sessions": 1,
    }
    return SpannerOptions(**settings | changes)


@pytest.fixture
def options(emulator: Emulator) -> SpannerOptions:
    """Options for a new database."""
    return options_for(emulator.address)


@asynccontextmanager
async def engines(options: SpannerOptions, count: int = 1) -> AsyncIterator[Any]:
    """Open so many engines on one database, as so many processes would: one engine, or a list of them."""
    before = asyncio.all_tasks()
    async with AsyncExitStack() as stack:
        opened: list[SpannerEngine] = []
        for _ in range(count):
            opened.append(await open_engine(options))
            stack.push_async_callback(opened[-1].aclose)
        yield opened if count > 1 else opened[0]
    left = [task for task in asyncio.all_tasks() - before if task.get_name().startswith("kplane")]
    assert not left, f"tasks outlived their engine: {left}"


@pytest.fixture
def open_engines() -> Any:
    """`async with open_engines(options, 2) as (a, b)`: see `engines`."""
    return engines


@pytest.fixture
def make_options() -> Any:
    """See `options_for`."""
    return options_for
