"""What ConfigMaps and Secrets may hold, and what of them may not change; faults worded as upstream words them."""

import binascii
import json
import re
from collections.abc import Iterator
from types import MappingProxyType
from typing import Any

from kplane_apiserver.apierrors import (
    cannot_be_handled,
    field_forbidden,
    field_invalid,
    field_required,
    field_too_long,
    invalid,
)
from kplane_apiserver.kinds import Kind
from kplane_core.errors import BadRequest, StatusCause

Document = dict[str, Any]

LARGEST = 1024 * 1024
"""Bytes that the values of one ConfigMap or Secret may have together."""

_IMMUTABLE = "field is immutable when `immutable` is set"
_HIDDEN = "<secret contents redacted>"
_KEY_LENGTH = 253
_KEY = re.compile(r"[-._a-zA-Z0-9]+").fullmatch
_FAULTLESS_KEY = re.compile(r"(?!\.\.|\.\Z)[-._a-zA-Z0-9]{1,253}").fullmatch
_KEY_WORDS = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  "
    "or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
_ACCOUNT_NAME = "kubernetes.io/service-account.name"
_JSON_KEYS = MappingProxyType(
    {"kubernetes.io/dockercfg": ".dockercfg", "kubernetes.io/dockerconfigjson": ".dockerconfigjson"}
)


def check_config_map(kind: Kind, document: Document, old: Document | None) -> None:
    """Return when a ConfigMap may be stored, over `old` if there was one.

    Raises:
        BadRequest: a value has the wrong type.
        InvalidError: 422 with a cause per fault.
    """
    causes = list(_immutable_faults(document, old, ("data", "binaryData")))
    causes.extend(_key_faults(document, "data"))
    texts, binaries = document.get("data") or {}, document.get("binaryData") or {}
    both = (key for key in texts if key in binaries)
    causes.extend(field_invalid(f"data[{key}]", key, "duplicate of key present in binaryData") for key in both)
    causes.extend(_key_faults(document, "binaryData"))
    size = _text_size(kind, texts) + _binary_size(kind, "binaryData", binaries)
    if size > LARGEST:
        causes.append(field_too_long("[]", LARGEST))
    _refuse(kind, document, causes)


def check_secret(kind: Kind, document: Document, old: Document | None) -> None:
    """Return when a Secret may be stored, over `old` if there was one; its data is base64 by now.

    Raises:
        BadRequest: a value has the wrong type.
        InvalidError: 422 with a cause per fault.
    """
    data = document.get("data") or {}
    causes: list[StatusCause] = []
    if old is not None and document.get("type") != old.get("type", "Opaque"):
        causes.append(field_invalid("type", document.get("type"), "field is immutable"))
    causes.extend(_immutable_faults(document, old, ("data",)))
    causes.extend(_key_faults(document, "data"))
    if _binary_size(kind, "data", data) > LARGEST:
        causes.append(field_too_long("data", LARGEST))
    causes.extend(_type_faults(document, data))
    _refuse(kind, document, causes)


def _refuse(kind: Kind, document: Document, causes: list[StatusCause]) -> None:
    if causes:
        raise invalid(causes, kind=kind.kind, name=document["metadata"]["name"])


def _immutable_faults(document: Document, old: Document | None, fields: tuple[str, ...]) -> Iterator[StatusCause]:
    if old is None or old.get("immutable") is not True:
        return
    if document.get("immutable") is not True:
        yield field_forbidden("immutable", _IMMUTABLE)
    for field in fields:
        if (document.get(field) or {}) != (old.get(field) or {}):
            yield field_forbidden(field, _IMMUTABLE)


def _key_faults(document: Document, field: str) -> Iterator[StatusCause]:
    keys = document.get(field) or ()
    if all(map(_FAULTLESS_KEY, keys)):  # many keys, hardly ever one with a fault
        return
    for key in keys:
        if len(key) > _KEY_LENGTH:
            yield field_invalid(f"{field}[{key}]", key, f"must be no more than {_KEY_LENGTH} characters")
        if not _KEY(key):
            yield field_invalid(f"{field}[{key}]", key, _KEY_WORDS)
        elif key in {".", ".."}:
            yield field_invalid(f"{field}[{key}]", key, f"must not be '{key}'")
        elif key.startswith(".."):
            yield field_invalid(f"{field}[{key}]", key, "must not start with '..'")


def _type_faults(document: Document, data: Document) -> Iterator[StatusCause]:
    match document.get("type"):
        case "kubernetes.io/service-account-token":
            if not (document["metadata"].get("annotations") or {}).get(_ACCOUNT_NAME):
                yield field_required(f"metadata.annotations[{_ACCOUNT_NAME}]")
        case "kubernetes.io/dockercfg" | "kubernetes.io/dockerconfigjson" as name:
            yield from _json_faults(data, _JSON_KEYS[name])
        case "kubernetes.io/basic-auth" if not data.keys() & {"username", "password"}:
            yield from _missing(data, "username", "password")
        case "kubernetes.io/ssh-auth":
            yield from _missing({key: value for key, value in data.items() if value}, "ssh-privatekey")
        case "kubernetes.io/tls":
            yield from _missing(data, "tls.crt", "tls.key")


def _missing(data: Document, *keys: str) -> Iterator[StatusCause]:
    return (field_required(f"data[{key}]") for key in keys if key not in data)


def _json_faults(data: Document, key: str) -> Iterator[StatusCause]:
    if key not in data:
        yield field_required(f"data[{key}]")
        return
    try:
        json.loads(binascii.a2b_base64(data[key]))
    except ValueError:
        yield field_invalid(f"data[{key}]", _HIDDEN, "must be a JSON document")


def _text_size(kind: Kind, values: Document) -> int:
    try:
        text = "".join(values.values())
    except TypeError:
        wrong = next(value for value in values.values() if not isinstance(value, str))
        raise _wrong_type(kind, "data", wrong) from None
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))


def _binary_size(kind: Kind, field: str, values: Document) -> int:
    size = 0
    for value in values.values():
        if not isinstance(value, str):
            raise _wrong_type(kind, field, value)
        try:
            size += len(binascii.a2b_base64(value.replace("\n", "").replace("\r", ""), strict_mode=True))
        except ValueError:
            raise cannot_be_handled(kind.kind, kind.version, f"illegal base64 data in {field}") from None
    return size


def _wrong_type(kind: Kind, field: str, value: object) -> BadRequest:
    names = {bool: "bool", int: "number", float: "number", list: "array", dict: "object"}
    found = names.get(type(value), "null")
    words = f"json: cannot unmarshal {found} into Go struct field {kind.kind}.{field} of type string"
    return cannot_be_handled(kind.kind, kind.version, words)
