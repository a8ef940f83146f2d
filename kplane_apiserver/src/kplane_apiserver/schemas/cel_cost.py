"""What the rules of one object may cost. Rules are run on the server's own loop, so none may hold it up for long.

Kubernetes counts abstract units, in advance and at run time. This runtime counts nothing but the rounds of loops; what
is bounded here is processor time and memory, looked at in every round of a loop and between rules.
"""

import sys
import threading
import time

SECONDS = 1.0
"""Processor time for all rules of one object."""

MEMORY = 256 << 20
"""Bytes by which the process may grow meanwhile."""

LOOP_LIMIT = 10_000
"""Rounds of all loops in one run of one rule; the runtime's own bound."""

MADE_LIMIT = 1 << 20
"""Characters of a text that a function may make, or the length of what it is made from if that is more."""

COUNT_LIMIT = 100_000
"""Elements of a list that a function may make."""

GROWTH_LIMIT = 64 << 20
"""Bytes that sums of texts and lists may come to, by what the expression makes of the values' size."""

_UNLOOKED = 0.005  # seconds: what is over before that is not worth a look at any clock but the cheapest


class CostError(Exception):
    """The rules of an object cost more than they may."""


class Budget:
    """What is left for the rules of one object.

    Attributes:
        exhausted: whether nothing is left; the results of expressions mean nothing then.
        per_round: how many bytes a round that makes something may make at most, in the expression that is run.
    """

    __slots__ = ("_look_at", "_made", "_peak", "_started", "exhausted", "per_round")

    def __init__(self) -> None:
        self.exhausted = False
        self.per_round = 0
        self._made = 0
        self._look_at = time.perf_counter() + _UNLOOKED
        self._started: float | None = None
        self._peak = 0

    def check(self) -> None:
        """Return while something is left.

        Raises:
            CostError: nothing is.
        """
        if time.perf_counter() >= self._look_at:
            self._look()

    def make(self) -> None:
        """Return when another round may make something.

        Raises:
            CostError: it may not.
        """
        self._made += self.per_round
        if self._made > MEMORY:
            self.exhausted = True
            self._look_at = 0.0
        self.check()

    def _look(self) -> None:
        if self.exhausted:
            raise CostError
        if self._started is None:
            self._started, self._peak = time.thread_time(), _peak_memory()
        elif time.thread_time() - self._started > SECONDS or _peak_memory() - self._peak > MEMORY:
            self.exhausted = True
            self._look_at = 0.0
            raise CostError
        self._look_at = time.perf_counter() + _UNLOOKED


class _Current(threading.local):
    def __init__(self) -> None:
        self.budget = Budget()


_current = _Current()


def begin() -> Budget:
    """Return a fresh budget, which everything that is run in this thread is charged to from now on."""
    budget = _current.budget = Budget()
    return budget


def current() -> Budget:
    """Return the budget of this thread."""
    return _current.budget


def tick() -> bool:
    """Return true while there is something left: every round of a loop asks.

    Raises:
        CostError: nothing is left.
    """
    _current.budget.check()
    return True


def made() -> bool:
    """Return true as `tick` does, for a round that makes a new value of more than its element.

    Raises:
        CostError: nothing is left.
    """
    _current.budget.make()
    return True


def stop() -> None:
    """Stand where a round of a loop cannot come, because `tick` returns true or raises.

    Raises:
        CostError: always.
    """
    raise CostError


def check_count(count: int) -> None:
    """Return when a function may make a list of so many elements.

    Raises:
        CostError: they are too many.
    """
    if count > COUNT_LIMIT:
        raise CostError("the result is too large")


def check_made(size: int, given: int) -> None:
    """Return when a function may make a text.

    Args:
        size: its length.
        given: the length of what it is made from.

    Raises:
        CostError: it is too long.
    """
    if size > max(MADE_LIMIT, given):
        raise CostError("the result is too large")


if sys.platform == "win32":

    def _peak_memory() -> int:
        """Return 0: there is no cheap way to ask."""
        return 0

else:
    import resource

    _UNIT = 1 if sys.platform == "darwin" else 1024

    def _peak_memory() -> int:
        """Return how many bytes the process had at most so far."""
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _UNIT
