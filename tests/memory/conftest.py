"""What the tests of the memory engine share."""

import signal
from collections.abc import Iterator

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
