"""GuaranteedUpdate: the upstream functions on updating, and on records that cannot be read."""

import asyncio
from typing import Any

import attrs

from kplane_conformance.case import Capability, Hook, Layer, case
from kplane_conformance.context import Context
from kplane_conformance.expect import raises
from kplane_conformance.objects import pod
from kplane_core.errors import InternalError, InvalidObj, KeyNotFound, KplaneError, Subject, conflict
from kplane_core.storage.interface import EventType, ResponseMeta, StoredObject, UpdateResult
from kplane_core.storage.preconditions import Preconditions


def unchanged(document: dict[str, Any], _meta: ResponseMeta) -> UpdateResult:
    """Change nothing."""
    return document, None


@attrs.frozen
class UpdateRow:
    """A row of the table of GuaranteedUpdate.

    Attributes:
        name: whose key is updated.
        ignore_not_found: the option.
        uid: a precondition.
        same: whether the update returns the same data.
        self_link: what the update sets as selfLink.
        stale: whether the transformer says that the stored bytes should be rewritten.
        written: whether a write is expected.
        refused: how the update is refused instead.
    """

    name: str = "foo"
    ignore_not_found: bool = False
    uid: str | None = None
    same: bool = False
    self_link: str = ""
    stale: bool = False
    written: bool = False
    refused: type[Exception] | None = None


_ROWS = (
    UpdateRow("non-existing", refused=KeyNotFound),
    UpdateRow("non-existing", ignore_not_found=True, written=True),
    UpdateRow(written=True),
    UpdateRow(same=True),
    UpdateRow(same=True, self_link="testlink"),
    UpdateRow(same=True, stale=True, written=True),
    UpdateRow(uid="A", same=True),
    UpdateRow(uid="B", refused=InvalidObj),
)


@case(
    "GuaranteedUpdate",
    upstream="RunTestGuaranteedUpdate",
    rows=_ROWS,
    hooks=[Hook.RAW_PEEK, Hook.SWAP_TRANSFORMER],
)
async def guaranteed_update(ctx: Context, row: UpdateRow) -> None:
    """An update writes when, and only when, it changes what is stored or the stored bytes need rewriting."""
    store = await ctx.store()
    stored = await ctx.put(store, pod("foo", uid="A"))
    watch = await ctx.watch(store, after=stored.revision)
    given: list[dict[str, Any]] = []

    def try_update(document: dict[str, Any], _meta: ResponseMeta) -> UpdateResult:
        given.append(document)
        new = pod(row.name, uid="A", annotations={} if row.same else {"version": str(_ROWS.index(row))})
        if row.self_link:
            new["metadata"]["selfLink"] = row.self_link
        return new, None

    key = ctx.key("test-ns", row.name)
    if row.stale:
        ctx.transformer.set(read=lambda data: (ctx.transformer.strip(data)[0], True))
    update = store.guaranteed_update(
        key, try_update, ignore_not_found=row.ignore_not_found, preconditions=Preconditions(uid=row.uid)
    )
    if row.refused:
        with raises(row.refused):
            await update
    else:
        updated = await update
        await _check_update(ctx, row, stored, updated)
        ctx.expect_same(await store.get(key), updated)
        assert given[-1] == ({} if row.name != "foo" else stored.decode()), f"the update was given {given}"
        assert len(given) <= 2, f"the update was tried {len(given)} times"
        if row.written:
            await ctx.expect_event(watch, EventType.MODIFIED if row.name == "foo" else EventType.ADDED, updated)
    # A write that should not have been would be seen before this one.
    await ctx.expect_event(watch, EventType.ADDED, await ctx.put(store, pod("sentinel")))


async def _check_update(ctx: Context, row: UpdateRow, stored: StoredObject, updated: StoredObject) -> None:
    metadata = updated.decode()["metadata"]
    wanted = {} if row.same else {"version": str(_ROWS.index(row))}
    assert metadata.get("annotations", {}) == wanted, f"the annotations are {metadata.get('annotations')}"
    assert not metadata.get("selfLink"), "a selfLink was returned"
    await ctx.expect_canonical(updated.key)
    if row.written:
        assert updated.revision > stored.revision, "nothing was written"
    else:
        assert updated.revision == stored.revision, "something was written"


@case("GuaranteedUpdateWithTTL", upstream="RunTestGuaranteedUpdateWithTTL", requires=[Capability.TTL])
async def guaranteed_update_with_ttl(ctx: Context) -> None:
    """An object that an update created with a time to live is deleted when it has passed."""
    store = await ctx.store()
    updated = await ctx.update(store, pod("foo"), ttl=1)
    watch = await ctx.watch(store, updated.key, after=updated.revision, recursive=False)
    await ctx.elapse(1.0)
    event = await ctx.expect_event(watch, EventType.DELETED)
    assert event.object is not None
    assert event.object.revision > updated.revision
    ctx.expect_same_content(event.object, updated)


@case(
    "GuaranteedUpdateChecksStoredData",
    upstream="RunTestGuaranteedUpdateChecksStoredData",
    hooks=[Hook.SWAP_TRANSFORMER],
)
async def guaranteed_update_checks_stored_data(ctx: Context) -> None:
    """Whether an update changes nothing is decided by the bytes that are really stored, not by the suggestion."""
    store = await ctx.store()
    with ctx.transformer.swapped(write=lambda data: ctx.transformer.prefix + b" " + data):
        initial = await ctx.put(store, pod("foo"))
    rewritten = await store.guaranteed_update(initial.key, unchanged, suggestion=initial)
    assert rewritten.revision > initial.revision, "a record that is not canonical was not rewritten"
    ctx.expect_same_content(rewritten, initial)
    await ctx.expect_canonical(initial.key)
    again = await store.guaranteed_update(initial.key, unchanged, suggestion=rewritten)
    ctx.expect_same(again, rewritten, "the object after an update that changes nothing")
    with ctx.transformer.swapped(read=lambda data: (ctx.transformer.strip(data)[0], True)):
        refreshed = await store.guaranteed_update(initial.key, unchanged, suggestion=rewritten)
    assert refreshed.revision > rewritten.revision, "stale stored bytes were not rewritten"
    ctx.expect_same_content(refreshed, rewritten)


@case("GuaranteedUpdateWithConflict", upstream="RunTestGuaranteedUpdateWithConflict")
async def guaranteed_update_with_conflict(ctx: Context) -> None:
    """Of two concurrent updates the one that comes second is applied to what the first one stored."""
    store = await ctx.store()
    stored = await ctx.put(store, pod("foo"))
    entered, finished = asyncio.Event(), asyncio.Event()
    seen: list[str] = []

    async def second(document: dict[str, Any], _meta: ResponseMeta) -> UpdateResult:
        seen.append(document["metadata"]["name"])
        entered.set()
        await finished.wait()
        document["metadata"]["name"] = "foo-2"
        return document, None

    async with asyncio.TaskGroup() as group:
        slow = group.create_task(store.guaranteed_update(stored.key, second))
        await entered.wait()
        first = await ctx.update(store, pod("foo-1"), key=stored.key)
        finished.set()
    assert seen == ["foo", "foo-1"], f"the second update was given {seen}"
    assert slow.result().revision > first.revision
    assert slow.result().decode()["metadata"]["name"] == "foo-2"
    ctx.expect_same(await store.get(stored.key), slow.result())


@case("GuaranteedUpdateWithSuggestionAndConflict", upstream="RunTestGuaranteedUpdateWithSuggestionAndConflict")
async def guaranteed_update_with_suggestion_and_conflict(ctx: Context) -> None:
    """An update that fails on an outdated suggestion is tried once more on what is really stored."""
    store = await ctx.store()
    first = await ctx.put(store, pod("foo"))

    def generation(number: int, expected: int | None = None) -> Any:
        def update(document: dict[str, Any], _meta: ResponseMeta) -> UpdateResult:
            attempts.append(found := document["metadata"].get("generation"))
            if expected is not None and found != expected:
                raise conflict(Subject("pods", name="foo"), "foo")
            document["metadata"]["generation"] = number
            return document, None

        return update

    attempts: list[int | None] = []
    await store.guaranteed_update(first.key, generation(2))
    attempts.clear()
    third = await store.guaranteed_update(first.key, generation(3, expected=2), suggestion=first)
    assert attempts in ([None, 2], [2]), f"the update was given the generations {attempts}"
    assert third.decode()["metadata"]["generation"] == 3
    attempts.clear()
    with raises(KplaneError, match="Operation cannot be fulfilled"):
        await store.guaranteed_update(first.key, generation(4, expected=99), suggestion=third)
    assert len(attempts) in {1, 2}, f"the update was tried {len(attempts)} times"
    ctx.expect_same(await store.get(first.key), third)


@case(
    "TransformationFailure",
    upstream="RunTestTransformationFailure",
    hooks=[Hook.SWAP_TRANSFORMER],
    layers=[Layer.STORE],
)
async def transformation_failure(ctx: Context) -> None:
    """A record that the transformer cannot read fails every call that needs it, and is left as it is."""
    store = await ctx.store(attrs.evolve(ctx.resource, corrupt_object_reports=False))
    await store.create(ctx.key("first", "bar"), pod("bar", "first"))
    with ctx.transformer.swapped(write=lambda data: b"otherprefix!" + data):
        broken = await store.create(ctx.key("second", "baz"), pod("baz", "second"))
    with raises(InternalError, match="unable to transform key"):
        await ctx.list(store)
    with raises(InternalError):
        await store.get(broken.key)
    with raises(InternalError):
        await store.guaranteed_update(broken.key, unchanged)
    with raises(KplaneError):
        await store.guaranteed_update(broken.key, unchanged, suggestion=broken)
    with raises(InternalError):
        await store.delete(broken.key)
    with raises(InternalError):
        await store.get(broken.key)
