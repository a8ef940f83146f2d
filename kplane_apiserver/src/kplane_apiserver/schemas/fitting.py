"""Make an object fit its schema before it is judged: unknown fields go, nulls that mean nothing go, defaults come in.

A schema is compiled once to a tree of closures; one walk over an object does all three.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from kplane_apiserver.schemas.places import Place

Schema = dict[str, Any]
Fit = Callable[[Any, Place, list[Place] | None], bool]
"""Fits a value in place; adds the places of unknown fields to the list, if there is one; says whether it changed."""

_TYPE_META = ("apiVersion", "kind")
_OBJECT_META = frozenset(
    {
        "annotations",
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "finalizers",
        "generateName",
        "generation",
        "labels",
        "managedFields",
        "name",
        "namespace",
        "ownerReferences",
        "resourceVersion",
        "selfLink",
        "uid",
    }
)


def compile_fit(schema: Schema, *, keep_unknown: bool = False) -> Fit:
    """Return the function that makes whole objects fit.

    Args:
        schema: the version's `openAPIV3Schema`.
        keep_unknown: whether fields that the schema does not know are kept at every depth.
    """
    return _object_fit({**schema, "x-kubernetes-embedded-resource": True}, keep=keep_unknown)


def compile_fit_value(schema: Any, *, keep_unknown: bool = False) -> Fit | None:
    """Return how single values of a schema are made to fit; None for those that always do."""
    if not isinstance(schema, dict):
        return None
    match schema.get("type"):
        case "object":
            return _object_fit(schema, keep=keep_unknown)
        case "array":
            return _array_fit(schema, keep=keep_unknown)
        case _ if schema.get("properties") or isinstance(schema.get("additionalProperties"), dict):
            return _object_fit(schema, keep=keep_unknown)
        case _:
            return None


class _Field:
    """What becomes of one field: how its value is made to fit, whether null may stay, what stands in for it."""

    __slots__ = ("default", "fit", "nullable")

    def __init__(self, schema: Any, *, keep: bool) -> None:
        self.fit = compile_fit_value(schema, keep_unknown=keep)
        self.nullable = isinstance(schema, dict) and bool(schema.get("nullable"))
        found = schema.get("default") if isinstance(schema, dict) else None
        # Encoded: the fastest way to a fresh copy each time.
        self.default = None if found is None else msgspec.json.encode(found)


def _object_fit(schema: Schema, *, keep: bool) -> Fit:
    properties = schema.get("properties")
    known = {name: _Field(child, keep=keep) for name, child in (properties or {}).items()}
    embedded = bool(schema.get("x-kubernetes-embedded-resource"))
    if embedded:
        known |= {name: _Field({}, keep=keep) for name in _TYPE_META}
        known["metadata"] = _metadata_field()
    additional = schema.get("additionalProperties")
    extra = _Field(additional, keep=keep) if additional else None
    preserve = keep or bool(schema.get("x-kubernetes-preserve-unknown-fields")) or additional is True
    return _ObjectFit(known, extra, preserve=preserve)


class _ObjectFit:
    """Makes objects fit: what is known of each field, of all others, and which fields have to be there."""

    __slots__ = ("_defaults", "_extra", "_find", "_preserve")

    def __init__(self, known: Mapping[str, _Field], extra: _Field | None, *, preserve: bool) -> None:
        self._find = known.get
        self._extra = extra
        self._defaults = {name: field for name, field in known.items() if field.default is not None}
        self._preserve = preserve

    def __call__(self, value: Any, place: Place, unknown: list[Place] | None) -> bool:
        if type(value) is not dict:
            return False
        changed = False
        odd: list[str] = []
        find, extra = self._find, self._extra
        for name, inner in value.items():
            field = find(name, extra)
            if field is None or (inner is None and not field.nullable):
                odd.append(name)
            elif field.fit is not None and field.fit(inner, (place, name), unknown):
                changed = True
        for name in odd:
            changed = self._settle(value, name, place, unknown) or changed
        for name, field in self._defaults.items():
            if name not in value:
                _fill(value, name, field, place)
                changed = True
        return changed

    def _settle(self, value: dict[str, Any], name: str, place: Place, unknown: list[Place] | None) -> bool:
        """Let go of an unknown field, or of a null that says nothing."""
        field = self._find(name, self._extra)
        if field is None:
            if self._preserve:
                return False
            if unknown is not None:
                unknown.append((place, name))
        elif field.default is not None:
            _fill(value, name, field, place)
            return True
        del value[name]
        return True


def _fill(value: dict[str, Any], name: str, field: _Field, place: Place) -> None:
    assert field.default is not None
    filled = value[name] = msgspec.json.decode(field.default)
    if field.fit is not None:
        field.fit(filled, (place, name), None)


def _array_fit(schema: Schema, *, keep: bool) -> Fit | None:
    item = _Field(schema.get("items"), keep=keep)
    each = item.fit
    if each is None and item.default is None:
        return None

    def fit(value: Any, place: Place, unknown: list[Place] | None) -> bool:
        if type(value) is not list:
            return False
        changed = False
        for position, inner in enumerate(value):
            if inner is None:
                if item.default is not None and not item.nullable:
                    value[position] = msgspec.json.decode(item.default)
                    changed = True
            elif each is not None and each(inner, (place, position), unknown):
                changed = True
        return changed

    return fit


def _metadata_field() -> _Field:
    field = _Field({}, keep=False)
    field.fit = _fit_metadata
    field.nullable = True
    return field


def _fit_metadata(value: Any, place: Place, unknown: list[Place] | None) -> bool:
    if type(value) is not dict or value.keys() <= _OBJECT_META:
        return False
    for name in value.keys() - _OBJECT_META:
        del value[name]
        if unknown is not None:
            unknown.append((place, name))
    return True
