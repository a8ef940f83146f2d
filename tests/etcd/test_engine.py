"""The engine on a real etcd: where data lies, what is sent, and what the suite does not ask."""

import asyncio
import itertools
import json

import pytest

from kplane_core.engine.interface import Compacted, Conflict, EngineUnreachable, Written
from kplane_core.errors import CorruptObj, InvalidKey, StoreReadError
from kplane_core.storage import Resource
from kplane_etcd.client import COMPACT_REV_KEY, EtcdClient
from kplane_etcd.compactor import Compactor
from kplane_etcd.connection import EtcdConnection
from kplane_etcd.errors import DatabaseFull, RequestTooLarge
from kplane_etcd.servers import EtcdServer

PODS = Resource(group_resource="pods", resource_prefix="/pods/", api_version="v1", kind="Pod")


def pod(name: str, **labels: str) -> dict:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "ns", "labels": labels}}


async def kv(connection: EtcdConnection, key: str):
    """Return what etcd itself says of a key."""
    found = (await client(connection).get(key.encode())).kvs
    return found[0] if found else None


def client(connection: EtcdConnection) -> EtcdClient:
    return connection._client


def test_objects_lie_where_kubernetes_puts_them_and_are_read_from_there(etcd, connect, prefix) -> None:
    """Plain JSON below the prefix, without resourceVersion; what another API server wrote in JSON is read."""
    foreign = {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": "b", "namespace": "ns", "uid": "u"},
        "spec": {"x": 1},
    }

    async def scenario() -> None:
        async with connect(etcd.url, prefix=prefix) as connection:
            store = connection.store(PODS)
            created = await store.create("/pods/ns/a", pod("a"))
            etcd.control("put", f"{prefix}/pods/ns/b", json.dumps(foreign) + "\n")
            printed = json.loads(etcd.control("get", f"{prefix}/pods/ns/a", "--print-value-only"))
            assert printed == pod("a")
            page = await store.get_list("/pods/")
            assert [item.key for item in page.items] == ["/pods/ns/a", "/pods/ns/b"]
            assert json.loads(page.items[1].raw) == foreign
            assert (
                page.items[0].revision == created.revision == (await kv(connection, f"{prefix}/pods/ns/a")).mod_revision
            )

    asyncio.run(scenario())


def test_protobuf_written_by_kubernetes_is_refused_with_the_key_and_what_to_do(etcd, connect, prefix) -> None:
    async def scenario() -> None:
        async with connect(etcd.url, prefix=prefix) as connection:
            await connection.engine.write(f"{prefix}/pods/ns/a", b"k8s\0\x0a\x09\x0a\x02v1\x12\x03Pod", expect=0)
            store = connection.store(PODS)
            with pytest.raises(CorruptObj, match="protobuf") as caught:
                await store.get("/pods/ns/a")
            assert "/pods/ns/a" in str(caught.value)
            assert "--storage-media-type=application/json" in str(caught.value)
            with pytest.raises(StoreReadError, match="protobuf"):
                await store.get_list("/pods/")

    asyncio.run(scenario())


def test_a_ttl_is_kept_cleared_and_set_by_the_lease_of_the_record(etcd, connect, prefix) -> None:
    key = f"{prefix}/a"

    async def scenario() -> None:
        async with connect(etcd.url) as connection:
            engine = connection.engine
            written = await engine.write(key, b"1", expect=0, ttl=3600)
            lease = (await kv(connection, key)).lease
            assert lease
            written = await engine.write(key, b"2", expect=written.revision)
            assert (await kv(connection, key)).lease == lease
            written = await engine.write(key, b"3", expect=written.revision, ttl=0)
            assert (await kv(connection, key)).lease == 0
            written = await engine.write(key, b"4", expect=written.revision)
            assert (await kv(connection, key)).lease == 0
            await engine.write(key, b"5", expect=written.revision, ttl=3600)
            await engine.write(f"{key}b", b"1", expect=0, ttl=3600)
            assert (await kv(connection, key)).lease == (await kv(connection, f"{key}b")).lease == lease

    asyncio.run(scenario())


def test_a_write_with_a_lease_that_has_ended_gets_another_one(etcd, connect, prefix) -> None:
    async def scenario() -> None:
        async with connect(etcd.url) as connection:
            engine = connection.engine
            await engine.write(f"{prefix}/a", b"1", expect=0, ttl=3600)
            lease = (await kv(connection, f"{prefix}/a")).lease
            etcd.control("lease", "revoke", f"{lease:x}")
            assert isinstance(await engine.write(f"{prefix}/b", b"1", expect=0, ttl=3600), Written)
            assert (await kv(connection, f"{prefix}/b")).lease not in {0, lease}

    asyncio.run(scenario())


def test_etcds_own_limit_is_named(etcd, connect, prefix) -> None:
    """R29: 1.5 MiB for the whole request, whatever part of etcd refuses it."""

    async def scenario() -> None:
        async with connect(etcd.url) as connection:
            engine = connection.engine
            assert isinstance(await engine.write(f"{prefix}/fits", b"x" * 1_570_000, expect=0), Written)
            for size in (1_600_000, 3_000_000):
                with pytest.raises(RequestTooLarge, match=f"{size} bytes.*--max-request-bytes"):
                    await engine.write(f"{prefix}/large", b"x" * size, expect=0)

    asyncio.run(scenario())


def test_a_list_that_is_longer_than_one_answer_is_one_snapshot(etcd, connect, prefix, monkeypatch) -> None:
    """R30: asked for in pieces, at the revision of the first; a limit and the total are those of the whole."""
    monkeypatch.setattr("kplane_etcd.engine._CHUNK", 7)

    async def scenario() -> None:
        async with connect(etcd.url) as connection:
            engine = connection.engine
            names = [f"{prefix}/{number:03}" for number in range(25)]
            for name in names:
                await engine.write(name, b"1", expect=0)
            interfering = client(connection)
            ranged = interfering.range

            async def writing(*args, **options):
                answer = await ranged(*args, **options)
                await engine.write(f"{prefix}/zzz-{answer.header.revision}", b"1", expect=0)
                return answer

            interfering.range = writing
            whole = await engine.scan(f"{prefix}/", f"{prefix}0", count=True)
            assert [record.key for record in whole.records] == names
            assert (whole.more, whole.total) == (False, 25)
            assert len((await engine.scan(f"{prefix}/", f"{prefix}0", at=whole.revision)).records) == 25
            part = await engine.scan(f"{prefix}/", f"{prefix}0", at=whole.revision, limit=10)
            assert [record.key for record in part.records] == names[:10]
            assert part.more

    asyncio.run(scenario())


def test_an_answer_that_does_not_fit_is_asked_for_in_smaller_pieces(etcd, connect, prefix, monkeypatch) -> None:
    limited = (("grpc.max_receive_message_length", 100_000),)
    monkeypatch.setattr("kplane_etcd.endpoints._CHANNEL_OPTIONS", limited)

    async def scenario() -> None:
        async with connect(etcd.url) as connection:
            for number in range(20):
                await connection.engine.write(f"{prefix}/{number}", b"x" * 20_000, expect=0)
            page = await connection.engine.scan(f"{prefix}/", f"{prefix}0")
            assert len(page.records) == 20

    asyncio.run(scenario())


@pytest.mark.parametrize("key", ["", "/a\0b", "/a\ud800"])
def test_keys_that_etcd_cannot_hold_are_refused(etcd, connect, key) -> None:
    async def scenario() -> None:
        async with connect(etcd.url) as connection:
            with pytest.raises(InvalidKey):
                await connection.engine.write(key, b"1", expect=0)

    asyncio.run(scenario())


def test_two_connections_see_each_others_writes_in_one_order(etcd, connect, prefix) -> None:
    async def scenario() -> None:
        async with connect(etcd.url) as first, connect(etcd.url) as second:
            start = await first.engine.revision()
            span = (f"{prefix}/", f"{prefix}0")
            watches = [await one.engine.watch(*span, after=start) for one in (first, second)]

            async def write(connection, name: str) -> list[int]:
                key, revision, revisions = f"{prefix}/{name}", 0, []
                for number in range(30):
                    written = await connection.engine.write(key, str(number).encode(), expect=revision)
                    revisions.append(revision := written.revision)
                return revisions

            wrote = await asyncio.gather(
                *(write(one, name) for one, name in ((first, "a"), (second, "b"), (first, "c")))
            )
            expected = sorted(itertools.chain(*wrote))
            for watch in watches:
                seen: list[int] = []
                while len(seen) < len(expected):
                    seen += [event.revision for event in await watch.batch()]
                assert seen == expected
                await watch.aclose()

    asyncio.run(scenario())


def test_one_compacts_and_the_others_learn_of_it(own_etcd, connect) -> None:
    """The marker is put once per round; the first round only looks; everybody's stores know the outcome."""

    async def scenario() -> None:
        async with connect(own_etcd.url) as first, connect(own_etcd.url) as second:
            engine = first.engine
            revisions = [(await engine.write(f"/k/{number}", b"1", expect=0)).revision for number in range(5)]
            compactors = first.compactor, second.compactor
            assert [await one.once() for one in compactors] == [False, False]
            assert await engine.compacted() == 0
            await engine.write("/k/later", b"1", expect=0)
            assert [await one.once() for one in compactors] == [True, False]
            floor = await engine.compacted()
            assert revisions[-1] <= floor < await engine.revision()
            with pytest.raises(Compacted):
                await engine.read("/k/0", at=revisions[0])
            assert await second.observe_compaction() == floor
            assert second.store(PODS).compact_revision() == floor
            marker = (await client(first).get(COMPACT_REV_KEY)).kvs[0]
            assert (marker.version, int(marker.value)) == (2, floor)
            assert [await one.once() for one in reversed(compactors)] == [True, False], "who comes first may change"
            late = Compactor(client(second), second.compact)
            assert not await late.once()
            assert late.round == 3

    asyncio.run(scenario())


def test_a_full_database_says_so_and_recovers(binary, connect) -> None:
    """R15: compaction still works, readiness says why, health stays good; after a defragmentation all is well."""
    server = EtcdServer(binary, flags=["--quota-backend-bytes=3000000"])

    async def scenario() -> None:
        await server.start()
        async with connect(server.url, ready_timeout=0.1) as connection:
            engine = connection.engine
            written = await engine.write("/fill", b"x" * 500_000, expect=0)
            refused = None
            for _ in range(200):  # the size is looked at when the database is flushed, not with every write
                try:
                    written = await engine.write("/fill", b"x" * 500_000, expect=written.revision)
                except DatabaseFull as error:
                    refused = error
                    break
            assert "alarm NOSPACE" in str(refused)
            await connection.check_health()
            with pytest.raises(Exception, match="NOSPACE"):
                await connection.check_ready()
            # The marker of the compaction cannot be put; compaction happens all the same.
            connection.compactor._seen = written.revision
            assert await connection.compactor.once()
            await asyncio.to_thread(server.control, "defrag")
            await asyncio.to_thread(server.control, "alarm", "disarm")
            assert isinstance(await engine.write("/again", b"1", expect=0), Written)
            await asyncio.sleep(0.1)
            await connection.check_ready()

    try:
        asyncio.run(scenario())
    finally:
        server.remove()


def test_a_compaction_by_somebody_else_is_noticed(own_etcd, connect) -> None:
    async def scenario() -> None:
        async with connect(own_etcd.url) as connection:
            engine = connection.engine
            written = await engine.write("/a", b"1", expect=0)
            written = await engine.write("/a", b"2", expect=written.revision)
            await engine.write("/a", b"3", expect=written.revision)
            assert await engine.compacted() == 0
            for revision in (written.revision, written.revision + 1):
                own_etcd.control("compact", str(revision))
                assert await engine.compacted() == revision
                assert await engine.compacted() == revision
            with pytest.raises(Compacted) as caught:
                await engine.compact(written.revision)
            assert caught.value.compacted == written.revision + 1

    asyncio.run(scenario())


def test_a_conflict_shows_what_the_key_really_holds(etcd, connect, prefix) -> None:
    async def scenario() -> None:
        async with connect(etcd.url) as connection:
            engine = connection.engine
            written = await engine.write(f"{prefix}/a", b"1", expect=0)
            for attempt in (
                engine.write(f"{prefix}/a", b"2", expect=0),
                engine.write(f"{prefix}/a", b"2", expect=1),
                engine.write(f"{prefix}/a", None, expect=1),
                engine.write(f"{prefix}/a", None, expect=0),
            ):
                conflict = await attempt
                assert isinstance(conflict, Conflict)
                assert conflict.record.mod_revision == written.revision
            for attempt in (
                engine.write(f"{prefix}/none", b"2", expect=1),
                engine.write(f"{prefix}/none", None, expect=1, ttl=5),
            ):
                assert (await attempt).record is None

    asyncio.run(scenario())


def test_a_closed_connection_answers_nothing(etcd, connect, prefix) -> None:
    async def scenario() -> None:
        async with connect(etcd.url) as connection:
            engine = connection.engine
            watch = await engine.watch(f"{prefix}/", f"{prefix}0", after=await engine.revision())
            waiting = asyncio.create_task(watch.batch())
            await asyncio.sleep(0.05)
            await connection.aclose()
            assert list(await waiting) == []
            for call in (
                engine.read("/a"),
                engine.write("/a", b"1", expect=0),
                engine.request_progress(),
                engine.size(),
            ):
                with pytest.raises(EngineUnreachable, match="closed"):
                    await call
            with pytest.raises(EngineUnreachable, match="closed"):
                await engine.watch("/a", "/b", after=1)
            await connection.aclose()

    asyncio.run(scenario())
