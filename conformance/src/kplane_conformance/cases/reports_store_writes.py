"""Field reports on writing: growth, times to live, stale copies, and large values."""

import asyncio
from typing import Any

from kplane_conformance.case import Capability, Hook, case
from kplane_conformance.cases.section_d_store_writes import ABSENT_IS_FINE
from kplane_conformance.context import Context
from kplane_conformance.expect import raises
from kplane_conformance.objects import pod
from kplane_core.engine.interface import ValueTooLarge
from kplane_core.errors import InvalidObj, KeyNotFound, Subject, conflict
from kplane_core.storage.interface import EventType, ResponseMeta, Store, StoredObject, UpdateResult
from kplane_core.storage.preconditions import Preconditions


def _sized(name: str, size: int, character: str = "x") -> dict[str, Any]:
    """Return a pod whose JSON has about `size` bytes."""
    return pod(name) | {"spec": {"text": character * size}}


@case("R12", requires=[Capability.COMPACTION], hooks=[Hook.COMPACT, Hook.ENGINE], timeout=120)
async def r12_bounded_growth(ctx: Context) -> None:
    """A few objects that are updated all the time take no more room with every round, once history is compacted."""
    store = await ctx.store()
    sizes: list[int] = []
    written = 0
    for _ in range(8):
        for step in range(200):
            last = await ctx.update(store, _sized(f"lease-{step % 5}", 1000 + step))
            written += len(last.raw)
        await ctx.compact(last.revision, store)
        sizes.append(await ctx.engine.size())
    # A database may need room to breathe, but not for every version that was ever written.
    assert sizes[-1] - sizes[0] < written / 2, f"{written} bytes were written; the sizes after each round are {sizes}"
    assert len((await ctx.list(store)).items) == 5


class Stopwatch:
    """Tells how much time has passed at least for the backend, whichever clock it follows."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._loop = asyncio.get_running_loop()
        self._started = self._loop.time()
        self._turned = 0.0

    async def elapse(self, seconds: float) -> None:
        """Let time pass."""
        if getattr(self._ctx.session.harness, "clock", None) is not None:
            self._turned += seconds
        await self._ctx.elapse(seconds)

    def read(self) -> float:
        """Return the seconds since the start."""
        return self._turned + self._loop.time() - self._started


@case("R20", requires=[Capability.TTL], hooks=[Hook.CLOCK])
async def r20_exact_lifetime(ctx: Context) -> None:
    """An object lives as long as its time to live says, counted from its write, whatever is done to others."""
    store = await ctx.store()
    stored = await store.create(ctx.key("test-ns", "foo"), pod("foo"), ttl=30)
    await ctx.advance(15.0)
    await store.create(ctx.key("test-ns", "later"), pod("later"), ttl=30)
    updated = await ctx.update(store, pod("foo", node="n"))
    watch = await ctx.watch(store, after=updated.revision)
    await ctx.advance(14.0)
    ctx.expect_same(await store.get(stored.key), updated)
    await ctx.advance(3.0)
    event = await ctx.expect_event(watch, EventType.DELETED)
    assert event.object is not None
    ctx.expect_same_content(event.object, updated)
    assert [item.key for item in (await ctx.list(store)).items] == [ctx.key("test-ns", "later")]


@case("R21", requires=[Capability.TTL, Capability.PERSISTENCE], hooks=[Hook.RESTART], timeout=120)
async def r21_many_restarts(ctx: Context) -> None:
    """Restarts within a time to live, however many, do not lengthen it."""
    store = await ctx.store()
    stored = await store.create(ctx.key("test-ns", "foo"), pod("foo"), ttl=6)
    for _ in range(3):
        await ctx.elapse(1.5)
        await ctx.restart()
    await ctx.elapse(1.5)
    store = await ctx.store()

    async def is_gone() -> bool:
        return not (await store.get(stored.key, ABSENT_IS_FINE)).exists

    # If a restart began the time anew, at least four more seconds were left.
    await ctx.eventually(is_gone, "the object expires when it should", within=3.0)


@case("R23", requires=[Capability.TTL], timeout=120)
async def r23_never_early(ctx: Context) -> None:
    """No object goes before its time to live has passed, also when the database is busy."""
    store = await ctx.store()
    ttl = 2
    watch = Stopwatch(ctx)
    created = [await store.create(ctx.key("ttl", f"pod-{n}"), pod(f"pod-{n}", "ttl"), ttl=ttl) for n in range(50)]
    alive = len(created)
    for step in range(600):
        await ctx.update(store, pod("busy", node=f"n{step}"))
        alive = len((await ctx.list(store, ctx.key("ttl"))).items)
        if alive < len(created):
            break
        await watch.elapse(0.05)
    assert alive < len(created), f"nothing was gone after {watch.read():.1f} s"
    assert watch.read() >= ttl, f"{len(created) - alive} objects of {ttl} s were gone after {watch.read():.3f} s"


@case("R24", requires=[Capability.TTL])
async def r24_servers_agree(ctx: Context) -> None:
    """Once one server has seen an object expire no other server shows it, in a get, a list or a watch."""
    first, second = await ctx.store(), await ctx.second_store()
    created = await first.create(ctx.key("test-ns", "foo"), pod("foo"), ttl=1)
    other = await ctx.watch(second, after=created.revision)
    mine = await ctx.watch(first, after=created.revision)
    await ctx.elapse(1.0)
    event = await ctx.expect_event(mine, EventType.DELETED)
    assert event.object is not None
    with raises(KeyNotFound):
        await second.get(created.key)
    listed = await ctx.list(second)
    assert (listed.items, listed.revision >= event.object.revision) == ((), True)
    await ctx.expect_event(other, EventType.DELETED, event.object)
    again = await second.create(created.key, pod("foo"))
    await ctx.expect_event(mine, EventType.ADDED, again)


@case("R25")
async def r25_errors_on_cached_copies(ctx: Context) -> None:
    """Whatever fails on a cached copy - the update itself or a precondition - is tried again on the live object."""
    store = await ctx.store()
    cached = await ctx.put(store, pod("foo", uid="u"))
    live = await ctx.update(store, pod("foo", uid="u", annotations={"finalizer": "set"}))

    def needs_finalizer(document: dict[str, Any], _meta: ResponseMeta) -> UpdateResult:
        if "annotations" not in document["metadata"]:
            raise conflict(Subject("pods", name="foo"), "the finalizer is missing")
        del document["metadata"]["annotations"]
        return document, None

    demanded = Preconditions(resource_version=str(live.revision))
    updated = await store.guaranteed_update(cached.key, needs_finalizer, suggestion=cached, preconditions=demanded)
    assert updated.revision > live.revision
    with raises(InvalidObj):
        await store.delete(cached.key, suggestion=cached, preconditions=demanded)
    with raises(InvalidObj):
        await store.guaranteed_update(cached.key, needs_finalizer, suggestion=live, preconditions=demanded)
    ctx.expect_same(await store.get(cached.key), updated)


@case("R25.normalizing")
async def r25_normalizing_write(ctx: Context) -> None:
    """An update that would change nothing about an outdated copy still changes what is really stored."""
    store = await ctx.store()
    cached = await ctx.put(store, pod("foo"))
    live = await ctx.update(store, pod("foo", labels={"extra": "1"}))
    updated = await store.guaranteed_update(cached.key, lambda _old, _meta: (pod("foo"), None), suggestion=cached)
    assert updated.revision > live.revision, "what another writer added was taken for unchanged"
    ctx.expect_same_content(updated, cached)
    ctx.expect_same(await store.get(cached.key), updated)


async def _stored(store: Store, key: str, document: dict[str, Any]) -> StoredObject | None:
    """Store an object of any size; None when it was refused for its size, by a limit that is named."""
    try:
        return await store.guaranteed_update(key, lambda _old, _meta: (document, None), ignore_not_found=True)
    except ValueTooLarge as error:
        refusal = error
    status = refusal.status()
    assert (status.code, status.reason) == (413, "RequestEntityTooLarge"), f"{status.code} {status.reason}"
    assert str(refusal.limit) in status.message, f"the limit is not named: {status.message}"
    assert refusal.size > refusal.limit
    return None


@case("R29", rows=(1_000_000, 1_600_000, 3_000_000), row_ids=["1.0-MB", "1.6-MB", "3.0-MB"], timeout=120)
async def r29_large_values(ctx: Context, size: int) -> None:
    """A large object is stored whole, or refused with 413 and the limit named, and then nothing has changed."""
    store = await ctx.store()
    key = ctx.key("test-ns", "large")
    watch = await ctx.watch(store, after=await ctx.current(store))
    stored = await _stored(store, key, _sized("large", size))
    if size == 1_000_000:
        assert stored is not None, "an object that Kubernetes allows everywhere was refused"
    if stored is None:
        assert not (await store.get(key, ABSENT_IS_FINE)).exists
        small = await ctx.put(store, pod("large"))
        assert await _stored(store, key, _sized("large", size)) is None
        ctx.expect_same(await store.get(key), small)
        return
    assert len(stored.raw) > size
    assert await store.get(key) == stored
    assert (await ctx.list(store)).items == (stored,)
    event = await ctx.expect_event(watch, EventType.ADDED)
    assert event.object == stored, "the event carries another object"
    assert len((await store.delete(key)).raw) == len(stored.raw)
