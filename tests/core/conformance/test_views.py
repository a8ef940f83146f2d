"""Views: what stands between a case and a plain store, and that a fault in it is found."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import attrs
import pytest

from kplane_conformance.case import Leaf, View, load
from kplane_conformance.session import Outcome, Result, Session
from kplane_core.cacher.history import Lane
from kplane_memory.conformance import harness

LEAVES = {leaf.name: leaf for leaf in load().leaves()}


async def alone(leaf: Leaf) -> Result:
    session = Session(harness(), seed=1)
    await session.start()
    try:
        return await session.run(leaf)
    finally:
        await session.stop()


def run(leaf: Leaf) -> Result:
    return asyncio.run(alone(leaf))


def through(name: str, view: View) -> Leaf:
    return attrs.evolve(LEAVES[name], view=view)


def test_the_upstream_battery_is_run_through_every_view_that_can_show_it() -> None:
    names = {leaf.id for leaf in load().views()}
    for view in View:
        if view is not View.STORE:
            assert f"List[row-20]@{view.value}" in names
    assert "WatchError@cache" not in names, "a cache answers unreadable data in its own way"
    assert "WatchError@second-handle" in names
    assert not any(name.startswith(("engine.", "Model")) for name in names)


@pytest.mark.parametrize("view", View)
def test_a_case_runs_through_every_view(view: View) -> None:
    assert run(through("WatchFromNonZero", view)).outcome is Outcome.PASSED


def test_a_fault_of_the_cache_fails_the_case_behind_the_cache_only(
    monkeypatch: pytest.MonkeyPatch, run_jumping: Callable[[Coroutine[Any, Any, Result]], Result]
) -> None:
    real = Lane.after
    monkeypatch.setattr(Lane, "after", lambda lane, revision: real(lane, revision + 1))
    # An event that never comes is waited for for half a minute.
    assert run_jumping(alone(through("WatchFromNonZero", View.STORE))).outcome is Outcome.PASSED
    assert run_jumping(alone(through("WatchFromNonZero", View.CACHE))).outcome is Outcome.FAILED


def test_what_a_cache_answers_otherwise_is_not_asked_of_it() -> None:
    found = run(through("List[row-24]", View.CACHE))
    assert found.outcome is Outcome.ELSEWHERE
    assert "a cache ignores the limit" in found.reason
