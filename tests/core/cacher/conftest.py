"""What the tests of the watch cache share: a feed that can be cut, and a small world."""

import asyncio
import functools
from collections import Counter

import pytest

from kplane_core.cacher import CachedStore, CacherConfig
from kplane_core.engine import EngineStore
from kplane_core.multicluster import KeyLayout
from kplane_core.storage import Predicate, Resource, parse_field_selector, parse_label_selector
from kplane_core.storage.interface import EventType, ListOptions, ObjectList, StoredObject, WatchEvent
from kplane_core.storage.selection import attribute_func
from kplane_memory.engine import MemoryEngine

FOREVER = 3_600.0
ATTRIBUTES = attribute_func({"spec.nodeName": ""})


def loop_time():
    return asyncio.get_running_loop().time()


@pytest.fixture(scope="session")
def run(run_jumping):
    """Run a scenario, of an hour at most, on a loop whose time jumps; see `run_jumping`."""
    return functools.partial(run_jumping, forever=FOREVER)


def make_pod(name="a", namespace="ns", *, node="", **labels):
    metadata = {"name": name, "namespace": namespace}
    if labels:
        metadata["labels"] = labels
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
    return pod | {"spec": {"nodeName": node}} if node else pod


class Feed:
    """The watch that feeds a cache, with what a test puts in between."""

    def __init__(self, tap, real):
        self._tap, self._real = tap, real
        self.queue = asyncio.Queue()
        self._pump = asyncio.create_task(self._run())

    async def _run(self):
        while events := await self._real.batch():
            self.queue.put_nowait(events)
        self.queue.put_nowait(())

    def inject(self, *events):
        """Let the cache see these events; none at all is the clean end of the watch."""
        self.queue.put_nowait(events)

    def fail(self, error):
        self.inject(WatchEvent(EventType.ERROR, error=error))

    async def batch(self):
        events = await self.queue.get()
        await self._tap.flowing.wait()
        return events

    def stop(self):
        self._real.stop()

    async def __aenter__(self):
        return self

    async def __aexit__(self, *exc):
        self._pump.cancel()
        await asyncio.wait([self._pump])
        await self._real.__aexit__(*exc)
        if self in self._tap.feeds:
            self._tap.feeds.remove(self)


class Tap:
    """A real store whose feed can be held, cut and falsified; calls are counted, and `before` may refuse them."""

    def __init__(self, real):
        self.real = real
        self.calls = Counter()
        self.feeds = []
        self.flowing = asyncio.Event()
        self.flowing.set()
        self.before = None

    def __getattr__(self, name):
        method = getattr(self.real, name)
        if not asyncio.iscoroutinefunction(method):
            return method

        async def call(*args, **kwargs):
            self.calls[name] += 1
            if self.before is not None and (outcome := self.before(name)) is not None:
                await outcome
            answer = await method(*args, **kwargs)
            if name != "watch":
                return answer
            self.feeds.append(Feed(self, answer))
            return self.feeds[-1]

        return call

    @property
    def feed(self):
        return self.feeds[-1]

    def hold(self):
        """Stall the feed without closing it."""
        self.flowing.clear()

    def release(self):
        self.flowing.set()


class World:
    """A memory engine, a store of pods on it, and the cache in front; with `clusters`, keys name a cluster."""

    def __init__(self, *, clusters=False, engine=None, prefix="/pods/", attributes=ATTRIBUTES, **config):
        self.layout = KeyLayout(prefix) if clusters else None
        root = self.layout.kind_root_prefix() if self.layout else prefix
        self.root = root
        self.engine = engine or MemoryEngine(progress_interval=0)
        self.resource = Resource("pods", root, kind="Pod", attributes=attributes)
        self.plain = EngineStore(self.engine, self.resource)
        self.tap = Tap(self.plain)
        settings = {"clock": loop_time, "restart_delay": 0.01} | config
        if self.layout:
            settings["identity"] = self.layout.cluster_from_key
        self.store = CachedStore(self.tap, self.resource, CacherConfig(**settings))
        self.cacher = self.store.cacher
        self._others = 0

    async def __aenter__(self):
        await self.store.start()
        await self.synced()
        return self

    async def __aexit__(self, *exc):
        self.tap.release()
        await self.store.aclose()

    async def synced(self):
        """Return when the cache is ready and its watch is open and up to date."""
        await self.until(lambda: self.cacher.readiness.ready and self.tap.feeds)
        revision = await self.plain.get_current_resource_version()
        await self.cacher.freshness.wait(revision)

    async def until(self, condition):
        await until(condition)

    def key(self, name="a", namespace="ns", cluster="c1"):
        return f"{self.root}{cluster}/{namespace}/{name}" if self.layout else f"{self.root}{namespace}/{name}"

    async def put(self, name="a", namespace="ns", *, cluster="c1", note="", **pod):
        """Create or change a pod, past the cache."""
        wanted = make_pod(name, namespace, **pod)
        wanted["metadata"]["annotations"] = {"note": note or str(self._others)}
        self._others += 1
        key = self.key(name, namespace, cluster)
        return await self.plain.guaranteed_update(key, lambda _old, _meta: (wanted, None), ignore_not_found=True)

    async def delete(self, name="a", namespace="ns", *, cluster="c1"):
        return await self.plain.delete(self.key(name, namespace, cluster))

    async def elsewhere(self):
        """Write outside the resource and return the revision."""
        self._others += 1
        written = await self.engine.write(f"/registry/others/{self._others}", b"{}", expect=0)
        return written.revision

    def options(self, after="", *, labels="", fields="", limit=0, token="", bookmarks=False, **options):
        predicate = Predicate(
            labels=parse_label_selector(labels),
            fields=parse_field_selector(fields),
            limit=limit,
            continue_token=token,
            allow_watch_bookmarks=bookmarks,
        )
        return ListOptions(resource_version=str(after), predicate=predicate, **options)

    async def list(self, after="", *, below="", **options) -> ObjectList:
        return await self.store.get_list(below or self.root, self.options(after, **options))

    async def watch(self, after="", *, below="", **options):
        return await self.store.watch(below or self.root, self.options(after, **options))


async def until(condition):
    while not condition():  # noqa: ASYNC110 - the cache tells nobody
        await asyncio.sleep(0.005)


async def taken(watch, count):
    """Return exactly `count` events of a watch."""
    events = []
    while len(events) < count:
        events.append(await watch.__anext__())
    return events


async def quiet(watch, seconds=0.5):
    """Whether nothing comes within so many seconds, and the watch goes on."""
    try:
        async with asyncio.timeout(seconds):
            await watch.batch()
    except TimeoutError:
        return True
    return False


async def quiet_into(watch, seen):
    """Append what comes next to `seen`; whether nothing came."""
    try:
        async with asyncio.timeout(0.01):
            events = await watch.batch()
    except TimeoutError:
        return True
    seen += events
    return not events


def told(events):
    """Return events as comparable tuples."""
    return [
        (event.type.value, event.object.key if event.object else "", event.object.revision if event.object else 0)
        for event in events
    ]


async def drained(watch):
    """Return every event until the end of the watch."""
    return [event async for event in watch]


class Tools:
    """The helpers above, for test modules."""

    taken, quiet, told, drained = staticmethod(taken), staticmethod(quiet), staticmethod(told), staticmethod(drained)
    quiet_into, until = staticmethod(quiet_into), staticmethod(until)
    pod = staticmethod(make_pod)
    loop_time = staticmethod(loop_time)
    Tap, Feed, World = Tap, Feed, World


@pytest.fixture(scope="session")
def world():
    """Make a world; see `World`."""
    return World


@pytest.fixture(scope="session")
def tools():
    return Tools


def stored(key, revision, raw=b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}'):
    return StoredObject(key, revision, raw)


class ScriptedStore:
    """A store that says what a test makes it say: one list, and what the test pushes on the watch."""

    def __init__(self, prefix="/pods/", items=(), revision=10):
        self.resource_prefix = prefix
        self.items, self.revision = tuple(items), revision
        self.calls = Counter()
        self.queue = asyncio.Queue()
        self.compacted = 0

    async def get_list(self, _key, _options=None):
        self.calls["get_list"] += 1
        return ObjectList(self.items, self.revision)

    async def watch(self, _key, options=None):
        self.calls["watch"] += 1
        self.watched_after = int(options.resource_version)
        return self

    async def batch(self):
        return await self.queue.get()

    def push(self, *events):
        self.queue.put_nowait(events)

    async def get_current_resource_version(self):
        self.calls["get_current_resource_version"] += 1
        return self.revision

    async def request_watch_progress(self):
        self.calls["request_watch_progress"] += 1

    def compact_revision(self):
        return self.compacted

    async def __aenter__(self):
        return self

    async def __aexit__(self, *exc):
        return None

    async def aclose(self):
        return None


@pytest.fixture(scope="session")
def scripted():
    """Make a scripted store and objects for it."""

    class Scripted:
        Store = ScriptedStore
        object = staticmethod(stored)

        @staticmethod
        def event(kind, key, revision, **more):
            return WatchEvent(EventType(kind), stored(key, revision, **more))

        @staticmethod
        def bookmark(revision):
            return WatchEvent(EventType.BOOKMARK, StoredObject("", revision, b"{}"))

    return Scripted
