"""What a case gets and what becomes of it: isolation, expectations that lose nothing, and outcomes that tell apart."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kplane_conformance.case import Capability, Hook, Inventory, Layer, case
from kplane_conformance.context import Context
from kplane_conformance.expect import raises
from kplane_conformance.objects import pod
from kplane_conformance.session import Outcome, Result, Session
from kplane_core.engine.factory import EngineConnection
from kplane_core.errors import KplaneError
from kplane_core.plugins.capabilities import Unsupported
from kplane_core.storage.interface import EventType
from kplane_memory.conformance import MemoryHarness

Body = Callable[[Context], Awaitable[None]]


def run(body: Body, harness: Any = None, *, capabilities: Any = None, **options: Any) -> Result:
    """Return what comes of a case with this body."""
    inventory = Inventory()

    @case("a", inventory=inventory, **options)
    async def function(ctx: Context) -> None:
        """It promises something."""
        await body(ctx)

    async def alone() -> Result:
        session = Session(harness or MemoryHarness(), capabilities)
        await session.start()
        result = await session.run(inventory.leaves()[0])
        await session.stop()
        return result

    return asyncio.run(alone())


def passes(body: Body, harness: Any = None) -> None:
    result = run(body, harness)
    assert result.outcome is Outcome.PASSED, result.reason


# --- outcomes ---


def test_an_assertion_is_a_failure() -> None:
    async def body(_ctx: Context) -> None:
        raise AssertionError("wrong")

    result = run(body)
    assert (result.outcome, result.reason) == (Outcome.FAILED, "AssertionError: wrong")


def test_a_missing_hook_skips_by_name() -> None:
    async def body(ctx: Context) -> None:
        await ctx.restart()

    result = run(body)
    assert (result.outcome, result.reason) == (Outcome.SKIPPED, "no restart hook")


def test_a_harness_may_say_why_it_gives_no_hook_also_where_its_members_are_there() -> None:
    class Excused(MemoryHarness):
        without = {"clock": "the clock is the server's", "restart": "it never ends"}  # noqa: RUF012 - as harnesses do

    async def turn(ctx: Context) -> None:
        await ctx.advance(1)

    async def restart(ctx: Context) -> None:
        await ctx.restart()

    assert run(turn).outcome is Outcome.PASSED
    result = run(turn, Excused())
    assert (result.outcome, result.reason) == (Outcome.SKIPPED, "no clock hook: the clock is the server's")
    assert run(restart, Excused()).reason == "no restart hook: it never ends"


def test_an_unsupported_capability_skips_with_the_backends_reason() -> None:
    async def body(_ctx: Context) -> None:
        raise AssertionError("never run")

    result = run(body, requires=[Capability.TTL], capabilities={Capability.TTL: Unsupported("it has no clock")})
    assert (result.outcome, result.reason) == (Outcome.SKIPPED, "ttl is not supported: it has no clock")


def test_a_case_for_another_layer_is_listed_and_not_run() -> None:
    async def body(_ctx: Context) -> None:
        raise AssertionError("never run")

    result = run(body, layers=[Layer.CACHE])
    assert (result.outcome, result.reason) == (Outcome.ELSEWHERE, "to be seen on cache, not on a plain store")


def test_a_harness_that_fails_is_not_the_backends_failure() -> None:
    class Single(MemoryHarness):
        connected = False

        async def connect(self) -> Any:
            if self.connected:
                raise OSError("no second connection")
            self.connected = True
            return await super().connect()

    async def body(ctx: Context) -> None:
        await ctx.second_store()

    result = run(body, Single())
    assert result.outcome is Outcome.HARNESS_ERROR
    assert "no second connection" in result.reason


def test_a_hanging_case_fails_and_says_where_it_waited() -> None:
    async def body(_ctx: Context) -> None:
        await asyncio.Event().wait()

    result = run(body, timeout=0.05)
    assert result.outcome is Outcome.FAILED
    assert "did not end within 0.05 s; it waited in function" in result.reason
    assert "body (line " in result.reason


def test_tasks_that_outlive_a_case_fail_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kplane_conformance.session.LEAK_GRACE", 0.05)
    kept = []

    async def body(_ctx: Context) -> None:
        kept.append(asyncio.create_task(asyncio.sleep(60), name="forgotten"))

    result = run(body)
    assert result.outcome is Outcome.FAILED
    assert "forgotten" in result.reason


def test_of_concurrent_tasks_the_failing_assertion_is_told_and_a_missing_hook_still_skips() -> None:
    async def wrong() -> None:
        raise AssertionError("wrong")

    async def body(_ctx: Context) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(wrong())

    assert run(body).reason == "AssertionError: wrong"

    async def hooked(ctx: Context) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(ctx.restart())

    assert run(hooked).outcome is Outcome.SKIPPED


def test_a_case_that_cancels_its_own_task_cancels_nothing_else() -> None:
    async def body(_ctx: Context) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    assert run(body).reason == "AssertionError: the case was cancelled from within"


# --- isolation ---


def test_cases_see_nothing_of_each_other() -> None:
    async def body(ctx: Context) -> None:
        other = ctx.session.context()
        await ctx.put(await ctx.store(), pod("a"))
        assert (await ctx.list(await other.store())).items == ()
        await other.aclose()

    passes(body)


def test_stores_of_one_case_share_their_keys_across_connections() -> None:
    async def body(ctx: Context) -> None:
        stored = await ctx.put(await ctx.store(), pod("a"))
        for store in (await ctx.store(), await ctx.second_store()):
            ctx.expect_same(await store.get(stored.key), stored)

    passes(body)


# --- expectations ---


def test_silence_loses_no_event_that_comes_later() -> None:
    async def body(ctx: Context) -> None:
        store = await ctx.store()
        watch = await ctx.watch(store, after=await ctx.current(store))
        await ctx.expect_silence(watch)
        await ctx.expect_silence(watch)
        first, second = await ctx.put(store, pod("a")), await ctx.put(store, pod("b"))
        await ctx.expect_event(watch, EventType.ADDED, first)
        await ctx.expect_event(watch, EventType.ADDED, second)
        await ctx.expect_stopped(watch)

    passes(body)


def test_expectations_of_watches_fail_in_words() -> None:
    async def body(ctx: Context) -> None:
        store = await ctx.store()
        watch = await ctx.watch(store, after=await ctx.current(store))
        with raises(AssertionError, match="expected ADDED, but nothing came within 0.02 s"):
            await ctx.expect_event(watch, EventType.ADDED, within=0.02)
        stored = await ctx.put(store, pod("a"))
        with raises(AssertionError, match="expected silence, got ADDED of\nkey: /pods/test-ns/a"):
            await ctx.expect_silence(watch)
        changed = await ctx.update(store, pod("a", node="n"))
        with raises(AssertionError, match='+    "nodeName": "n"'):
            await ctx.expect_event(watch, EventType.MODIFIED, stored)
        await ctx.update(store, pod("a"))
        with raises(AssertionError, match=f"expected DELETED of {changed.key} at {changed.revision}, got MODIFIED"):
            await ctx.expect_event(watch, EventType.DELETED, changed)
        watch.stop()
        with raises(AssertionError, match="but the watch ended"):
            await ctx.expect_event(watch, EventType.ADDED)

    passes(body)


def test_objects_are_compared_whole() -> None:
    async def body(ctx: Context) -> None:
        store = await ctx.store()
        one = await ctx.put(store, pod("a"))
        again = await ctx.update(store, pod("a", labels={"x": "y"}))
        back = await ctx.update(store, pod("a"))
        ctx.expect_same_content(back, one)
        for other in (again, back):
            with raises(AssertionError, match="differs from what was promised"):
                ctx.expect_same(other, one)
        with raises(AssertionError, match="-2 items\n+1 items"):
            ctx.expect_same([one], [one, back])

    passes(body)


def test_raises_names_what_came_instead() -> None:
    with raises(AssertionError, match="expected ValueError, but nothing was raised"), raises(ValueError):
        pass
    with raises(AssertionError, match="expected ValueError, got KeyError: 'k'"), raises(ValueError):
        raise KeyError("k")
    with raises(AssertionError, match="that says 'this', got: that"), raises(ValueError, match="this"):
        raise ValueError("that")


# --- hooks ---


def test_stored_bytes_are_seen_and_changed_past_the_store() -> None:
    async def body(ctx: Context) -> None:
        store = await ctx.store()
        stored = await ctx.put(store, pod("a"))
        assert await ctx.peek(stored.key) == b"test!" + stored.raw
        assert await ctx.peek(ctx.key("test-ns", "absent")) is None
        await ctx.poke(stored.key, b"test!" + stored.raw.replace(b"test-ns", b"poked"))
        assert (await store.get(stored.key)).decode()["metadata"]["namespace"] == "poked"
        await ctx.poke(stored.key, b'test!{"metadata":{"resourceVersion":"7"}}')
        with raises(AssertionError, match="stores metadata.resourceVersion = '7'"):
            await ctx.expect_canonical(stored.key)

    passes(body)


def test_reads_can_be_made_to_fail_in_the_transformer_and_in_the_decoder() -> None:
    async def body(ctx: Context) -> None:
        store = await ctx.store()
        stored = await ctx.put(store, pod("a"))
        for decoder in (False, True):
            ctx.set_failing(True, decoder=decoder)
            with raises(KplaneError):
                await store.get(stored.key)
            ctx.set_failing(False)
            ctx.expect_same(await store.get(stored.key), stored)

    passes(body)


def test_reads_of_the_engine_are_counted() -> None:
    async def body(ctx: Context) -> None:
        counter = ctx.counted()
        store = await ctx.store()
        await ctx.put(store, pod("a"))
        before = counter.scans, ctx.transformer.reads
        await ctx.list(store)
        assert (counter.scans, ctx.transformer.reads) == (before[0] + 1, before[1] + 1)

    passes(body)


def test_compaction_and_foreign_writes_move_the_clock_as_told() -> None:
    async def body(ctx: Context) -> None:
        store = await ctx.store()
        before = await ctx.current(store)
        bumped = await ctx.increase_rv()
        assert bumped > before
        await ctx.compact(bumped, store)
        assert store.compact_revision() == bumped
        assert await ctx.current(store) >= bumped

    passes(body)


def test_a_store_without_an_engine_gets_keys_of_its_own_and_lacks_the_engine_hook() -> None:
    class Plain:
        """A connection that shows no engine."""

        def __init__(self, inner: EngineConnection) -> None:
            self.store, self.aclose = inner.store, inner.aclose

    class Hidden(MemoryHarness):
        async def connect(self) -> Any:
            connection = await super().connect()
            assert isinstance(connection, EngineConnection)
            return Plain(connection)

    async def body(ctx: Context) -> None:
        other = ctx.session.context()
        assert ctx.prefix != other.prefix
        await ctx.put(await ctx.store(), pod("a"))
        assert (await ctx.list(await other.store(), other.prefix)).items == ()
        await other.aclose()
        assert await ctx.increase_rv() > 0
        await ctx.engine.check()

    result = run(body, Hidden(), hooks=[Hook.ENGINE])
    assert result.outcome is Outcome.SKIPPED
    assert result.reason == "no engine hook: this backend's stores are not built on an engine"
