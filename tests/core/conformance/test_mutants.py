"""The suite notices engines that are wrong: each mutant fails the case that is named for it."""

import asyncio

import pytest

from kplane_conformance.case import load
from kplane_conformance.mutants import MUTANTS, Mutant, MutantHarness
from kplane_conformance.session import Outcome, Result, Session
from kplane_memory.conformance import harness

LEAVES = {leaf.id: leaf for leaf in load().leaves()}
SEED = 1  # the same every time: a mutant that only some seeds find would fail now and then
KILLS = [pytest.param(mutant, case, id=f"{mutant.name}-{case}") for mutant in MUTANTS for case in mutant.killed_by]


def run(case: str, session: Session) -> Result:
    """Return what came of one case in a session of its own."""

    async def alone() -> Result:
        await session.start()
        try:
            return await session.run(LEAVES[case])
        finally:
            await session.stop()

    return asyncio.run(alone())


@pytest.mark.parametrize(("mutant", "case"), KILLS)
def test_a_named_case_kills_each_mutant(mutant: Mutant, case: str) -> None:
    """A mutant fails the case by an assertion, not by falling over."""
    result = run(case, Session(MutantHarness(harness(), mutant), seed=SEED))
    assert result.outcome is Outcome.FAILED, f"{case} let {mutant.name} through: {result}"
    assert isinstance(result.error, AssertionError), result.reason


@pytest.mark.parametrize("case", sorted({case for mutant in MUTANTS for case in mutant.killed_by}))
def test_the_same_case_passes_on_the_right_engine(case: str) -> None:
    """What kills a mutant lets the engine live that the mutant was made from."""
    result = run(case, Session(harness(), seed=SEED))
    assert result.outcome is Outcome.PASSED, result.reason


def test_each_promised_fault_has_a_mutant() -> None:
    """The faults that the suite promises to notice are the ones that are tried."""
    assert {mutant.name for mutant in MUTANTS} >= {
        "reordered-events",
        "lost-identity",
        "reused-revision",
        "event-lost-at-compaction",
        "leaked-ttl",
        "no-boundary",
        "two-snapshots",
        "overtaking-bookmark",
    }
