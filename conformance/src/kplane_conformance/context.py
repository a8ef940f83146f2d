"""What a case works with: fresh stores, the backend's hooks, and expectations that explain themselves."""

import asyncio
import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn

from kplane_conformance import transformers
from kplane_conformance.case import Hook, View
from kplane_conformance.counting import CountingEngine
from kplane_conformance.jitter import JitterEngine
from kplane_conformance.objects import difference, pod_attributes, show
from kplane_conformance.transformers import SwitchableTransformer
from kplane_conformance.views import Viewer
from kplane_core.cacher import CachedStore
from kplane_core.engine.factory import Connection, EngineConnection
from kplane_core.engine.interface import Conflict, Engine
from kplane_core.storage.codec import decode_object
from kplane_core.storage.interface import (
    EventType,
    GetOptions,
    ListOptions,
    ObjectList,
    Store,
    StoredObject,
    Watch,
    WatchEvent,
)
from kplane_core.storage.keys import prefix_end
from kplane_core.storage.resource import Resource
from kplane_core.storage.selection import (
    AttributeFunc,
    Predicate,
    parse_field_selector,
    parse_label_selector,
)
from kplane_core.storage.transformers import Transformer

if TYPE_CHECKING:
    from kplane_conformance.session import Session

EVENT_TIMEOUT: Final = 30.0
"""Seconds to wait for an event that must come."""

_ABSENT_IS_FINE: Final = GetOptions(ignore_not_found=True)


class MissingHook(Exception):
    """The backend's harness does not give a hook that the case needs."""

    def __init__(self, hook: Hook, detail: str = "") -> None:
        super().__init__(f"no {hook.value} hook" + (f": {detail}" if detail else ""))
        self.hook = hook


class NotHere(Exception):
    """The case says nothing about what it is looked at through."""


class Context:
    """One case's own world: its keys are seen by no other case.

    Attributes:
        session: the backend under test.
        resource: what `store` opens unless told otherwise: pods below `prefix`.
        prefix: the resource prefix, `/pods/` wherever the suite can choose the path below which the store lives.
        root: the path prefix of this case's stores.
        transformer: sits below every store of the case; see `SwitchableTransformer`.
        view: through what the case looks at the backend.
    """

    def __init__(
        self,
        session: "Session",
        connection: Connection,
        root: str,
        prefix: str = "/pods/",
        *,
        view: View = View.STORE,
    ) -> None:
        self.session = session
        self.view = view
        self._viewer = Viewer(view, prefix)
        self.prefix = self._viewer.prefix
        self.root = root
        self.transformer = SwitchableTransformer()
        self.resource = Resource(
            group_resource="pods",
            resource_prefix=self._viewer.resource_prefix,
            api_version="v1",
            kind="Pod",
            transformer=self.transformer,
            attributes=pod_attributes,
        )
        self._connection = connection
        self._second: Connection | None = None
        self._counter: CountingEngine | None = None
        self._jittered = False
        self._stores: list[Store] = []
        self._connections: list[Connection] = []
        self._pending: dict[int, asyncio.Task[WatchEvent]] = {}
        self._watches: list[Watch] = []

    # --- stores -------------------------------------------------------------------------------------------------------

    async def store(
        self,
        resource: Resource | None = None,
        *,
        transformer: Transformer | None = None,
        attributes: AttributeFunc | None = None,
    ) -> Store:
        """Open a store on this case's own keys. Every call opens another store on the same keys.

        Args:
            resource: instead of the case's pods; see `self.resource` and `attrs.evolve`.
            transformer: instead of the switchable one.
            attributes: instead of the pods' own.
        """
        chosen = self._chosen(resource, transformer, attributes)
        store = self._open(self._connection, chosen)
        if self.view is View.SECOND_HANDLE:
            return self._viewer.two_handles(store, self._open(await self._second_connection(), chosen))
        if self.view.cached:
            store = await self._viewer.cached(store, chosen)
            self._stores.append(store)
        return store

    async def second_store(self, resource: Resource | None = None) -> Store:
        """Open a store on the same keys through another connection, as a second API server would."""
        chosen = self._chosen(resource, None, None)
        store = self._open(await self._second_connection(), chosen)
        if self.view.cached:
            store = await self._viewer.cached(store, chosen)
            self._stores.append(store)
        return store

    async def _second_connection(self) -> Connection:
        if self._second is None:
            self._second = self.session.isolate(await self.session.second_connection(), self.root)
        return self._second

    def _chosen(
        self, resource: Resource | None, transformer: Transformer | None, attributes: AttributeFunc | None
    ) -> Resource:
        chosen = resource or self.resource
        return Resource(
            group_resource=chosen.group_resource,
            resource_prefix=chosen.resource_prefix,
            api_version=chosen.api_version,
            kind=chosen.kind,
            transformer=transformer or chosen.transformer,
            attributes=attributes or chosen.attributes,
            corrupt_object_reports=chosen.corrupt_object_reports,
        )

    def _open(self, connection: Connection, resource: Resource) -> Store:
        if self._jittered and isinstance(connection, EngineConnection):
            schedule = self.session.seed + len(self._stores)
            connection = self.session.wrap(JitterEngine(connection.engine, schedule), self.root)
        store = connection.store(resource)
        self._stores.append(store)
        return store

    def not_on_a_cache(self, reason: str) -> None:
        """End a case here, with the reason, when a watch cache answers."""
        if self.view.cached:
            raise NotHere(reason)

    def key(self, namespace: str, name: str = "") -> str:
        """Return the key of a namespaced object, or of a namespace's directory when no name is given.

        `key("ns", "a")` is `/pods/ns/a`, `key("ns")` is `/pods/ns/`, `key("", "a")` is `/pods//a`.
        """
        return f"{self.prefix}{namespace}/{name}"

    def key_of(self, obj: Mapping[str, Any]) -> str:
        """Return the key of an object made by `pod`."""
        return self.key(obj["metadata"].get("namespace", ""), obj["metadata"]["name"])

    def full_key(self, key: str) -> str:
        """Return the key that the database sees for a store key."""
        return f"{self.root}/{key.lstrip('/')}"

    def names(self, text: str, key: str) -> bool:
        """Return whether an error names the database key of a store key; whose path is unknown, by its end."""
        return text == self.full_key(key) if self.root else text.endswith(key)

    async def put(self, store: Store, obj: dict[str, Any], *, ttl: int = 0, key: str = "") -> StoredObject:
        """Delete whatever is stored under the object's key, create the object, and return it as stored."""
        where = key or self.key_of(obj)
        if (await store.get(where, _ABSENT_IS_FINE)).exists:
            await store.delete(where)
        return await store.create(where, obj, ttl=ttl)

    async def update(self, store: Store, obj: dict[str, Any], *, key: str = "", ttl: int | None = None) -> StoredObject:
        """Replace (or create) the object under its key, and return it as stored."""
        return await store.guaranteed_update(
            key or self.key_of(obj), lambda _old, _meta: (obj, ttl), ignore_not_found=True
        )

    async def list(self, store: Store, path: str = "", **options: Any) -> ObjectList:
        """List below the resource prefix, or below `path`; takes the fields of ListOptions."""
        return await store.get_list(path or self.prefix, ListOptions(**options))

    async def current(self, store: Store) -> int:
        """Return the resourceVersion of a consistent list of everything."""
        return (await self.list(store)).revision

    def select(
        self, *, labels: str = "", fields: str = "", limit: int = 0, token: str = "", bookmarks: bool = False
    ) -> Predicate:
        """Return a predicate over pods from selectors in kubectl's notation."""
        return Predicate(
            labels=parse_label_selector(labels),
            fields=parse_field_selector(fields),
            attributes=pod_attributes,
            limit=limit,
            continue_token=token,
            allow_watch_bookmarks=bookmarks,
        )

    async def watch(self, store: Store, path: str = "", *, after: int | str = "", **options: Any) -> Watch:
        """Open a watch that is stopped when the case ends.

        Args:
            store: which store.
            path: the directory or key; the whole resource if not given.
            after: the resourceVersion.
            options: further fields of ListOptions.
        """
        watch = await store.watch(path or self.prefix, ListOptions(resource_version=str(after), **options))
        self.adopt(watch)
        return watch

    def adopt(self, watch: Watch) -> None:
        """Stop a watch when the case ends that was not opened through the context."""
        self._watches.append(watch)

    # --- expectations -------------------------------------------------------------------------------------------------

    def expect_same(self, got: Any, want: Any, what: str = "the object") -> None:
        """Fail with the difference unless two stored objects, or sequences of them, are the same to the last field.

        Keys, resourceVersions and whole contents count; the order of JSON fields does not.
        """
        if text := difference(got, want):
            raise AssertionError(f"{what} differs from what was promised:\n{text}")

    def expect_same_content(self, got: StoredObject, want: StoredObject, what: str = "the object") -> None:
        """Fail with the difference unless two stored objects are the same but for their resourceVersion."""
        self.expect_same(StoredObject(key=got.key, revision=want.revision, raw=got.raw), want, what)

    async def next_event(self, watch: Watch, within: float = EVENT_TIMEOUT) -> WatchEvent | None:
        """Return the next event, None when the watch has ended; fail when nothing comes in time.

        The read goes on in the background after a time-out: the event is returned by the next call, never lost.
        Read a watch either through the context or directly, not in turns.
        """
        task = self._pending.get(id(watch))
        if task is None:
            task = self._pending[id(watch)] = asyncio.ensure_future(_read(watch))
        done, _ = await asyncio.wait({task}, timeout=within)
        if not done:
            raise AssertionError(f"no event within {within:g} s")
        del self._pending[id(watch)]
        try:
            return task.result()
        except StopAsyncIteration:
            return None

    async def expect_event(
        self, watch: Watch, kind: EventType, obj: StoredObject | None = None, within: float = EVENT_TIMEOUT
    ) -> WatchEvent:
        """Return the next event, which must be of this kind and, if given, carry exactly this object."""
        try:
            event = await self.next_event(watch, within)
        except AssertionError:
            raise AssertionError(f"expected {kind.value}{_of(obj)}, but nothing came within {within:g} s") from None
        if event is None:
            raise AssertionError(f"expected {kind.value}{_of(obj)}, but the watch ended")
        if event.type is not kind:
            raise AssertionError(f"expected {kind.value}{_of(obj)}, got {describe(event)}")
        if obj is not None:
            self.expect_same(event.object, obj, f"the object of the {kind.value} event")
        return event

    async def expect_silence(self, watch: Watch, seconds: float = 0.0) -> None:
        """Fail if an event comes, or the watch ends, within the harness's silence (or `seconds` if longer)."""
        try:
            event = await self.next_event(watch, max(seconds, self.session.harness.silence))
        except AssertionError:
            return
        raise AssertionError(f"expected silence, got {describe(event)}")

    async def expect_closed(self, watch: Watch) -> None:
        """Fail unless the watch has ended with nothing left to read."""
        if (event := await self.next_event(watch)) is not None:
            raise AssertionError(f"expected the end of the watch, got {describe(event)}")

    async def expect_stopped(self, watch: Watch) -> None:
        """Stop the watch; fail unless it then ends with nothing left to read."""
        watch.stop()
        await self.expect_closed(watch)

    # --- hooks --------------------------------------------------------------------------------------------------------

    @property
    def engine(self) -> Engine:
        """The engine below the stores, for the cases on the ten engine methods."""
        return self.engine_of(self._connection)

    async def second_engine(self) -> Engine:
        """Return the engine of another connection to the same database."""
        return self.engine_of(await self.session.second_connection())

    def engine_of(self, connection: Connection) -> Engine:
        """Return the engine of a connection; needs the `engine` hook."""
        if not isinstance(connection, EngineConnection):
            _missing(Hook.ENGINE, "this backend's stores are not built on an engine")
        return connection.engine

    def span(self, below: str = "") -> tuple[str, str]:
        """Return the bounds of the engine keys of this case, or of those in a directory `below/` of it."""
        start = f"{self.root}/{below}/" if below else f"{self.root}/"
        return start, prefix_end(start)

    async def connect(self) -> Connection:
        """Return a connection of the case's own, which is closed when the case ends."""
        connection = await self.session.harness.connect()
        self._connections.append(connection)
        return connection

    async def increase_rv(self) -> int:
        """Write once outside the case's resource and return that write's resourceVersion."""
        store = self._open(
            self._connection,
            Resource(
                group_resource="others",
                resource_prefix=self.prefix.replace("pods", "others"),
                api_version="v1",
                kind="Other",
            ),
        )
        name = f"bump-{len(self._stores)}"
        other = {"apiVersion": "v1", "kind": "Other", "metadata": {"name": name}}
        return (await store.create(f"{store.resource_prefix}{name}", other)).revision

    async def compact(self, revision: int, store: Store | None = None) -> None:
        """Compact the history at a revision; with a store, return once that store knows of it."""
        own = getattr(self.session.harness, "compact", None)
        connection = self._connection
        if own is not None:
            await own(revision)
        elif isinstance(connection, EngineConnection):
            await connection.compact(revision)
        else:
            _missing(Hook.COMPACT)
        for known in (connection, self._second):
            if isinstance(known, EngineConnection):
                await known.observe_compaction()
        for front in self._stores:
            if isinstance(front, CachedStore):  # a cache keeps more than the database; a case is about what is gone
                front.cacher.forget_history(revision)
        if store is not None:
            await self.eventually(lambda: store.compact_revision() >= revision, "the store learns of the compaction")

    def set_failing(self, failing: bool, *, decoder: bool = False) -> None:  # noqa: FBT001 - upstream's own hook
        """Make every read of a stored value fail: in the transformer, or in the decoder behind it."""
        read = transformers.garble if decoder else transformers.fail
        self.transformer.set(read=read if failing else None)

    def counted(self) -> CountingEngine:
        """Count the engine reads of every store opened from here on; see also `transformer.reads`."""
        if self.view is not View.STORE:
            _missing(Hook.COUNT_CALLS, "what a store reads is counted without anything in front of it")
        if self._counter is None:
            self._counter = CountingEngine(self.engine)
            self._connection = self.session.wrap(self._counter, self.root)
        return self._counter

    @property
    def can_jitter(self) -> bool:
        """Whether `jitter` has an effect: it sits between a store and its engine."""
        return isinstance(self._connection, EngineConnection)

    def jitter(self) -> None:
        """Make the engine calls of every store opened from here on overlap, also where the engine never waits."""
        self._jittered = True

    async def peek(self, key: str) -> bytes | None:
        """Return the bytes stored for a store key, read past the store."""
        own = getattr(self.session.harness, "peek", None)
        if own is not None:
            stored: bytes | None = await own(self.full_key(key))
            return stored
        record = (await self._raw(Hook.RAW_PEEK).read(self.full_key(key))).record
        return record.value if record else None

    async def poke(self, key: str, value: bytes) -> None:
        """Replace the bytes stored for a store key past the store."""
        own = getattr(self.session.harness, "poke", None)
        if own is not None:
            await own(self.full_key(key), value)
            return
        engine, full = self._raw(Hook.RAW_POKE), self.full_key(key)
        record = (await engine.read(full)).record
        written = await engine.write(full, value, expect=record.mod_revision if record else 0)
        assert not isinstance(written, Conflict), "another writer interfered with poke"

    async def expect_canonical(self, key: str) -> None:
        """Fail unless the record under the key decodes and carries neither resourceVersion nor selfLink."""
        stored = await self.peek(key)
        assert stored is not None, f"nothing is stored under {self.full_key(key)}"
        plain, _ = self.transformer.strip(stored)
        metadata = decode_object(plain).get("metadata", {})
        for field in ("resourceVersion", "selfLink"):
            assert not metadata.get(field), f"the record under {key} stores metadata.{field} = {metadata[field]!r}"

    def _raw(self, hook: Hook) -> Engine:
        if not isinstance(self._connection, EngineConnection):
            _missing(hook)
        return self._connection.engine

    async def advance(self, seconds: float) -> None:
        """Move the backend's clock; needs the `clock` hook."""
        self._need(Hook.CLOCK, "clock")
        moved = self.session.harness.clock.advance(seconds)  # type: ignore[attr-defined]  # an optional member
        if inspect.isawaitable(moved):
            await moved

    async def elapse(self, seconds: float) -> None:
        """Let time pass for the backend: on its own clock where it has one to move, by waiting elsewhere."""
        if getattr(self.session.harness, "clock", None) is None:
            await asyncio.sleep(seconds)
        else:
            await self.advance(seconds)

    async def restart(self) -> None:
        """Restart the database and connect anew; stores opened before are lost."""
        self._need(Hook.RESTART, "restart")
        await self.session.restart()
        self._connection = self.session.isolate(self.session.connection, self.root)

    async def backup(self) -> Any:
        """Return a backup of the database, for `restore`."""
        self._need(Hook.RESTORE, "backup", "restore")
        return await self.session.harness.backup()  # type: ignore[attr-defined]  # an optional member

    async def restore(self, backup: Any) -> None:
        """Put the database back to a backup and connect anew; stores opened before are lost."""
        self._need(Hook.RESTORE, "backup", "restore")
        await self.session.harness.restore(backup)  # type: ignore[attr-defined]  # as above
        await self.restart()

    @property
    def fault(self) -> Any:
        """The harness's faults: `await ctx.fault.drop()`, `pause()`, `resume()`."""
        self._need(Hook.FAULT, "fault")
        return self.session.harness.fault  # type: ignore[attr-defined]  # an optional member

    def _need(self, hook: Hook, *members: str) -> None:
        """End the case here, with the reason, when the harness does not give a hook."""
        reason = getattr(self.session.harness, "without", {}).get(hook.value, "")
        if reason or any(getattr(self.session.harness, member, None) is None for member in members):
            _missing(hook, reason)

    async def eventually(self, condition: Any, what: str, within: float = EVENT_TIMEOUT) -> None:
        """Wait until a condition (sync or async) holds; fail with `what` when it does not in time."""
        deadline = asyncio.get_running_loop().time() + within
        while True:
            holds = condition()
            if inspect.isawaitable(holds):
                holds = await holds
            if holds:
                return
            if asyncio.get_running_loop().time() > deadline:
                raise AssertionError(f"not within {within:g} s: {what}")
            await asyncio.sleep(0.01)

    async def aclose(self) -> None:
        """Stop every watch and close every store that the case opened."""
        for watch in self._watches:
            watch.stop()
        for task in self._pending.values():
            task.cancel()
        if self._pending:
            await asyncio.wait(self._pending.values())
        for watch in self._watches:
            await watch.__aexit__(None, None, None)
        # Whatever stands in front was opened after what it stands in front of.
        for store in reversed(self._stores):
            await store.aclose()
        for connection in self._connections:
            await connection.aclose()


def _missing(hook: Hook, detail: str = "") -> NoReturn:
    raise MissingHook(hook, detail)


async def _read(watch: Watch) -> WatchEvent:
    return await watch.__anext__()


def _of(obj: StoredObject | None) -> str:
    return f" of {obj.key} at {obj.revision}" if obj is not None else ""


def describe(event: WatchEvent | None) -> str:
    """Return an event in words."""
    if event is None:
        return "the end of the watch"
    if event.error is not None:
        return f"{event.type.value}: {event.error}"
    return f"{event.type.value} of\n{show(event.object)}"


def revisions(items: Sequence[StoredObject]) -> list[int]:
    """Return the resourceVersions of some objects, in order."""
    return [item.revision for item in items]
