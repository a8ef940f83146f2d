"""Where in an object a fault lies: a chain that costs next to nothing to build, written out only when it is needed."""

from typing import Any

import attrs

from kplane_core.errors import StatusCause

Place = tuple[Any, ...]
"""The empty tuple for the object itself, else (place of the outer value, step): a field's name or an index."""

NOWHERE = "<nil>"
"""How a fault that belongs to no field names its field."""


@attrs.frozen
class MapKey:
    """A step into a map, where the path shows the key in brackets: `spec.limits[cpu]`.

    Attributes:
        name: the key.
    """

    name: str


@attrs.frozen
class Fault:
    """One thing that is wrong with an object.

    Attributes:
        place: the value that was judged; a fault about a value that did not change may be forgiven.
        cause: what is said of it.
    """

    place: Place
    cause: StatusCause


def steps_of(place: Place) -> list[Any]:
    """Return the steps that lead to a place, the outermost first."""
    steps: list[Any] = []
    while place:
        place, step = place
        steps.append(step)
    steps.reverse()
    return steps


def text_of(place: Place) -> str:
    """Return a place as field errors write it, for example `spec.ports[0].name`; empty for the object itself."""
    text = ""
    for step in steps_of(place):
        if isinstance(step, int):
            text += f"[{step}]"
        elif isinstance(step, MapKey):
            text += f"[{step.name}]"
        else:
            text += f".{step}" if text else step
    return text
