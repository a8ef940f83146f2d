"""etcd that is killed, stopped, slow or unreachable while work goes on: no gap, no lie, no manual repair."""

import asyncio
import time

import pytest

from kplane_core.engine.interface import Conflict, EngineUnreachable
from kplane_core.errors import KplaneError
from kplane_etcd import endpoints
from kplane_etcd.proxy import TcpProxy
from kplane_etcd.servers import EtcdCluster


async def follow(watch, seen: list[tuple[str, int]]) -> None:
    """Collect what a watch tells, until it ends."""
    while batch := await watch.batch():
        seen += [(event.key, event.revision) for event in batch if not event.is_progress]


async def write_on(engine, prefix: str, done: list[tuple[str, int]], stop: asyncio.Event) -> int:
    """Create keys one after the other until told to stop; remember what was acknowledged, count what failed."""
    number = failed = 0
    while not stop.is_set():
        number += 1
        key = f"{prefix}/{number:06}"
        try:
            written = await engine.write(key, b"1", expect=0)
        except EngineUnreachable:
            failed += 1
            continue
        assert not isinstance(written, Conflict), "a key that is written once was there already"
        done.append((key, written.revision))
    return failed


async def stored(engine, prefix: str) -> list[tuple[str, int]]:
    page = await engine.scan(f"{prefix}/", f"{prefix}0")
    return [(record.key, record.mod_revision) for record in page.records]


async def settle(seen: list, expected: list) -> None:
    """Wait until a watch has told everything."""
    async with asyncio.timeout(20):
        while len(seen) < len(expected):  # noqa: ASYNC110 - the list is filled by a task
            await asyncio.sleep(0.02)


def test_a_watch_and_writers_go_on_through_a_kill(own_etcd, connect) -> None:
    """SIGKILL under load: what was acknowledged is there and was told once, in order; readiness says the truth."""

    async def scenario() -> None:
        async with connect(own_etcd.url, ready_timeout=0.2) as connection:
            engine = connection.engine
            seen: list = []
            done: list = []
            stop = asyncio.Event()
            watch = await engine.watch("/k/", "/k0", after=await engine.revision())
            following = asyncio.create_task(follow(watch, seen))
            writing = asyncio.create_task(write_on(engine, "/k", done, stop))
            for _ in range(2):
                await asyncio.sleep(0.3)
                await asyncio.to_thread(own_etcd.kill)
                with pytest.raises(KplaneError):
                    await connection.check_ready()
                await own_etcd.start()
                await asyncio.sleep(0.3)
                await connection.check_ready()
            stop.set()
            await writing
            expected = await stored(engine, "/k")
            assert set(done) <= set(expected), "an acknowledged write is gone"
            await settle(seen, expected)
            assert seen == expected
            assert connection.metrics.resumed >= 2
            await watch.aclose()
            await following

    asyncio.run(scenario())


def test_a_server_that_stands_still_is_noticed_and_all_goes_on_when_it_wakes(own_etcd, connect) -> None:
    """SIGSTOP (R37): calls fail by their deadline, readiness fails in time, and the watch has no gap afterwards."""

    async def scenario() -> None:
        async with connect(own_etcd.url, timeout=0.5, ready_timeout=0.3) as connection:
            engine = connection.engine
            seen: list = []
            watch = await engine.watch("/k/", "/k0", after=await engine.revision())
            following = asyncio.create_task(follow(watch, seen))
            await engine.write("/k/before", b"1", expect=0)
            own_etcd.pause()
            try:
                started = time.monotonic()
                with pytest.raises(EngineUnreachable, match="no answer"):
                    await engine.read("/k/before")
                with pytest.raises(EngineUnreachable, match="whether the write was done is not known"):
                    await engine.write("/k/unknown", b"1", expect=0)
                with pytest.raises(KplaneError, match=r"no answer within"):
                    await connection.check_ready()
                assert time.monotonic() - started < 3
            finally:
                own_etcd.resume()
            await asyncio.sleep(0.3)
            await connection.check_ready()
            await engine.write("/k/later", b"1", expect=0)
            expected = sorted(await stored(engine, "/k"), key=lambda one: one[1])
            await settle(seen, expected)
            assert seen == expected
            await watch.aclose()
            await following

    asyncio.run(scenario())


def test_a_host_that_vanishes_is_noticed_by_the_keepalive(etcd, connect, prefix, monkeypatch) -> None:
    """Nothing comes and nothing goes, but no connection is closed: a silent watch ends, or goes on elsewhere."""
    faster = {"grpc.keepalive_time_ms": 1000, "grpc.keepalive_timeout_ms": 500, "grpc.http2.ping_timeout_ms": 500}
    quick = tuple((name, faster.get(name, value)) for name, value in endpoints._CHANNEL_OPTIONS)
    monkeypatch.setattr(endpoints, "_CHANNEL_OPTIONS", quick)

    async def scenario() -> None:
        proxy = TcpProxy(etcd.port)
        await proxy.start()
        async with connect(f"http://127.0.0.1:{proxy.port}", timeout=1.0) as connection:
            watch = await connection.engine.watch(f"{prefix}/", f"{prefix}0", after=await connection.engine.revision())
            await proxy.pause()
            started = time.monotonic()
            with pytest.raises(EngineUnreachable):
                await watch.batch()
            assert time.monotonic() - started < 10
            await watch.aclose()
        await proxy.resume()
        await proxy.stop()

    asyncio.run(scenario())


def test_a_cut_connection_is_made_anew_without_a_gap(etcd, connect, prefix) -> None:
    async def scenario() -> None:
        proxy = TcpProxy(etcd.port)
        await proxy.start()
        async with connect(f"http://127.0.0.1:{proxy.port}") as faulty, connect(etcd.url) as direct:
            seen: list = []
            done: list = []
            stop = asyncio.Event()
            watch = await faulty.engine.watch(f"{prefix}/", f"{prefix}0", after=await direct.engine.revision())
            following = asyncio.create_task(follow(watch, seen))
            writing = asyncio.create_task(write_on(direct.engine, prefix, done, stop))
            for _ in range(5):
                await asyncio.sleep(0.1)
                await proxy.drop()
                assert await faulty.engine.revision() > 0, "a read is repeated"
            stop.set()
            await writing
            await settle(seen, done)
            assert seen == done
            await watch.aclose()
            await following
        await proxy.stop()

    asyncio.run(scenario())


def test_a_slow_network_delays_and_breaks_nothing(etcd, connect, prefix) -> None:
    async def scenario() -> None:
        proxy = TcpProxy(etcd.port)
        await proxy.start()
        async with connect(f"http://127.0.0.1:{proxy.port}") as connection:
            proxy.delay = 0.1
            started = time.monotonic()
            written = await connection.engine.write(f"{prefix}/a", b"1", expect=0)
            assert time.monotonic() - started >= 0.2
            assert (await connection.engine.read(f"{prefix}/a")).record.mod_revision == written.revision
            await connection.check_ready()
            proxy.delay = 0.0
        await proxy.stop()

    asyncio.run(scenario())


def test_a_cluster_goes_on_when_its_leader_is_killed(binary, connect) -> None:
    """Three members: writes and watches go on with the other two, and nothing that was acknowledged is lost."""
    cluster = EtcdCluster(3, binary)

    async def scenario() -> None:
        await cluster.start()
        leader = await asyncio.to_thread(cluster.leader)
        # The leader comes first, so that its loss is felt.
        urls = [leader.url, *(url for url in cluster.urls if url != leader.url)]
        async with connect(*urls) as connection:
            engine = connection.engine
            seen: list = []
            done: list = []
            stop = asyncio.Event()
            watch = await engine.watch("/k/", "/k0", after=await engine.revision())
            following = asyncio.create_task(follow(watch, seen))
            writing = asyncio.create_task(write_on(engine, "/k", done, stop))
            await asyncio.sleep(0.3)
            before = len(done)
            await asyncio.to_thread(leader.kill)
            async with asyncio.timeout(20):
                while len(done) < before + 20:  # noqa: ASYNC110 - what the writer does shows nowhere else
                    await asyncio.sleep(0.05)
            stop.set()
            assert await writing < 10, "few writes fail"
            expected = await stored(engine, "/k")
            assert set(done) <= set(expected)
            await settle(seen, expected)
            assert seen == expected
            await watch.aclose()
            await following

    try:
        asyncio.run(scenario())
    finally:
        cluster.remove()


def test_a_watch_is_resumed_on_another_connection_without_a_gap(etcd, connect, prefix) -> None:
    """What one process has seen, another one goes on from."""

    async def scenario() -> None:
        span = (f"{prefix}/", f"{prefix}0")
        async with connect(etcd.url) as second:
            async with connect(etcd.url) as first:
                start = await first.engine.revision()
                watch = await first.engine.watch(*span, after=start)
                revisions = [(await second.engine.write(f"{prefix}/{n}", b"1", expect=0)).revision for n in range(10)]
                seen = [event.revision for event in await watch.batch()]
            while len(revisions) < 20:
                revisions.append((await second.engine.write(f"{prefix}/{len(revisions)}", b"1", expect=0)).revision)
            watch = await second.engine.watch(*span, after=seen[-1])
            while len(seen) < 20:
                seen += [event.revision for event in await watch.batch()]
            assert seen == revisions
            await watch.aclose()

    asyncio.run(scenario())


def test_many_watches_on_one_connection_all_get_everything(etcd, connect, prefix) -> None:
    """R5: hundreds of watches, each with previous values, share one connection; none is late for ever."""

    async def scenario() -> None:
        async with connect(etcd.url) as connection:
            engine = connection.engine
            start = await engine.revision()
            watches = [await engine.watch(f"{prefix}/", f"{prefix}0", after=start) for _ in range(200)]
            written = [await engine.write(f"{prefix}/{number}", b"x" * 1000, expect=0) for number in range(20)]
            revisions = [one.revision for one in written]

            async def read(watch) -> list[int]:
                seen: list[int] = []
                while len(seen) < len(revisions):
                    seen += [event.revision for event in await watch.batch()]
                await watch.aclose()
                return seen

            async with asyncio.timeout(30):
                assert all(seen == revisions for seen in await asyncio.gather(*map(read, watches)))

    asyncio.run(scenario())
