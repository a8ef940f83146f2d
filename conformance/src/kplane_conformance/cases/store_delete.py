"""Delete: the upstream functions on deleting, with suggestions, validators, preconditions and unreadable records."""

import attrs

from kplane_conformance.case import Hook, case
from kplane_conformance.context import Context
from kplane_conformance.expect import raises
from kplane_conformance.objects import pod
from kplane_core.errors import InvalidObj, KeyNotFound
from kplane_core.storage.interface import DeleteOptions, Store, StoredObject
from kplane_core.storage.preconditions import Preconditions

UNSAFE = DeleteOptions(expect_transform_or_decode_error=True)


class Refused(Exception):
    """A validator's own error."""


def _expect_deleted(ctx: Context, deleted: StoredObject, last: StoredObject) -> None:
    """Fail unless a deletion returned the last content with a resourceVersion of its own."""
    ctx.expect_same_content(deleted, last, "the deleted object")
    assert deleted.revision > last.revision, f"the deletion's resourceVersion {deleted.revision} is that of the object"


async def _expect_gone(store: Store, key: str) -> None:
    with raises(KeyNotFound):
        await store.get(key)


@attrs.frozen
class DeleteRow:
    """A row of the tables of UnconditionalDelete and ConditionalDelete."""

    name: str = "foo"
    uid: str | None = None
    refused: type[Exception] | None = None


@case(
    "UnconditionalDelete",
    upstream="RunTestUnconditionalDelete",
    rows=(DeleteRow(), DeleteRow("non-existing", refused=KeyNotFound)),
)
async def unconditional_delete(ctx: Context, row: DeleteRow) -> None:
    """A delete returns the last content with the resourceVersion of the deletion; an absent key is not found."""
    store = await ctx.store()
    stored = await ctx.put(store, pod("foo"))
    key = ctx.key("test-ns", row.name)
    if row.refused:
        with raises(row.refused):
            await store.delete(key)
        ctx.expect_same(await store.get(stored.key), stored)
        return
    _expect_deleted(ctx, await store.delete(key), stored)
    await _expect_gone(store, key)


@case(
    "ConditionalDelete",
    upstream="RunTestConditionalDelete",
    rows=(DeleteRow(uid="A"), DeleteRow(uid="B", refused=InvalidObj)),
)
async def conditional_delete(ctx: Context, row: DeleteRow) -> None:
    """A delete with a precondition happens only to the object that meets it."""
    store = await ctx.store()
    stored = await ctx.put(store, pod("foo", uid="A"))
    if row.refused:
        with raises(row.refused, match="Precondition failed: UID in precondition: B, UID in object meta: A"):
            await store.delete(stored.key, preconditions=Preconditions(uid=row.uid))
        ctx.expect_same(await store.get(stored.key), stored)
        return
    deleted = await store.delete(stored.key, preconditions=Preconditions(uid=row.uid))
    _expect_deleted(ctx, deleted, stored)
    again = await ctx.put(store, pod("foo", uid="A"))
    assert again.revision > deleted.revision


@case("DeleteWithSuggestion", upstream="RunTestDeleteWithSuggestion")
async def delete_with_suggestion(ctx: Context) -> None:
    """An object is deleted on the strength of what the caller believes is stored, when that is true."""
    store = await ctx.store()
    stored = await ctx.put(store, pod("foo"))
    _expect_deleted(ctx, await store.delete(stored.key, suggestion=stored), stored)
    await _expect_gone(store, stored.key)


@case("DeleteWithSuggestionAndConflict", upstream="RunTestDeleteWithSuggestionAndConflict")
async def delete_with_suggestion_and_conflict(ctx: Context) -> None:
    """A suggestion that is out of date does not stop a delete, which returns what was really stored."""
    store = await ctx.store()
    old = await ctx.put(store, pod("foo"))
    new = await ctx.update(store, pod("foo", labels={"foo": "bar"}))
    _expect_deleted(ctx, await store.delete(old.key, suggestion=old), new)
    await _expect_gone(store, old.key)


@case("DeleteWithConflict", upstream="RunTestDeleteWithConflict")
async def delete_with_conflict(ctx: Context) -> None:
    """A delete that is overtaken by an update validates anew and deletes the updated object."""
    store = await ctx.store()
    stored = await ctx.put(store, pod("foo"))
    seen: list[StoredObject | None] = []
    updates: list[StoredObject] = []

    async def validate(obj: StoredObject | None) -> None:
        seen.append(obj)
        if len(seen) == 1:
            updates.append(await ctx.update(store, pod("foo", labels={"foo": "bar"})))

    deleted = await store.delete(stored.key, validate=validate)
    ctx.expect_same([obj for obj in seen if obj], [stored, *updates], "what the validator saw")
    assert len(seen) == 2, f"the validator was called {len(seen)} times, not twice"
    _expect_deleted(ctx, deleted, updates[0])
    await _expect_gone(store, stored.key)


@case("DeleteWithSuggestionOfDeletedObject", upstream="RunTestDeleteWithSuggestionOfDeletedObject")
async def delete_with_suggestion_of_deleted_object(ctx: Context) -> None:
    """A suggestion does not bring a deleted object back: deleting it again finds nothing."""
    store = await ctx.store()
    stored = await ctx.put(store, pod("foo"))
    await store.delete(stored.key, suggestion=stored)
    with raises(KeyNotFound):
        await store.delete(stored.key, suggestion=stored)


class Validator:
    """Refuses an object whose label `foo` is not `bar`, and counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, obj: StoredObject | None) -> None:
        """Look at an object."""
        self.calls += 1
        assert obj is not None, "a validator got no object outside the unsafe path"
        if obj.decode()["metadata"].get("labels", {}).get("foo") != "bar":
            raise Refused("stale object")


async def _expect_refusal(store: Store, stored: StoredObject) -> None:
    """Fail unless a validator's error on what is really stored is raised as it is, after one call."""
    refusal, calls = Refused("never"), []

    def refuse(obj: StoredObject | None) -> None:
        calls.append(obj)
        raise refusal

    with raises(Refused) as caught:
        await store.delete(stored.key, validate=refuse, suggestion=stored)
    assert caught.error is refusal, f"another error came: {caught.error!r}"
    assert len(calls) == 1, f"the validator was called {len(calls)} times, not once"


@case("ValidateDeletionWithSuggestion", upstream="RunTestValidateDeletionWithSuggestion")
async def validate_deletion_with_suggestion(ctx: Context) -> None:
    """A validator that refuses only the outdated suggestion is asked again, about what is really stored."""
    store = await ctx.store()
    old = await ctx.put(store, pod("foo"))
    await _expect_refusal(store, old)
    new = await ctx.update(store, pod("foo", labels={"foo": "bar"}))
    validator = Validator()
    _expect_deleted(ctx, await store.delete(old.key, validate=validator, suggestion=old), new)
    assert 1 <= validator.calls <= 2, f"the validator was called {validator.calls} times"
    await _expect_gone(store, old.key)


@case("ValidateDeletionWithOnlySuggestionValid", upstream="RunTestValidateDeletionWithOnlySuggestionValid")
async def validate_deletion_with_only_suggestion_valid(ctx: Context) -> None:
    """A validator that would admit only the outdated suggestion refuses the delete."""
    store = await ctx.store()
    old = await ctx.put(store, pod("foo", labels={"foo": "bar"}))
    await _expect_refusal(store, old)
    new = await ctx.update(store, pod("foo", labels={"foo": "barbar"}))
    validator = Validator()
    with raises(Refused, match="stale object"):
        await store.delete(old.key, validate=validator, suggestion=old)
    assert 1 <= validator.calls <= 2, f"the validator was called {validator.calls} times"
    ctx.expect_same(await store.get(old.key), new)


@case("PreconditionalDeleteWithSuggestion", upstream="RunTestPreconditionalDeleteWithSuggestion")
async def preconditional_delete_with_suggestion(ctx: Context) -> None:
    """A precondition that only the outdated suggestion fails is checked again on what is really stored."""
    store = await ctx.store()
    old = await ctx.put(store, pod("foo"))
    new = await ctx.update(store, pod("foo", uid="myUID"))
    deleted = await store.delete(old.key, preconditions=Preconditions(uid="myUID"), suggestion=old)
    _expect_deleted(ctx, deleted, new)
    await _expect_gone(store, old.key)


@case("PreconditionalDeleteWithOnlySuggestionPass", upstream="RunTestPreconditionalDeleteWithOnlySuggestionPass")
async def preconditional_delete_with_only_suggestion_pass(ctx: Context) -> None:
    """A precondition that only the outdated suggestion meets refuses the delete."""
    store = await ctx.store()
    old = await ctx.put(store, pod("foo", uid="myUID"))
    new = await ctx.update(store, pod("foo", uid="otherUID"))
    with raises(InvalidObj):
        await store.delete(old.key, preconditions=Preconditions(uid="myUID"), suggestion=old)
    ctx.expect_same(await store.get(old.key), new)


@case(
    "DeleteExpectedTransformOrDecodeError",
    upstream="RunTestDeleteExpectedTransformOrDecodeError",
    hooks=[Hook.SET_FAILING],
)
async def delete_expected_transform_or_decode_error(ctx: Context) -> None:
    """A record that the transformer or the decoder cannot read is deleted by the unsafe path, after validation."""
    store = await ctx.store()
    for decoder in (False, True):
        stored = await store.create(ctx.key("test-ns", "foo"), pod("foo"))
        validated: list[StoredObject | None] = []
        ctx.set_failing(True, decoder=decoder)
        deleted = await store.delete(stored.key, validate=validated.append, options=UNSAFE)
        assert validated == [None], f"the validator saw {validated}, not one call without an object"
        assert deleted.raw == b"", "an unreadable object was returned"
        assert deleted.revision > stored.revision
        await _expect_gone(store, stored.key)
        ctx.set_failing(False)


@case(
    "DeleteWithSuggestionAndMissingExpectedTransformOrDecodeError",
    upstream="RunTestDeleteWithSuggestionAndMissingExpectedTransformOrDecodeError",
)
async def delete_with_suggestion_and_missing_error(ctx: Context) -> None:
    """The unsafe path refuses an object that can be read, whatever is suggested."""
    store = await ctx.store()
    stored = await store.create(ctx.key("test-ns", "foo"), pod("foo"))
    with raises(InvalidObj, match="decodable from storage"):
        await store.delete(stored.key, suggestion=stored, options=UNSAFE)
    ctx.expect_same(await store.get(stored.key), stored)


@case(
    "DeleteWithConflictAndMissingExpectedTransformOrDecodeError",
    upstream="RunTestDeleteWithConflictAndMissingExpectedTransformOrDecodeError",
    hooks=[Hook.SET_FAILING],
)
async def delete_with_conflict_and_missing_error(ctx: Context) -> None:
    """The unsafe path looks again after a conflict, and refuses an object that has become readable."""
    store = await ctx.store()
    stored = await store.create(ctx.key("test-ns", "foo"), pod("foo"))
    repaired: list[StoredObject] = []

    async def repair(obj: StoredObject | None) -> None:
        assert obj is None, "the unsafe path decoded an object"
        if not repaired:
            ctx.set_failing(False)
            repaired.append(await ctx.update(store, pod("foo", labels={"foo": "bar"})))

    ctx.set_failing(True)
    with raises(InvalidObj, match="decodable from storage"):
        await store.delete(stored.key, validate=repair, options=UNSAFE)
    ctx.expect_same(await store.get(stored.key), repaired[0])
