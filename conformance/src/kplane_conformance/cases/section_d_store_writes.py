"""Sharp edges on writing: suggestions, the unsafe delete, mismatching keys, and times to live."""

import asyncio
import random
from typing import Any

from kplane_conformance.case import Capability, Hook, case
from kplane_conformance.cases.store_delete import UNSAFE
from kplane_conformance.context import Context
from kplane_conformance.expect import raises
from kplane_conformance.objects import pod
from kplane_core.errors import InvalidObj, KeyNotFound
from kplane_core.storage.codec import encode_object
from kplane_core.storage.interface import EventType, GetOptions, ResponseMeta, Store, StoredObject, UpdateResult
from kplane_core.storage.preconditions import Preconditions

_TASKS = 8
_INCREMENTS = 200
ABSENT_IS_FINE = GetOptions(ignore_not_found=True)


def increment(document: dict[str, Any], _meta: ResponseMeta) -> UpdateResult:
    """Count one up in metadata.generation."""
    document["metadata"]["generation"] = document["metadata"].get("generation", 0) + 1
    return document, None


@case("D32", timeout=120)
async def d32_stale_suggestions(ctx: Context) -> None:
    """However old the suggestions, each update that reports success counted, and only a real conflict refuses one."""
    ctx.jitter()
    store = await ctx.store()
    stored = [await ctx.put(store, pod("counter"))]
    successes = refusals = 0

    async def work(chance: random.Random) -> None:
        nonlocal successes, refusals
        for _ in range(_INCREMENTS):
            believed = chance.choice(stored[-5:]) if chance.random() < 0.7 else None
            # A precondition on the resourceVersion only ever refuses what somebody else has changed.
            demanded = str(stored[-1].revision) if chance.random() < 0.3 else None
            wanted = Preconditions(resource_version=demanded)
            try:
                new = await store.guaranteed_update(stored[0].key, increment, suggestion=believed, preconditions=wanted)
            except InvalidObj:
                assert demanded, "an update without preconditions was refused"
                now = (await store.get(stored[0].key)).revision
                assert int(demanded) < now, f"a precondition on {demanded} was refused although it held"
                refusals += 1
                continue
            successes += 1
            stored.append(new)
            stored.sort(key=lambda obj: obj.revision)

    async with asyncio.TaskGroup() as group:
        for number in range(_TASKS):
            group.create_task(work(random.Random(ctx.session.seed + number)))  # noqa: S311 - a test's choice
    final = await store.get(stored[0].key)
    assert successes + refusals == _TASKS * _INCREMENTS
    assert final.decode()["metadata"]["generation"] == successes, f"{final.decode()} after {successes} successes"
    ctx.expect_same(final, stored[-1])
    counted = [obj.decode()["metadata"].get("generation", 0) for obj in stored]
    assert counted == list(range(successes + 1)), "two updates were applied to the same state"


@case("D32.unnecessary-failures")
async def d32_unnecessary_failures(ctx: Context) -> None:
    """An error or a failed precondition on an outdated suggestion is not reported before fresh data was looked at."""
    store = await ctx.store()
    old = await ctx.put(store, pod("foo", uid="old"))
    new = await ctx.update(store, pod("foo", uid="new"))
    updated = await store.guaranteed_update(
        old.key, increment, suggestion=old, preconditions=Preconditions("new", str(new.revision))
    )
    assert updated.decode()["metadata"] == new.decode()["metadata"] | {
        "generation": 1,
        "resourceVersion": str(updated.revision),
    }
    with raises(InvalidObj):
        await store.guaranteed_update(old.key, increment, suggestion=old, preconditions=Preconditions("old"))
    gone = await store.delete(old.key, suggestion=old, preconditions=Preconditions("new", str(updated.revision)))
    ctx.expect_same_content(gone, updated, "the deleted object")
    with raises(KeyNotFound):
        await store.guaranteed_update(old.key, increment, suggestion=updated)


@case("D32.wrong-suggestion")
async def d32_wrong_suggestion(ctx: Context) -> None:
    """A suggestion of the right resourceVersion and the wrong content fails no precondition of what is stored."""
    store = await ctx.store()
    stored = await ctx.put(store, pod("foo", uid="real"))
    wrong = StoredObject(stored.key, stored.revision, encode_object(pod("foo", uid="wrong")))
    updated = await store.guaranteed_update(
        stored.key, increment, suggestion=wrong, preconditions=Preconditions(uid="real")
    )
    metadata = updated.decode()["metadata"]
    assert (metadata["uid"], metadata["generation"]) == ("real", 1)


@case("D32.suggestion-without-version")
async def d32_suggestion_without_version(ctx: Context) -> None:
    """A suggestion without a resourceVersion is none: it neither creates an absent object nor hides the stored one."""
    store = await ctx.store()
    ghost = StoredObject(ctx.key("test-ns", "foo"), 0, encode_object(pod("foo", uid="ghost")))
    with raises(KeyNotFound):
        await store.guaranteed_update(ghost.key, increment, suggestion=ghost)
    with raises(KeyNotFound):
        await store.delete(ghost.key, suggestion=ghost)
    stored = await ctx.put(store, pod("foo", uid="real"))
    updated = await store.guaranteed_update(ghost.key, increment, suggestion=ghost)
    assert updated.decode()["metadata"]["uid"] == "real", "the suggestion was updated, not what is stored"
    assert updated.revision > stored.revision


@case("D33", hooks=[Hook.SET_FAILING])
async def d33_validator_always_runs(ctx: Context) -> None:
    """No object is deleted on any path without its validator having seen the state that is deleted."""
    store = await ctx.store()
    for path in ("plain", "suggestion", "stale suggestion", "preconditions", "unsafe"):
        old = await ctx.put(store, pod("foo", uid="u"))
        new = await ctx.update(store, pod("foo", uid="u", node="n")) if path == "stale suggestion" else old
        seen: list[StoredObject | None] = []
        ctx.set_failing(path == "unsafe")
        await store.delete(
            old.key,
            validate=seen.append,
            suggestion=old if "suggestion" in path else None,
            preconditions=Preconditions(uid="u") if path == "preconditions" else None,
            options=UNSAFE if path == "unsafe" else None,
        )
        ctx.set_failing(False)
        assert seen, f"a {path} delete did not call the validator"
        if path == "unsafe":
            assert seen == [None], f"the unsafe delete's validator saw {seen}"
        else:
            ctx.expect_same(seen[-1], new, f"what the validator of a {path} delete saw last")


@case("D33.dry-run", hooks=[Hook.SET_FAILING])
async def d33_dry_run(ctx: Context) -> None:
    """A validator that refuses keeps the record also on the unsafe path: that is how a dry run works."""
    store = await ctx.store()
    stored = await ctx.put(store, pod("foo"))

    def refuse(_obj: StoredObject | None) -> None:
        raise InvalidObj(stored.key, "a dry run")

    ctx.set_failing(True)
    with raises(InvalidObj, match="a dry run"):
        await store.delete(stored.key, validate=refuse, options=UNSAFE)
    ctx.set_failing(False)
    ctx.expect_same(await store.get(stored.key), stored)


@case("D34", hooks=[Hook.RAW_POKE])
async def d34_mismatching_name(ctx: Context) -> None:
    """A record whose object has another name than its key is found, listed, updated and deleted by its key."""
    store = await ctx.store()
    await ctx.put(store, pod("foo"))
    key = ctx.key("test-ns", "foo")
    await ctx.poke(key, ctx.transformer.prepend(encode_object(pod("bar", "other-ns"))))
    found = await store.get(key)
    assert (found.key, found.decode()["metadata"]["name"]) == (key, "bar")
    ctx.expect_same((await ctx.list(store)).items, [found], "the list")
    assert not (await ctx.list(store, ctx.key("other-ns"))).items, "it is listed in the namespace that it claims"
    with raises(KeyNotFound):
        await store.get(ctx.key("test-ns", "bar"))
    ctx.expect_same_content(await store.delete(key), found, "the deleted object")


@case(
    "D35",
    rows=((None, False), (0, True), (3600, True), (1, False)),
    row_ids=["none-keeps", "zero-clears", "longer", "shorter"],
    requires=[Capability.TTL],
)
async def d35_update_and_ttl(ctx: Context, row: tuple[int | None, bool]) -> None:
    """An update that gives no time to live keeps what is left of it; 0 clears it, and a number sets it anew."""
    ttl, stays = row
    store = await ctx.store()
    # Another record falls due before: an expiry must look at each record's own, present time.
    await store.create(ctx.key("other-ns", "due-before"), pod("due-before", "other-ns"), ttl=1)
    await store.create(ctx.key("test-ns", "foo"), pod("foo"), ttl=3600 if ttl == 1 else 2)
    updated = await ctx.update(store, pod("foo", node="n"), ttl=ttl)
    watch = await ctx.watch(store, ctx.key("test-ns"), after=updated.revision)
    await ctx.elapse(3.0)
    if stays:
        # An expiry is late at times; what comes first shows whether there was one.
        await ctx.expect_event(watch, EventType.ADDED, await ctx.put(store, pod("sentinel")))
        ctx.expect_same(await store.get(updated.key), updated)
    else:
        event = await ctx.expect_event(watch, EventType.DELETED)
        assert event.object is not None
        ctx.expect_same_content(event.object, updated)
        assert event.object.revision > updated.revision
        with raises(KeyNotFound):
            await store.get(updated.key)


@case("D35.no-op", requires=[Capability.TTL])
async def d35_no_op_keeps_ttl(ctx: Context) -> None:
    """An update that changes nothing does not lengthen a life, whatever time to live it gives."""
    store = await ctx.store()
    stored = await store.create(ctx.key("test-ns", "foo"), pod("foo"), ttl=2)
    same = await ctx.update(store, pod("foo"), ttl=3600)
    ctx.expect_same(same, stored, "the object after an update that changes nothing")
    watch = await ctx.watch(store, after=stored.revision)
    await ctx.elapse(3.0)
    await ctx.expect_event(watch, EventType.DELETED)


@case("D36", requires=[Capability.TTL, Capability.PERSISTENCE], hooks=[Hook.RESTART])
async def d36_expiry_survives_a_restart(ctx: Context) -> None:
    """A time to live goes on through a restart, counted from the write and not from the restart."""
    store = await ctx.store()
    short = await store.create(ctx.key("test-ns", "short"), pod("short"), ttl=4)
    long = await store.create(ctx.key("test-ns", "long"), pod("long"), ttl=3600)
    await ctx.elapse(2.0)
    await ctx.restart()
    store = await ctx.store()
    await ctx.elapse(3.0)
    # Not the full four seconds again: three have to do, with room for a slow scanner.
    await ctx.eventually(lambda: _is_absent(store, short.key), "the record expires after the restart", within=2.0)
    ctx.expect_same(await store.get(long.key), long)


@case(
    "D36.compacted",
    requires=[Capability.TTL, Capability.PERSISTENCE, Capability.COMPACTION],
    hooks=[Hook.RESTART, Hook.COMPACT],
)
async def d36_start_after_compaction(ctx: Context) -> None:
    """A database whose whole history was compacted starts again, and its expiries still come."""
    store = await ctx.store()
    short = await store.create(ctx.key("test-ns", "short"), pod("short"), ttl=2)
    kept = await ctx.put(store, pod("kept"))
    await ctx.compact(kept.revision, store)
    await ctx.restart()
    store = await ctx.store()
    ctx.expect_same(await store.get(kept.key), kept)
    await ctx.elapse(2.0)
    await ctx.eventually(lambda: _is_absent(store, short.key), "the record expires after the restart")


async def _is_absent(store: Store, key: str) -> bool:
    return not (await store.get(key, ABSENT_IS_FINE)).exists


@case("D38.update-race", requires=[Capability.TTL])
async def d38_refresh_against_expiry(ctx: Context) -> None:
    """A refresh that was acknowledged keeps its record, however near the expiry it came."""
    ctx.jitter()
    store, other = await ctx.store(), await ctx.second_store()
    names = [f"pod-{number:02}" for number in range(20)]
    for name in names:
        await store.create(ctx.key("test-ns", name), pod(name), ttl=1)

    async def refresh(name: str) -> StoredObject | None:
        try:
            return await other.guaranteed_update(ctx.key("test-ns", name), lambda old, _meta: (old | {"a": 1}, 3600))
        except KeyNotFound:
            return None

    async with asyncio.TaskGroup() as group:
        refreshes = [group.create_task(refresh(name)) for name in names[:10]]
        group.create_task(ctx.elapse(1.0))
        refreshes += [group.create_task(refresh(name)) for name in names[10:]]
    await ctx.elapse(2.0)
    won = [task.result() for task in refreshes if task.result() is not None]
    for obj in won:
        assert obj is not None
        ctx.expect_same(await store.get(obj.key), obj, "the refreshed object")
    ctx.expect_same((await ctx.list(store)).items, won, "the list: what was refreshed, and nothing else,")
