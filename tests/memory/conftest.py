"""What the tests of the memory engine share."""

import asyncio
import selectors
import signal
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest


class FakeClock:
    """A clock that only a test turns."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def no_test_hangs() -> Iterator[None]:
    """A watch that misses an event would wait for ever: let the test fail instead."""

    def fail(_signal: int, _frame: object) -> None:
        raise TimeoutError("the test takes longer than 60 seconds")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


class _Jump(selectors.DefaultSelector):
    """Instead of waiting for a time to come, jump to it."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise RuntimeError("the loop would wait for ever: no timer is set and nothing else can happen")
            self.now += timeout
        return ready


class _JumpingLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jump = _Jump()
        super().__init__(self._jump)

    def time(self) -> float:
        return self._jump.now


@pytest.fixture
def run_jumping() -> Callable[[Coroutine[Any, Any, None]], None]:
    """Run a scenario on an event loop whose time jumps from timer to timer: hours pass in no time."""

    def run(scenario: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=_JumpingLoop) as runner:
            runner.run(scenario)

    return run
