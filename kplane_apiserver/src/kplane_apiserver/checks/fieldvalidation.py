"""Fields that a builtin kind does not have, and fields that a body gives twice.

A client says by `fieldValidation` what is to become of them: `Strict` refuses the request, `Warn` adds Warning headers,
`Ignore` says nothing. Fields that no type knows are never stored.
"""

import json
import re
from typing import Any

import msgspec

from kplane_apiserver.apierrors import cannot_be_handled
from kplane_apiserver.apply.schema import Node, root_of
from kplane_apiserver.kinds import Kind
from kplane_apiserver.wire.bodies import JSON, media_type
from kplane_core.errors import BadRequest

Document = dict[str, Any]

STRICT = "Strict"
IGNORE = "Ignore"
_SPELLED_COLON = re.compile(rb"\\u003[aA]").search


def check_sent(kind: Kind, document: Document, repeated: list[str], validation: str, warnings: list[str]) -> None:
    """Hold the object that a client sent to the fields of its kind; a builtin kind's unknown ones are dropped.

    Args:
        kind: what the object is.
        document: the object; changed in place.
        repeated: what `repeated_fields` found in the body.
        validation: `Strict`, `Warn` or `Ignore`.
        warnings: takes what the client is told besides the answer.

    Raises:
        BadRequest: there are such fields, and the client wants to be refused then.
    """
    found = repeated + drop_unknown(kind, document)
    if found and validation == STRICT:
        raise refusal(kind, found)
    if found and validation != IGNORE:
        warnings.extend(found)


def repeated_fields(document: Document, content_type: str, body: bytes, validation: str) -> list[str]:
    """Say which fields a body gives more than once, as far as the client wants to know.

    Args:
        document: what was read from it, as it was read.
        content_type: what the body was sent as; only JSON can have a field twice.
        body: the body.
        validation: `Strict`, `Warn` or `Ignore`.
    """
    if validation == IGNORE or media_type(content_type) not in {JSON, ""}:
        return []
    return duplicate_fields(document, body)


def refusal(kind: Kind, found: list[str]) -> BadRequest:
    """Return the 400 that names the fields."""
    return cannot_be_handled(kind.kind, kind.version, f"strict decoding error: {', '.join(found)}")


# --- unknown ----------------------------------------------------------------------------------------------------------


def drop_unknown(kind: Kind, document: Document) -> list[str]:
    """Remove the fields that a builtin kind does not have, and say which, for example `unknown field "spec.foo"`."""
    if kind.custom is not None:
        return []
    return [f'unknown field "{path[1:]}"' for path in _unknown_in_object(document, root_of(kind))]


def _unknown_in_object(value: Document, node: Node) -> list[str]:
    """Return the paths from here, each with a dot or bracket in front: they are put together on the way back only."""
    found: list[str] = []
    unknown = value.keys() - node.names if node.strict and not value.keys() <= node.names else ()
    for name, inner in list(value.items()) if unknown else value.items():
        if name in unknown:
            del value[name]
            found.append(f".{name}")
            continue
        if isinstance(inner, dict):
            below = _unknown_in_object(inner, node.child(name)[0])
        elif isinstance(inner, list):
            below = _unknown_in_list(inner, node.child(name)[0])
        else:
            continue
        if below:
            found += [f".{name}{path}" for path in below]
    return found


def _unknown_in_list(items: list[Any], node: Node) -> list[str]:
    found: list[str] = []
    for position, item in enumerate(items):
        if isinstance(item, dict) and (below := _unknown_in_object(item, node.item)):
            found += [f"[{position}]{path}" for path in below]
    return found


# --- given twice ------------------------------------------------------------------------------------------------------


class _Repeated(dict[str, Any]):
    """An object in which fields were given more than once.

    Attributes:
        names: those fields.
    """

    names: list[str]


def duplicate_fields(document: Document, body: bytes) -> list[str]:
    """Say which fields a JSON body gives more than once, for example `duplicate field "spec.replicas"`.

    Args:
        document: what was read from it, as it was read.
        body: the body.
    """
    # Reading everything again with a look at each name is slow. But what was there twice is lost in what was read:
    # written anew it has fewer colons. Those in texts are the same on both sides, if none is spelled as a number.
    if body.count(b":") == msgspec.json.encode(document).count(b":") and not _has_spelled_colon(body):
        return []
    pairs = json.loads(body, object_pairs_hook=_object, parse_int=len, parse_float=len)
    return [f'duplicate field "{path[1:]}"' for path in _repeated(pairs)]


def _has_spelled_colon(body: bytes) -> bool:
    return b"\\" in body and _SPELLED_COLON(body) is not None


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
