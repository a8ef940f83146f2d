"""Objects as rules see them: numbers, times and bytes by the schema's word, fields under names that CEL can write."""

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

Schema = dict[str, Any]
Convert = Callable[[Any], Any]

_RESERVED = frozenset(
    {
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
    }
)
_ESCAPES = (("__", "__underscores__"), (".", "__dot__"), ("-", "__dash__"), ("/", "__slash__"))
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ns": 1e-9}
_DURATION_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)")


def compile_convert(schema: Any) -> Convert | None:
    """Return what makes values of a schema ready for rules; None when they are ready as they are."""
    if not isinstance(schema, dict):
        return None
    match schema.get("type"):
        case "object":
            return _object(schema)
        case "array":
            return _array(schema)
        case "number":
            return _number
        case "string":
            return _FORMATS.get(str(schema.get("format")))
        case _:
            return None


def escaped(name: str) -> str:
    """Return a field's name as rules write it."""
    if name in _RESERVED:
        return f"__{name}__"
    for raw, written in _ESCAPES:
        name = name.replace(raw, written)
    return name


def _array(schema: Schema) -> Convert | None:
    each = compile_convert(schema.get("items"))
    if each is None:
        return None
    return lambda value: [each(item) for item in value] if isinstance(value, list) else value


def _object(schema: Schema) -> Convert | None:
    properties: Mapping[str, Any] = schema.get("properties") or {}
    inner = {name: found for name, child in properties.items() if (found := compile_convert(child))}
    renamed = {name: shown for name in properties if (shown := escaped(name)) != name}
    extra = compile_convert(schema.get("additionalProperties"))
    if not inner and not renamed and extra is None:
        return None

    def convert(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        result: dict[str, Any] = {}
        for name, member in value.items():
            each = inner.get(name) if name in properties else extra
            result[renamed.get(name) or name] = each(member) if each is not None else member
        return result

    return convert


def _number(value: Any) -> Any:
    return float(value) if type(value) is int else value


def _time(value: Any) -> Any:
    try:
        found = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return value
    from google.protobuf.timestamp_pb2 import Timestamp  # noqa: PLC0415 (as optional as the CEL that takes it)

    result = Timestamp()
    result.FromDatetime(found if found.tzinfo else found.replace(tzinfo=UTC))
    return result


def _duration(value: Any) -> Any:
    if not isinstance(value, str) or not value:
        return value
    from google.protobuf.duration_pb2 import Duration  # noqa: PLC0415 (as above)

    sign = -1 if value[0] == "-" else 1
    parts = _DURATION_PART.findall(value)
    result = Duration()
    result.FromTimedelta(sign * timedelta(seconds=sum(float(number) * _UNITS[unit] for number, unit in parts)))
    return result


def _bytes(value: Any) -> Any:
    try:
        return base64.b64decode(value) if isinstance(value, str) else value
    except (binascii.Error, ValueError):
        return value


_FORMATS: Mapping[str, Convert] = {"date": _time, "date-time": _time, "duration": _duration, "byte": _bytes}
