"""The checker of concurrent histories accepts what some order explains and nothing else."""

import itertools
import random
import time

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from kplane_conformance.linearizability import Operation, linearizable

Register = tuple[str, int]
"""("write", n) or ("read", n that was answered)."""


def step(state: int, action: Register) -> tuple[bool, int]:
    """A register: reads answer what was written last."""
    kind, value = action
    return (True, value) if kind == "write" else (value == state, state)


def history(*operations: tuple[str, int, int, int]) -> list[Operation[Register]]:
    return [Operation((kind, value), called, returned) for kind, value, called, returned in operations]


ACCEPTED = {
    "nothing": history(),
    "one after the other": history(("write", 1, 0, 1), ("read", 1, 2, 3)),
    "a read beside a write sees the new value": history(("write", 1, 0, 3), ("read", 1, 1, 2)),
    "a read beside a write sees the old value": history(("write", 1, 0, 3), ("read", 0, 1, 2)),
    "two writes in either order": history(("write", 1, 0, 5), ("write", 2, 1, 4), ("read", 1, 6, 7), ("read", 1, 8, 9)),
    "a write that takes long is seen from its middle on": history(
        ("write", 1, 0, 9), ("read", 0, 1, 2), ("read", 1, 3, 4), ("read", 1, 5, 6)
    ),
}
REFUSED = {
    "a stale read after a write": history(("write", 1, 0, 1), ("read", 0, 2, 3)),
    "a value that nobody wrote": history(("write", 1, 0, 1), ("read", 2, 2, 3)),
    "back to the old value": history(("write", 1, 0, 9), ("read", 1, 1, 2), ("read", 0, 3, 4)),
    "two readers see two writes in different orders": history(
        ("write", 1, 0, 1), ("write", 2, 2, 9), ("read", 2, 3, 4), ("read", 1, 5, 6)
    ),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepts_what_an_order_explains(name: str) -> None:
    assert linearizable(ACCEPTED[name], 0, step)


@pytest.mark.parametrize("name", REFUSED)
def test_refuses_what_no_order_explains(name: str) -> None:
    assert not linearizable(REFUSED[name], 0, step)


def brute_force(operations: list[Operation[Register]]) -> bool:
    """Try every order."""
    for order in itertools.permutations(operations):
        if any(later.returned < earlier.called for earlier, later in itertools.combinations(order, 2)):
            continue
        state, right = 0, True
        for operation in order:
            right, state = step(state, operation.action)
            if not right:
                break
        if right:
            return True
    return False


@st.composite
def small_histories(draw: st.DrawFn) -> list[Operation[Register]]:
    moments = draw(st.permutations(range(10)))
    count = draw(st.integers(1, 5))
    actions = draw(st.lists(st.tuples(st.sampled_from(["read", "write"]), st.integers(0, 2)), min_size=5, max_size=5))
    pairs = [sorted(moments[2 * number : 2 * number + 2]) for number in range(count)]
    return [Operation(action, *pair) for action, pair in zip(actions, pairs, strict=False)]


@given(small_histories())
@settings(max_examples=400, deadline=None)
def test_agrees_with_trying_every_order(operations: list[Operation[Register]]) -> None:
    assert linearizable(operations, 0, step) is brute_force(operations)


def test_a_long_history_is_checked_quickly() -> None:
    """Five hundred operations of eight overlapping tasks take far less than a second."""
    chance = random.Random(7)
    events: list[Operation[Register]] = []
    value, now = 0, 0
    for number in range(500):
        # Each takes effect at `now` and stretches over its neighbours.
        kind = chance.choice(["read", "write"])
        value = number if kind == "write" else value
        events.append(Operation((kind, value), now - chance.randint(1, 40), now + chance.randint(1, 40)))
        now += 10
    begun = time.perf_counter()
    assert linearizable(events, 0, step)
    assert time.perf_counter() - begun < 5.0
