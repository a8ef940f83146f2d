"""The types of a kind, made ready for walking its objects: what is one piece, what merges, and by which keys."""

import gzip
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from kplane_apiserver.kinds import DATA, CustomKind, Kind
from kplane_apiserver.patches.shapes import KEY_DEFAULTS, UNKNOWN, Shape, shape_of

_NOTHING: frozenset[str] = frozenset()


class Node:
    """One place in the objects of a kind.

    Args:
        shape: what the types say about it.

    Attributes:
        atomic: whether an object here has one owner.
        list_type: how a list here is owned: `map`, `set` or `atomic`.
        keys: the fields that name an element of a list of type map.
        defaults: what a key means where an element leaves it out.
        present: the fields that upstream's own encoding always has, so that nobody ever adds them.
        strict: whether the types list all the fields that there are.
        names: those fields.
    """

    __slots__ = (
        "_children",
        "_item",
        "_other",
        "_shape",
        "atomic",
        "defaults",
        "keys",
        "list_type",
        "names",
        "present",
        "strict",
    )

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._children: dict[str, tuple[Node, bool]] = {}
        self._item: Node | None = None
        self._other: tuple[Node, bool] | None = None
        spec = shape.spec
        self.atomic = shape.atomic
        self.list_type = shape.list_type
        self.keys = sorted(shape.keys)
        self.defaults = _key_defaults(shape)
        ref = "" if shape.custom else str(spec.get("ref", ""))
        self.present = _present(ref.removeprefix("apimachinery.pkg.apis.")) if ref else _NOTHING
        self.strict = shape.closed
        self.names = shape.field_names if self.strict else _NOTHING

    def child(self, name: str) -> "tuple[Node, bool]":
        """Return the place of a field or of a map's value, and whether the types know the field by its name."""
        found = self._children.get(name)
        if found is not None:
            return found
        if self._other is not None and self._shape.is_map:
            return self._other
        found = node_of(self._shape.field(name)), self._shape.names(name)
        if found[1]:
            self._children[name] = found
        else:  # what users name is not remembered, there is no end to it; but one place stands for all of it
            self._other = found
        return found

    @property
    def item(self) -> "Node":
        """The place of a list's elements."""
        if self._item is None:
            self._item = node_of(self._shape.item())
        return self._item

    def element(self, item: Any) -> str | None:
        """Return the path element that names an element of a list here, or None if it has no name."""
        if self.list_type == "set":
            return None if isinstance(item, list) else "v:" + _encode(item)
        if not isinstance(item, dict):
            return None
        found: dict[str, Any] = {}
        for key in self.keys:
            value = item.get(key)
            if value is None:
                value = self.defaults.get(key)
            if value is not None:
                found[key] = value
        return "k:" + _encode(found) if found else None


def _encode(value: Any) -> str:
    return msgspec.json.encode(value, order="sorted").decode()


def _key_defaults(shape: Shape) -> dict[str, Any]:
    if shape.list_type != "map":
        return {}
    if not shape.custom:
        return {key: KEY_DEFAULTS[key] for key in shape.keys if key in KEY_DEFAULTS}
    properties = shape.item().spec.get("properties", {})
    fields = {key: properties.get(key) for key in shape.keys}
    return {key: field["default"] for key, field in fields.items() if isinstance(field, dict) and "default" in field}


_BUILTIN: dict[tuple[str, str, str], Node] = {}
_CUSTOM: "WeakKeyDictionary[CustomKind, Node]" = WeakKeyDictionary()


def root_of(kind: Kind) -> Node:
    """Return the types of the objects of a kind."""
    if kind.custom is None:
        node = _BUILTIN.get((kind.group, kind.version, kind.kind))
        if node is None:
            node = _BUILTIN[kind.group, kind.version, kind.kind] = node_of(shape_of(kind))
        return node
    found = _CUSTOM.get(kind.custom)
    if found is None:
        found = _CUSTOM[kind.custom] = Node(shape_of(kind))
    return found


def node_of(shape: Shape) -> Node:
    """Return the node of a shape; those of the builtin types are shared."""
    if shape.custom:
        return Node(shape)
    if shape is UNKNOWN:
        return _UNKNOWN
    if shape.spec.keys() == {"ref"}:
        return _type(shape.spec["ref"])
    return Node(shape)


_UNKNOWN = Node(UNKNOWN)


@cache
def _type(name: str) -> Node:
    return Node(Shape({"ref": name}))


# --- what upstream always writes --------------------------------------------------------------------------------------


@cache
def _messages() -> dict[str, Any]:
    table: dict[str, Any] = msgspec.json.decode(gzip.decompress((DATA / "protobuf.json.gz").read_bytes()))
    messages: dict[str, Any] = table["messages"]
    return messages


@cache
def _present(message: str) -> frozenset[str]:
    """Return the fields of a type that are structs by value, or lists that are written even when they are empty."""
    messages = _messages()
    found: set[str] = set()
    for name, form, marks in messages.get(message, {}).values():
        if not name:
            found |= _present(form)
            continue
        many = "r" in marks or form.startswith("map:")
        if ("o" not in marks) if many else ("p" not in marks and form in messages):
            found.add(name)
    return frozenset(found)
