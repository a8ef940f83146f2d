"""Tables (`meta.k8s.io/v1`): what `kubectl get` prints, made of stored bytes.

A row needs little of its object. Its metadata goes into the row as the bytes that are stored; only the fields that the
columns show are decoded, and for the many kinds that show a name and an age that is the metadata alone.
"""

import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from operator import attrgetter
from typing import Any, Literal

import msgspec

from kplane_apiserver.kinds import Kind, PrinterColumn
from kplane_apiserver.printers import Column, Printer, printer_for
from kplane_apiserver.printers.ages import age
from kplane_apiserver.printers.columns import NAME, Cell, Cells, name_of
from kplane_apiserver.printers.jsonpath import JSONPath, JSONPathError, parse_jsonpath
from kplane_core.errors import BadRequest, DecodeError
from kplane_core.storage.interface import ObjectList, StoredObject

IncludeObject = Literal["Metadata", "Object", "None"]
"""What a row carries of its object: its metadata, all of it, or nothing."""

ObjectBytes = Callable[[StoredObject], bytes]
"""Gives the JSON of an object as a client receives it."""

_DATA: ObjectBytes = attrgetter("data")
_TABLE = b'{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":'
_PARTIAL = b'{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":'
_PARTIAL_LIST = b'{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":'
_INCLUDED: Mapping[str, IncludeObject] = {"": "Metadata", "Metadata": "Metadata", "Object": "Object", "None": "None"}
_AGE_COLUMN = PrinterColumn("Age", "date", ".metadata.creationTimestamp")


class _MetadataOnly(msgspec.Struct):
    metadata: msgspec.Raw = msgspec.Raw(b"{}")


_METADATA = msgspec.json.Decoder(_MetadataOnly)
_ENCODE = msgspec.json.Encoder().encode


def parse_include_object(text: str) -> IncludeObject:
    """Return the value of the query parameter `includeObject`.

    Args:
        text: as the client sent it; empty when absent.

    Raises:
        BadRequest: it is none of the three.
    """
    choice = _INCLUDED.get(text)
    if choice is not None:
        return choice
    raise BadRequest(f'unrecognized includeObject value: "{text}"; the choices are Metadata, Object and None')


def table_for_list(
    kind: Kind,
    page: ObjectList,
    include_object: IncludeObject = "Metadata",
    *,
    now: float | None = None,
    object_bytes: ObjectBytes = _DATA,
) -> bytes:
    """Return a page of objects as a table.

    Args:
        kind: what the objects are.
        page: the objects.
        include_object: what each row carries of its object.
        now: seconds since the epoch, for ages; None takes the clock's.
        object_bytes: gives a whole object's bytes, for rows that carry it.
    """
    printer = printer_of(kind)
    moment = time.time() if now is None else now
    looks = object_bytes if kind.custom is not None else _DATA
    rows = [_row(printer, stored, include_object, moment, object_bytes, looks) for stored in page.items]
    return _table(_list_metadata(page), _definitions(printer.columns), rows)


def table_for_object(
    kind: Kind,
    stored: StoredObject,
    include_object: IncludeObject = "Metadata",
    *,
    with_columns: bool = True,
    now: float | None = None,
    object_bytes: ObjectBytes = _DATA,
) -> bytes:
    """Return a table of one row: the answer to a get, or what one watch event carries.

    Args:
        kind: what the object is.
        stored: the object; of a bookmark too.
        include_object: what the row carries of it.
        with_columns: whether the columns are described; a watch describes them once.
        now: seconds since the epoch, for ages; None takes the clock's.
        object_bytes: gives the whole object's bytes, for a row that carries it.
    """
    printer = printer_of(kind)
    moment = time.time() if now is None else now
    looks = object_bytes if kind.custom is not None else _DATA
    row = _row(printer, stored, include_object, moment, object_bytes, looks)
    metadata = b'{"resourceVersion":"%d"}' % stored.revision
    return _table(metadata, _definitions(printer.columns) if with_columns else b"null", [row])


def partial_metadata(stored: StoredObject) -> bytes:
    """Return the object's `PartialObjectMetadata`."""
    return _PARTIAL + bytes(_metadata_of(stored.data)) + b"}"


def partial_metadata_list(page: ObjectList) -> bytes:
    """Return a page as a `PartialObjectMetadataList`."""
    items = b",".join([partial_metadata(stored) for stored in page.items])
    return b'%s%s,"items":[%s]}' % (_PARTIAL_LIST, _list_metadata(page), items)


def printer_of(kind: Kind) -> Printer:
    """Return how a kind is printed; equal printers are the same object."""
    if kind.custom is not None:
        return _custom_printer(kind.custom.printer_columns or (_AGE_COLUMN,))
    return printer_for(kind.group, kind.plural)


# --- bytes ------------------------------------------------------------------------------------------------------------


def _table(metadata: bytes, columns: bytes, rows: list[bytes]) -> bytes:
    return b'%s%s,"columnDefinitions":%s,"rows":[%s]}' % (_TABLE, metadata, columns, b",".join(rows))


def _row(
    printer: Printer,
    stored: StoredObject,
    include: IncludeObject,
    now: float,
    object_bytes: ObjectBytes,
    looks: ObjectBytes,
) -> bytes:
    # Columns of custom kinds are fields of their schemas, and so are the defaults of old objects.
    data = stored.data if printer.metadata_only else looks(stored)
    metadata = _metadata_of(data)
    document = {"metadata": _decode(metadata)} if printer.metadata_only else _decode(data)
    cells = _ENCODE(printer.cells(document, now))
    if include == "None":
        return b'{"cells":%s}' % cells
    carried = object_bytes(stored) if include == "Object" else b"%s%s}" % (_PARTIAL, metadata)
    return b'{"cells":%s,"object":%s}' % (cells, carried)


def _metadata_of(data: bytes) -> msgspec.Raw:
    try:
        return _METADATA.decode(data).metadata
    except (msgspec.DecodeError, RecursionError) as error:
        raise DecodeError(f"stored data is not a JSON object: {error}") from error


def _decode(data: bytes | msgspec.Raw) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise DecodeError(f"stored data cannot be shown in a table: {error}") from error


def _list_metadata(page: ObjectList) -> bytes:
    metadata: dict[str, Any] = {"resourceVersion": str(page.revision)}
    if page.continue_token:
        metadata["continue"] = page.continue_token
    if page.remaining:
        metadata["remainingItemCount"] = page.remaining
    return _ENCODE(metadata)


@lru_cache(maxsize=1024)
def _definitions(columns: tuple[Column, ...]) -> bytes:
    return _ENCODE([column.to_dict() for column in columns])


# --- columns of custom kinds ------------------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def _custom_printer(columns: tuple[PrinterColumn, ...]) -> Printer:
    paths = [(column.type, _path(column)) for column in columns]

    def cells(document: dict[str, Any], now: float) -> Cells:
        return [name_of(document), *(_cell(kind, path, document, now) for kind, path in paths)]

    metadata_only = all(column.json_path.startswith(".metadata.") for column in columns)
    return Printer((NAME, *(_column(column) for column in columns)), cells, metadata_only)


def _column(column: PrinterColumn) -> Column:
    described = column.description or f"Custom resource definition column (in JSONPath format): {column.json_path}"
    return Column(column.name, column.type, column.format, described, column.priority)


def _path(column: PrinterColumn) -> JSONPath | None:
    """Return the parsed path; None for one that a definition stored by others got wrong: its cells stay empty."""
    try:
        return parse_jsonpath(column.json_path)
    except JSONPathError:
        return None


def _cell(kind: str, path: JSONPath | None, document: dict[str, Any], now: float) -> Cell:
    found = path.find(document) if path is not None else []
    if not found or found[0] is None:
        return None
    return _CONVERTERS.get(kind, _nothing)(found[0], now)


def _nothing(_value: Any, _now: float) -> Cell:
    return None


def _string(value: Any, _now: float) -> Cell:
    return value if isinstance(value, str) else _ENCODE(value).decode()


def _integer(value: Any, _now: float) -> Cell:
    return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _number(value: Any, _now: float) -> Cell:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _boolean(value: Any, _now: float) -> Cell:
    return value if isinstance(value, bool) else None


def _date(value: Any, now: float) -> Cell:
    return age(value, now) if isinstance(value, str) else None


_CONVERTERS: Mapping[str, Callable[[Any, float], Cell]] = {
    "string": _string,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "date": _date,
}
