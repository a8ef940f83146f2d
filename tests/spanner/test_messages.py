"""Rows out of the messages of a stream, wherever the server cuts it."""

from hypothesis import given
from hypothesis import strategies as st

from kplane_spanner.messages import PartialResultSet, RowReader, pack_bytes, unpack_bytes

CELLS = st.one_of(st.none(), st.text(max_size=8))


def streamed(rows, width, cuts, chunk):
    """Return the messages in which a server may send rows: cut after any value, or in the middle of one."""
    message = PartialResultSet()
    message.metadata.transaction.read_timestamp.FromMicroseconds(77)
    for _ in range(width):
        message.metadata.row_type.fields.add().name = "column"
    for position, cell in enumerate(cell for row in rows for cell in row):
        if cell is None:
            message.values.add().null_value = 0
        elif position in chunk and len(cell) > 1:
            message.values.add().string_value = cell[:1]
            message.chunked_value = True
            yield message
            message = PartialResultSet()
            message.values.add().string_value = cell[1:]
        else:
            message.values.add().string_value = cell
        if position in cuts:
            yield message
            message = PartialResultSet()
    yield message


@given(
    st.integers(1, 4).flatmap(lambda width: st.lists(st.tuples(*[CELLS] * width), max_size=6)),
    st.sets(st.integers(0, 24)),
    st.sets(st.integers(0, 24)),
)
def test_rows_come_back_whole_whatever_the_messages_hold(rows, cuts, chunk):
    reader = RowReader()
    for message in streamed(rows, len(rows[0]) if rows else 2, cuts, chunk):
        reader.take(message)
    assert reader.rows == rows
    assert reader.read_micros == 77


@given(st.binary())
def test_bytes_come_back_from_their_cell(value):
    assert unpack_bytes(pack_bytes(value)) == value
