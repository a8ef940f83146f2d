"""Watches from before the cache was filled: nothing is lost, nothing comes twice, and the database is let go soon."""

import asyncio
import contextlib

import pytest

from kplane_apiserver.settings import Settings
from kplane_apiserver.storing import caches
from kplane_apiserver.storing.caches import CacheOnDemand
from kplane_core.engine.factory import EngineConnection
from kplane_core.multicluster.keylayout import KeyLayout
from kplane_core.storage.interface import EventType, ListOptions
from kplane_core.storage.resource import Resource
from kplane_core.storage.selection import Predicate, parse_label_selector
from kplane_memory.engine import MemoryEngine

LAYOUT = KeyLayout("/things")
RESOURCE = Resource("things", LAYOUT.kind_root_prefix(), "v1", "Thing")
PREFIX = LAYOUT.per_cluster_prefix("c1")


class Place:
    """A cached store, not filled yet, with objects in it."""

    def __init__(self, connection):
        self.connection = connection
        self.plain = connection.store(RESOURCE)
        self.opened = []
        self.store = CacheOnDemand(LAYOUT, RESOURCE, self._build, Settings())

    def _build(self, resource):
        store = self.connection.store(resource)
        watch = store.watch

        async def counted(key, options=None):
            self.opened.append(await watch(key, options))
            return self.opened[-1]

        store.watch = counted
        return store

    async def write(self, name, value, cluster="c1"):
        key = LAYOUT.key(cluster, "default", name)
        label = "even" if value % 2 == 0 else "odd"

        def change(document, _meta):
            metadata = {**document.get("metadata", {"name": name}), "labels": {"is": label}}
            metadata.pop("resourceVersion", None)
            return {"apiVersion": "v1", "kind": "Thing", "metadata": metadata, "value": value}, None

        return await self.plain.guaranteed_update(key, change, ignore_not_found=True)


@contextlib.asynccontextmanager
async def place(**engine):
    connection = EngineConnection(MemoryEngine(**engine))
    made = Place(connection)
    try:
        yield made
    finally:
        await made.store.aclose()
        await connection.aclose()


async def take(watch, count):
    found = []
    async with asyncio.timeout(10):
        while len(found) < count:
            events = await watch.batch()
            assert events, "the watch ended early"
            found += events
    return [(event.type.value, event.object.decode()["value"], event.object.revision) for event in found]


def since(stored, **more):
    return ListOptions(resource_version=str(stored.revision), **more)


def test_a_watch_from_a_write_before_the_cache_sees_each_later_change_once():
    async def scenario():
        async with place() as here:
            first = await here.write("a", 0)
            past = [await here.write("a", value) for value in range(1, 6)]
            await here.write("a", 100, cluster="c10")
            await here.store.get_list(PREFIX)  # fills the cache, which then begins after all of these
            assert here.store.cacher.lane_of(PREFIX).floor > first.revision
            async with await here.store.watch(PREFIX, since(first)) as watch:
                assert watch.catching_up
                seen = await take(watch, 5)
                later = [await here.write("a", value) for value in range(6, 11)]
                seen += await take(watch, 5)
                assert seen == [("MODIFIED", one.decode()["value"], one.revision) for one in [*past, *later]]
                assert not watch.catching_up
                assert here.opened[-1]._ended, "the database is still watched"
            assert here.store.cacher.watcher_count == 0

    asyncio.run(scenario())


def test_writes_while_it_goes_over_are_neither_lost_nor_repeated():
    async def scenario():
        async with place() as here:
            first = await here.write("a", 0)
            for value in range(1, 50):
                await here.write("a", value)
            await here.store.get_list(PREFIX)

            async def write_on():
                for value in range(50, 400):
                    await here.write(f"b{value % 3}", value)
                    if value % 7 == 0:
                        await asyncio.sleep(0)

            async with await here.store.watch(PREFIX, since(first)) as watch, asyncio.TaskGroup() as group:
                group.create_task(write_on())
                seen = await take(watch, 399)
            assert [value for _, value, _ in seen] == list(range(1, 400))

    asyncio.run(scenario())


def test_a_quiet_past_is_left_at_once():
    """Nothing happened to what is watched: only the database's word on its progress ends the past."""

    async def scenario():
        async with place(progress_interval=0) as here:
            first = await here.write("a", 0)
            await here.write("other", 1, cluster="c2")
            await here.store.get_list(PREFIX)
            async with await here.store.watch(PREFIX, since(first)) as watch:
                reading = asyncio.create_task(take(watch, 1))
                async with asyncio.timeout(5):
                    while watch.catching_up:  # noqa: ASYNC110 (it has no event to wait on)
                        await asyncio.sleep(0.005)
                written = await here.write("a", 7)
                assert await reading == [("MODIFIED", 7, written.revision)]

    asyncio.run(scenario())


def test_selectors_hold_over_past_and_present():
    async def scenario():
        async with place() as here:
            first = await here.write("a", 0)
            await here.write("a", 1)
            await here.write("a", 2)
            await here.store.get_list(PREFIX)
            even = Predicate(labels=parse_label_selector("is=even"))
            async with await here.store.watch(PREFIX, since(first, predicate=even)) as watch:
                seen = await take(watch, 2)
                await here.write("a", 3)
                seen += await take(watch, 1)
            assert [(kind, value) for kind, value, _ in seen] == [("DELETED", 0), ("ADDED", 2), ("DELETED", 2)]

    asyncio.run(scenario())


def test_what_the_database_has_forgotten_is_410():
    async def scenario():
        async with place() as here:
            first = await here.write("a", 0)
            last = [await here.write("a", value) for value in range(1, 6)][-1]
            await here.connection.compact(last.revision)
            await here.store.get_list(PREFIX)
            async with await here.store.watch(PREFIX, since(first)) as watch:
                (event,) = await watch.batch()
                assert event.type is EventType.ERROR
                assert event.error.status().code == 410
                assert await watch.batch() == ()
            assert here.store.cacher.watcher_count == 0

    asyncio.run(scenario())


def test_only_so_many_read_from_the_database_at_a_time(monkeypatch):
    monkeypatch.setattr(caches, "MAX_RESUMING", 3)

    async def scenario():
        async with place() as here:
            first = await here.write("a", 0)
            await here.write("a", 1)
            await here.store.get_list(PREFIX)
            watches = [await here.store.watch(PREFIX, since(first)) for _ in range(4)]
            ((event,)) = await watches[3].batch()
            assert event.error.status().code == 410
            assert [value for _, value, _ in await take(watches[0], 1)] == [1]
            late = await here.store.watch(PREFIX, since(first))
            assert [value for _, value, _ in await take(late, 1)] == [1]
            for watch in (*watches, late):
                await watch.__aexit__(None, None, None)
            assert here.store.cacher.watcher_count == 0

    asyncio.run(scenario())


@pytest.mark.parametrize("reading", [True, False])
def test_one_that_is_stopped_while_it_catches_up_ends(reading):
    async def scenario():
        async with place() as here:
            first = await here.write("a", 0)
            await here.write("other", 1, cluster="c2")
            await here.store.get_list(PREFIX)
            tasks = len(asyncio.all_tasks())
            async with await here.store.watch(PREFIX, since(first)) as watch:
                if reading:
                    waiting = asyncio.create_task(watch.batch())
                    await asyncio.sleep(0)
                    watch.stop()
                    assert await waiting == ()
                else:
                    watch.stop()
                assert await watch.batch() == ()
            assert here.store.cacher.watcher_count == 0
            assert len(asyncio.all_tasks()) == tasks

    asyncio.run(scenario())
