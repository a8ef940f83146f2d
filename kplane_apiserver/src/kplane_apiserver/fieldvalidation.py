"""Fields that a builtin kind does not have, and fields that a body gives twice.

A client says by `fieldValidation` what is to become of them: `Strict` refuses the request, `Warn` adds Warning headers,
`Ignore` says nothing. Fields that no type knows are never stored.
"""

import json
from typing import Any

from kplane_apiserver.apply.schema import Node, root_of
from kplane_apiserver.bodies import JSON, media_type
from kplane_apiserver.kinds import Kind
from kplane_core.errors import BadRequest

Document = dict[str, Any]

STRICT = "Strict"
IGNORE = "Ignore"
_SPACED = (b'" ', b'"\n', b'"\t', b'"\r')


def check_sent(
    kind: Kind, document: Document, content_type: str, body: bytes, validation: str, warnings: list[str]
) -> None:
    """Hold the object that a client sent to the fields of its kind; a builtin kind's unknown ones are dropped.

    Args:
        kind: what the object is.
        document: the object; changed in place.
        content_type: what the body was sent as; only JSON can have a field twice.
        body: the body it was read from.
        validation: `Strict`, `Warn` or `Ignore`.
        warnings: takes what the client is told besides the answer.

    Raises:
        BadRequest: there are such fields, and the client wants to be refused then.
    """
    found: list[str] = []
    if validation != IGNORE and media_type(content_type) in {JSON, ""}:
        found = duplicate_fields(document, body, thorough=validation == STRICT)
    found += drop_unknown(kind, document)
    if found and validation == STRICT:
        raise refusal(kind, found)
    if validation != IGNORE:
        warnings.extend(found)


def refusal(kind: Kind, found: list[str]) -> BadRequest:
    """Return the 400 that names the fields."""
    faults = f"strict decoding error: {', '.join(found)}"
    return BadRequest(f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {faults}')


# --- unknown ----------------------------------------------------------------------------------------------------------


def drop_unknown(kind: Kind, document: Document) -> list[str]:
    """Remove the fields that a builtin kind does not have, and say which, for example `unknown field "spec.foo"`."""
    if kind.custom is not None:
        return []
    return [f'unknown field "{path[1:]}"' for path in _unknown_in_object(document, root_of(kind))]


def _unknown_in_object(value: Document, node: Node) -> list[str]:
    """Return the paths from here, each with a dot or bracket in front: they are put together on the way back only."""
    found: list[str] = []
    unknown: list[str] = []
    strict = node.strict
    for name, inner in value.items():
        nested = isinstance(inner, dict | list)
        if not (strict or nested):
            continue
        child, named = node.child(name)
        if strict and not named:
            unknown.append(name)
            found.append(f".{name}")
        elif nested:
            below = _unknown_in_object(inner, child) if isinstance(inner, dict) else _unknown_in_list(inner, child)
            found += [f".{name}{path}" for path in below]
    for name in unknown:
        del value[name]
    return found


def _unknown_in_list(items: list[Any], node: Node) -> list[str]:
    item_node = node.item
    return [
        f"[{position}]{path}"
        for position, item in enumerate(items)
        if isinstance(item, dict)
        for path in _unknown_in_object(item, item_node)
    ]


# --- given twice ------------------------------------------------------------------------------------------------------


class _Repeated(dict[str, Any]):
    """An object in which fields were given more than once.

    Attributes:
        names: those fields.
    """

    names: list[str]


def duplicate_fields(document: Document, body: bytes, *, thorough: bool = True) -> list[str]:
    """Say which fields a JSON body gives more than once, for example `duplicate field "spec.replicas"`.

    Args:
        document: what was read from it.
        body: the body.
        thorough: whether to look also at names that differ from others by a space before their colon.
    """
    # Reading everything again is slow; but where there are as many names as fields, none is there twice.
    if body.count(b'":') == _count(document) and not (thorough and any(space in body for space in _SPACED)):
        return []
    pairs = json.loads(body, object_pairs_hook=_object, parse_int=len, parse_float=len)
    return [f'duplicate field "{path[1:]}"' for path in _repeated(pairs)]


def _count(value: Any) -> int:
    if isinstance(value, dict):
        return len(value) + sum(_count(inner) for inner in value.values() if isinstance(inner, dict | list))
    return sum(_count(inner) for inner in value if isinstance(inner, dict | list))


def _object(pairs: list[tuple[str, Any]]) -> Document:
    result = dict(pairs)
    if len(result) == len(pairs):
        return result
    repeated, seen = _Repeated(result), set[str]()
    repeated.names = [name for name, _ in pairs if name in seen or seen.add(name)]  # type: ignore[func-returns-value]
    return repeated


def _repeated(value: Any) -> list[str]:
    if isinstance(value, list):
        return [f"[{place}]{path}" for place, item in enumerate(value) for path in _repeated(item)]
    if not isinstance(value, dict):
        return []
    found = [f".{name}" for name in dict.fromkeys(value.names)] if isinstance(value, _Repeated) else []
    return found + [f".{name}{path}" for name, inner in value.items() for path in _repeated(inner)]
