"""The watch cache between HTTP and the stores: what it shares, what it keeps apart, and what it says when it cannot."""

import asyncio
import contextlib
import gc
import json
import socket
import time

import httpx
import pytest

from kplane_apiserver.kinds import builtin_kinds
from kplane_apiserver.requests.readers import PIECE
from kplane_apiserver.requests.watches import MAX_CHUNK_BYTES, MAX_CHUNK_EVENTS, Lines
from kplane_apiserver.server import ApiServer
from kplane_core.engine.factory import EngineConnection
from kplane_core.errors import Unreachable
from kplane_core.storage.interface import EventType, StoredObject
from kplane_memory.engine import MemoryEngine

PATH = "/api/v1/namespaces/default/configmaps"
C1 = "/clusters/c1/control-plane"
CONFIG_MAP = ("", "v1", "configmaps")


class Client:
    """One open watch on an application in this process; `read` lets the server's sends through."""

    def __init__(self, api, path, *, reading=True):
        raw, _, query = path.partition("?")
        self.scope = {
            "type": "http",
            "method": "GET",
            "path": raw,
            "raw_path": raw.encode(),
            "query_string": query.encode(),
            "headers": [],
        }
        self.bodies = []
        self.gone = asyncio.Event()
        self.reading = asyncio.Event()
        self.started = asyncio.Event()
        if reading:
            self.reading.set()
        self.task = asyncio.create_task(api.app(self.scope, self._receive, self._send))

    async def _receive(self):
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message):
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.started.set()
            return
        await self.reading.wait()
        if message["body"]:
            self.bodies.append(message["body"])

    @property
    def lines(self):
        return b"".join(self.bodies).splitlines()

    async def close(self):
        self.gone.set()
        await self.task


@contextlib.asynccontextmanager
async def running(settings=None, build=None):
    connection = EngineConnection(MemoryEngine())
    api = ApiServer(connection, build and build(connection), settings)
    async with api:
        await api.ensure_cluster("c1")
        yield api
    await connection.aclose()


@contextlib.asynccontextmanager
async def http_client(api):
    async with httpx.AsyncClient(transport=httpx.ASGITransport(api.app), base_url="http://kplane") as client:
        yield client


async def until(check, seconds=10.0):
    async with asyncio.timeout(seconds):
        while not check():  # noqa: ASYNC110 (what is waited for has no event to wait on)
            await asyncio.sleep(0.002)


async def create(api, name, cluster="c1", **fields):
    served = api.services.stores.serve(builtin_kinds()[CONFIG_MAP])
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}, **fields}
    return await served.store.create(served.key(cluster, "default", name), document)


# --- one for all ------------------------------------------------------------------------------------------------------


def test_a_thousand_watchers_cost_one_encoding():
    async def scenario():
        async with running() as api:
            clients = [Client(api, f"{C1}{PATH}?watch=true") for _ in range(1000)]
            await until(lambda: len(api.watches) == 1000)
            before = api.watches.lines.encoded
            stored = await create(api, "a", data={"k": "v"})
            await until(lambda: all(client.bodies for client in clients))
            assert api.watches.lines.encoded == before + 1
            assert {client.lines[0] for client in clients} == {clients[0].lines[0]}
            assert json.loads(clients[0].lines[0]) == {"type": "ADDED", "object": json.loads(stored.data)}
            for client in clients:
                await client.close()

    asyncio.run(scenario())


def test_those_who_select_or_come_later_share_what_others_see():
    async def scenario():
        async with running() as api:
            metadata = {"name": "a", "namespace": "default", "labels": {"l": "m"}}
            early = [Client(api, f"{C1}{PATH}?watch=true{query}") for query in ("", "", "&labelSelector=l%3Dm")]
            await until(lambda: len(api.watches) == 3)
            before = api.watches.lines.encoded
            await create(api, "a", metadata=metadata)
            await until(lambda: all(client.bodies for client in early))
            late = [Client(api, f"{C1}{PATH}?watch=true") for _ in range(3)]
            await until(lambda: all(client.bodies for client in late))
            assert api.watches.lines.encoded == before + 1
            assert len({client.lines[0] for client in (*early, *late)}) == 1
            for client in (*early, *late):
                await client.close()

    asyncio.run(scenario())


def test_each_form_and_version_gets_its_own_line():
    async def scenario():
        async with running() as api:
            kinds = builtin_kinds()
            first, second = (
                Client(api, f"{C1}/apis/autoscaling/{version}/horizontalpodautoscalers?watch=true")
                for version in ("v1", "v2")
            )
            await until(lambda: len(api.watches) == 2)
            served = api.services.stores.serve(kinds["autoscaling", "v2", "horizontalpodautoscalers"])
            document = {"apiVersion": "autoscaling/v2", "kind": served.kind.kind, "metadata": {"name": "a"}}
            await served.store.create(served.key("c1", "default", "a"), document)
            await until(lambda: first.bodies and second.bodies)
            versions = [json.loads(client.lines[0])["object"]["apiVersion"] for client in (first, second)]
            assert versions == ["autoscaling/v1", "autoscaling/v2"]
            await first.close()
            await second.close()

    asyncio.run(scenario())


def test_what_is_remembered_of_lines_is_bounded_in_number_and_in_bytes():
    class Served:
        def data(self, stored):
            return stored.raw

    lines, served = Lines(), Served()
    for number in range(10_000):
        lines.of(EventType.ADDED, StoredObject("/k", number + 1, b"{}"), served)
    assert len(lines) <= 4096
    for number in range(20):
        lines.of(EventType.ADDED, StoredObject("/k", number + 1, b"x" * 1024 * 1024), served)
    assert len(lines) <= 8
    huge = StoredObject("/k", 1, b"x" * 20 * 1024 * 1024)
    assert len(lines.of(EventType.ADDED, huge, served)) > 20 * 1024 * 1024
    assert len(lines) == 0


def test_events_that_wait_go_out_together_but_not_in_large_lumps():
    async def scenario():
        async with running() as api:
            small, large = (
                Client(api, f"{C1}{PATH}?watch=true&labelSelector=size%3D{size}", reading=False) for size in "sl"
            )
            await until(lambda: len(api.watches) == 2)
            for number in range(300):
                metadata = {"name": f"s{number}", "namespace": "default", "labels": {"size": "s"}}
                await create(api, f"s{number}", metadata=metadata)
            for number in range(20):
                metadata = {"name": f"l{number}", "namespace": "default", "labels": {"size": "l"}}
                await create(api, f"l{number}", metadata=metadata, data={"k": "x" * 20_000})
            small.reading.set()
            large.reading.set()
            await until(lambda: len(small.lines) == 300 and len(large.lines) == 20)
            counts = [body.count(b"\n") for body in small.bodies]
            assert max(counts) == MAX_CHUNK_EVENTS
            assert len(counts) < 20
            line = max(map(len, large.lines)) + 1
            assert max(map(len, large.bodies)) < MAX_CHUNK_BYTES + line
            assert len(large.bodies) < 20
            await small.close()
            await large.close()

    asyncio.run(scenario())


def test_one_cache_serves_all_clusters_and_starts_when_it_is_needed():
    async def scenario():
        async with running() as api, http_client(api) as client:
            await create(api, "a")
            names = {name for name, _ in api.services.stores.caches()}
            assert "configmaps" not in names, "a write needs no cache"
            assert names == {"namespaces", "clusters.kplane.dev", "customresourcedefinitions.apiextensions.k8s.io"}
            await client.get(C1 + PATH)
            tasks = len(asyncio.all_tasks())
            for number in range(20):
                answer = await client.get(f"/clusters/t{number}/control-plane{PATH}")
                assert answer.json()["items"] == []
            assert len(asyncio.all_tasks()) <= tasks
            assert {name for name, _ in api.services.stores.caches()} == names | {"configmaps"}

    asyncio.run(scenario())


def test_a_watch_never_sees_a_cluster_whose_name_begins_alike(live):
    one, ten = live.cluster("w1"), live.cluster("w10")
    revision = one.get("/api/v1/configmaps").json()["metadata"]["resourceVersion"]
    with one.watch("/api/v1/configmaps", resourceVersion=revision) as all_, one.watch(PATH) as namespace:
        for number in range(5):
            ten.config_map(f"theirs-{number}")
            one.config_map(f"mine-{number}")
        for events in (all_, namespace):
            names = [event["object"]["metadata"]["name"] for event in events.take(5)]
            assert names == [f"mine-{number}" for number in range(5)]


def test_a_list_holds_what_another_process_wrote_before_it_was_asked_for(serve):
    engine = MemoryEngine()
    here, there = serve(engine=engine), serve(engine=engine)
    cluster, other = here.cluster("shared"), there.cluster("shared")
    assert other.get(PATH).json()["items"] == []
    for number in range(20):
        cluster.config_map(f"n{number}")
        assert len(other.get(PATH).json()["items"]) == number + 1


def test_pods_of_a_node_are_found_in_lists_and_watches(cluster):
    pods = "/api/v1/namespaces/default/pods"
    spec = {"containers": [{"name": "c", "image": "i"}]}
    for name, node in (("a", "n1"), ("b", "n2"), ("c", "n1")):
        cluster.post(pods, {"metadata": {"name": name}, "spec": {**spec, "nodeName": node}})
    listed = cluster.get("/api/v1/pods", fieldSelector="spec.nodeName=n1").json()
    assert [item["metadata"]["name"] for item in listed["items"]] == ["a", "c"]
    version = listed["metadata"]["resourceVersion"]
    with cluster.watch("/api/v1/pods", fieldSelector="spec.nodeName=n1", resourceVersion=version) as events:
        cluster.delete(f"{pods}/b", {"gracePeriodSeconds": 0})
        cluster.post(pods, {"metadata": {"name": "d"}, "spec": {**spec, "nodeName": "n1"}})
        assert events.next()["object"]["metadata"]["name"] == "d"


# --- when it cannot ---------------------------------------------------------------------------------------------------


class Failing:
    """Builds stores; those of configmaps cannot be listed while `failing`."""

    def __init__(self):
        self.failing = True

    def __call__(self, connection):
        def build(resource):
            store = connection.store(resource)
            if resource.group_resource == "configmaps":
                get_list = store.get_list

                async def list_or_fail(key, options=None):
                    if self.failing:
                        raise Unreachable("", "the database is away")
                    return await get_list(key, options)

                store.get_list = list_or_fail
            return store

        return build


def test_while_it_is_not_filled_the_answer_is_429_and_says_when_to_come_back():
    backend = Failing()

    async def scenario():
        async with running(build=backend) as api, http_client(api) as client:
            for query in ("?labelSelector=a%3Db", "?watch=true", ""):
                answer = await client.get(C1 + PATH + query)
                assert answer.status_code == 429, answer.text
                assert answer.json()["reason"] == "TooManyRequests"
                assert int(answer.headers["retry-after"]) >= 1
            page = await client.get("/readyz?verbose")
            assert page.status_code == 200
            assert "watch-caches ok: not ready: configmaps" in page.text
            # One object is read from the database itself.
            await create(api, "a")
            assert (await client.get(f"{C1}{PATH}/a")).status_code == 200
            backend.failing = False
            async with asyncio.timeout(10):
                while (answer := await client.get(C1 + PATH)).status_code != 200:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            assert [item["metadata"]["name"] for item in answer.json()["items"]] == ["a"]
            assert "not ready" not in (await client.get("/readyz?verbose")).text

    asyncio.run(scenario())


def test_a_version_that_does_not_exist_yet_is_504_with_its_cause(cluster):
    newest = int(cluster.config_map("a")["metadata"]["resourceVersion"])
    answer = cluster.get(PATH, resourceVersion=newest + 1_000_000, resourceVersionMatch="NotOlderThan")
    assert answer.status_code == 504
    status = answer.json()
    assert status["reason"] == "Timeout"
    assert status["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"
    assert status["details"]["retryAfterSeconds"] == 1
    assert answer.headers["retry-after"] == "1"


def test_without_the_cache_everything_is_read_from_the_store(serve):
    server = serve(watch_cache=False)
    cluster = server.cluster()
    created = cluster.config_map("a")
    assert cluster.get(PATH).json()["items"][0]["metadata"] == created["metadata"]
    with cluster.watch(PATH, timeoutSeconds=1) as events:
        assert [event["object"] for event in events.rest()] == [created]
    assert list(server.api.services.stores.caches()) == []


# --- long lists -------------------------------------------------------------------------------------------------------


def test_a_long_list_is_sent_in_pieces_and_is_the_list(cluster):
    created = [cluster.config_map(f"n{number:03}", data={"k": "x" * (number * 40)}) for number in range(120)]
    cluster.config_map("z-large", data={"k": "y" * 3 * PIECE})
    answer = cluster.get(PATH)
    assert answer.headers["transfer-encoding"] == "chunked"
    listed = answer.json()
    assert listed["kind"] == "ConfigMapList"
    assert listed["items"][:-1] == created
    assert len(listed["items"][-1]["data"]["k"]) == 3 * PIECE
    assert json.dumps(listed, separators=(",", ":"), ensure_ascii=False) == answer.text
    head = cluster.request("HEAD", PATH)
    assert (head.status_code, head.content) == (200, b"")
    page = cluster.get(PATH, limit=100).json()
    assert page["metadata"]["remainingItemCount"] == 21
    rest = cluster.get(PATH, limit=100, **{"continue": page["metadata"]["continue"]}).json()
    assert page["items"] + rest["items"] == listed["items"]


def test_a_long_list_of_another_version_is_given_in_that_version():
    async def scenario():
        async with running() as api, http_client(api) as client:
            kinds = builtin_kinds()
            served = api.services.stores.serve(kinds["autoscaling", "v2", "horizontalpodautoscalers"])
            for number in range(600):
                name = f"n{number}"
                document = {"apiVersion": "autoscaling/v2", "kind": served.kind.kind, "metadata": {"name": name}}
                await served.store.create(served.key("c1", "default", name), document)
            for version in ("v1", "v2"):
                listed = (await client.get(f"{C1}/apis/autoscaling/{version}/horizontalpodautoscalers")).json()
                assert len(listed["items"]) == 600
                assert {item["apiVersion"] for item in listed["items"]} == {f"autoscaling/{version}"}
                assert all(item["metadata"]["resourceVersion"] for item in listed["items"])

    asyncio.run(scenario())


# --- slow clients, and those that go away -----------------------------------------------------------------------------


def _connect(server, path):
    """Open a connection with a small window, ask, and do not read."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    host, port = server.url.removeprefix("http://").split(":")
    connection.connect((host, int(port)))
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    return connection


def test_a_client_that_does_not_read_holds_up_only_itself(serve):
    server = serve()
    cluster = server.cluster("c1")
    cluster.get(PATH)
    stalled = [_connect(server, f"{C1}{PATH}?watch=true") for _ in range(3)]
    with cluster.watch(PATH) as events:
        while len(server.api.watches) < 4:
            time.sleep(0.001)
        waits = []
        for number in range(60):
            before = time.perf_counter()
            cluster.config_map(f"n{number}", data={"k": "x" * 200_000})
            assert events.next()["object"]["metadata"]["name"] == f"n{number}"
            waits.append(time.perf_counter() - before)
        # 12 MB per stalled client by now, far more than what the sockets take.
        assert len(server.api.watches) == 4
    assert sorted(waits)[-3] < 1.0
    for connection in stalled:
        connection.close()
    deadline = time.monotonic() + 5
    while len(server.api.watches) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(server.api.watches) == 0


def _blocks():
    gc.collect()
    return len(gc.get_objects())


def test_thousands_of_watches_leave_nothing_behind():
    """2,000 are opened and closed, three times: watchers, tasks and objects are then what they were."""

    async def round_of(api):
        clients = [Client(api, f"{C1}{PATH}?watch=true&allowWatchBookmarks=true") for _ in range(2000)]
        await until(lambda: len(api.watches) == 2000)
        stored = await create(api, f"n{time.monotonic_ns()}")
        await until(lambda: all(client.bodies for client in clients))
        for client in clients:
            await client.close()
        served = api.services.stores.serve(builtin_kinds()[CONFIG_MAP])
        await served.store.delete(stored.key)

    async def scenario():
        async with running() as api, http_client(api) as client:
            await client.get(C1 + PATH)
            (cacher,) = [store.cacher for name, store in api.services.stores.caches() if name == "configmaps"]
            tasks = len(asyncio.all_tasks())
            await round_of(api)
            before = _blocks()
            for _ in range(2):
                await round_of(api)
            await asyncio.sleep(0)
            assert len(api.watches) == 0
            assert cacher.watcher_count == 0
            assert len(asyncio.all_tasks()) == tasks
            assert _blocks() - before < 1000

    asyncio.run(scenario())


@pytest.mark.parametrize("count", [300])
def test_connections_that_are_cut_leave_nothing_behind(serve, count):
    server = serve()
    cluster = server.cluster("c1")
    cluster.get(PATH)
    tasks = server.tasks()
    connections = [_connect(server, f"{C1}{PATH}?watch=true") for _ in range(count)]
    deadline = time.monotonic() + 10
    while len(server.api.watches) < count and time.monotonic() < deadline:
        time.sleep(0.005)
    assert len(server.api.watches) == count
    for connection in connections:
        connection.close()
    while (len(server.api.watches) or server.tasks() > tasks) and time.monotonic() < deadline:
        time.sleep(0.005)
    assert len(server.api.watches) == 0
    assert server.tasks() <= tasks
