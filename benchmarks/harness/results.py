"""What a section measures, how it compares with what is promised, and how that is shown."""

import math
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

_PREFIXES = ((1e6, "M"), (1e3, "k"))


class Unavailable(Exception):
    """A section cannot be measured here; the message says what is missing."""


@attrs.frozen
class Result:
    """One measured quantity.

    Attributes:
        name: what was done.
        value: what was measured, by the clock on the wall.
        unit: of what, for example `/s` or `ms`.
        by_cpu: the same by processor time: what an otherwise idle core would have reached. None where that is no use.
        floor: what is promised, in the same unit; None for a figure of interest only.
        at_most: whether the promise is an upper bound.
        note: what a reader must know to make sense of it.
    """

    name: str
    value: float
    unit: str
    by_cpu: float | None = None
    floor: float | None = None
    at_most: bool = False
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """How many times better than promised the wall clock says it is."""
        return self._against(self.value)

    @property
    def ratio_by_cpu(self) -> float | None:
        """How many times better than promised it would be on an otherwise idle core."""
        return None if self.by_cpu is None else self._against(self.by_cpu)

    @property
    def verdict(self) -> str:
        """`ok`, `ok (cpu)` when only other processes kept it from its floor, `missed`, or nothing without a floor."""
        if self.ratio is None:
            return ""
        if self.ratio >= 1:
            return "ok"
        by_cpu = self.ratio_by_cpu
        return "ok (cpu)" if by_cpu is not None and by_cpu >= 1 else "missed"

    def to_dict(self) -> dict[str, Any]:
        """Return the result as it stands in the JSON."""
        fields: dict[str, Any] = attrs.asdict(self)
        ratios = {"ratio": _in_json(self.ratio), "ratio_by_cpu": _in_json(self.ratio_by_cpu)}
        return {**fields, **ratios, "verdict": self.verdict}

    def _against(self, value: float) -> float | None:
        if self.floor is None:
            return None
        if not value:
            return math.inf if self.at_most else 0.0
        return self.floor / value if self.at_most else value / self.floor


def table(sections: Mapping[str, Sequence[Result]]) -> str:
    """Return all results as a table in Markdown, which is readable as it is."""
    head = ("section", "what", "floor", "measured", "by CPU time", "ratio", "verdict")
    rows = [head, *(_row(section, result) for section, results in sections.items() for result in results)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    lines = [_line(row, widths) for row in rows]
    lines.insert(1, _line(["-" * width for width in widths], widths))
    return "\n".join(lines)


def notes(sections: Mapping[str, Sequence[Result]]) -> list[str]:
    """Return what the table has no room for."""
    return [f"{result.name}: {result.note}" for results in sections.values() for result in results if result.note]


def machine() -> dict[str, Any]:
    """Return what the figures were measured on."""
    return {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.machine()}",
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "load": [round(load, 2) for load in os.getloadavg()] if hasattr(os, "getloadavg") else None,
    }


def amount(value: float | None, unit: str) -> str:
    """Return a figure with its unit, in three digits."""
    if value is None:
        return ""
    if unit == "/s":
        for size, prefix in _PREFIXES:
            if value >= size:
                return f"{_digits(value / size)}{prefix}/s"
    return f"{_digits(value)}{unit}" if unit == "/s" else f"{_digits(value)} {unit}"


def _in_json(ratio: float | None) -> float | None:
    """Return a ratio as JSON can hold it: there is no infinity there."""
    return None if ratio is None or math.isinf(ratio) else ratio


def _digits(value: float) -> str:
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _row(section: str, result: Result) -> tuple[str, ...]:
    ratio = result.ratio
    shown = "" if ratio is None else f"{ratio:.2f}"
    if ratio is not None and result.ratio_by_cpu is not None:
        shown += f" / {result.ratio_by_cpu:.2f}"
    floor = amount(result.floor, result.unit)
    if floor:
        floor = ("<= " if result.at_most else ">= ") + floor
    measured, by_cpu = amount(result.value, result.unit), amount(result.by_cpu, result.unit)
    return (section, result.name, floor, measured, by_cpu, shown, result.verdict)


def _line(cells: Iterable[str], widths: Sequence[int]) -> str:
    return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |"
