"""The oracle: what the calls of a case returned says what every list and every watch must show.

A case writes through the oracle, from as many tasks as it likes. From the results alone follows a log of changes in the
order of their resourceVersions; whatever a list at r shows must be the log replayed up to r, and whatever a watch
from N tells must be the transitions of the log after N, as its selector sees them.
"""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from kplane_conformance.context import EVENT_TIMEOUT, Context, describe
from kplane_conformance.objects import difference, pod
from kplane_core.errors import KeyNotFound
from kplane_core.storage.interface import EventType, ObjectList, Store, StoredObject, Watch, WatchEvent

Selector = Callable[[StoredObject], bool]
"""Whether a watch or list selects an object; written by the case, not by the code under test."""


def everything(_: StoredObject) -> bool:
    """Select every object."""
    return True


@attrs.frozen
class Change:
    """One committed change.

    Attributes:
        revision: its resourceVersion.
        key: which key.
        old: the object before; None for a create.
        new: the object after; None for a delete.
    """

    revision: int
    key: str
    old: StoredObject | None
    new: StoredObject | None

    def event(self, selects: Selector) -> WatchEvent | None:
        """Return what a watch with this selector tells of the change."""
        before = self.old is not None and selects(self.old)
        if self.new is not None and selects(self.new):
            return WatchEvent(EventType.MODIFIED if before else EventType.ADDED, self.new)
        if before and self.old is not None:
            return WatchEvent(EventType.DELETED, StoredObject(self.key, self.revision, self.old.raw))
        return None


class Oracle:
    """Knows every change that was made through it; see the module.

    The keys must be changed through the oracle only, and records must not expire.
    """

    def __init__(self) -> None:
        self._told: dict[int, tuple[str, StoredObject | None]] = {}
        self._deleted: dict[int, StoredObject] = {}

    # --- writing ------------------------------------------------------------------------------------------------------

    async def put(self, ctx: Context, store: Store, obj: dict[str, Any], *, key: str = "") -> StoredObject:
        """Replace or create an object."""
        return self.note(await ctx.update(store, obj, key=key))

    async def delete(self, store: Store, key: str) -> StoredObject | None:
        """Delete an object; return None when there is none."""
        try:
            deleted = await store.delete(key)
        except KeyNotFound:
            return None
        self._enter(deleted.revision, key, None)
        self._deleted[deleted.revision] = deleted
        return deleted

    def note(self, stored: StoredObject) -> StoredObject:
        """Take in the result of a create or update; one that changed nothing is known already."""
        self._enter(stored.revision, stored.key, stored)
        return stored

    def _enter(self, revision: int, key: str, new: StoredObject | None) -> None:
        known = self._told.setdefault(revision, (key, new))
        if known[0] != key or (known[1] is None) is not (new is None) or (new and difference(new, known[1])):
            raise AssertionError(f"two changes got resourceVersion {revision}: of {known[0]} and of {key}")

    # --- what must be -------------------------------------------------------------------------------------------------

    @property
    def newest(self) -> int:
        """The resourceVersion of the newest change."""
        return max(self._told, default=0)

    def log(self) -> Sequence[Change]:
        """Return all changes in order.

        Raises:
            AssertionError: a delete call returned something else than the object that was there.
        """
        held: dict[str, StoredObject] = {}
        changes = []
        for revision, (key, new) in sorted(self._told.items()):
            old = held.pop(key, None)
            if new is not None:
                held[key] = new
            else:
                assert old is not None, f"{key} was deleted at {revision}, but nothing was there"
                want = StoredObject(key, revision, old.raw)
                if text := difference(self._deleted[revision], want):
                    raise AssertionError(f"what the delete of {key} returned differs from what was there:\n{text}")
            changes.append(Change(revision, key, old, new))
        return changes

    def state(self, at: int | None = None) -> Mapping[str, StoredObject]:
        """Return what all keys hold at a resourceVersion, in key order."""
        held: dict[str, StoredObject] = {}
        for revision, (key, new) in sorted(self._told.items()):
            if at is not None and revision > at:
                break
            held.pop(key, None)
            if new is not None:
                held[key] = new
        return dict(sorted(held.items()))

    def items(self, path: str, selects: Selector = everything, *, at: int | None = None) -> Sequence[StoredObject]:
        """Return what a list of a directory shows at a resourceVersion."""
        return [obj for key, obj in self.state(at).items() if key.startswith(path) and selects(obj)]

    def events(
        self, path: str, after: int, selects: Selector = everything, *, recursive: bool = True
    ) -> Sequence[WatchEvent]:
        """Return what a watch of a directory (with its last slash) or of one key tells of everything after `after`."""
        changes = [change for change in self.log() if change.revision > after and _within(change.key, path, recursive)]
        return [event for change in changes if (event := change.event(selects)) is not None]

    # --- holding a store to it ----------------------------------------------------------------------------------------

    def check_list(self, page: ObjectList, path: str, selects: Selector = everything) -> None:
        """Fail unless a list, taken at its own resourceVersion, shows exactly what the log says."""
        want = self.items(path, selects, at=page.revision)
        if list(page.items) != want and (text := difference(page.items, want)):
            raise AssertionError(f"the list of {path} at {page.revision} is not what was written until then:\n{text}")

    async def check_watch(
        self, watch: Watch, path: str, after: int, selects: Selector = everything, *, recursive: bool = True
    ) -> None:
        """Fail unless a watch tells exactly what the log says, up to its newest change."""
        want = self.events(path, after, selects, recursive=recursive)
        if want:
            same_events(await collect(watch, _revision(want[-1])), want)


def _within(key: str, path: str, recursive: bool) -> bool:  # noqa: FBT001 - passed on
    return key.startswith(path) if recursive else key == path


def _revision(event: WatchEvent) -> int:
    return event.object.revision if event.object is not None else 0


def same_events(got: Sequence[WatchEvent], want: Sequence[WatchEvent]) -> None:
    """Fail at the first difference between two sequences of events, whole objects compared."""
    for number, (event, wanted) in enumerate(zip(got, want, strict=False), 1):
        if event == wanted:
            continue
        text = "" if event.error or wanted.error else difference(event.object, wanted.object)
        if event.type is not wanted.type or event.error or text:
            raise AssertionError(f"event {number} of {len(want)} must be {describe(wanted)}\ngot {describe(event)}")
    if len(got) != len(want):
        missing = f"; first missing: {describe(want[len(got)])}" if len(got) < len(want) else ""
        extra = f"; first too many: {describe(got[len(want)])}" if len(got) > len(want) else ""
        raise AssertionError(f"{len(want)} events were expected, {len(got)} came{missing}{extra}")


async def collect(watch: Watch, last: int, *, within: float = EVENT_TIMEOUT) -> list[WatchEvent]:
    """Return the live events of a watch, bookmarks left out, up to the one at `last` and what came with it.

    Fails when they stop coming, when the watch ends before, or when their resourceVersions do not rise.
    """
    return await _collect(watch, lambda obj: obj.revision >= last, f"resourceVersion {last}", within)


async def collect_to(watch: Watch, key: str, *, within: float = EVENT_TIMEOUT) -> list[WatchEvent]:
    """Do as `collect`, up to the first event of a key: for reading while others still write."""
    return await _collect(watch, lambda obj: obj.key == key, f"an event of {key}", within)


async def _collect(
    watch: Watch, done: Callable[[StoredObject], bool], waiting_for: str, within: float
) -> list[WatchEvent]:
    events: list[WatchEvent] = []
    reached, finished = 0, False
    while not finished:
        try:
            async with asyncio.timeout(within):
                batch = await watch.batch()
        except TimeoutError:
            raise AssertionError(f"nothing came within {within:g} s; waiting for {waiting_for}, at {reached}") from None
        assert batch, f"the watch ended; waiting for {waiting_for}, the last event was at {reached}"
        for event in batch:
            if event.type is EventType.BOOKMARK:
                continue
            assert event.object is not None, f"waiting for {waiting_for}, got {describe(event)}"
            assert event.object.revision > reached, f"after an event at {reached} came {describe(event)}"
            reached = event.object.revision
            events.append(event)
            finished = finished or done(event.object)
    return events


async def collect_resuming(
    ctx: Context, store: Store, watch: Watch, path: str, *, after: int, last: int
) -> list[WatchEvent]:
    """Return the live events of a watch up to `last`, opening it anew from the last event wherever it ended.

    It may end, with or without an ERROR, but it must be possible to go on from the last event.
    """
    events: list[WatchEvent] = []
    reached, came = after, True
    while reached < last:
        async with asyncio.timeout(EVENT_TIMEOUT):
            batch = await watch.batch()
        told = [event for event in batch if event.object is not None and event.type is not EventType.BOOKMARK]
        events += told
        came = came or bool(told)
        reached = max((_revision(event) for event in told), default=reached)
        if not batch or batch[-1].type is EventType.ERROR:
            end = describe(batch[-1] if batch else None)
            assert came, f"a watch of {path} from its last event, {reached}, ends at once: {end}"
            watch, came = await ctx.watch(store, path, after=reached), False
    return events


async def churn(
    ctx: Context,
    oracle: Oracle,
    store: Store,
    seed: int,
    *,
    writes: int,
    namespaces: Sequence[str] = ("ns1", "ns10", "ns2"),
    names: Sequence[str] = ("a", "a.b", "b"),
) -> None:
    """Write at random on a few keys, whose names begin alike: creates, updates, updates of nothing, deletes."""
    rng = random.Random(seed)  # noqa: S311 - a load, no secret
    for number in range(writes):
        namespace, name = rng.choice(namespaces), rng.choice(names)
        if rng.random() < 0.3:
            await oracle.delete(store, ctx.key(namespace, name))
            continue
        obj = pod(
            name,
            namespace,
            node=rng.choice(("", "n1", "n2")),
            labels={"colour": rng.choice(("red", "blue"))},
            annotations={"number": f"{seed}-{number}"} if rng.random() < 0.8 else None,
        )
        await oracle.put(ctx, store, obj)
