"""Numbers for a metrics page, without a metrics library: whoever serves the page knows how to print them."""

from collections.abc import Iterable
from typing import NamedTuple, Protocol, runtime_checkable


class Sample(NamedTuple):
    """One number under its name.

    Attributes:
        name: the metric; upstream's name where upstream has it.
        kind: "counter", "gauge" or "histogram".
        help: one sentence.
        labels: names and values.
        value: the number; for a histogram the sum.
        buckets: for a histogram, how many values lie at or below each of `bounds` and, last, how many there are.
        bounds: for a histogram, the upper bounds of its buckets.
    """

    name: str
    kind: str
    help: str
    labels: tuple[tuple[str, str], ...]
    value: float
    buckets: tuple[int, ...] = ()
    bounds: tuple[float, ...] = ()


@runtime_checkable
class Measured(Protocol):
    """What counts something; a backend's connection may be it, and then stands on the server's metrics page."""

    def samples(self) -> Iterable[Sample]:
        """Yield everything counted."""
        ...
