"""The vocabulary of printers: columns, cells, and tolerant looks into an object.

Builtin objects are stored without a schema check, so a printer meets any JSON whatever: every helper here answers a
value of the wrong type as if it were absent.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs

from kplane_apiserver.printers.ages import UNKNOWN, age

NONE = "<none>"

Cell = str | int | float | bool | None
Cells = list[Cell]
CellsFunc = Callable[[dict[str, Any], float], Cells]
"""(object, now) -> the cells of its row."""


@attrs.frozen
class Column:
    """One column of a table, as clients receive its definition."""

    name: str
    type: str = "string"
    format: str = ""
    description: str = ""
    priority: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the `TableColumnDefinition`."""
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        }


@attrs.frozen
class Printer:
    """How one kind becomes a table.

    Attributes:
        columns: the headings.
        cells: makes one row's cells, as many as there are columns.
        metadata_only: whether `cells` looks at nothing but the metadata.
    """

    columns: tuple[Column, ...]
    cells: CellsFunc
    metadata_only: bool = False


NAME = Column("Name", format="name", description="Name of the object, unique within its namespace or cluster.")
AGE = Column("Age", description="How long ago the object was created.")
CREATED_AT = Column("Created At", format="date-time", description="When the object was created.")


def wide(name: str, description: str = "") -> Column:
    """Return a text column that only `-o wide` prints."""
    return Column(name, description=description, priority=1)


def number(name: str, description: str = "") -> Column:
    """Return a column of integers."""
    return Column(name, type="integer", description=description)


def dig(document: Any, *path: str) -> Any:
    """Return what stands at a path of field names; None where the path breaks off."""
    for name in path:
        if not isinstance(document, dict):
            return None
        document = document.get(name)
    return document


def mapping(document: Any, *path: str) -> Mapping[str, Any]:
    """Return the object at a path; an empty one where there is none."""
    found = dig(document, *path)
    return found if isinstance(found, dict) else {}


def items(document: Any, *path: str) -> Iterator[dict[str, Any]]:
    """Yield the objects of the list at a path."""
    found = dig(document, *path)
    if isinstance(found, list):
        for item in found:
            if isinstance(item, dict):
                yield item


def texts(document: Any, *path: str) -> list[str]:
    """Return the texts of the list at a path."""
    found = dig(document, *path)
    return [item for item in found if isinstance(item, str)] if isinstance(found, list) else []


def text(document: Any, *path: str, default: str = "") -> str:
    """Return the scalar at a path as text; `default` where it is absent or empty."""
    found = dig(document, *path)
    if isinstance(found, str):
        return found or default
    if isinstance(found, bool):
        return "true" if found else "false"
    return str(found) if isinstance(found, (int, float)) else default


def whole(document: Any, *path: str, default: int = 0) -> int:
    """Return the integer at a path."""
    found = dig(document, *path)
    return found if isinstance(found, int) and not isinstance(found, bool) else default


def count(document: Any, *path: str) -> int:
    """Return how many entries the list or object at a path has."""
    found = dig(document, *path)
    return len(found) if isinstance(found, (list, dict)) else 0


def name_of(document: Any) -> str:
    """Return the object's name."""
    return text(document, "metadata", "name")


def created(document: Any) -> str:
    """Return the object's creationTimestamp, `<unknown>` without one."""
    return text(document, "metadata", "creationTimestamp", default=UNKNOWN)


def age_of(document: Any, now: float) -> str:
    """Return the object's age."""
    return age(dig(document, "metadata", "creationTimestamp"), now)


def condition(document: Any, kind: str) -> Mapping[str, Any]:
    """Return the status condition of a type; an empty one where it is not set."""
    for entry in items(document, "status", "conditions"):
        if entry.get("type") == kind:
            return entry
    return {}


def joined(values: Mapping[str, Any], default: str = NONE) -> str:
    """Return labels as `k=v,k=v`, sorted."""
    return ",".join(f"{key}={value}" for key, value in sorted(values.items())) or default


def selector(document: Any, *path: str) -> str:
    """Return the label selector at a path as kubectl writes it."""
    found = dig(document, *path)
    if not isinstance(found, dict):
        return NONE
    parts = [f"{key}={value}" for key, value in sorted(mapping(found, "matchLabels").items())]
    parts.extend(_expression(entry) for entry in items(found, "matchExpressions"))
    return ",".join(parts) or NONE


def _expression(entry: dict[str, Any]) -> str:
    key, values = text(entry, "key"), ",".join(sorted(texts(entry, "values")))
    match text(entry, "operator"):
        case "Exists":
            return key
        case "DoesNotExist":
            return f"!{key}"
        case "NotIn":
            return f"{key} notin ({values})"
        case _:
            return f"{key} in ({values})"


def containers(document: Any, *path: str) -> tuple[str, str]:
    """Return the names and the images of a pod spec's containers, each joined by commas."""
    found = list(items(document, *path, "containers"))
    return ",".join(text(entry, "name") for entry in found), ",".join(text(entry, "image") for entry in found)


def shortened(values: list[str], limit: int = 3, default: str = NONE) -> str:
    """Return the first values joined by commas, and how many more there are."""
    if not values:
        return default
    more = f" + {len(values) - limit} more..." if len(values) > limit else ""
    return ",".join(values[:limit]) + more
