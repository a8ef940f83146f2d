"""The protobuf messages of google.spanner.v1 that the engine speaks, and how values are written in them.

The classes come from google-cloud-spanner; what its proto-plus layer wraps around them costs more than a small call to
Spanner takes, so the calls use the messages themselves.
"""

from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from typing import Any, Final

from google.cloud.spanner_v1 import types
from google.protobuf.struct_pb2 import NULL_VALUE, Value

from kplane_spanner.revisions import format_timestamp

BatchCreateSessionsRequest: Final[Any] = types.BatchCreateSessionsRequest.pb()
BatchCreateSessionsResponse: Final[Any] = types.BatchCreateSessionsResponse.pb()
BeginTransactionRequest: Final[Any] = types.BeginTransactionRequest.pb()
CommitRequest: Final[Any] = types.CommitRequest.pb()
CommitResponse: Final[Any] = types.CommitResponse.pb()
DeleteSessionRequest: Final[Any] = types.DeleteSessionRequest.pb()
ExecuteSqlRequest: Final[Any] = types.ExecuteSqlRequest.pb()
KeySet: Final[Any] = types.KeySet.pb()
Mutation: Final[Any] = types.Mutation.pb()
PartialResultSet: Final[Any] = types.PartialResultSet.pb()
ReadRequest: Final[Any] = types.ReadRequest.pb()
RollbackRequest: Final[Any] = types.RollbackRequest.pb()
Session: Final[Any] = types.Session.pb()
Transaction: Final[Any] = types.Transaction.pb()
TransactionSelector: Final[Any] = types.TransactionSelector.pb()

#: In place of a value: the timestamp at which the transaction commits.
COMMIT_TIMESTAMP: Final = "spanner.commit_timestamp()"

#: A cell of a row: Spanner writes every type used here as text.
Cell = str | None
Row = tuple[Cell, ...]
Part = str | int


def pack_bytes(value: bytes) -> str:
    """Return bytes as a BYTES cell."""
    return b64encode(value).decode("ascii")


def unpack_bytes(cell: str) -> bytes:
    """Return the bytes of a BYTES cell."""
    return b64decode(cell)


def at(micros: int) -> str:
    """Return a microsecond as a TIMESTAMP cell."""
    return format_timestamp(micros)


def key_set(keys: Iterable[Sequence[Part]]) -> Any:
    """Return a key set of single rows."""
    found = KeySet()
    for key in keys:
        _fill(found.keys.add(), key)
    return found


def add_range(
    into: Any, start: Sequence[Part], end: Sequence[Part], *, after_start: bool = False, with_end: bool = False
) -> None:
    """Add a range of keys to a key set.

    Args:
        into: the key set.
        start: the first key, or a prefix of it.
        end: the key not returned any more, or a prefix of it.
        after_start: leave out `start` itself.
        with_end: include `end` itself and everything that it is a prefix of.
    """
    found = into.ranges.add()
    _fill(found.start_open if after_start else found.start_closed, start)
    _fill(found.end_closed if with_end else found.end_open, end)


def insert(table: str, columns: Sequence[str], row: Sequence[Cell]) -> Any:
    """Return the mutation that inserts a row, which must not exist."""
    found = Mutation()
    _write(found.insert, table, columns, row)
    return found


def update(table: str, columns: Sequence[str], row: Sequence[Cell]) -> Any:
    """Return the mutation that changes some columns of a row, which must exist."""
    found = Mutation()
    _write(found.update, table, columns, row)
    return found


def delete(table: str, key: Sequence[Part]) -> Any:
    """Return the mutation that deletes a row."""
    found = Mutation()
    found.delete.table = table
    _fill(found.delete.key_set.keys.add(), key)
    return found


def _write(into: Any, table: str, columns: Sequence[str], row: Sequence[Cell]) -> None:
    into.table = table
    into.columns.extend(columns)
    values = into.values.add()
    for cell in row:
        if cell is None:
            values.values.add().null_value = NULL_VALUE
        else:
            values.values.add().string_value = cell


def _fill(into: Any, parts: Sequence[Part]) -> None:
    # A key list without parts still has to be present: it is what every key begins with.
    into.SetInParent()
    for part in parts:
        into.values.add().string_value = part if isinstance(part, str) else str(part)


class RowReader:
    """Puts the rows of a streamed answer together.

    Attributes:
        rows: those that are complete.
        transaction_id: of the transaction that the call began, if it did.
        read_micros: the microsecond of the snapshot that was read, if it was asked for.
    """

    __slots__ = ("_cells", "_chunk", "_width", "read_micros", "rows", "transaction_id")

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.transaction_id = b""
        self.read_micros = 0
        self._width = 0
        self._cells: list[Cell] = []
        self._chunk: str | None = None

    def take(self, message: Any) -> None:
        """Add the next message of the stream."""
        if message.HasField("metadata"):
            self._head(message.metadata)
        values = message.values
        last = len(values) - 1 if message.chunked_value else len(values)
        cells = self._cells
        for position, value in enumerate(values):
            cell = _cell(value)
            if self._chunk is not None:  # the rest of a value that did not fit into the message before
                cell = self._chunk + (cell or "")
                self._chunk = None
            if position == last:
                self._chunk = cell or ""
            else:
                cells.append(cell)
        width = self._width
        if width and len(cells) >= width:
            whole = len(cells) - len(cells) % width
            self.rows += [tuple(cells[first : first + width]) for first in range(0, whole, width)]
            del cells[:whole]

    def _head(self, metadata: Any) -> None:
        self._width = len(metadata.row_type.fields)
        if metadata.transaction.id:
            self.transaction_id = metadata.transaction.id
        if metadata.transaction.HasField("read_timestamp"):
            self.read_micros = micros(metadata.transaction.read_timestamp)


def micros(timestamp: Any) -> int:
    """Return the microsecond of a protobuf timestamp.

    What a read timestamp has below a microsecond is cut off: commits are whole microseconds, so the snapshot at the
    cut timestamp is the same.
    """
    return int(timestamp.seconds * 1_000_000 + timestamp.nanos // 1000)


def _cell(value: Value) -> Cell:
    text: str = value.string_value
    if text:
        return text
    return None if value.HasField("null_value") else _rare(value)


def _rare(value: Value) -> str:
    """Return the cell of an empty text, or of a type that only the schema's inspection reads."""
    match value.WhichOneof("kind"):
        case "bool_value":
            return "true" if value.bool_value else "false"
        case "number_value":
            return f"{value.number_value:g}"
        case _:
            return ""
