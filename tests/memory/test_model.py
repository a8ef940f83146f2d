"""Random programs against the engine and a model that is a list of everything that ever happened."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import attrs
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, precondition, rule

from kplane_core import ordered
from kplane_core.engine.interface import Compacted, Conflict, EngineEvent, FutureRevision, Record, Written
from kplane_memory import history
from kplane_memory.engine import MemoryEngine
from kplane_memory.history import History
from kplane_memory.watching import MemoryWatch

T = TypeVar("T")

KEYS = [
    *("/r/pods/clusters/c1/a", "/r/pods/clusters/c1/b", "/r/pods/clusters/c10/a", "/r/pods/clusters/c1/ns/a"),
    *("/r/pods/clusters/c1", "/r/pods/clusters/c1/é", "/r/pods/clusters/c1/e\u0301", "/r/pods/clusters/c1/%41"),
    *("/r/pods/clusters/c1/_", "/r/pods/clusters/c1/ ", "/r/pods/clusters/c1/😀", "/r/pods/clusters/c1/\uffff"),
    *("/", "//", "a", "/r/pods/clusters/c1/", "/r/nodes/n"),
]
BOUNDS = ["", "/", "/r/", "/r/pods/", "/r/pods/clusters/c1/", "/r/pods/clusters/c1/ns/", *KEYS]
RANGES = [
    *((start, start[:-1] + "0") for start in BOUNDS if start.endswith("/")),
    *((key, key + "\0") for key in KEYS),
    *(("", "\U0010ffff"), ("/r/pods/clusters/c1/_", "/r/pods/clusters/c1/é"), ("/r/a", "/r/q"), ("b", "a")),
]


@attrs.define(eq=False)
class Reader:
    """A watch and the revision up to which it was read."""

    watch: MemoryWatch
    start: str
    end: str
    position: int


class EngineAgainstModel(RuleBasedStateMachine):
    """Every answer of the engine follows from the list of changes."""

    readers: Bundle[Reader] = Bundle("readers")

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.now = 0.0
        self.changes: list[EngineEvent] = []
        self.deadlines: dict[str, float] = {}
        self.floor = 0
        self.saved = (ordered._SPLIT, history._SHORT, History._lanes_between)

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(call)

    @initialize(limit=st.sampled_from([1, 3, 10, 1000]), lanes=st.booleans())
    def start(self, limit: int, lanes: bool) -> None:  # noqa: FBT001 - hypothesis passes it
        self.limit = limit
        ordered._SPLIT = 4
        if lanes:  # always look events up by directory, never walk the log
            history._SHORT, looked_up = -1, History._lanes_between
            History._lanes_between = lambda self, start, end, _limit: looked_up(self, start, end, 1000)  # type: ignore[assignment]
        self.engine = MemoryEngine(history_limit=limit, progress_interval=0, clock=lambda: self.now)

    def teardown(self) -> None:
        self.run(self.engine.aclose())
        self.runner.close()
        ordered._SPLIT, history._SHORT, History._lanes_between = self.saved  # type: ignore[method-assign]

    # --- the model ---------------------------------------------------------------------------------------------------

    @property
    def newest(self) -> int:
        return 1 + len(self.changes)

    def state(self, at: int) -> dict[str, Record]:
        found: dict[str, Record] = {}
        for change in self.changes[: at - 1]:
            if change.value is None:
                del found[change.key]
            else:
                before = found.get(change.key)
                created = before.create_revision if before else change.revision
                found[change.key] = Record(change.key, change.value, created, change.revision)
        return found

    def change(self, key: str, value: bytes | None) -> None:
        previous = self.state(self.newest).get(key)
        created = value is not None and previous is None
        self.changes.append(EngineEvent(key, self.newest + 1, value, previous, created))
        self.floor = max(self.floor, self.newest - self.limit + 1 if len(self.changes) > self.limit else 0)
        if value is None:
            self.deadlines.pop(key, None)

    def expire(self) -> None:
        for when, key in sorted((when, key) for key, when in self.deadlines.items()):
            if when <= self.now:
                self.change(key, None)

    # --- what may happen ---------------------------------------------------------------------------------------------

    @rule(key=st.sampled_from(KEYS), value=st.binary(max_size=3), ttl=st.sampled_from([None, None, 0, 1, 3]))
    def put(self, key: str, value: bytes, ttl: int | None) -> None:
        current = self.state(self.newest).get(key)
        expect = current.mod_revision if current else 0
        assert self.run(self.engine.write(key, value, expect=expect, ttl=ttl)) == Written(self.newest + 1)
        self.change(key, value)
        if ttl:
            self.deadlines[key] = self.now + ttl
        elif ttl == 0:
            self.deadlines.pop(key, None)

    @rule(key=st.sampled_from(KEYS))
    def delete(self, key: str) -> None:
        current = self.state(self.newest).get(key)
        outcome = self.run(self.engine.write(key, None, expect=current.mod_revision if current else 0))
        if current is None:
            assert outcome == Conflict(None, self.newest)
        else:
            assert outcome == Written(self.newest + 1)
            self.change(key, None)

    @rule(key=st.sampled_from(KEYS), value=st.sampled_from([None, b"x"]), off=st.integers(1, 5))
    def lose(self, key: str, value: bytes | None, off: int) -> None:
        current = self.state(self.newest).get(key)
        wrong = (current.mod_revision if current else 0) + off
        assert self.run(self.engine.write(key, value, expect=wrong, ttl=1)) == Conflict(current, self.newest)

    @rule(seconds=st.sampled_from([0.5, 1, 2]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.expire()
        assert self.run(self.engine.revision()) == self.newest

    @rule(back=st.integers(-2, 8))
    def compact(self, back: int) -> None:
        at = self.newest - back
        if at <= self.floor:
            with pytest.raises(Compacted):
                self.run(self.engine.compact(at))
        elif at > self.newest:
            with pytest.raises(FutureRevision):
                self.run(self.engine.compact(at))
        else:
            self.run(self.engine.compact(at))
            self.floor = at

    @rule(where=st.sampled_from(RANGES), back=st.integers(-1, 30), limit=st.integers(0, 4), newest=st.booleans())
    def scan(self, where: tuple[str, str], back: int, limit: int, newest: bool) -> None:  # noqa: FBT001
        at = 0 if newest else max(1, self.newest - back)
        if not newest and self.refused(at, self.engine.scan(*where, at=at)):
            return
        page = self.run(self.engine.scan(*where, at=at, limit=limit, count=True))
        held = self.state(at or self.newest)
        expected = [held[key] for key in sorted(held) if where[0] <= key < where[1]]
        assert page.revision == (at or self.newest)
        assert page.total == len(expected)
        assert list(page.records) == (expected[:limit] if limit else expected)
        assert page.more == (0 < limit < len(expected))

    @rule(key=st.sampled_from(KEYS), back=st.integers(-1, 30))
    def read_back(self, key: str, back: int) -> None:
        at = max(1, self.newest - back)
        if not self.refused(at, self.engine.read(key, at=at)):
            found = self.run(self.engine.read(key, at=at))
            assert (found.record, found.revision) == (self.state(at).get(key), at)

    def refused(self, at: int, call: Coroutine[Any, Any, object]) -> bool:
        """Run the call; return whether it had to be refused, and was."""
        if self.floor <= at <= self.newest:
            self.run(call)
            return False
        with pytest.raises(Compacted if at < self.floor else FutureRevision):
            self.run(call)
        return True

    @rule(target=readers, where=st.sampled_from(RANGES), back=st.integers(-3, 20))
    def open(self, where: tuple[str, str], back: int) -> Reader:
        after = max(0, self.newest - back)
        if after + 1 < self.floor:
            with pytest.raises(Compacted):
                self.run(self.engine.watch(*where, after=after))
            after = self.newest
        watch = self.run(self.engine.watch(*where, after=after, progress=True))
        return Reader(watch, *where, after)

    @rule(reader=readers)
    def drain(self, reader: Reader) -> None:
        expected = [
            change
            for change in self.changes
            if change.revision > reader.position and reader.start <= change.key < reader.end
        ]
        if not expected:
            assert reader.watch.position is None
        elif expected[0].revision < self.newest - self.limit + 1:
            with pytest.raises(Compacted):
                self.run(reader.watch.batch())
        else:
            assert reader.watch.position == expected[0].revision
            events = [event for event in self.run(reader.watch.batch()) if not event.is_progress]
            assert events == expected
            reader.position = self.newest

    @rule(reader=readers)
    def mark(self, reader: Reader) -> None:
        self.drain(reader)
        self.run(self.engine.request_progress())
        if reader.position <= self.newest and not reader.watch._lost:
            assert self.run(reader.watch.batch())[-1] == EngineEvent("", self.newest)

    @rule(reader=consumes(readers))
    def close(self, reader: Reader) -> None:
        reader.watch.close()
        assert self.run(reader.watch.batch()) == ()

    # --- what always holds -------------------------------------------------------------------------------------------

    @precondition(lambda self: hasattr(self, "engine"))
    @invariant()
    def counters_agree(self) -> None:
        kept = [change.previous for change in self.changes if change.revision >= self.floor and change.previous]
        versions = [*self.state(self.newest).values(), *kept]
        assert self.run(self.engine.compacted()) == self.floor
        assert self.run(self.engine.size()) == sum(len(each.key) + len(each.value) for each in versions)


TestEngineAgainstModel = EngineAgainstModel.TestCase
TestEngineAgainstModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
