"""Sharp edges of watches: what they tell of objects whose time runs out."""

import asyncio
import random
from collections.abc import Mapping, Sequence

import attrs

from kplane_conformance.case import Capability, case
from kplane_conformance.context import Context, describe
from kplane_conformance.objects import pod
from kplane_core.storage.interface import EventType, Store, StoredObject, Watch


class BackendTime:
    """Time as the time to live of an object sees it: it passes, and may be turned forward.

    Args:
        ctx: the case's context.
    """

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._turned = 0.0

    def now(self) -> float:
        """Return the seconds."""
        return asyncio.get_running_loop().time() + self._turned

    async def elapse(self, seconds: float) -> None:
        """Let time pass, and let who waits for events read them."""
        await self._ctx.elapse(seconds)
        if getattr(self._ctx.session.harness, "clock", None) is not None:
            self._turned += seconds
        await asyncio.sleep(0.005)


@attrs.define
class Life:
    """What is known of one key.

    Attributes:
        written: when each of its writes began, by resourceVersion.
        told: its events, in order, with the time of their arrival.
    """

    written: dict[int, float] = attrs.field(factory=dict)
    told: list[tuple[EventType, StoredObject, float]] = attrs.field(factory=list)

    @property
    def deletions(self) -> Sequence[tuple[StoredObject, float]]:
        """The DELETED events, with the time of their arrival."""
        return [(obj, arrived) for kind, obj, arrived in self.told if kind is EventType.DELETED]

    def age(self, deleted: StoredObject, arrived: float) -> float:
        """Return how long the object that a DELETED event tells of had lived since it was last written."""
        last = max(revision for revision in self.written if revision < deleted.revision)
        return arrived - self.written[last]


async def _listen(watch: Watch, lives: Mapping[str, Life], time: BackendTime) -> None:
    async for event in watch:
        assert event.object is not None, describe(event)
        if event.object.key in lives:
            lives[event.object.key].told.append((event.type, event.object, time.now()))


@case("D37", requires=[Capability.TTL], timeout=120.0)
async def many_expire_at_once(ctx: Context) -> None:
    """1500 objects with one time to live go when it has passed, each once, and hold nobody else up."""
    store, time = await ctx.store(), BackendTime(ctx)
    watch = await ctx.watch(store, after=await ctx.current(store))
    lives = {ctx.key("ns", f"e{number}"): Life() for number in range(1_500)}
    async with asyncio.TaskGroup() as tasks:
        listening = tasks.create_task(_listen(watch, lives, time))
        for key, life in lives.items():
            began = time.now()
            created = await store.create(key, pod(key.rpartition("/")[2], "ns"), ttl=2)
            life.written[created.revision] = began
        until = time.now() + 2 * 1.05 + 5
        while time.now() < until and not all(life.deletions for life in lives.values()):
            await time.elapse(0.25)
            await _write_quickly(ctx, store)
        await time.elapse(0.5)
        listening.cancel()
    for key, life in lives.items():
        assert len(life.deletions) == 1, f"{key} was told to be deleted {len(life.deletions)} times"
        age = life.age(*life.deletions[0])
        assert 2.0 <= age <= 2 * 1.05 + 5, f"{key} with ttl=2 was deleted after {age:.2f} s"
    assert not (await ctx.list(store, ctx.key("ns"))).items


async def _write_quickly(ctx: Context, store: Store) -> None:
    began = asyncio.get_running_loop().time()
    await ctx.update(store, pod("busy", "other", annotations={"at": str(began)}))
    took = asyncio.get_running_loop().time() - began
    assert took < 1.0, f"a write took {took:.2f} s while others expired"


@case("D38.watched", requires=[Capability.TTL])
async def refresh_wins(ctx: Context) -> None:
    """No DELETED comes of an object earlier than its time to live after its last refresh, however close the race."""
    store, time = await ctx.store(), BackendTime(ctx)
    rng = random.Random(ctx.session.seed)  # noqa: S311 - a schedule, no secret
    watch = await ctx.watch(store, after=await ctx.current(store))
    lives = {ctx.key("ns", f"e{number}"): Life() for number in range(50)}
    turnable = getattr(ctx.session.harness, "clock", None) is not None
    async with asyncio.TaskGroup() as tasks:
        listening = tasks.create_task(_listen(watch, lives, time))
        for number in range(20 if turnable else 4):
            for key, life in lives.items():
                began = time.now()
                refreshed = await _refresh(ctx, store, key, str(number))
                life.written[refreshed.revision] = began
            await time.elapse(rng.choice((1.0, 1.9, 1.95, 2.0)))
        await time.elapse(3.0)
        await ctx.eventually(lambda: all(life.deletions for life in lives.values()), "all objects expire in the end")
        listening.cancel()
    for key, life in lives.items():
        _check_life(key, life)


async def _refresh(ctx: Context, store: Store, key: str, value: str) -> StoredObject:
    return await ctx.update(store, pod(key.rpartition("/")[2], "ns", annotations={"value": value}), key=key, ttl=2)


def _check_life(key: str, life: Life) -> None:
    alive: StoredObject | None = None
    for kind, obj, arrived in life.told:
        if kind is EventType.DELETED:
            assert alive is not None, f"{key} was told to be deleted twice"
            assert obj.raw == alive.raw, f"the DELETED event of {key} does not carry what was there"
            age = life.age(obj, arrived)
            assert age >= 2.0, f"{key} with ttl=2 was deleted {age:.3f} s after a refresh"
            alive = None
        else:
            wanted = EventType.MODIFIED if alive else EventType.ADDED
            assert kind is wanted, f"{key}: {kind.value} at {obj.revision} must be {wanted.value}"
            assert obj.revision in life.written, f"{key}: nobody wrote {obj.revision}"
            alive = obj
