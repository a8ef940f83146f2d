"""Promises that another suite shows: entered here by number, so that the report names what shows them."""

import attrs

from kplane_conformance.case import CaseFunction, Layer, case
from kplane_conformance.context import Context

__all__ = ["Listed", "enter"]


@attrs.frozen
class Listed:
    """A promise under its number.

    Attributes:
        name: the case's id.
        promise: what is shown elsewhere.
    """

    name: str
    promise: str


def enter(module: str, suite: str, layer: Layer, *promises: Listed) -> None:
    """Enter promises that this suite only lists.

    Args:
        module: whose cases they are; decides the group that counts them.
        suite: the suite that shows them.
        layer: on what they can be seen.
        promises: what is promised.
    """
    for listed in promises:
        case(listed.name, layers=[layer], elsewhere=suite)(_unrunnable(module, suite, listed))


def _unrunnable(module: str, suite: str, listed: Listed) -> CaseFunction:
    async def elsewhere(_ctx: Context) -> None:
        raise AssertionError(f"{listed.name} is shown by {suite}, not here")

    elsewhere.__doc__ = listed.promise
    elsewhere.__module__ = module
    return elsewhere
