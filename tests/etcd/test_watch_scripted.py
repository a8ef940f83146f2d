"""Watches against a server that does what real ones do rarely: each reply that could lose or repeat a change."""

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest

from kplane_core.engine.interface import Compacted, EngineUnreachable
from kplane_etcd import wire
from kplane_etcd.errors import AccessRefused
from kplane_etcd.fake import FakeEtcd, WatchCall, created, for_ever, progress, puts
from kplane_etcd.methods import AUTHENTICATE, RANGE

Script = AsyncIterator[wire.WatchResponse]


def scripted(*responses: wire.WatchResponse, end: bool = False):
    """Return a script that sends these responses, then ends the stream or stays silent."""

    async def script(_call: WatchCall) -> Script:
        for response in responses:
            yield response
        if not end:
            await for_ever()

    return script


async def batches(watch, count: int) -> list[int]:
    """Return the revisions of `count` events, marks included."""
    found: list[int] = []
    async with asyncio.timeout(20):
        while len(found) < count:
            batch = await watch.batch()
            assert batch, "the watch ended"
            found += [event.revision for event in batch]
    return found


@pytest.fixture
def watching(connect):
    """Run a scenario with a fake etcd that has the given streams, and a watch on it."""

    def run(scenario, *streams, after: int = 49, progress: bool = False, timeout: float = 5.0, **more) -> FakeEtcd:
        fake = FakeEtcd(*streams, **more)

        async def main() -> None:
            await fake.start()
            try:
                async with connect(fake.url, timeout=timeout) as connection:
                    watch = await connection.engine.watch("/a", "/b", after=after, progress=progress)
                    await scenario(watch)
                    await watch.aclose()
            finally:
                await fake.stop()

        asyncio.run(main())
        return fake

    return run


def test_the_resume_point_comes_from_events_not_from_headers(watching) -> None:
    """A catching-up watch gets bursts whose headers all name the newest revision (R8)."""

    async def scenario(watch) -> None:
        assert await batches(watch, 51) == list(range(50, 101))

    fake = watching(
        scenario,
        scripted(created(100), puts(*range(50, 61), header=100), end=True),
        scripted(created(100), puts(*range(61, 101), header=100)),
    )
    assert [call.created.start_revision for call in fake.watches] == [50, 61]
    assert all(call.metadata["hasleader"] == "true" for call in fake.watches)
    assert fake.watches[0].created.prev_kv
    assert not fake.watches[0].created.fragment, "Kubernetes does not ask for fragments either"


def test_the_resume_point_moves_with_progress(watching) -> None:
    async def scenario(watch) -> None:
        assert await batches(watch, 3) == [50, 80, 81]

    fake = watching(
        scenario,
        scripted(created(), puts(50), progress(80), end=True),
        scripted(created(), puts(81)),
        progress=True,
    )
    assert [call.created.start_revision for call in fake.watches] == [50, 81]


def test_fragments_are_joined_and_a_torn_one_is_asked_for_again(watching) -> None:
    """All events of a revision come in one batch; half of one is never shown, and not taken as complete."""
    torn = scripted(created(), puts(50), puts(51, 51, fragment=True), end=True)
    whole = scripted(created(), puts(51, 51, fragment=True), puts(51))

    async def scenario(watch) -> None:
        assert await batches(watch, 1) == [50]
        assert [event.revision for event in await watch.batch()] == [51, 51, 51]

    fake = watching(scenario, torn, whole)
    assert [call.created.start_revision for call in fake.watches] == [50, 51]


def test_what_is_repeated_is_not_told_twice(watching) -> None:
    """etcd-io/etcd#20221: a watch from the future gets older events; a resumed one may get some again."""

    async def scenario(watch) -> None:
        assert await batches(watch, 2) == [50, 51]

    watching(scenario, scripted(created(), puts(40, 49, 50), puts(50), puts(50, 51)))


def test_progress_before_the_start_of_a_watch_is_not_told(watching) -> None:
    async def scenario(watch) -> None:
        assert await batches(watch, 2) == [60, 61]

    watching(scenario, scripted(created(), progress(30), progress(60), puts(61)), progress=True)


def test_progress_that_nobody_asked_for_is_not_told(watching) -> None:
    async def scenario(watch) -> None:
        assert await batches(watch, 1) == [61]

    watching(scenario, scripted(created(), progress(60), puts(61)))


def test_a_compacted_start_is_told_with_its_floor(watching) -> None:
    """etcd takes the watch on, then cancels it; the header's revision is zero then."""
    cancelled = wire.WatchResponse(canceled=True, compact_revision=70)

    async def scenario(watch) -> None:
        with pytest.raises(Compacted) as caught:
            await watch.batch()
        assert (caught.value.revision, caught.value.compacted) == (49, 70)
        with pytest.raises(Compacted):
            await watch.batch()

    watching(scenario, scripted(created(), cancelled))


def test_events_that_came_before_the_end_are_told_before_it(watching) -> None:
    async def scenario(watch) -> None:
        await asyncio.sleep(0.2)
        assert await batches(watch, 2) == [50, 51]
        with pytest.raises(Compacted) as caught:
            await watch.batch()
        assert caught.value.revision == 51

    watching(scenario, scripted(created(), puts(50, 51), wire.WatchResponse(canceled=True, compact_revision=70)))


def test_a_watch_that_is_created_and_cancelled_at_once_is_an_error(watching) -> None:
    """Nobody waits for a watch that etcd refuses in the breath that confirms it."""
    refused = created(
        canceled=True,
        watch_id=-1,
        cancel_reason="rpc error: code = PermissionDenied desc = etcdserver: permission denied",
    )

    async def scenario(_watch) -> None:
        pytest.fail("the watch was taken on")

    with pytest.raises(AccessRefused, match="permission denied"):
        watching(scenario, scripted(refused))


def test_a_server_that_never_takes_the_watch_on_is_an_error(watching) -> None:
    async def scenario(_watch) -> None:
        pytest.fail("the watch was taken on")

    with pytest.raises(EngineUnreachable, match=r"within 0\.3 s"):
        watching(scenario, scripted(), timeout=0.3)


def test_a_server_that_drops_the_watch_again_and_again_is_an_error(watching) -> None:
    async def scenario(watch) -> None:
        with pytest.raises(EngineUnreachable, match="ended the watch stream"):
            await watch.batch()

    fake = watching(scenario, scripted(created(), end=True))
    assert 5 < len(fake.watches) < 20


def test_a_member_without_a_leader_is_left(connect) -> None:
    """It ends its streams; another member goes on where it stopped."""

    async def leaderless(call: WatchCall) -> Script:
        yield created()
        yield puts(50)
        await call.abort(grpc.StatusCode.UNAVAILABLE, "etcdserver: no leader")

    async def main() -> None:
        first, second = FakeEtcd(leaderless), FakeEtcd(scripted(created(), puts(51)))
        await first.start()
        await second.start()
        async with connect(first.url, second.url) as connection:
            watch = await connection.engine.watch("/a", "/b", after=49)
            assert await batches(watch, 2) == [50, 51]
            assert (len(first.watches), [call.created.start_revision for call in second.watches]) == (1, [51])
            await watch.aclose()
        await first.stop()
        await second.stop()

    asyncio.run(main())


def test_a_database_that_went_back_ends_the_watch_as_expired(connect) -> None:
    """R36: after a restore, a watch from before it would wait in silence and miss what is written meanwhile."""
    fake = FakeEtcd(scripted(created(100), puts(100), end=True), scripted(created(60)))

    async def main() -> None:
        await fake.start()
        async with connect(fake.url) as connection:
            watch = await connection.engine.watch("/a", "/b", after=99)
            fake.revision = 60
            assert await batches(watch, 1) == [100]
            with pytest.raises(Compacted) as caught:
                await watch.batch()
            assert caught.value.revision == 100
            await watch.aclose()
        await fake.stop()

    asyncio.run(main())


def test_a_member_that_lags_is_waited_for(connect) -> None:
    """Behind what was seen, but the cluster as a whole is not."""
    fake = FakeEtcd(scripted(created(100), puts(100), end=True), scripted(created(60), puts(101)))

    async def main() -> None:
        await fake.start()
        async with connect(fake.url) as connection:
            watch = await connection.engine.watch("/a", "/b", after=99)
            assert await batches(watch, 2) == [100, 101]
            await watch.aclose()
        await fake.stop()

    asyncio.run(main())


def test_a_stale_token_is_renewed_and_the_watch_goes_on(connect) -> None:
    refused = created(
        canceled=True,
        watch_id=-1,
        cancel_reason="rpc error: code = Unauthenticated desc = etcdserver: invalid auth token",
    )
    fake = FakeEtcd(scripted(refused), scripted(created(), puts(50)))
    tokens = iter(["old", "new"])

    async def authenticate(_request, _context):
        return wire.AuthenticateResponse(token=next(tokens))

    fake.on(AUTHENTICATE, authenticate)

    async def main() -> None:
        await fake.start()
        async with connect(fake.url, credentials=lambda: ("root", "secret")) as connection:
            watch = await connection.engine.watch("/a", "/b", after=49)
            assert await batches(watch, 1) == [50]
            await watch.aclose()
        await fake.stop()

    asyncio.run(main())
    assert [call.metadata["token"] for call in fake.watches] == ["old", "new"]


def test_progress_is_asked_for_on_the_streams_that_want_it_and_only_there(connect) -> None:
    async def answering(call: WatchCall) -> Script:
        yield created()
        while (await call.next_request()).HasField("progress_request"):
            yield progress(120)

    fake = FakeEtcd(answering)

    async def main() -> None:
        await fake.start()
        async with connect(fake.url) as connection:
            engine = connection.engine
            wanting = await engine.watch("/a", "/b", after=100, progress=True)
            silent = await engine.watch("/a", "/b", after=100)
            await engine.request_progress()
            assert (await batches(wanting, 2))[-1] == 120
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(silent.batch(), 0.1)
            await wanting.aclose()
            await silent.aclose()
        await fake.stop()

    asyncio.run(main())


def test_a_watch_from_the_newest_revision_is_told_so_where_etcd_says_nothing_of_it(watching) -> None:
    """etcd takes it for a watch from the future, and tells nothing before something changes (etcd-io/etcd#20229)."""

    async def scenario(watch) -> None:
        (first,) = await watch.batch()
        assert (first.is_progress, first.revision) == (True, 100)
        assert await batches(watch, 1) == [101]

    watching(scenario, scripted(created(100), puts(101)), after=100, progress=True)


@pytest.mark.parametrize(("after", "newest"), [(100, 99), (100, 101)])
def test_a_watch_from_another_revision_is_told_nothing_by_itself(watching, after: int, newest: int) -> None:
    """A member that lags may have nothing to say of the start, and one that is ahead has to tell what came since."""

    async def scenario(watch) -> None:
        (first,) = await watch.batch()
        assert (first.is_progress, first.revision) == (False, 101)

    watching(scenario, scripted(created(newest), puts(101)), after=after, progress=True)


def test_a_watch_that_was_told_more_is_not_told_of_its_start_again(connect) -> None:
    async def answering(call: WatchCall) -> Script:
        yield created(100)
        yield puts(101)
        while (await call.next_request()).HasField("progress_request"):
            yield progress(101)

    fake = FakeEtcd(answering)

    async def main() -> None:
        await fake.start()
        async with connect(fake.url) as connection:
            watch = await connection.engine.watch("/a", "/b", after=100, progress=True)
            assert await batches(watch, 2) == [100, 101]
            await connection.engine.request_progress()
            assert await batches(watch, 1) == [101]
            await watch.aclose()
        await fake.stop()

    asyncio.run(main())


def test_progress_is_never_asked_of_an_etcd_that_would_lie(connect) -> None:
    asked = []

    async def listening(call: WatchCall) -> Script:
        yield created()
        asked.append(await call.next_request())

    fake = FakeEtcd(listening, version="3.5.12")

    async def main() -> None:
        await fake.start()
        async with connect(fake.url) as connection:
            watch = await connection.engine.watch("/a", "/b", after=100, progress=True)
            await connection.engine.request_progress()
            assert not connection.engine.watch_progress
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(watch.batch(), 0.1)
            await watch.aclose()
        await fake.stop()

    asyncio.run(main())
    assert asked == []


def test_below_the_fix_a_watch_at_the_compaction_revision_is_refused(connect) -> None:
    """There etcd would leave out a deletion at that revision (D10); reads just below it tell where it is."""
    fake = FakeEtcd(
        scripted(created(100)),
        scripted(created(), wire.WatchResponse(canceled=True, compact_revision=50)),
        version="3.5.17",
    )

    async def ranged(request, context):
        if 0 < request.revision < 50:
            await context.abort(grpc.StatusCode.OUT_OF_RANGE, "etcdserver: mvcc: required revision has been compacted")
        return wire.RangeResponse(header=fake.header())

    fake.on(RANGE, ranged)

    async def main() -> None:
        await fake.start()
        async with connect(fake.url) as connection:
            with pytest.raises(Compacted) as caught:
                await connection.engine.watch("/a", "/b", after=49)
            assert caught.value.compacted == 50
            watch = await connection.engine.watch("/a", "/b", after=50)
            await watch.aclose()
        await fake.stop()

    asyncio.run(main())


def test_a_cancelled_reader_loses_nothing(watching) -> None:
    """A wait can be given up at any time (R39); what comes later is there for the next one."""

    async def slow(_call: WatchCall) -> Script:
        yield created()
        await asyncio.sleep(0.2)
        yield puts(50)
        await for_ever()

    async def scenario(watch) -> None:
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(watch.batch(), 0.02)
        assert await batches(watch, 1) == [50]

    watching(scenario, slow)


def test_a_reader_that_stands_still_holds_the_stream_back(connect) -> None:
    """What nobody fetches stays with etcd: memory is bounded, nothing is dropped."""
    sent = 0

    async def flood(_call: WatchCall) -> Script:
        nonlocal sent
        yield created()
        for revision in range(50, 10_050):
            event = wire.Event(
                kv=wire.KeyValue(key=b"/a", value=b"x" * 1000, create_revision=revision, mod_revision=revision)
            )
            yield wire.WatchResponse(header=wire.ResponseHeader(revision=revision), events=[event])
            sent = revision
        await for_ever()

    fake = FakeEtcd(flood)

    async def main() -> None:
        await fake.start()
        async with connect(fake.url) as connection:
            watch = await connection.engine.watch("/a", "/b", after=49)
            before = -1
            while sent != before:
                before = sent
                await asyncio.sleep(0.3)
            assert sent < 9_000, "everything was taken in"
            assert await batches(watch, 10_000) == list(range(50, 10_050))
            await watch.aclose()
        await fake.stop()

    asyncio.run(main())


def test_nothing_is_left_when_watches_are_closed(connect) -> None:
    """R43: tasks and streams end with their watch, also one that was being opened or resumed."""
    fake = FakeEtcd(scripted(created(), puts(50), end=True), scripted())

    async def main() -> None:
        await fake.start()
        async with connect(fake.url) as connection:
            before = asyncio.all_tasks()
            watch = await connection.engine.watch("/a", "/b", after=49)
            assert await batches(watch, 1) == [50]
            opening = asyncio.create_task(connection.engine.watch("/a", "/b", after=49))
            await asyncio.sleep(0.1)
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening
            await watch.aclose()
            await asyncio.sleep(0.05)
            ours = {task for task in asyncio.all_tasks() - before if task.get_name().startswith("kplane")}
            assert ours == set()
            assert connection.metrics.watches == 0
        await fake.stop()

    asyncio.run(main())
