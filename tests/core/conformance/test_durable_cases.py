"""The cases that need a database which survives a restart pass on one, and fail on one that forgets its clocks."""

import asyncio

import pytest

from kplane_conformance.case import load
from kplane_conformance.session import Outcome, Result, Session
from kplane_memory.conformance import MemoryHarness

LEAVES = {leaf.id: leaf for leaf in load().leaves()}
RESTARTS = ("D36", "D36.compacted", "R21")


class DurableHarness(MemoryHarness):
    """The memory engine played as a database server: it stays, and only the connections end."""

    async def restart(self) -> None:
        """Restart: nothing is lost."""


class ForgetfulHarness(DurableHarness):
    """A database whose times to live begin anew with every restart."""

    async def restart(self) -> None:
        """Restart: every deadline moves."""
        assert self._engine is not None
        expiry = self._engine._expiry
        for key in list(expiry._deadlines):
            expiry.set(key, 6)


def run(case: str, session: Session) -> Result:
    async def alone() -> Result:
        await session.start()
        try:
            return await session.run(LEAVES[case])
        finally:
            await session.stop()

    return asyncio.run(alone())


@pytest.mark.parametrize("case", [*RESTARTS, "D11.two-servers"])
def test_passes_on_a_database_that_survives(case: str) -> None:
    """With everything supported the case runs, and is met."""
    result = run(case, Session(DurableHarness(), seed=1))
    assert result.outcome is Outcome.PASSED, result.reason


@pytest.mark.slow  # the cases wait in real time for what does not come
@pytest.mark.parametrize("case", ["D36", "R21"])
def test_fails_where_restarts_lengthen_lives(case: str) -> None:
    """A time to live that begins anew is noticed."""
    result = run(case, Session(ForgetfulHarness(), seed=1))
    assert result.outcome is Outcome.FAILED, result
    assert "expire" in result.reason
