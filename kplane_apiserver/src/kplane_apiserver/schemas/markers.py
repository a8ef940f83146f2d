"""What a definition may not say: extensions that contradict the schema around them, defaults that do not fit it.

Each function judges one node of a schema that stands outside of all logic.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from kplane_apiserver.apierrors import field_forbidden, field_invalid, field_not_supported, field_required
from kplane_apiserver.schemas.fitting import compile_fit_value
from kplane_apiserver.schemas.judging import compile_judge
from kplane_apiserver.schemas.places import Fault, Place
from kplane_apiserver.schemas.words import shown
from kplane_core.errors import StatusCause

Schema = dict[str, Any]

_LIST = "x-kubernetes-list-type"
_KEYS = "x-kubernetes-list-map-keys"
_MAP = "x-kubernetes-map-type"
_EMBEDDED = "x-kubernetes-embedded-resource"
_PRESERVE = "x-kubernetes-preserve-unknown-fields"
_EITHER = "x-kubernetes-int-or-string"
_LIST_TYPES = ("atomic", "map", "set")
_MAP_TYPES = ("atomic", "granular")
_SCALARS = ("boolean", "integer", "number", "string")


def marker_faults(node: Schema, place: str) -> Iterator[StatusCause]:
    """Yield what contradicts itself in one node.

    Args:
        node: the schema.
        place: where it stands.
    """
    kind = node.get("type")
    if node.get(_EITHER) and kind:
        yield field_forbidden(f"{place}.type", f"must be empty if {_EITHER} is true")
    if node.get(_EMBEDDED):
        if kind != "object":
            yield field_invalid(f"{place}.type", kind or "", f"must be object if {_EMBEDDED} is true")
        if not node.get("properties") and not node.get(_PRESERVE):
            words = f"must not be empty if {_EMBEDDED} is true without {_PRESERVE}"
            yield field_required(f"{place}.properties", words)
    if node.get(_PRESERVE) is False:
        yield field_invalid(f"{place}.{_PRESERVE}", False, "must be true or undefined")
    if (mapping := node.get(_MAP)) is not None:
        if mapping not in _MAP_TYPES:
            yield field_not_supported(f"{place}.{_MAP}", mapping, _MAP_TYPES)
        if kind != "object":
            yield field_invalid(f"{place}.type", kind or "", f"must be object if {_MAP} is specified")
    yield from _list_faults(node, place)


def _list_faults(node: Schema, place: str) -> Iterator[StatusCause]:
    listed, keys = node.get(_LIST), node.get(_KEYS)
    if listed is not None and listed not in _LIST_TYPES:
        yield field_not_supported(f"{place}.{_LIST}", listed, _LIST_TYPES)
    if listed is not None and node.get("type") != "array":
        yield field_invalid(f"{place}.type", node.get("type") or "", f"must be array if {_LIST} is specified")
    if keys and listed != "map":
        yield field_invalid(f"{place}.{_LIST}", listed, f"must be map if {_KEYS} is non-empty")
    items = node.get("items")
    inner = items if isinstance(items, dict) else {}
    if listed == "map":
        yield from _map_faults(inner, keys or (), place)
    elif listed == "set":
        yield from _set_faults(inner, f"{place}.items")


def _set_faults(items: Schema, place: str) -> Iterator[StatusCause]:
    if items.get("nullable"):
        yield field_forbidden(f"{place}.nullable", f"cannot be nullable when {_LIST} is set")
    if items.get("type") == "object" and items.get(_MAP) != "atomic":
        words = f"must be atomic as item of a list with {_LIST}=set"
        yield field_invalid(f"{place}.{_MAP}", items.get(_MAP), words)
    if items.get("type") == "array" and items.get(_LIST, "atomic") != "atomic":
        words = f"must be atomic as item of a list with {_LIST}=set"
        yield field_invalid(f"{place}.{_LIST}", items.get(_LIST), words)


def _map_faults(items: Schema, keys: Sequence[Any], place: str) -> Iterator[StatusCause]:
    if items.get("type") != "object":
        words = f"must be object if parent array's {_LIST} is map"
        yield field_invalid(f"{place}.items.type", items.get("type") or "", words)
        return
    if items.get("nullable"):
        yield field_forbidden(f"{place}.items.nullable", f"cannot be nullable when {_LIST} is map")
    if not keys:
        yield field_required(f"{place}.{_KEYS}", f"must not be empty if {_LIST} is map")
    properties, required = items.get("properties") or {}, items.get("required") or ()
    for position, key in enumerate(keys):
        field = f"{place}.{_KEYS}[{position}]"
        child = properties.get(key)
        if not isinstance(child, dict):
            yield field_invalid(field, key, "entries must all be names of item properties")
            continue
        if child.get("type") not in _SCALARS and not child.get(_EITHER):
            words = f"must be a scalar type if parent array's {_LIST} is map"
            yield field_invalid(f"{place}.items.properties[{key}].type", child.get("type") or "", words)
        if key not in required and child.get("default") is None:
            words = f"this property is in {_KEYS}, so it must have a default or be a required property"
            yield field_required(f"{place}.items.properties[{key}].default", words)
        if key in keys[:position]:
            yield StatusCause("FieldValueDuplicate", f'Duplicate value: "{key}"', field)


def metadata_faults(schema: Schema, place: str) -> Iterator[StatusCause]:
    """Yield what a schema says of an object's own metadata beyond what it may: bounds of the name."""
    metadata = (schema.get("properties") or {}).get("metadata")
    if not isinstance(metadata, dict):
        return
    allowed = metadata.keys() <= {"type", "description", "properties"}
    if not allowed or not (metadata.get("properties") or {}).keys() <= {"name", "generateName"}:
        words = "must not specify anything other than name and generateName, but metadata is implicitly specified"
        yield field_forbidden(f"{place}.properties[metadata]", words)


def default_faults(node: Schema, place: str) -> Iterator[StatusCause]:
    """Yield why a default is no value of its own schema."""
    default = node.get("default")
    if default is None:
        return
    path = f"{place}.default"
    unknown: list[Place] = []
    fitted = msgspec.json.decode(msgspec.json.encode(default))
    fit = compile_fit_value(node)
    if fit is not None:
        fit(fitted, (), unknown)
    if unknown:
        yield field_invalid(path, shown(default), "must not have unknown fields")
    judge = compile_judge(node)
    faults: list[Fault] = []
    if judge is not None:
        judge(fitted, (), faults)
    for fault in faults:
        below = fault.cause.field
        yield StatusCause(fault.cause.reason, fault.cause.message, _joined(path, below))


def _joined(path: str, below: str) -> str:
    return path if not below or below.startswith("<") else path + below if below.startswith("[") else f"{path}.{below}"


def completeness_faults(node: Schema, place: str) -> Iterator[StatusCause]:
    """Yield the fields that a node's logic mentions and its structure does not."""
    for junctor in ("allOf", "anyOf", "oneOf"):
        branches = node.get(junctor)
        for position, branch in enumerate(branches if isinstance(branches, list) else ()):
            yield from _undefined(node, branch, place, f"{place}.{junctor}[{position}]")
    yield from _undefined(node, node.get("not"), place, f"{place}.not")


def _undefined(outer: Any, inner: Any, outer_place: str, inner_place: str) -> Iterator[StatusCause]:
    if not isinstance(inner, dict):
        return
    for name, child in (inner.get("properties") or {}).items():
        known = (outer.get("properties") or {}).get(name) if isinstance(outer, dict) else None
        step = f".properties[{name}]"
        if not isinstance(known, dict):
            yield field_required(f"{outer_place}{step}", f"because it is defined in {inner_place}{step}")
        else:
            yield from _undefined(known, child, outer_place + step, inner_place + step)
    if isinstance(inner.get("items"), dict):
        known = outer.get("items")
        if not isinstance(known, dict):
            yield field_required(f"{outer_place}.items", f"because it is defined in {inner_place}.items")
        else:
            yield from _undefined(known, inner["items"], f"{outer_place}.items", f"{inner_place}.items")
