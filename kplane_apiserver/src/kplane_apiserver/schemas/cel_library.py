"""The functions that Kubernetes adds to CEL, written in Python."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import pairwise
from typing import Any

from kplane_apiserver.schemas import cel_cost
from kplane_apiserver.schemas.cel_formats import format_rows
from kplane_apiserver.schemas.cel_network import network_rows
from kplane_apiserver.schemas.cel_strings import Row, format_text, string_rows
from kplane_apiserver.schemas.cel_versions import version_rows


def rows(matches: Callable[[str, str], list[str]]) -> Iterator[Row]:
    """Yield the functions.

    Args:
        matches: returns all parts of a text that a pattern matches.
    """
    yield "kplane.tick", (), "bool", cel_cost.tick
    yield "kplane.made", (), "bool", cel_cost.made
    yield "kplane.stop", (), "dyn", cel_cost.stop
    yield "kplane.string", ("any",), "string", _to_string
    yield ".kplane_map", ("list",), "map", dict
    yield ".kplane_merged", ("list",), "map", _merged
    yield from string_rows()
    yield from _patterns(matches)
    yield from _lists()
    yield from _sets()
    yield from network_rows()
    yield from version_rows()
    yield from format_rows()


def _to_string(value: Any) -> str:
    if isinstance(value, dict):
        found = next((value[name] for name in ("ip", "cidr") if name in value), None)
        if found is None:
            raise TypeError("no such overload")
        return str(found)
    return format_text("%s", [value])


def _merged(maps: list[dict[Any, Any]]) -> dict[Any, Any]:
    merged: dict[Any, Any] = {}
    for one in maps:
        for key, value in one.items():
            if key in merged:
                raise ValueError("insert failed: a key already exists")
            merged[key] = value
    return merged


def _patterns(matches: Callable[[str, str], list[str]]) -> Iterator[Row]:
    def find_all(text: str, pattern: str, most: int = -1) -> list[str]:
        found = matches(text, pattern)
        cel_cost.check_count(len(found))
        return found if most < 0 else found[:most]

    yield ".find", ("string", "string"), "string", lambda text, pattern: next(iter(matches(text, pattern)), "")
    yield ".findAll", ("string", "string"), "list", find_all
    yield ".findAll", ("string", "string", "int"), "list", find_all


# --- lists ------------------------------------------------------------------------------------------------------------


def _lists() -> Iterator[Row]:
    yield ".isSorted", ("list",), "bool", lambda items: all(one <= other for one, other in pairwise(items))
    yield ".sum", ("list",), "dyn", lambda items: sum(items[1:], items[0]) if items else 0
    yield ".min", ("list",), "dyn", _extreme(min, "min")
    yield ".max", ("list",), "dyn", _extreme(max, "max")
    yield ".indexOf", ("list", "any"), "int", _index_of
    yield ".lastIndexOf", ("list", "any"), "int", _last_index_of


def _extreme(pick: Callable[[list[Any]], Any], name: str) -> Callable[[list[Any]], Any]:
    def extreme(items: list[Any]) -> Any:
        if not items:
            raise ValueError(f"{name} called on empty list")
        return pick(items)

    return extreme


def _index_of(items: list[Any], item: Any) -> int:
    wanted = _hashable(item)
    return next((position for position, one in enumerate(items) if _hashable(one) == wanted), -1)


def _last_index_of(items: list[Any], item: Any) -> int:
    found = _index_of(items[::-1], item)
    return found if found < 0 else len(items) - 1 - found


# --- sets -------------------------------------------------------------------------------------------------------------


def _sets() -> Iterator[Row]:
    yield "sets.contains", ("list", "list"), "bool", lambda one, other: _set(one) >= _set(other)
    yield "sets.intersects", ("list", "list"), "bool", lambda one, other: not _set(one).isdisjoint(_set(other))
    yield "sets.equivalent", ("list", "list"), "bool", lambda one, other: _set(one) == _set(other)


def _set(items: list[Any]) -> frozenset[Any]:
    return frozenset(map(_hashable, items))


def _hashable(value: Any) -> Any:
    """Return what is equal for values that CEL holds for equal: to Python, true is 1."""
    match value:
        case bool():
            return (bool, value)
        case list():
            return (list, *map(_hashable, value))
        case dict():
            return (dict, frozenset((_hashable(name), _hashable(inner)) for name, inner in value.items()))
        case bytearray():
            return bytes(value)
        case _:
            return value


def plain(value: Any) -> Any:
    """Return a result as the runtime takes it: it knows durations and times as messages only."""
    if isinstance(value, timedelta):
        from google.protobuf.duration_pb2 import Duration  # noqa: PLC0415 (as optional as the CEL that takes it)

        duration = Duration()
        duration.FromTimedelta(value)
        return duration
    if hasattr(value, "tzinfo"):
        from google.protobuf.timestamp_pb2 import Timestamp  # noqa: PLC0415 (as above)

        timestamp = Timestamp()
        timestamp.FromDatetime(value)
        return timestamp
    return value
