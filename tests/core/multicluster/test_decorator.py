"""storage_with_cluster_identity: a plain store for everybody, with the cluster for those who ask."""

import asyncio
import json

import pytest

from kplane_core.cacher import CachedStore, CacherConfig
from kplane_core.engine import EngineStore
from kplane_core.errors import Expired, UsageError
from kplane_core.multicluster import (
    DecoratorConfig,
    KeyLayout,
    ObjectWithClusterIdentity,
    storage_with_cluster_identity,
    unwrap_cluster_identity,
)
from kplane_core.storage import Predicate, Resource, parse_label_selector
from kplane_core.storage.interface import INITIAL_EVENTS_END, EventType, ListOptions
from kplane_memory.engine import MemoryEngine

LAYOUT = KeyLayout("/pods")


def make_pod(name="a", **labels):
    metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": []}}


class World:
    def __init__(self, layout=LAYOUT):
        self.engine = MemoryEngine(progress_interval=0)
        self.plain = None

        def backend(resource):
            self.plain = EngineStore(self.engine, resource)
            return self.plain

        self.store = storage_with_cluster_identity(
            DecoratorConfig(layout, "pods", backend, cacher=CacherConfig(restart_delay=0.01))
        )

    async def __aenter__(self):
        await self.store.start()
        return self

    async def __aexit__(self, *exc):
        await self.store.aclose()

    async def create(self, cluster, name="a", **labels):
        return await self.store.create(LAYOUT.key(cluster, "ns", name), make_pod(name, **labels))


def run(scenario):
    async def alone():
        before = asyncio.all_tasks()
        async with asyncio.timeout(20):
            await scenario()
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == before

    asyncio.run(alone())


async def taken(watch, count):
    return [await watch.__anext__() for _ in range(count)]


def test_added_modified_and_deleted_all_carry_the_cluster():
    async def scenario():
        async with World() as w:
            watch = await w.store.watch_with_identity()
            for cluster in ("c1", "c10"):
                key = (await w.create(cluster)).key
                await w.store.guaranteed_update(key, lambda _old, _meta: (make_pod(changed="yes"), None))
                await w.store.delete(key)
            events = await taken(watch, 6)
            assert [(event.type.value, event.identified.cluster) for event in events] == [
                (kind, cluster) for cluster in ("c1", "c10") for kind in ("ADDED", "MODIFIED", "DELETED")
            ]
            for event in events:
                assert isinstance(event.identified, ObjectWithClusterIdentity)
                assert event.identified.storage_key == event.object.key
                assert unwrap_cluster_identity(event.identified) is event.object
            watch.stop()
            assert [event async for event in watch] == []

    run(scenario)


def test_initial_events_and_transitions_through_a_selector_carry_the_cluster():
    """Filtering comes before wrapping, so a selector sees the object and never the envelope."""

    async def scenario():
        async with World() as w:
            await w.create("c1", "other", app="y")
            first = await w.create("c1", app="x")
            selector = Predicate(labels=parse_label_selector("app=x"))
            watch = await w.store.watch_with_identity(options=ListOptions(predicate=selector))
            (initial,) = await watch.batch()
            assert (initial.type, initial.identified.cluster, initial.object) == (EventType.ADDED, "c1", first)
            await w.store.guaranteed_update(first.key, lambda _old, _meta: (make_pod(app="y"), None))
            (left,) = await watch.batch()
            assert (left.type, left.identified.cluster, left.object.raw) == (EventType.DELETED, "c1", first.raw)
            watch.stop()

    run(scenario)


def test_bookmarks_and_errors_stay_plain():
    """D30: the bookmark that ends the initial events keeps its annotation, and neither carries a cluster."""

    async def scenario():
        async with World() as w:
            written = await w.create("c1")
            options = ListOptions(send_initial_events=True, predicate=Predicate(allow_watch_bookmarks=True))
            async with await w.store.watch_with_identity(options=options) as watch:
                added, bookmark = await taken(watch, 2)
            assert added.identified.cluster == "c1"
            assert bookmark.type is EventType.BOOKMARK
            assert bookmark.identified is None
            assert bookmark.object.decode()["metadata"] == {
                "annotations": {INITIAL_EVENTS_END: "true"},
                "resourceVersion": str(written.revision),
            }
            assert bookmark.object.decode()["kind"] == "PartialObjectMetadata"
            w.store.cacher.forget_history(written.revision)
            old = ListOptions(resource_version=str(written.revision - 1))
            (error,) = [event async for event in await w.store.watch_with_identity(options=old)]
            assert (error.type, error.identified, error.object) == (EventType.ERROR, None, None)
            assert isinstance(error.error, Expired)

    run(scenario)


def test_lists_come_with_their_clusters():
    async def scenario():
        async with World() as w:
            written = [await w.create(cluster) for cluster in ("c1", "c10", "c2")]
            items, revision = await w.store.list_with_identity()
            assert [(item.cluster, item.object) for item in items] == [
                ("c1", written[0]),
                ("c10", written[1]),
                ("c2", written[2]),
            ]
            assert revision == written[-1].revision
            items, _ = await w.store.list_with_identity(LAYOUT.per_cluster_prefix("c1"))
            assert [item.object for item in items] == written[:1]

    run(scenario)


def test_without_a_layout_it_is_exactly_a_plain_cached_store():
    """Nil-safe: no layout, no clusters, no envelopes, and every answer as from the plain one."""

    async def scenario():
        async with World(layout=None) as w:
            other = CachedStore(
                EngineStore(w.engine, Resource("pods", "/pods/", kind="Pod")), Resource("pods", "/pods/", kind="Pod")
            )
            await other.start()
            assert isinstance(w.store, CachedStore)
            assert w.store.resource_prefix == "/pods/"
            watches = [
                await w.store.watch_with_identity(),
                await w.store.watch("/pods/"),
                await other.watch("/pods/"),
            ]
            created = await w.store.create("/pods/ns/a", make_pod())
            await w.store.delete("/pods/ns/a")
            streams = [await taken(watch, 2) for watch in watches]
            assert all(event.identified is None for event in streams[0])
            comparable = [[(event.type, event.object, event.error) for event in stream] for stream in streams]
            assert comparable[0] == comparable[1] == comparable[2]
            assert comparable[0][0][1] == created
            with pytest.raises(UsageError, match="pods is stored without clusters"):
                await w.store.list_with_identity()
            for options in (ListOptions(), ListOptions(resource_version="0")):
                assert await w.store.get_list("/pods/", options) == await other.get_list("/pods/", options)
            await other.aclose()

    run(scenario)


def test_nothing_of_the_identity_is_stored_or_served():
    """Field by field: what is stored, read, listed and watched is what was written and its resourceVersion, no more."""

    async def scenario():
        async with World() as w:
            written = make_pod(app="x")
            before = json.loads(json.dumps(written))
            created = await w.store.create(LAYOUT.key("tenant-7", "ns", "a"), written)
            assert written == before
            record = (await w.engine.read(f"/registry{created.key}")).record
            assert json.loads(record.value) == before
            assert b"tenant-7" not in record.value
            served = before | {"metadata": before["metadata"] | {"resourceVersion": str(created.revision)}}
            watch = await w.store.watch_with_identity(options=ListOptions(resource_version="0"))
            (event,) = await taken(watch, 1)
            page = await w.store.get_list(LAYOUT.per_cluster_prefix("tenant-7"))
            got = await w.store.get(created.key)
            for found in (created, got, page.items[0], event.object, event.identified.object):
                assert json.loads(found.data) == served
                assert found.decode() == served
                assert b"tenant-7" not in found.data
            assert event.identified.document == served
            watch.stop()

    run(scenario)


def test_the_resource_can_be_given_whole():
    async def scenario():
        engine = MemoryEngine(progress_interval=0)
        resource = Resource("pods", LAYOUT.kind_root_prefix(), kind="Pod")
        given = []
        config = DecoratorConfig(
            LAYOUT, "pods", lambda found: given.append(found) or EngineStore(engine, found), resource
        )
        store = storage_with_cluster_identity(config)
        assert given == [resource]
        assert store.resource_prefix == "/pods/clusters/"
        await store.aclose()

    run(scenario)
