"""What the published types say about merging: which lists are keyed, by what, and what is replaced as a whole.

Builtin kinds take it from `data/merge_keys.json.gz` (see `tools/generate_kinds.py`), custom kinds from the
`x-kubernetes-` marks of their schema.
"""

import gzip
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal

import attrs
import msgspec

from kplane_apiserver.kinds import DATA, Kind

# What a key means where an element leaves it out; upstream fills it in before it compares.
KEY_DEFAULTS = {"protocol": "TCP"}
_OF_EVERY_OBJECT = ("apiVersion", "kind", "metadata")
_EMBEDDED = "x-kubernetes-embedded-resource"
ListType = Literal["map", "set", "atomic"]


@attrs.frozen
class Shape:
    """One place in an object: what a value there is and how it merges.

    Attributes:
        spec: the entry of the field table, or the schema.
        custom: whether `spec` is a schema.
        root: whether it is a whole custom object, whose metadata no schema describes.
    """

    spec: Any
    custom: bool = False
    root: bool = False

    def field(self, name: str) -> "Shape":
        """Return the shape of a field, or of a map's value; UNKNOWN if the types do not say."""
        spec = self.spec
        if self.root and name == "metadata":
            return OBJECT_META
        if self.custom:
            inner = spec.get("properties", {}).get(name, spec.get("additionalProperties"))
            return Shape(inner, custom=True) if isinstance(inner, dict) else UNKNOWN
        if "map" in spec:
            return _shape(spec["map"])
        return _fields(spec.get("ref", "")).get(name, UNKNOWN)

    def names(self, name: str) -> bool:
        """Whether the types know a field by this name, other than as the key of a map."""
        if name in _OF_EVERY_OBJECT and (self.root or (self.custom and self.spec.get(_EMBEDDED))):
            return True
        if self.custom:
            return name in self.spec.get("properties", ())
        return "map" not in self.spec and name in _fields(self.spec.get("ref", ""))

    @property
    def field_names(self) -> frozenset[str]:
        """The fields that the types list for an object here."""
        if self.custom:
            own = frozenset(self.spec.get("properties", ()))
            return own.union(_OF_EVERY_OBJECT) if self.root or self.spec.get(_EMBEDDED) else own
        return frozenset(_fields(self.spec.get("ref", "")))

    @property
    def is_map(self) -> bool:
        """Whether users name the fields of an object here, all of them."""
        return not self.custom and "map" in self.spec

    @property
    def closed(self) -> bool:
        """Whether the types list all the fields that an object here may have."""
        if self.custom:
            open_ended = self.spec.get("x-kubernetes-preserve-unknown-fields") or self.spec.get("additionalProperties")
            return bool(self.spec.get("properties")) and not open_ended
        return "map" not in self.spec and bool(_fields(self.spec.get("ref", "")))

    def item(self) -> "Shape":
        """Return the shape of a list's elements."""
        if not self.custom:
            return _shape(self.spec.get("list"))
        inner = self.spec.get("items")
        return Shape(inner, custom=True) if isinstance(inner, dict) else UNKNOWN

    @property
    def atomic(self) -> bool:
        """Whether an object here has one owner and is applied as a whole."""
        if self.custom:
            return bool(self.spec.get("x-kubernetes-map-type") == "atomic")
        if self.spec.get("atomic"):
            return True
        definition = _definition(self.spec)
        # A type without fields holds any JSON.
        return bool(definition) and bool(definition.get("atomic") or not definition["fields"])

    @property
    def list_type(self) -> ListType:
        """How a list here is applied; atomic where nothing is said."""
        found: ListType = self.spec.get("x-kubernetes-list-type" if self.custom else "type") or "atomic"
        return found

    @property
    def keys(self) -> list[str]:
        """The fields that name an element of a list of type map."""
        return self.spec.get("x-kubernetes-list-map-keys" if self.custom else "keys") or []

    @property
    def merge_key(self) -> str:
        """The one field by which a strategic merge patch names an element; empty if there is none."""
        return str(self.spec.get("merge_key", ""))

    @property
    def strategy(self) -> str:
        """How a strategic merge patch treats the value: `merge`, `replace`, or empty."""
        given = str(self.spec.get("strategy", "")).split(",")
        return next((one for one in given if one != "retainKeys"), "")


UNKNOWN = Shape({})
ANY = Shape({"atomic": True})
OBJECT_META = Shape({"ref": "apimachinery.pkg.apis.meta.v1.ObjectMeta"})


def shape_of(kind: Kind) -> Shape:
    """Return the shape of the objects of a kind; UNKNOWN for a kind without published types."""
    if kind.custom is not None:
        return Shape(kind.custom.schema or {}, custom=True, root=True)
    name = _table()["kinds"].get(f"{kind.group}/{kind.version}/{kind.kind}")
    return Shape({"ref": name}) if name else UNKNOWN


def _shape(spec: Any) -> Shape:
    if spec == "any":
        return ANY
    return Shape(spec) if isinstance(spec, dict) else UNKNOWN


@cache
def _fields(definition: str) -> Mapping[str, Shape]:
    entry = _table()["types"].get(definition, {"fields": {}})
    return {name: _shape(spec) for name, spec in entry["fields"].items()}


def _definition(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    definition: Mapping[str, Any] = _table()["types"].get(spec.get("ref"), {})
    return definition


@cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = msgspec.json.decode(gzip.decompress((DATA / "merge_keys.json.gz").read_bytes()))
    return table
