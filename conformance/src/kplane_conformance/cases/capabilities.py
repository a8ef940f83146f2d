"""Declarations: what a backend says of itself is proved both ways.

A supported capability is proved by the cases that require it. An unsupported one is proved here, by the answer that
its users are told to expect; a backend that does better than it says must say so.
"""

import asyncio

from kplane_conformance.case import INVENTORY, Capability, Hook, case
from kplane_conformance.context import Context, describe
from kplane_conformance.expect import raises
from kplane_conformance.objects import pod
from kplane_core.errors import BadRequest, Expired, KeyNotFound, KplaneError
from kplane_core.plugins.capabilities import Unsupported
from kplane_core.plugins.discovery import discover
from kplane_core.storage.interface import EventType, GetOptions, Store, StoredObject


@case("Capability", rows=tuple(Capability), row_ids=[capability.value for capability in Capability])
async def declared(ctx: Context, capability: Capability) -> None:
    """Whatever a backend declares of a capability, there is a case that proves it."""
    if isinstance(ctx.session.capabilities.get(capability), Unsupported):
        proofs = [found.name for found in INVENTORY.cases() if found.unless is capability]
    else:
        proofs = [found.name for found in INVENTORY.cases() if capability in found.requires]
    assert proofs, f"no case proves what {ctx.session.harness.name} declares of {capability.value}"


@case("Capability.ttl.absent", unless=Capability.TTL)
async def no_ttl(ctx: Context) -> None:
    """Without `ttl` a time to live is taken and has no effect: the object stays until somebody deletes it."""
    store = await ctx.store()
    created = await store.create(ctx.key("test-ns", "foo"), pod("foo"), ttl=1)
    await ctx.elapse(3.0)
    ctx.expect_same(await store.get(created.key), created)


@case("Capability.compaction.absent", unless=Capability.COMPACTION)
async def no_compaction(ctx: Context) -> None:
    """Without `compaction` an engine refuses to compact, and the store knows of no compaction."""
    store = await ctx.store()
    created = await ctx.put(store, pod("foo"))
    await ctx.update(store, pod("foo", node="a"))
    engine = ctx.engine
    with raises(KplaneError):
        await engine.compact(created.revision)
    assert store.compact_revision() == 0


@case("Capability.progress_notify.absent", unless=Capability.PROGRESS_NOTIFY)
async def no_progress(ctx: Context) -> None:
    """Without `progress_notify` asking for progress is no error, and no bookmark comes of it."""
    store = await ctx.store()
    watch = await ctx.watch(store, after=await ctx.current(store), progress_notify=True)
    await store.request_watch_progress()
    await ctx.expect_silence(watch)


@case("Capability.consistent_list.absent", unless=Capability.CONSISTENT_LIST)
async def no_consistent_list(ctx: Context) -> None:
    """Without `consistent_list` a list may be old, but a get of the newest state never is."""
    store = await ctx.store()
    other = await ctx.second_store()
    created = await ctx.put(store, pod("foo"))
    ctx.expect_same(await other.get(created.key), created)
    listed = await ctx.list(other)
    assert listed.revision > 0


@case("Capability.exact_rv_list.absent", unless=Capability.EXACT_RV_LIST)
async def no_exact_list(ctx: Context) -> None:
    """Without `exact_rv_list` a list of an earlier state is refused as bad or expired, never answered with another."""
    store = await ctx.store()
    created = await ctx.put(store, pod("foo"))
    await ctx.update(store, pod("foo", node="a"))
    with raises(BadRequest, Expired):
        await ctx.list(store, resource_version=str(created.revision), resource_version_match="Exact")


@case("Capability.continue_token.absent", unless=Capability.CONTINUE_TOKEN)
async def no_continue(ctx: Context) -> None:
    """Without `continue_token` a limit cuts nothing off: the whole list comes in one page without a token."""
    store = await ctx.store()
    stored = [await ctx.put(store, pod(name)) for name in "abc"]
    page = await ctx.list(store, predicate=ctx.select(limit=1))
    ctx.expect_same(page.items, stored, "the page")
    assert page.continue_token == ""


@case("Capability.history_window.absent", unless=Capability.HISTORY_WINDOW)
async def no_history(ctx: Context) -> None:
    """Without `history_window` a watch from an earlier resourceVersion ends at once as expired, without a gap."""
    store = await ctx.store()
    created = await ctx.put(store, pod("foo"))
    await ctx.update(store, pod("foo", node="a"))
    event = await ctx.next_event(await ctx.watch(store, after=created.revision))
    assert event is not None, "the watch ended without an error"
    assert event.type is EventType.ERROR, f"expected ERROR, got {describe(event)}"
    assert isinstance(event.error, Expired)


@case("Capability.initial_events.absent", unless=Capability.INITIAL_EVENTS)
async def no_initial_events(ctx: Context) -> None:
    """Without `initial_events` a watch that demands them is refused as bad, at once or by its first event."""
    store = await ctx.store()
    await ctx.put(store, pod("foo"))
    with raises(BadRequest):
        watch = await ctx.watch(store, send_initial_events=True, predicate=ctx.select(bookmarks=True))
        event = await ctx.next_event(watch)
        if event is not None and event.error is not None:
            raise event.error


@case("Capability.persistence.absent", unless=Capability.PERSISTENCE)
async def no_persistence(ctx: Context) -> None:
    """Without `persistence` the data ends with the connection of the process: connecting anew begins empty."""
    backend = discover().select(ctx.session.harness.name)
    key = ctx.key("test-ns", "foo")
    first = await backend.connect(backend.options())
    created = await first.store(ctx.resource).create(key, pod("foo"))
    ctx.expect_same(await first.store(ctx.resource).get(key), created)
    await first.aclose()
    second = await backend.connect(backend.options())
    with raises(KeyNotFound):
        await second.store(ctx.resource).get(key)
    await second.aclose()


@case("Capability.multi_writer.absent", unless=Capability.MULTI_WRITER)
async def no_multi_writer(ctx: Context) -> None:
    """Without `multi_writer` two processes that connect alike do not meet: each serves data of its own."""
    backend = discover().select(ctx.session.harness.name)
    key = ctx.key("test-ns", "foo")
    first, second = await backend.connect(backend.options()), await backend.connect(backend.options())
    await first.store(ctx.resource).create(key, pod("foo"))
    assert not (await second.store(ctx.resource).get(key, GetOptions(ignore_not_found=True))).exists
    await first.aclose()
    await second.aclose()


@case("Capability.persistence.restart", requires=[Capability.PERSISTENCE], hooks=[Hook.RESTART], timeout=180.0)
async def survives_a_restart(ctx: Context) -> None:
    """With `persistence` what was acknowledged is there after a restart, and no resourceVersion is given twice."""
    store = await ctx.store()
    stored = [await ctx.put(store, pod(name)) for name in "abc"]
    deleted = await store.delete(stored[1].key)
    await ctx.restart()
    store = await ctx.store()
    page = await ctx.list(store)
    ctx.expect_same(page.items, [stored[0], stored[2]], "the list after the restart")
    assert page.revision >= deleted.revision, "the clock went back"
    again = await ctx.put(store, pod("d"))
    assert again.revision > deleted.revision, "a resourceVersion was given twice"


@case("Capability.persistence.resume", requires=[Capability.PERSISTENCE], hooks=[Hook.RESTART], timeout=180.0)
async def resumes_after_a_restart(ctx: Context) -> None:
    """With `persistence` a watch from before a restart goes on without a gap, or ends as expired."""
    store = await ctx.store()
    first = await ctx.put(store, pod("a"))
    second = await ctx.put(store, pod("b"))
    await ctx.restart()
    store = await ctx.store()
    watch = await ctx.watch(store, after=first.revision)
    third = await ctx.put(store, pod("c"))
    event = await ctx.next_event(watch)
    assert event is not None, "the watch ended without an error"
    if event.type is EventType.ERROR:
        assert isinstance(event.error, Expired), f"expected 410, got {describe(event)}"
        return
    ctx.expect_same(event.object, second, "the first event")
    await ctx.expect_event(watch, EventType.ADDED, third)


@case("Capability.multi_writer.one-order", requires=[Capability.MULTI_WRITER])
async def one_order(ctx: Context) -> None:
    """With `multi_writer` processes that write at once share one order of changes, and each sees it whole."""
    stores = [await ctx.store(), await ctx.second_store()]
    start = await ctx.current(stores[0])
    watches = [await ctx.watch(store, after=start) for store in stores]
    written: list[StoredObject] = []
    async with asyncio.TaskGroup() as tasks:
        for number, store in enumerate(stores):
            tasks.create_task(_write(ctx, store, f"writer-{number}", written))
    written.sort(key=lambda one: one.revision)
    assert len({one.revision for one in written}) == len(written), "two writes got one resourceVersion"
    for watch in watches:
        for one in written:
            await ctx.expect_event(watch, EventType.ADDED, one)
    for store in stores:
        assert (await ctx.current(store)) >= written[-1].revision


async def _write(ctx: Context, store: Store, name: str, written: list[StoredObject]) -> None:
    for number in range(20):
        written.append(await ctx.put(store, pod(f"{name}-{number:02}")))
        await asyncio.sleep(0)
