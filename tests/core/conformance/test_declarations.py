"""A backend that says it cannot do what it can is told so: the proofs of absence are no formality."""

import asyncio

import pytest

from kplane_conformance.case import Capability, load
from kplane_conformance.session import Outcome, Session
from kplane_core.plugins.capabilities import Support, Supported, Unsupported
from kplane_memory.conformance import MemoryHarness
from kplane_memory.plugin import CAPABILITIES

LEAVES = {leaf.id: leaf for leaf in load().leaves()}
# A list that is never old also keeps the promise of lists that may be.
KEPT_BY_BETTER = {Capability.CONSISTENT_LIST}


class Surviving(MemoryHarness):
    """An engine that outlives its restart, as a database on a disk does."""

    async def restart(self) -> None:
        """Close what is connected; the session does."""


def outcome(
    case: str, capabilities: dict[Capability, Support], harness: type[MemoryHarness] = MemoryHarness
) -> Outcome:
    async def alone() -> Outcome:
        session = Session(harness(), capabilities)
        await session.start()
        result = await session.run(LEAVES[case])
        await session.stop()
        return result.outcome

    return asyncio.run(alone())


@pytest.mark.parametrize("capability", Capability)
def test_the_proof_of_absence_holds_just_where_the_capability_is_absent(capability: Capability) -> None:
    really = CAPABILITIES[capability]
    declared = CAPABILITIES | {capability: Unsupported("so it says")}
    expected = isinstance(really, Unsupported) or capability in KEPT_BY_BETTER
    found = outcome(f"Capability.{capability.value}.absent", declared)
    assert found is (Outcome.PASSED if expected else Outcome.FAILED)


@pytest.mark.parametrize("capability", Capability)
def test_each_declaration_has_a_proof(capability: Capability) -> None:
    for declared in (Supported(), Unsupported("so it says")):
        assert outcome(f"Capability[{capability.value}]", CAPABILITIES | {capability: declared}) is Outcome.PASSED


@pytest.mark.parametrize(
    "case", ["Capability.persistence.restart", "Capability.persistence.resume", "Capability.multi_writer.one-order"]
)
def test_what_memory_cannot_do_is_proved_where_it_can_be_done(case: str) -> None:
    able = CAPABILITIES | {Capability.PERSISTENCE: Supported(), Capability.MULTI_WRITER: Supported()}
    assert outcome(case, able, Surviving) is Outcome.PASSED
    assert outcome(case, dict(CAPABILITIES), Surviving) is Outcome.SKIPPED


def test_a_database_that_forgets_at_a_restart_is_noticed() -> None:
    class Forgetful(MemoryHarness):
        async def restart(self) -> None:
            await self.stop()
            await self.start()

    able = CAPABILITIES | {Capability.PERSISTENCE: Supported()}
    assert outcome("Capability.persistence.restart", able, Forgetful) is Outcome.FAILED
