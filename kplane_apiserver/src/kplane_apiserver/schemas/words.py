"""The faults that a schema finds, worded as the API server of Kubernetes words them."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from kplane_apiserver.apierrors import field_invalid, field_not_supported, field_required, field_too_long
from kplane_apiserver.schemas.places import NOWHERE, Fault, Place, text_of
from kplane_core.errors import StatusCause

UNCHECKED = (
    "some validation rules were not checked because the object was invalid; correct the existing errors to complete "
    "validation"
)
BLOCKING = frozenset(
    {
        "FieldValueNotSupported",
        "FieldValueRequired",
        "FieldValueTooLong",
        "FieldValueTooMany",
        "FieldValueTypeInvalid",
    }
)
"""The types of faults after which no rules are run: these could not rely on what they read."""

_TYPE_NAMES: Mapping[type, str] = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}


def type_name(value: Any) -> str:
    """Return the name of a JSON value's type."""
    return _TYPE_NAMES[type(value)]


def shown(value: Any) -> Any:
    """Return what an error may print of a value: a scalar itself, of an object or a list only that it is one.

    What is around the fault is nobody's business: errors end in logs and on terminals, and objects hold secrets.
    """
    return type_name(value) if isinstance(value, (dict, list)) else value


def wrong_type(place: Place, wanted: str, value: Any) -> Fault:
    """Return the fault of a value that has another type."""
    return _typed(place, type_name(value), f'must be of type {wanted}: "{type_name(value)}"')


def wrong_format(place: Place, wanted: str, value: str) -> Fault:
    """Return the fault of a text that has not the format."""
    return _typed(place, value, f"must be of type {wanted}: {_quoted(value)}")


def missing(place: Place, name: str) -> Fault:
    """Return the fault of an object that lacks a field."""
    return Fault(place, field_required(text_of((place, name))))


def missing_text(place: Place, name: str) -> Fault:
    """Return the fault of an embedded object that does not say what it is."""
    return Fault(place, field_required(text_of((place, name)), "must not be empty"))


def not_listed(place: Place, value: Any, listed: Sequence[Any]) -> Fault:
    """Return the fault of a value that is not one of the enumerated ones."""
    supported = [one if isinstance(one, str) else msgspec.json.encode(one).decode() for one in listed]
    return Fault(place, field_not_supported(text_of(place), shown(value), supported))


def too_long(place: Place, limit: int) -> Fault:
    """Return the fault of a text with too many characters."""
    return Fault(place, field_too_long(text_of(place), limit))


def too_many(place: Place, count: int, limit: int) -> Fault:
    """Return the fault of a list or map with too many entries."""
    noun = "item" if limit == 1 else "items"
    message = f"Too many: {count}: must have at most {limit} {noun}"
    return Fault(place, StatusCause("FieldValueTooMany", message, text_of(place)))


def duplicate(place: Place, value: Any) -> Fault:
    """Return the fault of an item that is there already."""
    text = field_invalid("", shown(value), "").message.removeprefix("Invalid value: ").removesuffix(": ")
    return Fault(place, StatusCause("FieldValueDuplicate", f"Duplicate value: {text}", text_of(place)))


def duplicate_keys(place: Place, keys: Mapping[str, Any]) -> Fault:
    """Return the fault of an item whose keys another one has; of the item nothing but its keys is said."""
    text = msgspec.json.encode({name: shown(value) for name, value in keys.items()}).decode()
    return Fault(place, StatusCause("FieldValueDuplicate", f"Duplicate value: {text}", text_of(place)))


def out_of_bounds(place: Place, value: Any, detail: str) -> Fault:
    """Return the fault of a value that does not do what the schema asks: `should be at least 1 chars long`."""
    field = text_of(place)
    return Fault(place, field_invalid(field, value, f"{field} in body {detail}"))


def not_logical(place: Place, detail: str) -> Fault:
    """Return the fault of a value that does not fit a combination of schemas; it names the place in its words."""
    return Fault(place, field_invalid(NOWHERE, "", f'"{text_of(place)}" {detail}'))


def unchecked() -> Fault:
    """Return what is said when rules were left out because the object has graver faults."""
    return Fault((), field_invalid(NOWHERE, None, UNCHECKED))


def _typed(place: Place, text: str, detail: str) -> Fault:
    field = text_of(place)
    message = f"Invalid value: {_quoted(text)}: {field} in body {detail}"
    return Fault(place, StatusCause("FieldValueTypeInvalid", message, field))


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()
