"""Is a CustomResourceDefinition's schema structural: does it say the type of every field, outside of all logic?

What its extensions and defaults may say is judged on the same walk, by `schemas.markers`.
"""

from collections.abc import Iterator
from typing import Any

from kplane_apiserver.apierrors import field_forbidden, field_invalid, field_not_supported, field_required
from kplane_apiserver.schemas.markers import completeness_faults, default_faults, marker_faults, metadata_faults
from kplane_apiserver.schemas.patterns import is_foreign
from kplane_core.errors import StatusCause

_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_FORBIDDEN = ("$ref", "definitions", "dependencies", "id", "patternProperties", "additionalItems")
_JUNCTORS = ("allOf", "anyOf", "oneOf")

_Place = tuple[dict[str, Any], str, str]
"""A schema to look at, its path, and what is said when it has no type; no words within logic, where none is needed."""


def schema_faults(schema: dict[str, Any], path: str) -> Iterator[StatusCause]:
    """Yield what keeps a version's schema from being structural.

    Args:
        schema: the `openAPIV3Schema`.
        path: where it stands in the definition.
    """
    if schema.get("type") and schema["type"] != "object":
        yield field_invalid(f"{path}.type", schema["type"], "must be object at the root")
    pending: list[_Place] = [(schema, path, "must not be empty at the root")]
    yield from metadata_faults(schema, path)
    while pending:
        node, place, untyped = pending.pop()
        yield from _node_faults(node, place, untyped)
        if untyped:
            yield from marker_faults(node, place)
            yield from completeness_faults(node, place)
            yield from default_faults(node, place)
        else:
            yield from _logic_faults(node, place)
        pending.extend(_children(node, place, typed=bool(untyped)))


def _node_faults(node: dict[str, Any], place: str, untyped: str) -> Iterator[StatusCause]:
    for keyword in _FORBIDDEN:
        if node.get(keyword):
            yield field_forbidden(f"{place}.{keyword}", f"{keyword} is not supported")
    if node.get("uniqueItems") is True:
        words = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield field_forbidden(f"{place}.uniqueItems", words)
    pattern = node.get("pattern")
    if isinstance(pattern, str) and is_foreign(pattern):
        words = "must be a valid regular expression, but isn't: it looks around or refers back"
        yield field_invalid(f"{place}.pattern", pattern, words)
    if isinstance(node.get("items"), list):
        yield field_forbidden(f"{place}.items", "items must be a schema object and not an array")
    if node.get("properties") and node.get("additionalProperties"):
        words = "additionalProperties and properties are mutual exclusive"
        yield field_forbidden(f"{place}.additionalProperties", words)
    yield from _type_faults(node, place, untyped)


def _logic_faults(node: dict[str, Any], place: str) -> Iterator[StatusCause]:
    """Yield what must be said outside of logic and stands within it."""
    for keyword in ("additionalProperties", "default"):
        if node.get(keyword) is not None:
            yield field_forbidden(f"{place}.{keyword}", "must be undefined to be structural")
    if node.get("nullable"):
        yield field_forbidden(f"{place}.nullable", "must be false to be structural")
    if node.get("description"):
        yield field_forbidden(f"{place}.description", "must be empty to be structural")


def _type_faults(node: dict[str, Any], place: str, untyped: str) -> Iterator[StatusCause]:
    kind = node.get("type")
    if not kind:
        if untyped and not (node.get("x-kubernetes-int-or-string") or node.get("x-kubernetes-preserve-unknown-fields")):
            yield field_required(f"{place}.type", untyped)
    elif kind == "null":
        yield field_forbidden(f"{place}.type", "type cannot be set to null, use nullable as an alternative")
    elif kind not in _TYPES:
        yield field_not_supported(f"{place}.type", kind, _TYPES)
    elif kind == "array" and untyped and node.get("items") is None:
        yield field_required(f"{place}.items", "must be specified")


def _children(node: dict[str, Any], place: str, *, typed: bool) -> Iterator[_Place]:
    of_object = "must not be empty for specified object fields" if typed else ""
    of_array = "must not be empty for specified array items" if typed else ""
    for name, child in _objects(node.get("properties")):
        yield child, f"{place}.properties[{name}]", of_object
    for keyword, untyped in (("additionalProperties", of_object), ("items", of_array), ("not", "")):
        inner = node.get(keyword)
        if isinstance(inner, dict):
            yield inner, f"{place}.{keyword}", untyped
    for junctor in _JUNCTORS:
        branches = node.get(junctor)
        for position, branch in enumerate(branches if isinstance(branches, list) else ()):
            if isinstance(branch, dict):
                yield branch, f"{place}.{junctor}[{position}]", ""


def _objects(found: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(found, dict):
        yield from ((name, child) for name, child in found.items() if isinstance(child, dict))
