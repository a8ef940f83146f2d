"""Sets of fields in the form in which `managedFields` holds them (FieldsV1), which is also the form they are worked in.

A set is a tree of objects. Its names are path elements: `f:<name>` a field, `k:<keys>` the element of a keyed list,
`v:<value>` the element of a set, `i:<index>` a place in a list. A node belongs to the set itself if it is empty or has
the member `.`; otherwise only what is below it does.

Every function leaves its arguments as they are; results may share parts with them.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

FieldSet = dict[str, Any]

SELF = "."
_KINDS = frozenset({"f:", "k:", "v:", "i:"})
_ITSELF: FieldSet = {SELF: {}}
_MAX_DEPTH = 200


def union(first: FieldSet, second: FieldSet) -> FieldSet:
    """Return what is in either set."""
    if not first:
        return second
    return _union(first, second) if second else first


def _union(first: FieldSet, second: FieldSet) -> FieldSet:
    result = dict(first)
    for name, node in second.items():
        mine = result.get(name)
        if mine is None or mine == node:
            result[name] = node
        elif not mine:
            result[name] = {SELF: {}, **node}
        elif not node:
            result[name] = {SELF: {}, **mine}
        else:
            result[name] = _union(mine, node)
    return result


def difference(first: FieldSet, second: FieldSet) -> FieldSet:
    """Return what is in the first set and not in the second; what is below a field does not go with it."""
    if not second:
        return first
    result: FieldSet = {}
    for name, node in first.items():
        other = second.get(name)
        if other is None:
            result[name] = node
        elif name != SELF:
            left = _node_difference(node, other)
            if left is not None:
                result[name] = left
    return result


def _node_difference(node: FieldSet, other: FieldSet) -> FieldSet | None:
    if not node:  # a single member
        return None if is_member(other) else node
    left = difference(node, other or _ITSELF)
    if left == _ITSELF:
        return {}
    return left or None


def intersection(first: FieldSet, second: FieldSet) -> FieldSet:
    """Return what is in both sets."""
    result: FieldSet = {}
    for name in first.keys() & second.keys():
        if name == SELF:
            continue
        node, other = first[name], second[name]
        shared = intersection(node, other)
        if is_member(node) and is_member(other):
            result[name] = {SELF: {}, **shared} if shared else {}
        elif shared:
            result[name] = shared
    return result


def is_member(node: FieldSet) -> bool:
    """Whether a node of a set belongs to the set itself, and not only what is below it."""
    return not node or SELF in node


def is_valid(fields: Any) -> bool:
    """Whether a value from outside is a set of fields."""
    level = [fields]
    for _ in range(_MAX_DEPTH):
        below: list[Any] = []
        for node in level:
            if not isinstance(node, dict):
                return False
            for name, inner in node.items():
                if name != SELF and not (name[:2] in _KINDS and _readable(name)):
                    return False
                below.append(inner)
        if not below:
            return True
        level = below
    return False


def _readable(name: str) -> bool:
    try:
        value = None if name[:2] == "f:" else msgspec.json.decode(name[2:])
    except msgspec.DecodeError:
        return False
    return isinstance(value, dict) if name[:2] == "k:" else True


def paths(fields: FieldSet) -> Iterator[str]:
    """Yield every member as people read it, for example `.spec.ports[port=80,protocol="TCP"].name`, in order."""
    yield from _paths(fields, "")


def _paths(fields: FieldSet, prefix: str) -> Iterator[str]:
    for name in sorted(fields, key=_order):
        if name == SELF:
            continue
        node, path = fields[name], prefix + _text(name)
        if is_member(node):
            yield path
        yield from _paths(node, path)


def _order(name: str) -> tuple[int, Any]:
    return "fkvi".find(name[0]), name


def _text(name: str) -> str:
    kind, rest = name[:2], name[2:]
    if kind == "f:":
        return "." + rest
    if kind == "k:":
        keys: dict[str, Any] = msgspec.json.decode(rest)
        return "[" + ",".join(f"{key}={_shown(value)}" for key, value in sorted(keys.items())) + "]"
    return f"[={rest}]" if kind == "v:" else f"[{rest}]"


def _shown(value: Any) -> str:
    return msgspec.json.encode(value).decode()
