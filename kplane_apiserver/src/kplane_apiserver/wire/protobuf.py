"""Read the protobuf bodies that kubectl, helm and Go controllers send for builtin kinds.

A body is four magic bytes and an envelope (`runtime.Unknown`) that names the apiVersion and kind of the message inside.
The result is the dict that the same client would have sent as JSON. The table of messages lies in
`data/protobuf.json.gz`, written by `tools/generate_protobuf.py`.

What is left out of the result. The clients' encoder always writes a field that is not a pointer in Go, even a zero, so
a zero on the wire says nothing by itself:

- a pointer is kept as sent: `replicas: 0`, `emptyDir: {}` and `storageClassName: ""` were set on purpose;
- a scalar that JSON would omit when empty is dropped when it is zero, any other is kept (`containerPort: 0`);
- a message that is not a pointer is dropped when nothing is left in it (`status`, `strategy`, `resources`), and so is a
  time that was never set. JSON would show `{}` and `null`, which mean the same.

A field that occurs twice takes its last value. Unknown fields are skipped.
"""

import binascii
import gzip
import math
import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from typing import Any, NamedTuple

import msgspec

from kplane_apiserver.apierrors import UnsupportedMediaType
from kplane_apiserver.kinds import DATA
from kplane_core.errors import BadRequest

MAGIC = b"k8s\x00"
MAX_DEPTH = 100
VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
KEPT = object()
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Message = dict[int, "_Field"]
Table = dict[str, dict[str, Any]]


class MalformedProtobuf(BadRequest):
    """The body is not the protobuf message that it says it is: 400."""

    def __init__(self, fault: str) -> None:
        super().__init__(f"the body of the request cannot be read as Kubernetes protobuf: {fault}")


class _Field(NamedTuple):
    """How one field is read.

    Attributes:
        name: its JSON name; empty where it is flattened into its parent.
        wire: the wire type that its values have.
        convert: makes the JSON value: of an integer for VARINT, else of (data, start, end, depth).
        repeated: whether it is a list.
        entries: whether it is a map, whose entries `convert` returns as (key, value).
        dropped: the zero that is left out; KEPT if none is.
    """

    name: str
    wire: int
    convert: Callable[..., Any]
    repeated: bool
    entries: bool
    dropped: Any


def decode(body: bytes) -> dict[str, Any]:
    """Return the object in a protobuf body, as JSON would have carried it.

    Args:
        body: the whole request body.

    Returns:
        The object, `apiVersion` and `kind` first.

    Raises:
        MalformedProtobuf: the bytes cannot be read.
        UnsupportedMediaType: the kind has no protobuf form, which is so for every custom kind.
    """
    return _decode_enveloped(body, 0, len(body), 0)


def _decode_enveloped(data: bytes, start: int, end: int, depth: int) -> dict[str, Any]:
    if not data.startswith(MAGIC, start, end):
        raise MalformedProtobuf("it does not begin with the four bytes k8s\\0")
    envelope = _read_message(_ENVELOPE, data, start + len(MAGIC), end, depth)
    if envelope.get("contentEncoding"):
        raise MalformedProtobuf(f"its contentEncoding {envelope['contentEncoding']!r} is not supported")
    type_meta = envelope.get("typeMeta", {})
    api_version, kind = type_meta.get("apiVersion", ""), type_meta.get("kind", "")
    if not kind:
        raise MalformedProtobuf("its envelope names no kind")
    first, last = envelope.get("raw", (0, 0))
    value = {"apiVersion": api_version, "kind": kind}
    value.update(_read_message(_message(_message_name(api_version, kind)), data, first, last, depth + 1))
    return value


def _message_name(api_version: str, kind: str) -> str:
    table = _table()
    # Clients send delete options under the apiVersion of whatever they delete.
    name = table["kinds"].get(f"{api_version}/{kind}") or table["options"].get(kind)
    if name is None:
        raise UnsupportedMediaType(("application/json", "application/yaml"))
    return str(name)


# --- the wire ---------------------------------------------------------------------------------------------------------


def _read_message(fields: Message, data: bytes, start: int, end: int, depth: int) -> dict[str, Any]:
    if depth > MAX_DEPTH:
        raise MalformedProtobuf(f"messages are nested more than {MAX_DEPTH} deep")
    value: dict[str, Any] = {}
    position = start
    while position < end:
        tag, position = _read_varint(data, position, end)
        field = fields.get(tag >> 3)
        if field is None:
            position = _skip(data, position, end, tag)
            continue
        if field.wire == VARINT and tag & 7 == VARINT:
            number, position = _read_varint(data, position, end)
            _put(value, field, field.convert(number))
            continue
        position, stop = _bounds(data, position, end, tag)
        _put_slice(value, field, data, position, stop, tag, depth)
        position = stop
    return value


def _put_slice(value: dict[str, Any], field: _Field, data: bytes, start: int, stop: int, tag: int, depth: int) -> None:
    if tag & 7 == field.wire:
        result = field.convert(data, start, stop, depth + 1)
        if field.entries:
            key, inner = result
            value.setdefault(field.name, {})[key] = inner
        else:
            _put(value, field, result)
    elif field.repeated and field.wire == VARINT and tag & 7 == LENGTH:  # packed
        while start < stop:
            number, start = _read_varint(data, start, stop)
            _put(value, field, field.convert(number))
    else:
        raise MalformedProtobuf(f"field {tag >> 3} ({field.name}) has the wire type {tag & 7} at byte {start}")


def _put(value: dict[str, Any], field: _Field, result: Any) -> None:
    if field.repeated:
        value.setdefault(field.name, []).append(result)
    elif not field.name:
        value.update(result)
    elif result == field.dropped:
        value.pop(field.name, None)
    else:
        value[field.name] = result


def _read_varint(data: bytes, position: int, end: int) -> tuple[int, int]:
    result = shift = 0
    while position < end:
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 - the high bit says that more follow
            return result & 0xFFFF_FFFF_FFFF_FFFF, position
        shift += 7
        if shift > 63:  # noqa: PLR2004 - ten bytes carry 64 bits
            raise MalformedProtobuf(f"a number before byte {position} is longer than 64 bits")
    raise MalformedProtobuf(f"it ends within a number at byte {end}")


def _bounds(data: bytes, position: int, end: int, tag: int) -> tuple[int, int]:
    """Return where the value after `tag` starts and stops."""
    wire = tag & 7
    if wire == LENGTH:
        length, position = _read_varint(data, position, end)
    elif wire in {FIXED64, FIXED32}:
        length = 8 if wire == FIXED64 else 4
    elif wire == VARINT:
        _, stop = _read_varint(data, position, end)
        return position, stop
    else:
        raise MalformedProtobuf(f"field {tag >> 3} has the unknown wire type {wire} at byte {position}")
    if length > end - position:
        raise MalformedProtobuf(
            f"field {tag >> 3} at byte {position} is {length} bytes long, {end - position} are left"
        )
    return position, position + length


def _skip(data: bytes, position: int, end: int, tag: int) -> int:
    if not tag >> 3:
        raise MalformedProtobuf(f"there is a field 0 at byte {position}")
    return _bounds(data, position, end, tag)[1]


# --- values -----------------------------------------------------------------------------------------------------------


def _int64(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


def _int32(number: int) -> int:
    number &= 0xFFFF_FFFF
    return number - (1 << 32) if number >> 31 else number


def _text(data: bytes, start: int, stop: int, _depth: int) -> str:
    try:
        return data[start:stop].decode()
    except UnicodeDecodeError:
        raise MalformedProtobuf(f"a text at byte {start} is not UTF-8") from None


def _base64(data: bytes, start: int, stop: int, _depth: int) -> str:
    return binascii.b2a_base64(data[start:stop], newline=False).decode()


def _double(data: bytes, start: int, _stop: int, _depth: int) -> float:
    number: float = struct.unpack_from("<d", data, start)[0]
    if not math.isfinite(number):
        raise MalformedProtobuf(f"the number at byte {start} is not finite")
    return number


def _span(_data: bytes, start: int, stop: int, _depth: int) -> tuple[int, int]:
    return start, stop


def _json(data: bytes, start: int, stop: int, depth: int) -> Any:
    raw = _read_message(_RAW, data, start, stop, depth).get("raw", (0, 0))
    if raw[0] == raw[1]:
        return None
    try:
        return msgspec.json.decode(data[raw[0] : raw[1]])
    except (msgspec.DecodeError, RecursionError) as error:
        raise MalformedProtobuf(f"the JSON at byte {raw[0]} cannot be read: {error}") from None


def _raw_extension(data: bytes, start: int, stop: int, depth: int) -> Any:
    first, last = _read_message(_RAW, data, start, stop, depth).get("raw", (0, 0))
    if data.startswith(MAGIC, first, last):
        return _decode_enveloped(data, first, last, depth + 1)
    return _json(data, start, stop, depth)


def _moment(data: bytes, start: int, stop: int, depth: int) -> tuple[datetime, int] | None:
    if start == stop:
        return None
    value = _read_message(_TIMESTAMP, data, start, stop, depth)
    try:
        return EPOCH + timedelta(seconds=value.get("seconds", 0)), value.get("nanos", 0)
    except OverflowError:
        raise MalformedProtobuf(f"the time at byte {start} is outside of the years 1 to 9999") from None


def _time(data: bytes, start: int, stop: int, depth: int) -> str | None:
    # Like upstream, whose JSON has no fractions either: otherwise an object changes by being read back.
    moment = _moment(data, start, stop, depth)
    return moment and moment[0].strftime(f"{moment[0].year:04d}-%m-%dT%H:%M:%SZ")


def _microtime(data: bytes, start: int, stop: int, depth: int) -> str | None:
    moment = _moment(data, start, stop, depth)
    if moment is None:
        return None
    if not 0 <= moment[1] < 1_000_000_000:  # noqa: PLR2004 - nanoseconds of a second
        raise MalformedProtobuf(f"the time at byte {start} has {moment[1]} nanoseconds")
    return moment[0].strftime(f"{moment[0].year:04d}-%m-%dT%H:%M:%S.{moment[1] // 1000:06d}Z")


def _quantity(data: bytes, start: int, stop: int, depth: int) -> str:
    return str(_read_message(_QUANTITY, data, start, stop, depth).get("string") or "0")


def _int_or_string(data: bytes, start: int, stop: int, depth: int) -> int | str:
    value = _read_message(_INT_OR_STRING, data, start, stop, depth)
    return str(value.get("strVal", "")) if value.get("type") else int(value.get("intVal", 0))


def _list(data: bytes, start: int, stop: int, depth: int) -> list[str]:
    return list(_read_message(_LIST, data, start, stop, depth).get("items", ()))


def _schema_or_bool(data: bytes, start: int, stop: int, depth: int) -> Any:
    value = _read_message(_SCHEMA_OR_BOOL, data, start, stop, depth)
    return value.get("schema", value.get("allows", False))


def _schema_or_schemas(data: bytes, start: int, stop: int, depth: int) -> Any:
    value = _read_message(_SCHEMA_OR_SCHEMAS, data, start, stop, depth)
    return value.get("schemas") or value.get("schema")


def _schema_or_names(data: bytes, start: int, stop: int, depth: int) -> Any:
    value = _read_message(_SCHEMA_OR_NAMES, data, start, stop, depth)
    return value.get("names") or value.get("schema")


# --- the table --------------------------------------------------------------------------------------------------------

# form -> (wire type, convert, the zero that JSON omits, the zero that is dropped although JSON shows it)
_FORMS: dict[str, tuple[int, Callable[..., Any], Any, Any]] = {
    "string": (LENGTH, _text, "", KEPT),
    "bytes": (LENGTH, _base64, "", KEPT),
    "bool": (VARINT, bool, False, KEPT),
    "int32": (VARINT, _int32, 0, KEPT),
    "int64": (VARINT, _int64, 0, KEPT),
    "double": (FIXED64, _double, 0.0, KEPT),
    "span": (LENGTH, _span, KEPT, KEPT),
    "time": (LENGTH, _time, None, None),
    "microtime": (LENGTH, _microtime, None, None),
    "json": (LENGTH, _json, None, None),
    "raw-extension": (LENGTH, _raw_extension, None, None),
    "quantity": (LENGTH, _quantity, KEPT, KEPT),
    "int-or-string": (LENGTH, _int_or_string, KEPT, KEPT),
    "list": (LENGTH, _list, KEPT, KEPT),
    "schema-or-bool": (LENGTH, _schema_or_bool, KEPT, KEPT),
    "schema-or-schemas": (LENGTH, _schema_or_schemas, KEPT, KEPT),
    "schema-or-names": (LENGTH, _schema_or_names, KEPT, KEPT),
}


def _field(name: str, form: str, marks: str) -> _Field:
    """Make a field from a row of the table.

    Args:
        name: its JSON name.
        form: what its values are; `map:` and that for a map.
        marks: letters: r repeated, p pointer, o omitted by JSON when empty.
    """
    kind, _, inner = form.rpartition(":")
    if kind == "map":
        return _Field(name, LENGTH, _entry_reader(inner), repeated=False, entries=True, dropped=KEPT)
    wire, convert, omitted, never = _form(inner)
    dropped = omitted if "o" in marks else never
    if "p" in marks and never is not None:
        dropped = KEPT
    return _Field(name, wire, convert, repeated="r" in marks, entries=False, dropped=dropped)


def _form(form: str) -> tuple[int, Callable[..., Any], Any, Any]:
    known = _FORMS.get(form)
    if known is not None:
        return known

    def convert(data: bytes, start: int, stop: int, depth: int) -> dict[str, Any]:
        return _read_message(_message(form), data, start, stop, depth)

    return LENGTH, convert, {}, {}


def _entry_reader(form: str) -> Callable[[bytes, int, int, int], tuple[str, Any]]:
    """Return how an entry of a map with text keys and values of `form` is read."""
    entry = {1: _field("key", "string", ""), 2: _field("value", form, "p")}
    convert = _form(form)[1]

    def read(data: bytes, start: int, stop: int, depth: int) -> tuple[str, Any]:
        value = _read_message(entry, data, start, stop, depth)
        return value.get("key", ""), value["value"] if "value" in value else convert(b"", 0, 0, depth)

    return read


@cache
def _table() -> Table:
    table: Table = msgspec.json.decode(gzip.decompress((DATA / "protobuf.json.gz").read_bytes()))
    return table


@cache
def _message(name: str) -> Message:
    return {int(number): _field(*row) for number, row in _table()["messages"][name].items()}


def _fixed(**rows: tuple[int, str, str]) -> Message:
    return {number: _field(name, form, marks) for name, (number, form, marks) in rows.items()}


_SCHEMA = "apiextensions_apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps"
_RAW = _fixed(raw=(1, "span", ""))
_TIMESTAMP = _fixed(seconds=(1, "int64", ""), nanos=(2, "int32", ""))
_QUANTITY = _fixed(string=(1, "string", ""))
_INT_OR_STRING = _fixed(type=(1, "int64", ""), intVal=(2, "int32", ""), strVal=(3, "string", ""))
_LIST = _fixed(items=(1, "string", "r"))
_TYPE_META = _fixed(apiVersion=(1, "string", ""), kind=(2, "string", ""))
_ENVELOPE = {1: _Field("typeMeta", LENGTH, partial(_read_message, _TYPE_META), False, False, KEPT)} | _fixed(
    raw=(2, "span", ""), contentEncoding=(3, "string", "")
)
_SCHEMA_OR_BOOL = _fixed(allows=(1, "bool", ""), schema=(2, _SCHEMA, "p"))
_SCHEMA_OR_SCHEMAS = _fixed(schema=(1, _SCHEMA, "p"), schemas=(2, _SCHEMA, "r"))
_SCHEMA_OR_NAMES = _fixed(schema=(1, _SCHEMA, "p"), names=(2, "string", "r"))
