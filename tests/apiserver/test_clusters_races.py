"""What happens at the same time, step by step on one loop: cancelled callers, replaced objects, waiting owners."""

import asyncio
import contextlib
import json

import httpx
import pytest

from kplane_apiserver.clusters import lifecycle as lifecycle_module
from kplane_apiserver.clusters.lifecycle import Lifecycle, Owner
from kplane_apiserver.kinds import builtin_kinds
from kplane_apiserver.server import ApiServer
from kplane_apiserver.settings import Settings
from kplane_core.engine.factory import EngineConnection
from kplane_core.errors import Unreachable
from kplane_memory.engine import MemoryEngine

MAPS = "/clusters/c1/control-plane/api/v1/namespaces/default/configmaps"
MERGE = {"content-type": "application/merge-patch+json"}


@contextlib.asynccontextmanager
async def _server(**settings):
    connection = EngineConnection(MemoryEngine())
    api = ApiServer(connection, settings=Settings(**settings))
    await api.start()
    transport = httpx.ASGITransport(app=api.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        yield api, client
    await api.aclose()
    await connection.aclose()
    assert asyncio.all_tasks() == {asyncio.current_task()}


def _config_maps(api):
    return api.services.stores.serve(builtin_kinds()["", "v1", "configmaps"]).store


def test_a_caller_that_goes_away_does_not_take_the_others_cluster_along():
    async def run():
        async with _server() as (api, _):
            clusters = api.services.clusters
            release = asyncio.Event()
            real = clusters.bootstrap

            async def slow(cluster):
                await release.wait()
                await real(cluster)

            clusters.bootstrap = slow
            first, second = (asyncio.create_task(clusters.touch("c1")) for _ in range(2))
            await asyncio.sleep(0)
            first.cancel()
            await asyncio.sleep(0)
            release.set()
            await second
            assert first.cancelled()
            assert "c1" in clusters.known

    asyncio.run(run())


def test_a_cluster_that_could_not_be_made_is_made_by_the_next_touch():
    async def run():
        async with _server() as (api, client):
            clusters = api.services.clusters
            real = clusters.bootstrap

            async def fail(_cluster):
                raise Unreachable("", "gone")

            clusters.bootstrap = fail
            assert (await client.get(MAPS)).status_code == 500
            assert "c1" not in clusters.known
            clusters.bootstrap = real
            assert (await client.get(MAPS)).status_code == 200

    asyncio.run(run())


def test_the_last_finalizers_removal_never_deletes_an_object_of_the_same_name_that_came_after():
    async def run():
        async with _server() as (api, client):
            held = {"metadata": {"name": "a", "finalizers": ["example.com/hold"]}}
            await client.post(MAPS, json=held)
            await client.delete(f"{MAPS}/a")
            store = _config_maps(api)
            real = store.delete

            async def overtaken(key, **given):
                store.delete = real
                await real(key)
                await client.post(MAPS, json={"metadata": {"name": "a"}, "data": {"new": "yes"}})
                return await real(key, **given)

            store.delete = overtaken
            body = json.dumps({"metadata": {"finalizers": None}})
            await client.patch(f"{MAPS}/a", content=body, headers=MERGE)
            assert (await client.get(f"{MAPS}/a")).json()["data"] == {"new": "yes"}

    asyncio.run(run())


def test_a_finalizer_that_comes_between_look_and_deletion_still_holds():
    async def run():
        async with _server() as (api, client):
            await client.post(MAPS, json={"metadata": {"name": "a"}})
            store = _config_maps(api)
            real = store.delete

            async def overtaken(key, **given):
                store.delete = real
                body = json.dumps({"metadata": {"finalizers": ["example.com/hold"]}})
                await client.patch(f"{MAPS}/a", content=body, headers=MERGE)
                return await real(key, **given)

            store.delete = overtaken
            answer = await client.delete(f"{MAPS}/a")
            assert answer.json()["metadata"]["deletionTimestamp"]
            assert (await client.get(f"{MAPS}/a")).status_code == 200

    asyncio.run(run())


def test_a_request_that_was_given_up_leaves_its_task_usable():
    """A test client runs the application in the caller's own task."""

    async def run():
        async with _server(request_timeout=0.05) as (api, client):
            await client.get(MAPS)

            async def slow(*_given):
                await asyncio.sleep(60)

            _config_maps(api).get = slow
            assert (await client.get(f"{MAPS}/a")).status_code == 504
            task = asyncio.current_task()
            assert task is not None
            assert task.cancelling() == 0
            assert (await client.get(MAPS)).status_code == 200

    asyncio.run(run())


def test_a_caller_that_cancels_its_request_is_not_answered_504():
    async def run():
        async with _server() as (api, client):
            await client.get(MAPS)

            async def slow(*_given):
                await asyncio.sleep(60)

            _config_maps(api).get = slow
            request = asyncio.create_task(client.get(f"{MAPS}/a"))
            await asyncio.sleep(0.01)
            request.cancel()
            with pytest.raises(asyncio.CancelledError):
                await request

    asyncio.run(run())


def test_an_owner_is_looked_at_again_as_soon_as_some_of_its_content_is_gone(monkeypatch):
    monkeypatch.setattr(lifecycle_module, "_FIRST_PAUSE", 60.0)

    async def run():
        asked: list[Owner] = []
        looked = asyncio.Event()

        async def finish(owner):
            asked.append(owner)
            looked.set()
            return len(asked) == 3

        async def next_look():
            async with asyncio.timeout(5):
                await looked.wait()
            looked.clear()

        lifecycle = Lifecycle()
        lifecycle.start(finish)
        lifecycle.enqueue(Owner("namespace", "c1", "n"))
        await next_look()
        lifecycle.content_left("c10", "n")
        lifecycle.content_left("c1", "other")
        await asyncio.sleep(0.01)
        assert len(asked) == 1
        lifecycle.content_left("c1", "n")
        await next_look()
        lifecycle.content_left("c1", "n")
        await next_look()
        lifecycle.content_left("c1", "n")
        await asyncio.sleep(0.01)
        assert len(asked) == 3, "what is finished is not looked at again"
        await lifecycle.aclose()

    asyncio.run(run())


def test_a_namespace_goes_with_the_last_object_that_held_it(monkeypatch):
    monkeypatch.setattr(lifecycle_module, "_FIRST_PAUSE", 60.0)

    async def run():
        async with _server() as (_, client):
            root = "/clusters/c1/control-plane/api/v1/namespaces"
            await client.post(root, json={"metadata": {"name": "n"}})
            held = {"metadata": {"name": "a", "finalizers": ["example.com/hold"]}}
            await client.post(f"{root}/n/configmaps", json=held)
            await client.delete(f"{root}/n")
            async with asyncio.timeout(5):
                # What is waited for is known through requests alone.
                while "deletionTimestamp" not in (await client.get(f"{root}/n/configmaps/a")).text:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
                body = json.dumps({"metadata": {"finalizers": None}})
                await client.patch(f"{root}/n/configmaps/a", content=body, headers=MERGE)
                while (await client.get(f"{root}/n")).status_code != 404:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)

    asyncio.run(run())


def test_a_store_that_fails_is_tried_again(monkeypatch, caplog):
    monkeypatch.setattr(lifecycle_module, "_FIRST_PAUSE", 0.001)

    async def run():
        done = asyncio.Event()
        asked: list[Owner] = []

        async def finish(owner):
            asked.append(owner)
            if len(asked) < 3:
                raise Unreachable("", "gone")
            done.set()
            return True

        lifecycle = Lifecycle()
        lifecycle.start(finish)
        lifecycle.enqueue(Owner("cluster", "c1", "c1"))
        async with asyncio.timeout(5):
            await done.wait()
        await lifecycle.aclose()

    asyncio.run(run())
    assert "could not be set right yet" in caplog.text
