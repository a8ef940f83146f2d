"""Concurrent reads, creates, updates and deletes of single objects are linearizable."""

import asyncio
import itertools
import random
from collections.abc import Iterator

import attrs

from kplane_conformance.case import Hook, case
from kplane_conformance.context import Context, MissingHook
from kplane_conformance.linearizability import Operation, linearizable
from kplane_conformance.objects import pod
from kplane_core.errors import InvalidObj, KeyExists, KeyNotFound
from kplane_core.storage.interface import GetOptions, Store
from kplane_core.storage.preconditions import Preconditions

TASKS = 8
OPERATIONS = 2_000
KEYS = 4
_IF_ANY = GetOptions(ignore_not_found=True)

Version = tuple[int, str] | None
"""What a key holds: the resourceVersion and the value; None for nothing."""


@attrs.frozen
class Action:
    """One operation on a key and its answer.

    Attributes:
        kind: get, create, update or delete.
        expect: the resourceVersion that an update or delete demands.
        value: what is written.
        answer: the version that was read or written; None where there is none, or "refused" where the store said no.
    """

    kind: str
    expect: int
    value: str
    answer: Version | str


def step(state: Version, action: Action) -> tuple[bool, Version]:
    """Return whether the answer is right for a key in this state, and what the key holds afterwards."""
    refused = action.answer == "refused"
    match action.kind:
        case "get":
            return action.answer == state, state
        case "create":
            allowed = state is None
        case _:
            allowed = state is not None and state[0] == action.expect
    if not allowed:
        return refused, state
    if refused or not isinstance(action.answer, tuple):
        return False, state
    if state is not None and action.answer[0] <= state[0]:
        return False, state  # a change must get a greater resourceVersion
    return True, None if action.kind == "delete" else action.answer


@attrs.define
class _Client:
    """One task: remembers what it saw last, so that its demands are sometimes right and sometimes stale."""

    store: Store
    number: int
    random: random.Random
    clock: Iterator[int]
    history: dict[str, list[Operation[Action]]]
    known: dict[str, int] = attrs.field(factory=dict)

    async def work(self, keys: list[str], operations: int) -> None:
        for count in range(operations):
            key = self.random.choice(keys)
            kind = self.random.choice(("get", "get", "create", "update", "update", "update", "delete"))
            value = f"{self.number}-{count}"
            called = next(self.clock)
            expect = self.known.get(key, 1)
            answer = await self._call(kind, key, value, expect)
            action = Action(kind, expect, value, answer)
            self.history[key].append(Operation(action, called, next(self.clock), self.number))
            if isinstance(answer, tuple):
                self.known[key] = answer[0]

    async def _call(self, kind: str, key: str, value: str, expect: int) -> Version | str:
        obj = pod(key.rpartition("/")[2], annotations={"value": value})
        demand = Preconditions(resource_version=str(expect))
        try:
            match kind:
                case "get":
                    found = await self.store.get(key, _IF_ANY)
                    if not found.exists:
                        return None
                    return found.revision, found.decode()["metadata"]["annotations"]["value"]
                case "create":
                    written = await self.store.create(key, obj)
                case "update":
                    written = await self.store.guaranteed_update(key, lambda *_: (obj, None), preconditions=demand)
                case _:
                    written = await self.store.delete(key, preconditions=demand)
        except (InvalidObj, KeyExists, KeyNotFound):
            return "refused"
        return written.revision, value


@case("Linearizability", timeout=120.0)
async def single_keys(ctx: Context) -> None:
    """There is an order of eight tasks' overlapping operations on an object that explains every single answer."""
    ctx.jitter()
    stores = [await ctx.store(), await ctx.second_store()]
    keys = [ctx.key("test-ns", f"k{number}") for number in range(KEYS)]
    history: dict[str, list[Operation[Action]]] = {key: [] for key in keys}
    clock = itertools.count()
    async with asyncio.TaskGroup() as tasks:
        for number in range(TASKS):
            chance = random.Random(f"{ctx.session.seed}-{number}")  # noqa: S311 - a schedule, no secret
            client = _Client(stores[number % 2], number, chance, clock, history)
            tasks.create_task(client.work(keys, OPERATIONS // TASKS))
    for key, operations in history.items():
        overlapping = sum(1 for one in operations if one.returned > one.called + 1)
        if not overlapping and not ctx.can_jitter:
            raise MissingHook(Hook.ENGINE, "operations that never wait by themselves have to be made to")
        assert overlapping, "no two operations overlapped: nothing was tried"
        assert linearizable(operations, None, step), f"no order of the operations on {key} explains their answers"
