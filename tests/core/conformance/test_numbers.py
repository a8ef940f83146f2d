"""Every numbered promise has a case: none of the sharp edges and field reports was left out."""

import re

import pytest

from kplane_conformance.case import load
from kplane_conformance.upstream import LEAF_CASES, UPSTREAM

NAMES = [case.name for case in load().cases()]


@pytest.mark.parametrize(("letter", "last"), [("D", 40), ("R", 53)])
def test_every_number_is_there(letter: str, last: int) -> None:
    """A number is a case of its own, or one of several such as `D38.watched`."""
    found = {int(match[1]) for name in NAMES if (match := re.fullmatch(rf"{letter}(\d+)(?:\..*)?", name))}
    assert found == set(range(1, last + 1))


def test_every_upstream_function_is_restated() -> None:
    """All functions of the upstream battery have a case, and their leaf cases add up to upstream's own number."""
    cases = [case for case in load().cases() if case.upstream]
    assert {case.upstream for case in cases} == set(UPSTREAM)
    assert sum(len(case.row_ids) or 1 for case in cases) == LEAF_CASES == 267
