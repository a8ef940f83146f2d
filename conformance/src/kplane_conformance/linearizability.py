"""A checker for concurrent histories: is there one order of the operations that explains every answer?

The search is Wing and Gong's with the memory that Lowe added: an operation may be placed next if it was called before
any unplaced one returned; a pair of placed operations and state that failed once is not tried again. No maintained
checker was found for Python.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

import attrs

Action = TypeVar("Action")
State = TypeVar("State", bound=Hashable)


@attrs.frozen
class Operation(Generic[Action]):
    """One call and its answer.

    Attributes:
        action: what was asked and answered.
        called: when it was called; any clock that orders calls and returns of all tasks.
        returned: when it returned.
        task: who called, for the report.
    """

    action: Action
    called: int
    returned: int
    task: int = 0


@attrs.define(eq=False)
class _Entry:
    """A call or a return in a doubly linked list, which gives up and takes back its elements in constant time."""

    number: int
    matching: "_Entry | None" = None
    before: "_Entry | None" = None
    after: "_Entry | None" = None

    def unlink(self) -> None:
        if self.before:
            self.before.after = self.after
        if self.after:
            self.after.before = self.before

    def relink(self) -> None:
        if self.before:
            self.before.after = self
        if self.after:
            self.after.before = self


def linearizable(
    history: Sequence[Operation[Action]], initial: State, step: Callable[[State, Action], tuple[bool, State]]
) -> bool:
    """Return whether some order of the operations explains all their answers and agrees with real time.

    Args:
        history: the operations, in any order.
        initial: the state before all of them.
        step: says whether an action's answer is right in a state, and which state follows.
    """
    head = _linked(history)
    state, placed = initial, 0
    seen: set[tuple[int, State]] = set()
    stack: list[tuple[_Entry, State]] = []
    entry = head.after
    while head.after is not None:
        assert entry is not None, "a return ends every list of calls"
        if entry.matching is None:  # a return whose call is not placed: nothing later may come before it
            if not stack:
                return False
            entry, state = stack.pop()
            placed &= ~(1 << entry.number)
            _take_back(entry)
            entry = entry.after
            continue
        right, following = step(state, history[entry.number].action)
        attempt = (placed | 1 << entry.number, following)
        if not right or attempt in seen:
            entry = entry.after
            continue
        seen.add(attempt)
        stack.append((entry, state))
        placed, state = attempt
        _take_out(entry)
        entry = head.after
    return True


def _linked(history: Sequence[Operation[Action]]) -> _Entry:
    moments = []
    for number, operation in enumerate(history):
        end = _Entry(number)
        moments += [(operation.called, 0, number, _Entry(number, end)), (operation.returned, 1, number, end)]
    head = last = _Entry(-1)
    for _, _, _, entry in sorted(moments, key=lambda moment: moment[:3]):
        last.after, entry.before = entry, last
        last = entry
    return head


def _take_out(call: _Entry) -> None:
    assert call.matching is not None
    call.unlink()
    call.matching.unlink()


def _take_back(call: _Entry) -> None:
    assert call.matching is not None
    call.matching.relink()
    call.relink()
