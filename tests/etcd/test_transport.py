"""Calls: what is sent again and what never, how long, to whom, and as whom."""

import asyncio
import time

import grpc
import pytest

from kplane_core.engine.interface import EngineUnreachable, Written
from kplane_core.errors import Unreachable
from kplane_etcd import wire
from kplane_etcd.endpoints import Endpoint, TlsFiles, target
from kplane_etcd.errors import AccessRefused, DatabaseFull, NotImplementedByServer, RequestTooLarge
from kplane_etcd.fake import FakeEtcd
from kplane_etcd.methods import AUTHENTICATE, RANGE, STATUS, TXN
from kplane_etcd.servers import free_ports
from kplane_etcd.transport import Transport


def run(scenario, *fakes: FakeEtcd, timeout: float = 5.0, credentials=None, urls=()) -> None:
    """Run a scenario with a transport to the fakes, which listen."""

    async def main() -> None:
        for fake in fakes:
            await fake.start()
        endpoints = [Endpoint(url, TlsFiles()) for url in (*urls, *(fake.url for fake in fakes))]
        transport = Transport(endpoints, timeout=timeout, credentials=credentials)
        try:
            await scenario(transport)
        finally:
            await transport.aclose()
            for fake in fakes:
                await fake.stop()

    asyncio.run(main())


def failing(fake: FakeEtcd, code: grpc.StatusCode, details: str, times: int = 1_000_000):
    """Return a handler that fails so many times, then answers."""
    left = times

    async def handler(_request, context):
        nonlocal left
        if left:
            left -= 1
            await context.abort(code, details)
        return wire.RangeResponse(header=fake.header())

    return handler


CREATE = wire.TxnRequest(success=[wire.RequestOp(request_put=wire.PutRequest(key=b"/a", value=b"1"))])
READ = wire.RangeRequest(key=b"/a")
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE


def test_a_read_is_repeated_until_it_is_answered() -> None:
    fake = FakeEtcd()
    fake.on(RANGE, failing(fake, UNAVAILABLE, "etcdserver: leader changed", 3))

    async def scenario(transport: Transport) -> None:
        assert (await transport.call(RANGE, READ)).header.revision == 100

    run(scenario, fake)
    assert len(fake.received) == 4


def test_a_write_that_was_sent_is_never_sent_again() -> None:
    """It may have been done: doing it twice could report AlreadyExists against itself."""
    fake = FakeEtcd()
    fake.on(TXN, failing(fake, UNAVAILABLE, "etcdserver: request timed out"))

    async def scenario(transport: Transport) -> None:
        with pytest.raises(EngineUnreachable, match="whether the write was done is not known"):
            await transport.call(TXN, CREATE)

    run(scenario, fake)
    assert len(fake.received) == 1


def test_a_write_for_which_there_was_no_connection_goes_to_another_member() -> None:
    fake = FakeEtcd()

    async def scenario(transport: Transport) -> None:
        assert (await transport.call(TXN, CREATE)).succeeded
        assert transport.metrics.failed_over == 1

    run(scenario, fake, urls=[f"http://127.0.0.1:{free_ports(1)[0]}"])
    assert len(fake.received) == 1


def test_calls_wait_for_a_server_that_comes_back_and_fail_when_it_does_not() -> None:
    fake = FakeEtcd()

    async def scenario(transport: Transport) -> None:
        await fake.stop()
        started = time.monotonic()
        with pytest.raises(EngineUnreachable, match="cannot be reached"):
            await transport.call(RANGE, READ, timeout=0.5)
        assert 0.3 < time.monotonic() - started < 2
        calls = [transport.call(RANGE, READ), transport.call(TXN, CREATE)]
        tasks = [asyncio.ensure_future(call) for call in calls]
        await asyncio.sleep(0.3)
        await fake.start()
        await asyncio.gather(*tasks)

    run(scenario, fake)
    assert len(fake.received) == 2


def test_a_member_that_stands_still_does_not_use_up_the_time_of_a_read() -> None:
    """One of two members answers nothing: the other one is asked within the deadline."""
    stuck, healthy = FakeEtcd(), FakeEtcd()

    async def never(_request, _context):
        await asyncio.sleep(60)

    stuck.on(RANGE, never)

    async def scenario(transport: Transport) -> None:
        assert (await transport.call(RANGE, READ)).header.revision == 100
        started = time.monotonic()
        await transport.call(RANGE, READ)
        assert time.monotonic() - started < 1, "later calls begin with the member that answers"

    run(scenario, stuck, healthy, timeout=10)


def test_every_call_ends_by_its_deadline() -> None:
    fake = FakeEtcd()

    async def never(_request, _context):
        await asyncio.sleep(60)

    fake.on(TXN, never)

    async def scenario(transport: Transport) -> None:
        with pytest.raises(EngineUnreachable, match=r"no answer within 0\.3 s; whether the write was done is not"):
            await transport.call(TXN, CREATE)

    run(scenario, fake, timeout=0.3)


def test_a_token_is_fetched_once_for_all_and_renewed_when_it_expires() -> None:
    """Refused for its token means not done: even a write is sent again."""
    fake = FakeEtcd()
    valid, given = "token-1", 0

    async def authenticate(request, _context):
        nonlocal given
        given += 1
        assert (request.name, request.password) == ("root", "pass")
        await asyncio.sleep(0.05)
        return wire.AuthenticateResponse(token=f"token-{given}")

    async def checked(_request, context):
        if dict(context.invocation_metadata()).get("token") != valid:
            # Some learn late that their token is refused, when there is a new one already.
            await asyncio.sleep(0.2 * (len(fake.received) % 2))
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "etcdserver: invalid auth token")
        return wire.TxnResponse(header=fake.header(), succeeded=True)

    fake.on(AUTHENTICATE, authenticate)
    fake.on(TXN, checked)

    async def scenario(transport: Transport) -> None:
        nonlocal valid
        await asyncio.gather(*(transport.call(TXN, CREATE) for _ in range(10)))
        assert given == 1
        valid = "token-2"
        await asyncio.gather(*(transport.call(TXN, CREATE) for _ in range(10)))
        assert given == 2
        valid = "nobody's"
        with pytest.raises(AccessRefused, match="invalid auth token"):
            await transport.call(TXN, CREATE)

    run(scenario, fake, credentials=lambda: ("root", "pass"))


@pytest.mark.parametrize(
    ("code", "refusal"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, "etcdserver: user name is empty"),
        (grpc.StatusCode.UNAUTHENTICATED, "etcdserver: invalid auth token"),
    ],
)
def test_a_member_that_wants_to_know_who_asks_how_it_is_is_told(code, refusal) -> None:
    """Before etcd 3.6 nobody needed a token to ask for the status."""
    fake = FakeEtcd(version="3.6.0")
    valid = ["token-1"]

    async def authenticate(_request, _context):
        return wire.AuthenticateResponse(token=valid[0])

    async def status(_request, context):
        if dict(context.invocation_metadata()).get("token") != valid[0]:
            await context.abort(code, refusal)
        return wire.StatusResponse(header=fake.header(), version=fake.version)

    fake.on(AUTHENTICATE, authenticate)
    fake.on(STATUS, status)

    async def scenario(transport: Transport) -> None:
        (endpoint,) = transport.endpoints
        for token in ("token-1", "token-2"):  # none yet, then one that is refused
            valid[0] = token
            assert (await transport.ask(endpoint, STATUS, wire.StatusRequest(), within=5)).version == "3.6.0"

    run(scenario, fake, credentials=lambda: ("root", "pass"))

    async def nobody(transport: Transport) -> None:
        with pytest.raises(AccessRefused):
            await transport.ask(transport.endpoints[0], STATUS, wire.StatusRequest(), within=5)

    run(nobody, fake)


def test_a_wrong_password_is_said_and_not_repeated() -> None:
    fake = FakeEtcd()
    fake.on(
        AUTHENTICATE,
        failing(
            fake, grpc.StatusCode.INVALID_ARGUMENT, "etcdserver: authentication failed, invalid user ID or password"
        ),
    )

    async def scenario(transport: Transport) -> None:
        with pytest.raises(AccessRefused, match="no user with this name and password") as caught:
            await transport.call(RANGE, READ)
        assert "hunter2" not in str(caught.value)

    run(scenario, fake, credentials=lambda: ("root", "hunter2"))


@pytest.mark.parametrize(
    ("code", "details", "kind"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, "etcdserver: request is too large", RequestTooLarge),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "message larger than max (2100033 vs. 2097152)", RequestTooLarge),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded", DatabaseFull),
        (grpc.StatusCode.INVALID_ARGUMENT, "etcdserver: user name is empty", AccessRefused),
        (grpc.StatusCode.PERMISSION_DENIED, "etcdserver: permission denied", AccessRefused),
        (grpc.StatusCode.UNIMPLEMENTED, "ignoreLease is not implemented by kine", NotImplementedByServer),
    ],
)  # fmt: skip
def test_a_refusal_keeps_its_meaning(code, details, kind) -> None:
    fake = FakeEtcd()
    fake.on(TXN, failing(fake, code, details))

    async def scenario(transport: Transport) -> None:
        with pytest.raises(kind):
            await transport.call(TXN, CREATE, size=2_100_000)

    run(scenario, fake)


def test_a_refusal_as_too_large_names_size_and_limit() -> None:
    error = RequestTooLarge(2_000_000, 1_572_864)
    assert error.status().code == 413
    assert "2000000 bytes" in error.status().message
    assert "1572864" in error.status().message
    assert DatabaseFull().status().code == 507


def test_closing_ends_running_calls_and_cancelling_stays_cancelling() -> None:
    fake = FakeEtcd()

    async def never(_request, _context):
        await asyncio.sleep(60)

    fake.on(RANGE, never)

    async def scenario(transport: Transport) -> None:
        running = asyncio.create_task(transport.call(RANGE, READ))
        cancelled = asyncio.create_task(transport.call(RANGE, READ))
        await asyncio.sleep(0.1)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        await transport.aclose()
        with pytest.raises(EngineUnreachable, match="closed"):
            await running
        with pytest.raises(EngineUnreachable, match="closed"):
            await transport.call(RANGE, READ)

    run(scenario, fake)


def test_what_is_counted_goes_by_kubernetes_names() -> None:
    fake = FakeEtcd()

    async def scenario(transport: Transport) -> None:
        await transport.call(RANGE, READ)
        await transport.call(RANGE, READ)
        fake.on(TXN, failing(fake, grpc.StatusCode.INTERNAL, "broken"))
        with pytest.raises(Exception, match="broken"):
            await transport.call(TXN, CREATE)
        samples = {(sample.name, sample.labels): sample for sample in transport.metrics.samples()}
        assert samples["etcd_requests_total", (("operation", "range"),)].value == 2
        assert samples["etcd_request_errors_total", (("operation", "txn"),)].value == 1
        histogram = samples["etcd_request_duration_seconds", (("operation", "range"),)]
        assert histogram.buckets[-1] == 2
        assert list(histogram.buckets) == sorted(histogram.buckets)

    run(scenario, fake)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://10.0.0.1:2379", "10.0.0.1:2379"),
        ("https://etcd.example", "etcd.example:2379"),
        ("http://[::1]:2379", "[::1]:2379"),
        ("unix:///var/run/kine.sock", "unix:/var/run/kine.sock"),
        ("unix://kine.sock", "unix:kine.sock"),
    ],
)
def test_a_url_becomes_the_address_that_grpc_takes(url, expected) -> None:
    assert target(url) == expected


def test_the_first_contact_says_why_each_member_failed(connect) -> None:
    async def scenario() -> None:
        ports = free_ports(2)
        with pytest.raises(Unreachable) as caught:
            async with connect(*(f"http://127.0.0.1:{port}" for port in ports), dial_timeout=0.5):
                pytest.fail("nobody listens")
        for port in ports:
            assert f"127.0.0.1:{port}" in str(caught.value)
        assert "refused" in str(caught.value)

    asyncio.run(scenario())


def test_features_are_those_of_the_members_that_have_answered(connect) -> None:
    """One that comes later takes away what it cannot do."""
    new, old = FakeEtcd(), FakeEtcd(version="3.5.1")

    async def scenario() -> None:
        await new.start()
        async with connect(new.url, old.url) as connection:
            assert connection.features.progress
            await old.start()
            for _ in range(50):
                await connection.members.look(1.0)
                if not connection.features.progress:
                    break
                await asyncio.sleep(0.1)
            assert "3.5.1" in connection.features.reason
            assert connection.metrics.sizes == {new.url: 4096, old.url: 4096}
        await new.stop()
        await old.stop()

    asyncio.run(scenario())


def test_a_server_without_ignore_lease_gets_the_lease_by_name(connect) -> None:
    """kine refuses ignore_lease: the record's own lease is read and named instead, from then on."""
    fake = FakeEtcd()
    puts = []

    async def txn(request, context):
        put = request.success[0].request_put
        if put.ignore_lease:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "ignoreLease is not implemented by kine")
        puts.append(put)
        return wire.TxnResponse(header=fake.header(), succeeded=True)

    async def ranged(_request, _context):
        kv = wire.KeyValue(key=b"/a", value=b"1", create_revision=5, mod_revision=7, lease=42)
        return wire.RangeResponse(header=fake.header(), kvs=[kv], count=1)

    fake.on(TXN, txn)
    fake.on(RANGE, ranged)

    async def scenario() -> None:
        await fake.start()
        async with connect(fake.url) as connection:
            for _ in range(2):
                assert await connection.engine.write("/a", b"2", expect=7) == Written(100)
            assert await connection.engine.write("/a", b"2", expect=7, ttl=0) == Written(100)
        await fake.stop()

    asyncio.run(scenario())
    assert [put.lease for put in puts] == [42, 42, 0]
    assert sum(isinstance(request, wire.TxnRequest) for request in fake.received) == 4
