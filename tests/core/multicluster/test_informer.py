"""The informer: one watch, a copy of everything, and handlers that hear of every change."""

import asyncio
import random
from collections import Counter

import pytest

from kplane_core.cacher import CacherConfig
from kplane_core.engine import EngineStore
from kplane_core.errors import Expired, TooManyRequests
from kplane_core.multicluster import (
    DecoratorConfig,
    Handler,
    KeyLayout,
    MulticlusterInformer,
    ObjectWithClusterIdentity,
    storage_with_cluster_identity,
)
from kplane_core.storage import Predicate, Resource, StoredObject, parse_label_selector
from kplane_memory.engine import MemoryEngine

LAYOUT = KeyLayout("/pods")


class Cuttable:
    """A store whose watches can be cut, and kept from being opened again."""

    def __init__(self, store):
        self._store = store
        self._watches = []
        self.opened = 0
        self.open_again = asyncio.Event()
        self.open_again.set()
        self.refuse = None

    def __getattr__(self, name):
        return getattr(self._store, name)

    async def watch(self, key, options=None):
        await self.open_again.wait()
        self.opened += 1
        if self.refuse is not None:
            raise self.refuse
        watch = await self._store.watch(key, options)
        self._watches.append(watch)
        return watch

    def cut(self):
        self.open_again.clear()
        for watch in self._watches:
            watch.stop()
        self._watches.clear()


class World:
    """Clusters with pods on a memory engine, and an informer on them, behind a cache or not."""

    def __init__(self, *, cached=True, labels=""):
        self.engine = MemoryEngine(progress_interval=0)
        resource = Resource("pods", LAYOUT.kind_root_prefix(), kind="Pod")
        self.plain = EngineStore(self.engine, resource)
        self.front = None
        if cached:
            self.front = storage_with_cluster_identity(
                DecoratorConfig(LAYOUT, "pods", lambda found: EngineStore(self.engine, found), resource)
            )
        self.store = Cuttable(self.front or self.plain)
        predicate = Predicate(labels=parse_label_selector(labels))
        self.informer = MulticlusterInformer(self.store, LAYOUT, predicate=predicate, retry_delay=0.01)
        self._notes = 0

    async def __aenter__(self):
        if self.front is not None:
            await self.front.start()
        await self.informer.start()
        return self

    async def __aexit__(self, *exc):
        await self.informer.aclose()
        if self.front is not None:
            await self.front.aclose()

    async def put(self, cluster, name="a", namespace="ns", **labels):
        self._notes += 1
        metadata = {"name": name, "namespace": namespace, "annotations": {"n": str(self._notes)}, "labels": labels}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
        key = LAYOUT.key(cluster, namespace, name)
        return await self.plain.guaranteed_update(key, lambda _old, _meta: (pod, None), ignore_not_found=True)

    async def delete(self, cluster, name="a", namespace="ns"):
        return await self.plain.delete(LAYOUT.key(cluster, namespace, name))

    async def caught_up(self):
        """Return when the informer knows everything and its handlers were told."""
        wanted = {found.key: found.revision for found in (await self.plain.get_list(LAYOUT.kind_root_prefix())).items}
        for _ in range(2000):
            if wanted == self.held():
                break
            await asyncio.sleep(0.001)
        assert self.held() == wanted
        for registration in self.informer._registrations:
            await registration.drained()

    def held(self):
        informer = self.informer
        return {found.key: found.revision for name in informer.clusters() for found in informer.list(name)}


class Recorder:
    """A handler that writes down what it hears, and a copy of its own made from that alone."""

    def __init__(self):
        self.heard = []
        self.copy = {}
        self.handler = Handler(added=self.added, updated=self.updated, deleted=self.deleted)

    def added(self, found):
        found = self.note("added", found)
        assert found.key not in self.copy
        self.copy[found.key] = found

    def updated(self, old, found):
        old, found = self.plain(old), self.note("updated", found)
        assert self.copy[found.key] == old
        self.copy[found.key] = found

    def deleted(self, found):
        found = self.note("deleted", found)
        del self.copy[found.key]

    def note(self, what, found):
        found = self.plain(found)
        self.heard.append((what, found.key, found.revision))
        return found

    @staticmethod
    def plain(found):
        return found.object if isinstance(found, ObjectWithClusterIdentity) else found


@pytest.fixture(params=[True, False], ids=["cached", "plain"])
def cached(request):
    return request.param


async def until(condition):
    while not condition():  # noqa: ASYNC110 - the informer tells nobody
        await asyncio.sleep(0.001)


def run(scenario):
    async def alone():
        before = asyncio.all_tasks()
        async with asyncio.timeout(20):
            await scenario()
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == before

    asyncio.run(alone())


def test_it_holds_all_clusters_by_name_from_one_watch(cached):
    async def scenario():
        async with World(cached=cached) as w:
            assert isinstance(w.informer.has_synced(), bool)
            await w.informer.wait_synced()
            assert w.informer.has_synced()
            first = await w.put("c1")
            second = await w.put("c10", "b")
            third = await w.put("c10", "a", "zz")
            await w.caught_up()
            assert w.informer.clusters() == ["c1", "c10"]
            assert w.informer.list("c1") == [first]
            assert w.informer.list("c10") == [second, third]
            assert w.informer.list("c2") == []
            assert w.informer.get("c10", "zz", "a") == third
            assert w.informer.get("c1", "zz", "a") is None
            assert w.informer.get("c2", "zz", "a") is None
            assert int(w.informer.resource_version) >= third.revision
            await w.delete("c1")
            await w.caught_up()
            assert w.informer.clusters() == ["c10"]
            assert w.store.opened == 1

    run(scenario)


def test_it_is_synced_when_there_is_nothing(cached):
    async def scenario():
        async with World(cached=cached) as w:
            await w.put("c1")
            await w.delete("c1")
            await w.informer.wait_synced()
            assert w.informer.clusters() == []

    run(scenario)


def noting(seen, what):
    def note(*found):
        seen.append((what, found))

    return note


def test_handlers_for_all_clusters_get_envelopes_and_those_of_one_get_plain_objects():
    async def scenario():
        async with World() as w:
            everything, single = [], []
            await w.informer.wait_synced()
            for seen, cluster in ((everything, None), (single, "c1")):
                note = [
                    lambda *found, to=seen, what=what: to.append((what, found)) for what in ("add", "update", "delete")
                ]
                w.informer.add_handler(Handler(added=note[0], updated=note[1], deleted=note[2]), cluster=cluster)
            first = await w.put("c1")
            other = await w.put("c2")
            changed = await w.put("c1")
            gone = await w.delete("c1")
            await w.caught_up()
            assert single == [("add", (first,)), ("update", (first, changed)), ("delete", (gone,))]
            assert [(what, [(type(one), one.cluster) for one in found]) for what, found in everything] == [
                ("add", [(ObjectWithClusterIdentity, "c1")]),
                ("add", [(ObjectWithClusterIdentity, "c2")]),
                ("update", [(ObjectWithClusterIdentity, "c1")] * 2),
                ("delete", [(ObjectWithClusterIdentity, "c1")]),
            ]
            assert everything[1][1][0].object == other
            assert all(isinstance(one, StoredObject) for _, found in single for one in found)

    run(scenario)


def test_a_late_handler_is_told_what_is_known_as_added():
    async def scenario():
        async with World() as w:
            written = [await w.put("c1", f"p{index}") for index in range(5)]
            await w.put("c2")
            await w.caught_up()
            recorder = Recorder()
            w.informer.add_handler(recorder.handler, cluster="c1")
            later = await w.put("c1", "p0")
            await w.caught_up()
            assert recorder.heard == [
                *(("added", found.key, found.revision) for found in written),
                ("updated", later.key, later.revision),
            ]

    run(scenario)


def test_only_the_selected_objects_are_held():
    async def scenario():
        async with World(labels="app=x") as w:
            recorder = Recorder()
            w.informer.add_handler(recorder.handler)
            await w.informer.wait_synced()
            first = await w.put("c1", app="x")
            second = await w.put("c1", app="y")
            third = await w.put("c1", app="x")
            await until(lambda: w.informer.get("c1", "ns", "a") == third)
            await w.informer._registrations[0].drained()
            assert recorder.heard == [
                ("added", first.key, first.revision),
                ("deleted", first.key, second.revision),
                ("added", first.key, third.revision),
            ]

    run(scenario)


@pytest.mark.parametrize("compact", [False, True], ids=["resumed", "410"])
@pytest.mark.parametrize("seed", range(5))
def test_after_a_break_nothing_is_lost_and_nothing_told_twice(cached, compact, seed):
    """Compared with the log: across breaks and lost history a handler's copy stays true, and no version comes twice."""

    async def scenario():
        chance = random.Random(seed)
        async with World(cached=cached) as w:
            recorder = Recorder()
            w.informer.add_handler(recorder.handler)
            await w.informer.wait_synced()
            log, alive = [], set()
            for _ in range(6):
                w.store.cut()
                for _ in range(chance.randrange(1, 20)):
                    where = (f"c{chance.randrange(3)}", chance.choice("abc"))
                    if where in alive and chance.random() < 0.4:
                        alive.remove(where)
                        log.append(("deleted", await w.delete(*where)))
                    else:
                        alive.add(where)
                        log.append(("written", await w.put(*where)))
                if compact:
                    revision = log[-1][1].revision
                    await w.engine.compact(revision)
                    if w.front is not None:
                        await w.front.cacher.freshness.wait(revision)
                        w.front.cacher.forget_history(revision)
                w.store.open_again.set()
                await w.caught_up()
            told = Counter(recorder.heard)
            assert max(told.values()) == 1
            assert {key: found.revision for key, found in recorder.copy.items()} == w.held()
            versions = {(found.key, found.revision) for what, found in log if what == "written"}
            heard = {(key, revision) for what, key, revision in recorder.heard if what != "deleted"}
            assert heard <= versions
            if not compact:
                assert [(key, revision) for _, key, revision in recorder.heard] == [
                    (found.key, found.revision) for _, found in log
                ]

    run(scenario)


def test_a_cache_that_starts_over_is_followed(caplog):
    async def scenario():
        async with World() as w:
            recorder = Recorder()
            w.informer.add_handler(recorder.handler)
            await w.informer.wait_synced()
            await w.put("c1")
            await w.caught_up()
            for index in range(5):
                cacher = w.front.cacher
                cacher.lost(Expired(Expired.WATCH))
                await w.put("c1", f"p{index}")
                page = await w.plain.get_list(LAYOUT.kind_root_prefix())
                cacher.replace(page.items, page.revision)
                await w.caught_up()
            assert Counter(recorder.heard).most_common(1)[0][1] == 1
            assert len(recorder.heard) == 6

    run(scenario)


@pytest.mark.parametrize("refusal", [TooManyRequests("not yet", 1), Expired(Expired.WATCH), RuntimeError("a bug")])
def test_what_a_store_refuses_is_asked_for_again_and_not_in_a_hurry(refusal, caplog):
    async def scenario():
        w = World(cached=False)
        w.store.refuse = refusal
        async with w:
            await asyncio.sleep(0.1)
            assert 2 <= w.store.opened <= 15
            assert not w.informer.has_synced()
            w.store.refuse = None
            await w.informer.wait_synced()
            await w.put("c1")
            await w.caught_up()

    run(scenario)
    assert any(record.exc_info for record in caplog.records) is isinstance(refusal, RuntimeError)


def test_a_handler_that_fails_disturbs_nobody_and_hears_the_next_change(caplog):
    async def scenario():
        async with World() as w:
            reported, healthy, calls = [], Recorder(), Counter()
            await w.informer.wait_synced()

            def broken(found):
                calls["broken"] += 1
                raise ValueError(found.cluster)

            async def broken_too(_found):
                calls["silent"] += 1
                await asyncio.sleep(0)
                raise KeyError("silent")

            def broken_report(error):
                raise RuntimeError("the report failed too") from error

            w.informer.add_handler(Handler(added=broken, failed=reported.append))
            w.informer.add_handler(Handler(added=broken_too))
            w.informer.add_handler(Handler(added=broken, failed=broken_report))
            w.informer.add_handler(healthy.handler)
            for name in "abc":
                await w.put("c1", name)
            await w.caught_up()
            assert [str(error) for error in reported] == ["c1"] * 3
            assert calls == {"broken": 6, "silent": 3}
            assert len(healthy.heard) == 3

    run(scenario)
    assert sum("handler failed on an object added in cluster c1" in record.message for record in caplog.records) == 6


def test_a_slow_handler_delays_only_itself():
    async def scenario():
        async with World() as w:
            gate, slow, fast = asyncio.Event(), [], Recorder()
            await w.informer.wait_synced()

            async def wait(found):
                await gate.wait()
                slow.append(found.object.revision)

            registration = w.informer.add_handler(Handler(added=wait))
            w.informer.add_handler(fast.handler)
            written = [(await w.put("c1", f"p{index}")).revision for index in range(50)]
            await until(lambda: len(fast.heard) == 50)
            assert slow == []
            assert registration.pending == 50
            gate.set()
            await registration.drained()
            assert slow == written
            assert registration.pending == 0

    run(scenario)


def test_a_removed_handler_hears_nothing_more_and_may_remove_itself():
    async def scenario():
        async with World() as w:
            once, always = [], Recorder()
            await w.informer.wait_synced()

            async def remove_me(found):
                await w.informer.remove_handler(registration)
                once.append(found.cluster)

            registration = w.informer.add_handler(Handler(added=remove_me))
            other = w.informer.add_handler(always.handler)
            for index in range(5):
                await w.put(f"c{index}")
            await w.caught_up()
            await registration.drained()
            assert once == ["c0"]
            assert len(always.heard) == 5
            await w.informer.remove_handler(other)
            await w.informer.remove_handler(other)
            await w.put("c9")
            await w.caught_up()
            assert len(always.heard) == 5

    run(scenario)


def test_a_thousand_clusters_are_one_watch_and_no_more_tasks():
    async def scenario():
        async with World() as w:
            await w.informer.wait_synced()
            tasks = len(asyncio.all_tasks())
            for index in range(1000):
                await w.put(f"c{index}")
            await w.caught_up()
            assert len(w.informer.clusters()) == 1000
            assert w.store.opened == 1
            assert w.front.cacher.watcher_count == 1
            assert len(asyncio.all_tasks()) == tasks

    run(scenario)


def test_it_works_as_a_context_and_leaves_nothing():
    async def scenario():
        engine = MemoryEngine(progress_interval=0)
        store = storage_with_cluster_identity(
            DecoratorConfig(LAYOUT, "pods", lambda found: EngineStore(engine, found), cacher=CacherConfig())
        )
        await store.start()
        async with MulticlusterInformer(store, LAYOUT) as informer:
            informer.add_handler(Handler())
            await informer.wait_synced()
            assert store.cacher.watcher_count == 1
        assert store.cacher.watcher_count == 0
        await informer.aclose()
        await store.aclose()

    run(scenario)
