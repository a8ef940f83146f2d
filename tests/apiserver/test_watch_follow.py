"""Following a store: the picture is always one that the store had, also across lost watches and own writes."""

import asyncio
import contextlib
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kplane_apiserver.storing.follow import Follower
from kplane_core.engine.factory import EngineConnection
from kplane_core.errors import KeyExists, KeyNotFound, Unreachable
from kplane_core.storage.interface import StoredObject
from kplane_core.storage.resource import Resource
from kplane_memory.engine import MemoryEngine

RESOURCE = Resource("things", "/things/", "v1", "Thing")


class Picture:
    """What a follower was told."""

    def __init__(self) -> None:
        self.objects: dict[str, int] = {}
        self.newest: dict[str, int] = {}
        self.resets = 0

    def reset(self) -> None:
        self.resets += 1
        self.objects.clear()

    def apply(self, stored: StoredObject, deleted: bool) -> None:  # noqa: FBT001 (Follower's callback)
        assert stored.revision >= self.newest.get(stored.key, 0), "an older word must never follow a newer one"
        self.newest[stored.key] = stored.revision
        if deleted:
            self.objects.pop(stored.key, None)
        else:
            self.objects[stored.key] = stored.revision


def _document(value: int = 0) -> dict[str, Any]:
    return {"kind": "Thing", "metadata": {"name": "x"}, "value": value}


async def _until(check, seconds=5.0):
    async with asyncio.timeout(seconds):
        while not check():  # noqa: ASYNC110 (what is waited for has no event to wait on)
            await asyncio.sleep(0.001)


@contextlib.asynccontextmanager
async def _followed(engine):
    connection = EngineConnection(engine)
    store = connection.store(RESOURCE)
    picture = Picture()
    follower = Follower(store, "/things/", reset=picture.reset, apply=picture.apply)
    await store.create("/things/first", _document())
    await follower.start()
    try:
        yield store, picture, follower
    finally:
        await follower.aclose()
        await connection.aclose()
        assert asyncio.all_tasks() == {asyncio.current_task()}


def test_it_knows_everything_from_the_start_and_hears_of_every_change():
    async def run():
        async with _followed(MemoryEngine()) as (store, picture, _):
            assert list(picture.objects) == ["/things/first"]
            await store.create("/things/a", _document())
            await store.delete("/things/first")
            await _until(lambda: list(picture.objects) == ["/things/a"])

    asyncio.run(run())


def test_own_writes_are_known_at_once_and_an_older_word_does_not_undo_them():
    async def run():
        async with _followed(MemoryEngine()) as (store, picture, follower):
            created = await store.create("/things/a", _document())
            deleted = await store.delete("/things/a")
            follower.observe(deleted, deleted=True)
            follower.observe(created)
            assert list(picture.objects) == ["/things/first"]
            marker = await store.create("/things/z", _document())
            await _until(lambda: picture.objects.get("/things/z") == marker.revision)
            assert "/things/a" not in picture.objects
            assert not follower._ahead, "what the watch confirmed need not be remembered"

    asyncio.run(run())


def test_an_own_write_that_is_told_late_is_no_news():
    async def run():
        async with _followed(MemoryEngine()) as (store, picture, follower):
            created = await store.create("/things/a", _document())
            await store.delete("/things/a")
            marker = await store.create("/things/z", _document())
            await _until(lambda: picture.objects.get("/things/z") == marker.revision)
            follower.observe(created)
            assert "/things/a" not in picture.objects

    asyncio.run(run())


def test_a_watch_that_fell_behind_is_replaced_by_a_list():
    async def run():
        async with _followed(MemoryEngine(history_limit=10)) as (store, picture, _):
            await _until(lambda: picture.resets == 1)
            for number in range(50):
                await store.create(f"/things/n{number}", _document())
            await _until(lambda: len(picture.objects) == 51)
            assert picture.resets > 1
            await store.delete("/things/n0")
            await _until(lambda: len(picture.objects) == 50)

    asyncio.run(run())


def test_an_own_write_during_a_list_is_not_lost():
    async def run():
        connection = EngineConnection(MemoryEngine())
        store, picture = connection.store(RESOURCE), Picture()
        real = store.get_list

        async def get_list(*given):
            listed = await real(*given)
            follower.observe(await store.create("/things/a", _document()))
            return listed

        store.get_list = get_list
        follower = Follower(store, "/things/", reset=picture.reset, apply=picture.apply)
        await follower.start()
        assert list(picture.objects) == ["/things/a"]
        await follower.aclose()
        await connection.aclose()

    asyncio.run(run())


def test_a_database_that_is_away_for_a_while_is_asked_again(caplog):
    async def run():
        async with _followed(MemoryEngine(history_limit=10)) as (store, picture, _):
            lost, real = Unreachable("", "gone"), store.get_list
            fails = iter([True, True, False])

            async def get_list(*given):
                if next(fails, False):
                    raise lost
                return await real(*given)

            store.get_list = get_list
            for number in range(50):
                await store.create(f"/things/n{number}", _document())
            await _until(lambda: len(picture.objects) == 51)

    asyncio.run(run())
    assert "watching /things/ was interrupted and is tried again" in caplog.text


def test_a_store_that_cannot_be_listed_at_the_start_is_an_error():
    async def run():
        connection = EngineConnection(MemoryEngine())
        picture = Picture()
        store = connection.store(RESOURCE)
        follower = Follower(store, "/things/", reset=picture.reset, apply=picture.apply)
        await connection.aclose()
        with pytest.raises(Unreachable):
            await follower.start()
        await follower.aclose()

    asyncio.run(run())


def _count(old, _meta):
    return _document(old["value"] + 1), None


_STEPS = st.lists(st.tuples(st.sampled_from("cudo."), st.sampled_from("abc")), max_size=30)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(_STEPS)
def test_whatever_is_written_and_observed_the_picture_ends_as_the_store(steps):
    """c, u and d write; o lets the follower see the last own write, in time or late; a dot lets the watch catch up."""

    async def run():
        async with _followed(MemoryEngine(history_limit=8)) as (store, picture, follower):
            own: list[tuple[StoredObject, bool]] = []
            for step, name in steps:
                key = f"/things/{name}"
                with contextlib.suppress(KeyExists, KeyNotFound):
                    match step:
                        case "c":
                            own.append((await store.create(key, _document()), False))
                        case "u":
                            updated = await store.guaranteed_update(key, _count)
                            own.append((updated, False))
                        case "d":
                            own.append((await store.delete(key), True))
                        case "o":
                            for stored, deleted in own:
                                follower.observe(stored, deleted=deleted)
                        case _:
                            await asyncio.sleep(0.001)
            truth = {one.key: one.revision for one in (await store.get_list("/things/")).items}
            await _until(lambda: picture.objects == truth)

    asyncio.run(run())
