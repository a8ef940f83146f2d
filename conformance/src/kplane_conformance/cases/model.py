"""A store behaves as its model does, whatever is done with it."""

import asyncio

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from kplane_conformance.case import Capability, Hook, case
from kplane_conformance.context import Context
from kplane_conformance.machine import Blocking, StoreMachine

SETTINGS = settings(
    max_examples=200,
    stateful_step_count=50,
    report_multiple_bugs=False,
    deadline=None,
    database=None,
    print_blob=False,
    suppress_health_check=list(HealthCheck),
)


@case(
    "Model",
    requires=[
        Capability.COMPACTION,
        Capability.CONSISTENT_LIST,
        Capability.EXACT_RV_LIST,
        Capability.CONTINUE_TOKEN,
        Capability.HISTORY_WINDOW,
    ],
    hooks=[Hook.COMPACT],
    timeout=300.0,
)
async def behaves_as_the_model(ctx: Context) -> None:
    """Whatever sequence of calls is made, every answer and every watch is what a log of the changes says."""
    run = Blocking(asyncio.get_running_loop())
    machine = type("Store", (StoreMachine,), {"session": ctx.session, "run": run})
    seeded = seed(ctx.session.seed)(machine)
    try:
        # Hypothesis is not made for event loops: it runs in a thread, and the backend stays on its loop.
        # Shrinking a lost event means waiting for it again and again, so that is only done when asked for.
        phases = (Phase.generate, Phase.shrink) if ctx.session.shrink else (Phase.generate,)
        chosen = settings(SETTINGS, phases=phases)
        await asyncio.to_thread(run_state_machine_as_test, seeded, settings=chosen)
    finally:
        run.closed = True
