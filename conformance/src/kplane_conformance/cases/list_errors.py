"""Lists over unreadable records: the upstream functions on reporting them one by one, or not."""

import re
from collections.abc import Mapping
from typing import Final

import attrs

from kplane_conformance.case import Hook, Layer, case
from kplane_conformance.context import Context
from kplane_conformance.expect import raises
from kplane_conformance.objects import pod
from kplane_conformance.transformers import TransformFailed
from kplane_core.errors import InternalError, KplaneError, StatusCause, StoreReadError
from kplane_core.storage.interface import Store, StoredObject
from kplane_core.storage.transformers import Transformer, TransformUnavailable

_TRUNCATED: Final = StatusCause("FieldValueTooMany", "too many errors, the list is truncated")


class FailingByKey:
    """Fails the reads of chosen objects and leaves all others to another transformer.

    Args:
        below: the other transformer.
    """

    def __init__(self, below: Transformer) -> None:
        self._below = below
        self.failures: Mapping[str, KplaneError] = {}

    def from_storage(self, data: bytes, key: str) -> tuple[bytes, bool]:
        """Read, or fail for this key's name."""
        if error := self.failures.get(key.rpartition("/")[2]):
            raise error
        return self._below.from_storage(data, key)

    def to_storage(self, data: bytes, key: str) -> bytes:
        """Write."""
        return self._below.to_storage(data, key)


@attrs.frozen
class AggregationRow:
    """A row of the table of GetListWithErrorAggregation.

    Attributes:
        count: how many objects there are, numbered from 1.
        corrupt: which ones are corrupt.
        unavailable: for which ones the transformer cannot work.
        listed: which ones are returned with the error.
        causes: which corrupt objects have a cause in the error; none for an error without causes.
        last: the error's last cause, after those.
    """

    count: int
    corrupt: tuple[int, ...]
    unavailable: tuple[int, ...]
    listed: tuple[int, ...]
    causes: tuple[int, ...]
    last: str = ""


_ROWS = (
    AggregationRow(7, corrupt=(4, 6), unavailable=(2,), listed=(1,), causes=()),
    AggregationRow(7, corrupt=(2, 4, 6), unavailable=(), listed=(1, 3, 5, 7), causes=(2, 4, 6)),
    AggregationRow(7, corrupt=(2, 6), unavailable=(4,), listed=(1, 3), causes=(2,), last="UnexpectedServerResponse"),
    AggregationRow(
        210,
        corrupt=tuple(range(2, 211, 2)),
        unavailable=(),
        listed=tuple(range(1, 200, 2)),
        causes=tuple(range(2, 201, 2)),
        last="FieldValueTooMany",
    ),
    AggregationRow(
        100,
        corrupt=tuple(range(1, 101)),
        unavailable=(),
        listed=(),
        causes=tuple(range(1, 101)),
        last="FieldValueTooMany",
    ),
)


def _name(number: int) -> str:
    return f"foo-{number:06}"


async def _seed(ctx: Context, store: Store, count: int) -> dict[int, StoredObject]:
    numbers = range(1, count + 1)
    stored = {number: await ctx.put(store, pod(_name(number), "ns-1")) for number in numbers}
    ctx.expect_same((await ctx.list(store)).items, list(stored.values()), "the list before anything fails")
    return stored


@case(
    "GetListWithErrorAggregation",
    upstream="RunTestGetListWithErrorAggregation",
    rows=_ROWS,
    hooks=[Hook.SWAP_TRANSFORMER],
    layers=[Layer.STORE],
)
async def get_list_with_error_aggregation(ctx: Context, row: AggregationRow) -> None:
    """A list over corrupt records names each of them, up to a hundred, and hands over what it could read."""
    transformer = FailingByKey(ctx.transformer)
    store = await ctx.store(transformer=transformer)
    stored = await _seed(ctx, store, row.count)
    transformer.failures = {
        **{_name(number): TransformFailed(f"{number} is corrupt") for number in row.corrupt},
        **{_name(number): TransformUnavailable(f"no key for {number}") for number in row.unavailable},
    }
    if row.causes:
        with raises(StoreReadError) as caught:
            await ctx.list(store)
        _check_causes(ctx, row, caught.error)
    else:
        with raises(InternalError) as caught:
            await ctx.list(store)
        _check_message(ctx, stored[2].key, caught.error)
    ctx.expect_same(caught.error.partial.items, [stored[number] for number in row.listed], "the items")


def _check_message(ctx: Context, key: str, error: KplaneError) -> None:
    found = re.match(r'unable to transform key "([^"]*)"', str(error))
    assert found is not None, f"the error says: {error}"
    assert ctx.names(found[1], key), f"the error says: {error}"


def _check_causes(ctx: Context, row: AggregationRow, error: StoreReadError) -> None:
    status = error.status()
    assert (status.code, status.reason, status.kind, status.name) == (500, "StorageReadError", "pods", "list")
    named = [cause for cause in status.causes if cause.field]
    wanted = [ctx.key("ns-1", _name(number)) for number in row.causes]
    right = [ctx.names(cause.field, key) for cause, key in zip(named, wanted, strict=False)]
    assert len(named) == len(wanted), f"{len(named)} causes, not {len(wanted)}"
    assert all(right), f"the causes name {[cause.field for cause in named]}"
    assert {cause.reason for cause in named} == {"UnexpectedServerResponse"}
    rest = status.causes[len(named) :]
    assert [cause.reason for cause in rest] == ([row.last] if row.last else []), f"the last causes are {rest}"
    if row.last == "FieldValueTooMany":
        assert rest == (_TRUNCATED,)
    assert f"{row.causes[0]} is corrupt" in status.message, f"the first error is not told: {status.message}"
    if len(named) > 1:
        assert f"(and {len(named) - 1} more)" in status.message, f"the others are not counted: {status.message}"


@case(
    "GetListWithoutErrorAggregation",
    upstream="RunTestGetListWithoutErrorAggregation",
    hooks=[Hook.SWAP_TRANSFORMER],
    layers=[Layer.STORE],
)
async def get_list_without_error_aggregation(ctx: Context) -> None:
    """Where corrupt records are not reported one by one, a list ends at the first that cannot be read and names it."""
    transformer = FailingByKey(ctx.transformer)
    store = await ctx.store(attrs.evolve(ctx.resource, corrupt_object_reports=False), transformer=transformer)
    stored = await _seed(ctx, store, 7)
    transformer.failures = {_name(number): TransformFailed(f"{number} is corrupt") for number in (2, 4, 6)}
    with raises(InternalError) as caught:
        await ctx.list(store)
    _check_message(ctx, stored[2].key, caught.error)
    ctx.expect_same(caught.error.partial.items, [stored[1]], "the items")
