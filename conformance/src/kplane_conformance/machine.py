"""A hypothesis state machine that drives a store and compares every answer and every stream with the model."""

import asyncio
from collections.abc import Awaitable, Coroutine, Sequence
from typing import Any, TypeVar

import attrs
import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from kplane_conformance.context import EVENT_TIMEOUT, Context
from kplane_conformance.modelling import Model, Told, Version, tell, tell_event
from kplane_conformance.objects import pod
from kplane_conformance.session import Session
from kplane_core.errors import Expired, InternalError, InvalidObj, KeyExists, KeyNotFound
from kplane_core.storage.codec import encode_object
from kplane_core.storage.interface import GetOptions, ListOptions, ObjectList, Store, StoredObject, Watch
from kplane_core.storage.preconditions import Preconditions

T = TypeVar("T")

# `ns1` begins like `ns10`, and `a` like `a.b`: boundaries are where lists and watches go wrong. Few keys, so that many
# things happen to each.
KEYS = st.sampled_from([("ns1", "a"), ("ns1", "a.b"), ("ns10", "a"), ("ns2", "a")])
LABELS = st.sampled_from(["", "red", "blue"])
DIRECTORIES = st.sampled_from(["", "ns1/", "ns10/"])
TTLS = st.sampled_from([0, 0, 0, 10, 25])
STEP = 7.0
"""Seconds by which the clock is moved: never nearer than 3 s to the end of a TTL, so that real time does not matter."""


class Blocking:
    """Runs coroutines of the suite's event loop from the thread that hypothesis runs in.

    Args:
        loop: where the backend lives.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.closed = False

    def __call__(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what the coroutine returns."""
        if self.closed:
            work.close()
            raise RuntimeError("the case has ended")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(2 * EVENT_TIMEOUT)


@attrs.define(eq=False)
class Stream:
    """An open watch and what it has told so far.

    Attributes:
        watch: the watch.
        directory: what it watches.
        label: what it selects.
        after: the revision that it starts after.
        initial: what it must tell of the state at its start.
        told: what it told.
        refusable: whether it begins so near to the compaction that it may be refused.
    """

    watch: Watch
    directory: str
    label: str
    after: int
    initial: Sequence[Told]
    told: list[Told] = attrs.field(factory=list)
    refusable: bool = False


@attrs.define
class Paging:
    """A list that is read page by page.

    Attributes:
        directory: what is listed.
        limit: items per page.
        at: the revision of the first page.
        token: where the next page starts.
        seen: the items so far.
    """

    directory: str
    limit: int
    at: int
    token: str
    seen: list[Told]


class StoreMachine(RuleBasedStateMachine):
    """Drives one store through two handles; `session` and `run` are set by the case."""

    session: Session
    run: Blocking

    @initialize()
    def begin(self) -> None:
        """Open an empty world."""
        self.ctx: Context = self.session.context()
        self.streams: list[Stream] = []
        self.pages: list[Paging] = []
        self.stores: list[Store] = [self.do(self.ctx.store()), self.do(self.ctx.second_store())]
        self.model = Model(self.do(self.ctx.current(self.stores[0])))

    def do(self, work: Awaitable[T]) -> T:
        """Run a coroutine where the backend lives."""

        async def awaited() -> T:
            return await work

        return self.run(awaited())

    def teardown(self) -> None:
        """Compare every stream once more and close the world."""
        if not hasattr(self, "ctx"):
            return
        try:
            if not self.run.closed:
                for stream in tuple(self.streams):
                    self._drain(stream)
        finally:
            if not self.run.closed:
                self.do(self.ctx.aclose())

    # --- writes -------------------------------------------------------------------------------------------------------

    def _object(self, where: tuple[str, str], number: int, label: str) -> tuple[str, dict[str, Any]]:
        space, name = where
        labels = {"colour": label} if label else None
        return self.ctx.key(space, name), pod(name, space, labels=labels, annotations={"number": str(number)})

    def _suggest(self, key: str, kind: str) -> StoredObject | None:
        """Return nothing, what is stored, or an old version of it as what the caller believes is stored."""
        versions = [change.new for change in self.model.log if change.key == key and change.new]
        if kind == "none" or not versions:
            return None
        chosen = versions[-1] if kind == "current" else versions[0]
        return StoredObject(key, chosen.revision, encode_object(dict(chosen.document)))

    def _demand(self, key: str, kind: str) -> tuple[Preconditions | None, bool]:
        """Return preconditions and whether they hold."""
        current = self.model.live.get(key)
        if kind == "none":
            return None, True
        if kind == "current" and current:
            return Preconditions(resource_version=str(current.revision)), True
        return Preconditions(resource_version=str(self.model.start)), False

    @rule(handle=st.integers(0, 1), where=KEYS, number=st.integers(0, 3), label=LABELS, ttl=TTLS)
    def create(self, handle: int, where: tuple[str, str], number: int, label: str, ttl: int) -> None:
        """Create an object."""
        key, obj = self._object(where, number, label)
        try:
            created = self.do(self.stores[handle].create(key, obj, ttl=ttl if self._timed else 0))
        except KeyExists:
            assert key in self.model.live, f"{key} holds nothing, but creating it was refused"
            return
        assert key not in self.model.live, f"{key} was created although it holds something"
        self.model.commit(created.revision, key, obj, ttl=ttl if self._timed else 0)
        assert tell("", created) == Told("", key, created.revision, obj)

    @rule(
        handle=st.integers(0, 1),
        where=KEYS,
        number=st.integers(0, 3),
        label=LABELS,
        ttl=st.sampled_from([None, None, 0, 10]),
        suggest=st.sampled_from(["none", "current", "stale"]),
        demand=st.sampled_from(["none", "none", "current", "wrong"]),
        upsert=st.booleans(),
    )
    def update(
        self,
        handle: int,
        where: tuple[str, str],
        number: int,
        label: str,
        ttl: int | None,
        suggest: str,
        demand: str,
        upsert: bool,  # noqa: FBT001 - as above
    ) -> None:
        """Replace an object, or create it, with whatever the caller believes and demands."""
        key, obj = self._object(where, number, label)
        ttl = ttl if self._timed else None
        preconditions, holds = self._demand(key, demand)
        before = self.model.live.get(key)
        given: list[tuple[bool, int]] = []

        def change(old: dict[str, Any], meta: Any) -> tuple[dict[str, Any], int | None]:
            given.append((bool(old), meta.resource_version))
            return obj, ttl

        believed = self._suggest(key, suggest)
        call = self.stores[handle].guaranteed_update(
            key, change, ignore_not_found=upsert, preconditions=preconditions, suggestion=believed
        )
        try:
            written = self.do(call)
        except KeyNotFound:
            assert before is None, "not found, but the model has it"
            assert not upsert, "an update that may create said that nothing is there"
            return
        except InvalidObj:
            assert not holds, "a precondition that holds was refused"
            return
        assert holds, "a precondition that does not hold was ignored"
        assert before is not None or upsert, "an update created an object although it may not"
        seen = [(before is not None, before.revision if before else 0)]
        if before is not None and believed is not None and written.revision == before.revision:
            # A suggestion of equal content is enough to see that nothing changes.
            seen.append((True, believed.revision))
        assert given[-1] in seen, "the last round saw something else"
        self._updated(key, obj, ttl, before, written)

    def _updated(
        self, key: str, obj: dict[str, Any], ttl: int | None, before: Version | None, written: StoredObject
    ) -> None:
        if before is not None and before.document == obj and written.revision == before.revision:
            return  # nothing changed, so nothing was written
        assert before is None or before.document != obj, "an update that changes nothing got a new resourceVersion"
        self.model.commit(written.revision, key, obj, ttl=ttl)
        assert tell("", written) == Told("", key, written.revision, obj)

    @rule(
        handle=st.integers(0, 1),
        where=KEYS,
        number=st.integers(0, 99),
        label=LABELS,
        ttl=st.sampled_from([None, 0, 10, 25]),
    )
    def put(self, handle: int, where: tuple[str, str], number: int, label: str, ttl: int | None) -> None:
        """Replace or create an object without any demand, so that much happens."""
        key, obj = self._object(where, number, label)
        ttl = ttl if self._timed else None
        before = self.model.live.get(key)
        call = self.stores[handle].guaranteed_update(key, lambda *_: (obj, ttl), ignore_not_found=True)
        self._updated(key, obj, ttl, before, self.do(call))

    @rule(
        handle=st.integers(0, 1),
        where=KEYS,
        suggest=st.sampled_from(["none", "current", "stale"]),
        demand=st.sampled_from(["none", "none", "current", "wrong"]),
    )
    def delete(self, handle: int, where: tuple[str, str], suggest: str, demand: str) -> None:
        """Delete an object."""
        key, _ = self._object(where, 0, "")
        preconditions, holds = self._demand(key, demand)
        before = self.model.live.get(key)
        call = self.stores[handle].delete(key, preconditions=preconditions, suggestion=self._suggest(key, suggest))
        try:
            deleted = self.do(call)
        except KeyNotFound:
            assert before is None, "not found, but the model has it"
            return
        except InvalidObj:
            assert not holds, "a precondition that holds was refused"
            return
        assert before is not None, "something was deleted where nothing is"
        assert holds, "a precondition that does not hold was ignored"
        self.model.commit(deleted.revision, key, None)
        assert tell("", deleted) == Told("", key, deleted.revision, before.document)

    @property
    def _timed(self) -> bool:
        """Whether the backend has TTLs and a clock that can be moved."""
        return hasattr(self.session.harness, "clock")

    @precondition(lambda self: any(version.expires for version in self.model.live.values()))
    @rule()
    def let_time_pass(self) -> None:
        """Move the clock: what is due goes, with revisions that a watch tells, and nothing else does."""
        before = self.model.newest
        self.model.now += STEP
        due = set(self.model.due())
        self.do(self.ctx.advance(STEP))
        watch = self.do(self.ctx.watch(self.stores[0], after=before))
        while due:
            event = self.do(self.ctx.next_event(watch, self._patience))
            assert event is not None
            assert event.object is not None
            told = tell_event(event)
            assert told.kind == "DELETED", f"an expiry showed as {told.kind}"
            assert told.key in due, f"{told.key} went before its time, or twice"
            due.discard(told.key)
            assert told.document == self.model.live[told.key].document
            self.model.commit(told.revision, told.key, None)
        watch.stop()
        self.list_newest(0, "", "")

    @property
    def _patience(self) -> float:
        """Seconds to wait for an event that was committed before: a failure must not take long to be reproduced."""
        return max(2.0, 20 * self.session.harness.silence)

    # --- reads --------------------------------------------------------------------------------------------------------

    @rule(handle=st.integers(0, 1), where=KEYS, not_older=st.booleans())
    def get(self, handle: int, where: tuple[str, str], not_older: bool) -> None:  # noqa: FBT001 - drawn by hypothesis
        """Read one object."""
        key, _ = self._object(where, 0, "")
        version = str(self.model.newest) if not_older else ""
        current = self.model.live.get(key)
        try:
            found = self.do(self.stores[handle].get(key, GetOptions(resource_version=version)))
        except KeyNotFound:
            assert current is None, "not found, but the model has it"
            return
        assert current is not None, f"{key} was read, but the model has nothing there"
        assert tell("", found) == Told("", key, current.revision, current.document)

    def _listed(self, page: ObjectList) -> list[Told]:
        return [tell("", item) for item in page.items]

    @rule(handle=st.integers(0, 1), directory=DIRECTORIES, label=LABELS)
    def list_newest(self, handle: int, directory: str, label: str) -> None:
        """List the newest state."""
        path = self.ctx.prefix + directory
        page = self.do(self.ctx.list(self.stores[handle], path, predicate=self._select(label)))
        assert self._listed(page) == self.model.items(path, label)
        assert page.revision >= self.model.newest
        assert not page.continue_token

    @rule(handle=st.integers(0, 1), directory=DIRECTORIES, label=LABELS, back=st.integers(0, 12))
    def list_exactly(self, handle: int, directory: str, label: str, back: int) -> None:
        """List the state as of an earlier change."""
        path = self.ctx.prefix + directory
        at = self._earlier(back)
        work = self.ctx.list(
            self.stores[handle],
            path,
            resource_version=str(at),
            resource_version_match="Exact",
            predicate=self._select(label),
        )
        try:
            page = self.do(work)
        except Expired:
            assert at < self.model.floor, f"revision {at} is said to be gone; the history starts at {self.model.floor}"
            return
        assert at >= self.model.floor, "a compacted revision was answered"
        assert (page.revision, self._listed(page)) == (at, list(self.model.items(path, label, at)))

    def _earlier(self, back: int) -> int:
        known = [self.model.start, *(change.revision for change in self.model.log)]
        return known[max(len(known) - 1 - back, 0)]

    def _select(self, label: str, **more: Any) -> Any:
        return self.ctx.select(labels=f"colour={label}" if label else "", **more)

    @rule(handle=st.integers(0, 1), directory=DIRECTORIES, limit=st.integers(1, 2))
    def first_page(self, handle: int, directory: str, limit: int) -> None:
        """Begin a list in pages."""
        path = self.ctx.prefix + directory
        page = self.do(self.ctx.list(self.stores[handle], path, predicate=self._select("", limit=limit)))
        self._page(Paging(path, limit, page.revision, "", []), page)

    @precondition(lambda self: self.pages)
    @rule(handle=st.integers(0, 1), data=st.data())
    def next_page(self, handle: int, data: st.DataObject) -> None:
        """Go on with a list in pages, whatever has happened meanwhile."""
        paging = self.pages.pop(data.draw(st.integers(0, len(self.pages) - 1)))
        predicate = self._select("", limit=paging.limit, token=paging.token)
        try:
            page = self.do(self.ctx.list(self.stores[handle], paging.directory, predicate=predicate))
        except Expired as error:
            assert paging.at < self.model.floor, "a page was refused although its revision is still there"
            if not error.status().continue_token:
                raise AssertionError("an expired page offers no way to go on") from error
            return
        assert paging.at >= self.model.floor, "a page of a compacted revision was answered"
        self._page(paging, page)

    def _page(self, paging: Paging, page: ObjectList) -> None:
        assert page.revision == paging.at, "the pages of one list come from different revisions"
        paging.seen += self._listed(page)
        whole = self.model.items(paging.directory, "", paging.at)
        assert paging.seen == whole[: len(paging.seen)], "the pages do not add up to the state at their revision"
        left = len(whole) - len(paging.seen)
        assert bool(page.continue_token) == bool(left), "a token where nothing follows, or none where something does"
        assert page.remaining == (left or None)
        if left:
            self.pages.append(attrs.evolve(paging, token=page.continue_token))

    # --- watches ------------------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.streams) < 4)
    @rule(handle=st.integers(0, 1), directory=DIRECTORIES, label=LABELS, back=st.integers(0, 8), initial=st.booleans())
    def open_watch(self, handle: int, directory: str, label: str, back: int, initial: bool) -> None:  # noqa: FBT001
        """Open a watch after an earlier change, or on the present state."""
        path = self.ctx.prefix + directory
        floor = self.model.floor
        after = self.model.newest if initial else max(self._earlier(back), floor - 1)
        options = ListOptions(resource_version="" if initial else str(after), predicate=self._select(label))
        watch = self.do(self.stores[handle].watch(path, options))
        state = self.model.items(path, label) if initial else ()
        added = [attrs.evolve(item, kind="ADDED") for item in state]
        self.ctx.adopt(watch)
        self.streams.append(Stream(watch, path, label, after, added, refusable=after == floor - 1))

    @precondition(lambda self: self.model.floor > self.model.start)
    @rule(handle=st.integers(0, 1))
    def watch_too_old(self, handle: int) -> None:
        """A watch from before the kept history ends as expired."""
        watch = self.do(self.ctx.watch(self.stores[handle], after=self.model.start))
        event = self.do(self.ctx.next_event(watch, self._patience))
        if self.model.start + 1 < self.model.floor:
            assert event is not None
            assert isinstance(event.error, Expired), f"expected an expired watch, got {event}"
        watch.stop()

    @precondition(lambda self: self.streams)
    @rule(data=st.data())
    def read_watch(self, data: st.DataObject) -> None:
        """Read a watch up to the present."""
        self._drain(data.draw(st.sampled_from(self.streams)))

    def _drain(self, stream: Stream) -> None:
        expected = [*stream.initial, *self.model.events(stream.directory, stream.label, stream.after)]
        while len(stream.told) < len(expected):
            event = self.do(self.ctx.next_event(stream.watch, self._patience))
            # Of a change at the compaction the value before may be gone, which a selector needs (D9).
            if stream.refusable and not stream.told and event and isinstance(event.error, Expired | InternalError):
                self.streams.remove(stream)
                return
            assert event is not None, f"a watch ended; it owes {expected[len(stream.told)]}"
            stream.told.append(tell_event(event))
            place = len(stream.told) - 1
            assert stream.told[place] == expected[place], "a watch told something else than what happened"

    def _close(self, stream: Stream) -> None:
        self.streams.remove(stream)
        if stream.refusable and not stream.told:
            stream.watch.stop()  # whether it was refused shows only if there was something to tell
        else:
            self.do(self.ctx.expect_stopped(stream.watch))

    @precondition(lambda self: self.streams)
    @rule(data=st.data())
    def close_watch(self, data: st.DataObject) -> None:
        """Read a watch to the present and close it: nothing may be left."""
        stream = data.draw(st.sampled_from(self.streams))
        self._drain(stream)
        if stream not in self.streams:
            return
        self._close(stream)

    @precondition(lambda self: self.streams)
    @rule(data=st.data(), handle=st.integers(0, 1))
    def resume_watch(self, data: st.DataObject, handle: int) -> None:
        """Close a watch and open it again after the last revision it told, as a client does."""
        stream = data.draw(st.sampled_from(self.streams))
        self._drain(stream)
        if stream not in self.streams:
            return
        self._close(stream)
        live = stream.told[len(stream.initial) :]
        after = max([stream.after, self.model.floor, *(told.revision for told in live)])
        options = ListOptions(resource_version=str(after), predicate=self._select(stream.label))
        watch = self.do(self.stores[handle].watch(stream.directory, options))
        self.ctx.adopt(watch)
        self.streams.append(Stream(watch, stream.directory, stream.label, after, ()))

    @precondition(lambda self: len(self.model.log) > 3)
    @rule(back=st.integers(0, 8))
    def compact(self, back: int) -> None:
        """Drop history; watches that have been read to the present go on."""
        at = self._earlier(back)
        if at <= max(self.model.floor, self.model.start):
            return
        for stream in tuple(self.streams):
            self._drain(stream)
        for stream in tuple(self.streams):
            # A watch of the past that had nothing to tell may not be at the present yet: let it tell something.
            if stream in self.streams and len(stream.told) == len(stream.initial) and stream.after < self.model.newest:
                space = stream.directory.removeprefix(self.ctx.prefix).rstrip("/") or "ns1"
                self.put(handle=0, where=(space, "told"), number=len(self.model.log), label=stream.label, ttl=0)
                self._drain(stream)
        self.do(self.ctx.compact(at))
        self.model.floor = at
