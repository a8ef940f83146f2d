"""The connection below the application: how long a request's head may take, and that nothing else is cut short."""

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from unittest import mock

import pytest
import uvicorn
import uvloop
from uvicorn.server import ServerState

from kplane_apiserver.credentials.certificates import development_tls
from kplane_apiserver.settings import wall_clock
from kplane_apiserver.wire.protocol import BoundedProtocol, GatheredTransport, bounded_protocol
from kplane_apiserver.wire.tls_port import TlsPort

REQUEST = b"GET /a HTTP/1.1\r\nhost: x\r\n\r\n"
UPLOAD = b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n"


class Loop:
    """An event loop that remembers its timers and runs no task by itself."""

    def __init__(self):
        self.timers = []
        self.answering = []

    def call_later(self, seconds, call):
        timer = asyncio.TimerHandle(seconds, call, (), self)
        self.timers.append(timer)
        return timer

    def call_soon(self, call):
        call()

    def create_task(self, coroutine, **_options):
        self.answering.append(coroutine)
        return mock.create_autospec(asyncio.Task, instance=True)

    def get_debug(self):
        return False

    def _timer_handle_cancelled(self, _timer):
        pass

    def waits_for_a_head(self):
        return [one.when() for one in self.timers if not one.cancelled() and one.when() == BoundedProtocol.head_seconds]


class Transport(asyncio.Transport):
    closed = False

    def write(self, _data):
        pass

    def close(self):
        self.closed = True

    def abort(self):
        self.closed = True

    def is_closing(self):
        return self.closed

    def pause_reading(self):
        pass

    def resume_reading(self):
        pass


async def answers(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


@pytest.fixture
def connection():
    loop, transport = Loop(), Transport()
    config = uvicorn.Config(answers, lifespan="off", log_config=None, access_log=False)
    protocol = bounded_protocol(1000)(config, ServerState(), {}, loop)
    protocol.connection_made(transport)
    yield protocol
    for one in loop.answering:
        one.close()


def answer(protocol):
    """Answer the request that came."""
    asyncio.run(protocol.loop.answering.pop(0))


def test_who_connects_and_sends_nothing_is_waited_for_a_while(connection):
    assert connection.loop.waits_for_a_head() == [32]
    connection.loop.timers[0]._run()
    assert connection.transport.closed


@pytest.mark.parametrize("cut", [1, 10, len(REQUEST) - 1])
def test_a_head_in_pieces_is_waited_for_once(connection, cut):
    """Each piece does not begin the time anew."""
    for place in range(cut):
        connection.data_received(REQUEST[place : place + 1])
    assert len(connection.loop.timers) == 1
    assert len(connection.loop.waits_for_a_head()) == 1
    connection.data_received(REQUEST[cut:])
    assert connection.loop.waits_for_a_head() == []


def test_a_request_that_is_answered_is_not_cut_short(connection):
    connection.data_received(REQUEST)
    assert connection.loop.waits_for_a_head() == []
    answer(connection)
    assert connection.loop.waits_for_a_head() == [], "uvicorn's own limit between requests counts now"
    connection.data_received(REQUEST)
    assert connection.loop.waits_for_a_head() == []
    assert not connection.transport.closed


def test_a_body_that_is_read_is_not_cut_short(connection):
    connection.data_received(UPLOAD)
    connection.data_received(b"1234")
    assert connection.loop.waits_for_a_head() == []


@pytest.mark.parametrize("more", [b"G", b"\r\n", b"GET /b HTTP/1.1\r\nhost: x\r\n"])
def test_the_next_head_is_waited_for_no_longer_than_the_first(connection, more):
    connection.data_received(REQUEST)
    answer(connection)
    connection.data_received(more)
    assert connection.loop.waits_for_a_head() == [32]
    connection.data_received(b"")
    assert connection.loop.waits_for_a_head() == [32]


def test_a_body_that_nobody_reads_does_not_keep_the_connection(connection):
    """As that of a request that was refused for its token."""
    connection.data_received(UPLOAD)
    answer(connection)
    for one in b"1234":
        connection.data_received(bytes([one]))
    assert connection.loop.waits_for_a_head() == [32]


@pytest.mark.parametrize("bad", [b"\0\r\n\r\n", b"GET /a HTTP/1.1\r\nx: " + b"a" * 2000 + b"\r\n\r\n"])
def test_a_bad_head_ends_the_connection_at_once(connection, bad):
    connection.data_received(bad)
    assert connection.transport.closed
    connection.connection_lost(None)
    assert connection.loop.waits_for_a_head() == []


@contextlib.contextmanager
def served(seconds: float) -> Iterator[int]:
    """Serve with a limit on the time of heads; give the port."""
    protocol = type("Impatient", (BoundedProtocol,), {"head_seconds": seconds})
    config = uvicorn.Config(answers, http=protocol, lifespan="off", log_config=None, access_log=False)
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(10)


@pytest.mark.parametrize("sent", [b"", b"GET /a HT", REQUEST + b"GE"])
def test_a_real_connection_that_does_not_go_on_is_closed(sent):
    with served(0.05) as port, socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(sent)
        with contextlib.suppress(ConnectionResetError):
            while client.recv(65536):
                pass  # the answers to whole requests; then the end, and not the time-out


def test_over_tls_the_connection_is_not_kept_for_the_clients_last_word(tmp_path):
    """It never comes from who means to keep the connection."""

    async def scenario():
        loop = asyncio.get_running_loop()
        closed = loop.create_future()
        config = uvicorn.Config(answers, lifespan="off", log_config=None, access_log=False)

        class Impatient(BoundedProtocol):
            head_seconds = 0.05

            def connection_lost(self, exc):
                super().connection_lost(exc)
                closed.set_result(None)

        tls = development_tls(tmp_path / "certs", [], wall_clock())
        with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as client:
            port = TlsPort(listener, tls.context, lambda: Impatient(config, ServerState(), {}))
            client.connect(listener.getsockname())
            client.settimeout(10)
            trusting = ssl.create_default_context(cadata=tls.authority)
            with await asyncio.to_thread(trusting.wrap_socket, client, server_hostname="127.0.0.1"):
                async with asyncio.timeout(10):
                    await closed
            port.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario())


class Wire:
    """A transport that only notes what is done with it."""

    def __init__(self):
        self.done = []
        self.closing = False

    def write(self, data):
        self.done.append(data)

    def close(self):
        self.closing = True
        self.done.append("close")

    def abort(self):
        self.closing = True
        self.done.append("abort")

    def is_closing(self):
        return self.closing

    def get_extra_info(self, name):
        return f"the {name}"


def gathered(work):
    """Return what a transport was told while and after `work` used it in one turn of a loop."""

    async def run():
        wire = Wire()
        work(GatheredTransport(wire, asyncio.get_running_loop()), wire)
        during = list(wire.done)
        await asyncio.sleep(0)
        return during, wire.done

    return asyncio.run(run())


def test_what_is_written_in_one_turn_is_sent_in_one_piece():
    def work(transport, _wire):
        for piece in (b"head", b"body", b"next"):
            transport.write(piece)

    assert gathered(work) == ([], [b"headbodynext"])


def test_a_lone_piece_is_sent_without_anything_after_it():
    """The head of a watch must not wait for its first event."""
    assert gathered(lambda transport, _wire: transport.write(b"head")) == ([], [b"head"])


def test_large_pieces_go_out_at_once_behind_what_came_before():
    large = b"x" * 65536
    during, done = gathered(lambda transport, _wire: [transport.write(piece) for piece in (b"head", large, b"end")])
    assert during == [b"head", large]
    assert done == [b"head", large, b"end"]


def test_a_writer_that_never_waits_does_not_fill_the_memory():
    during, done = gathered(lambda transport, _wire: [transport.write(b"y" * 1000) for _ in range(1000)])
    assert max(map(len, during)) < 70_000
    assert sum(map(len, during)) > 900_000
    assert b"".join(done) == b"y" * 1_000_000


def test_closing_sends_what_was_written_and_aborting_does_not():
    assert gathered(lambda transport, _wire: (transport.write(b"last"), transport.close()))[1] == [b"last", "close"]
    assert gathered(lambda transport, _wire: (transport.write(b"last"), transport.abort()))[1] == ["abort"]


def test_nothing_is_sent_on_a_connection_that_went_away():
    def work(transport, wire):
        transport.write(b"late")
        wire.closing = True

    assert gathered(work)[1] == []


def test_everything_else_is_the_connections_own():
    seen = []
    gathered(lambda transport, _wire: seen.append((transport.is_closing(), transport.get_extra_info("peername"))))
    assert seen == [(False, "the peername")]
