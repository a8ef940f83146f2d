"""The consistency check: a cache that differs from the storage is found out and filled anew."""

import asyncio

from kplane_core.cacher.consistency import ConsistencyChecker
from kplane_core.errors import Unreachable


def test_a_cache_that_agrees_is_left_alone(world, run):
    async def scenario():
        w = world(page_size=3)
        for index in range(7):
            await w.put(f"p{index}")
        async with w:
            await w.delete("p3")
            await w.synced()
            assert await ConsistencyChecker(w.cacher).check() is True
            assert w.cacher.metrics.consistency_successes == 1
            assert w.cacher.readiness.generation == 1

    run(scenario())


def test_a_cache_that_lost_an_object_is_filled_anew_and_its_watches_end(world, run, tools, caplog):
    async def scenario():
        async with world() as w:
            await w.put("a")
            await w.put("b")
            await w.synced()
            w.cacher.state.remove(w.key("a"), "")
            watch = await w.watch("0")
            assert await ConsistencyChecker(w.cacher).check() is False
            assert w.cacher.metrics.consistency_failures == 1
            await w.until(lambda: w.cacher.readiness.generation == 2)
            assert [found.key for found in (await w.list()).items] == [w.key("a"), w.key("b")]
            assert all(event.object.key != w.key("a") for event in await tools.drained(watch))

    run(scenario())
    assert "differs from the storage" in caplog.text


def test_a_cache_is_compared_at_intervals_that_are_jittered(world, run):
    async def scenario():
        async with world(consistency_interval=300.0) as w:
            await w.put("a")
            await asyncio.sleep(299)
            assert w.cacher.metrics.consistency_successes == 0
            await asyncio.sleep(152)
            assert w.cacher.metrics.consistency_successes == 1

    run(scenario())


def test_a_storage_that_cannot_be_asked_proves_nothing(world, run):
    async def scenario():
        async with world() as w:
            await w.put("a")
            await w.synced()

            def refuse(name):
                if name == "get_list":
                    raise Unreachable("", "away")

            w.tap.before = refuse
            assert await ConsistencyChecker(w.cacher).check() is None
            assert w.cacher.metrics.consistency_errors == 1
            assert w.cacher.readiness.generation == 1

    run(scenario())


def test_a_record_of_no_cluster_keeps_nobodys_cache_from_filling(world, run, caplog):
    async def scenario():
        w = world(clusters=True)
        await w.engine.write(f"/registry{w.root}stray", b'{"metadata":{"name":"stray"}}', expect=0)
        await w.put("a")
        async with w:
            await w.engine.write(f"/registry{w.root}late", b'{"metadata":{"name":"late"}}', expect=0)
            await w.put("b")
            await w.synced()
            assert [found.key for found in (await w.list()).items] == [w.key("a"), w.key("b")]
            assert w.cacher.readiness.generation == 1
            assert await ConsistencyChecker(w.cacher).check() is True

    run(scenario())
    assert "stray" in caplog.text
    assert "late" in caplog.text


def test_objects_with_equal_labels_share_them(world, run):
    async def scenario():
        async with world() as w:
            await w.put("a", app="web")
            await w.put("b", app="web")
            assert len((await w.list(labels="app=web")).items) == 2
            first, second = (w.cacher.state.get(w.key(name)) for name in ("a", "b"))
            assert w.cacher.state.attributes_of(first).labels is w.cacher.state.attributes_of(second).labels

    run(scenario())
