"""Cases that the memory engine cannot be asked, on databases made from it: with restarts, with a size limit."""

import asyncio

import pytest

from kplane_conformance.case import load
from kplane_conformance.session import Outcome, Result, Session
from kplane_core.engine.factory import Connection, EngineConnection
from kplane_core.engine.interface import Conflict, ValueTooLarge, Written
from kplane_core.errors import InternalError
from kplane_memory.conformance import MemoryHarness
from kplane_memory.sharing import SharedEngine

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


class Limited(SharedEngine):
    """An engine that takes values of up to 1.5 MB."""

    limit = 1_500_000

    async def write(self, key: str, value: bytes | None, *, expect: int, ttl: int | None = None) -> Written | Conflict:
        """Write what is not too large."""
        if value is not None and len(value) > self.limit:
            self.refuse(len(value))
        return await super().write(key, value, expect=expect, ttl=ttl)

    def refuse(self, size: int) -> None:
        """Refuse as the engine's contract says."""
        raise ValueTooLarge(size, self.limit)


class Blunt(Limited):
    """The same, with the database's own error."""

    def refuse(self, size: int) -> None:
        """Refuse in other words."""
        raise InternalError(f"request of {size} bytes is too large")


class LimitedHarness(MemoryHarness):
    """The memory engine behind a limit."""

    def __init__(self, kind: type[Limited]) -> None:
        super().__init__()
        self._kind = kind

    async def connect(self) -> Connection:
        """Connect through the limit."""
        assert self._engine is not None
        return EngineConnection(self._kind(self._engine))


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


@pytest.mark.parametrize(
    ("kind", "size", "outcome"),
    [
        (Limited, "1.0-MB", Outcome.PASSED),
        (Limited, "1.6-MB", Outcome.PASSED),
        (Limited, "3.0-MB", Outcome.PASSED),
        (Blunt, "1.6-MB", Outcome.FAILED),
    ],
)
def test_a_size_limit_must_be_named(kind: type[Limited], size: str, outcome: Outcome) -> None:
    """A database may refuse a large value, but only in the words of the contract."""
    result = run(f"R29[{size}]", Session(LimitedHarness(kind), seed=1))
    assert result.outcome is outcome, result.reason
