"""What tests of several areas share: an event loop whose time jumps."""

import asyncio
import math
import selectors

import pytest


class JumpingSelector(selectors.DefaultSelector):
    """Instead of waiting for a time to come, it jumps there.

    Args:
        forever: so many seconds of the loop's time are more than any scenario needs.
    """

    def __init__(self, forever):
        super().__init__()
        self.now = 1_000.0
        self._end = self.now + forever

    def select(self, timeout=None):
        ready = super().select(0)
        if not ready:
            if timeout is None or self.now > self._end:
                raise RuntimeError("the scenario waits for something that never happens")
            self.now += timeout
        return ready


class JumpingLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is that of its selector."""

    def __init__(self, forever):
        self._jumping = JumpingSelector(forever)
        super().__init__(self._jumping)

    def time(self):
        return self._jumping.now


async def _alone(scenario):
    before = asyncio.all_tasks()
    outcome = await scenario
    await asyncio.sleep(0)
    left = asyncio.all_tasks() - before
    assert not left, left
    return outcome


@pytest.fixture(scope="session")
def run_jumping():
    """Run a scenario on a loop whose time jumps from timer to timer: hours pass in no time, and to hang is an error.

    Whatever the scenario started must be gone when it ends.
    """

    def run_jumping(scenario, *, forever=math.inf):
        with asyncio.Runner(loop_factory=lambda: JumpingLoop(forever)) as runner:
            return runner.run(_alone(scenario))

    return run_jumping
