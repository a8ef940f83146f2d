"""The port of a server with TLS: who is let in, what the others are told, and that none of them fills the log."""

import asyncio
import contextlib
import errno
import logging
import socket
import ssl

import pytest
import uvloop

from kplane_apiserver.credentials.certificates import development_tls
from kplane_apiserver.settings import wall_clock
from kplane_apiserver.wire import tls_port
from kplane_apiserver.wire.tls_port import TlsPort


class Echo(asyncio.Protocol):
    """Sends back what comes."""

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.transport.write(data)


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    return development_tls(tmp_path_factory.mktemp("tls") / "certs", [], wall_clock())


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def on_port(request, tls):
    """Run a coroutine function of an address against a port, on each kind of event loop."""

    async def serve(work):
        with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as listener:
            port = TlsPort(listener, tls.context, Echo)
            try:
                return await asyncio.wait_for(work(listener.getsockname()), 20)
            finally:
                port.close()

    def run(work):
        with asyncio.Runner(loop_factory=request.param) as runner:
            return runner.run(serve(work))

    return run


def client_context(tls, **limits):
    context = ssl.create_default_context(cadata=tls.authority)
    context.verify_flags |= ssl.VERIFY_X509_STRICT  # as Python 3.13 and later do by themselves
    for name, value in limits.items():
        setattr(context, name, value)
    return context


async def talk(address, sent, **options):
    """Connect, send, and return all that comes back until the server closes."""
    reader, writer = await asyncio.open_connection(*address[:2], **options)
    try:
        writer.write(sent)
        return await reader.read()
    finally:
        writer.close()


async def echoed(address, tls, **limits):
    context = client_context(tls, **limits)
    reader, writer = await asyncio.open_connection(*address[:2], ssl=context, server_hostname="localhost")
    writer.write(b"hello")
    try:
        return await reader.readexactly(5), writer.get_extra_info("ssl_object").version()
    finally:
        writer.close()


def test_who_speaks_tls_reaches_the_protocol(on_port, tls):
    assert on_port(lambda address: echoed(address, tls)) == (b"hello", "TLSv1.3")
    old = ssl.TLSVersion.TLSv1_2
    assert on_port(lambda address: echoed(address, tls, maximum_version=old)) == (b"hello", "TLSv1.2")


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated")
def test_older_protocols_are_not_spoken(on_port, tls):
    with pytest.raises((ssl.SSLError, ConnectionError)):
        on_port(lambda address: echoed(address, tls, maximum_version=ssl.TLSVersion.TLSv1_1))


def test_many_at_once_are_let_in(on_port, tls):
    async def all_of(address):
        return await asyncio.gather(*(echoed(address, tls) for _ in range(50)))

    assert on_port(all_of) == [(b"hello", "TLSv1.3")] * 50


def test_plain_http_is_answered_in_plain_http(on_port):
    answer = on_port(lambda address: talk(address, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"))
    assert answer.startswith(b"HTTP/1.0 400 Bad Request\r\n")
    assert answer.endswith(b"\r\n\r\nClient sent an HTTP request to an HTTPS server.\n")


def test_what_goes_wrong_before_tls_stands_is_closed_without_a_word_in_the_log(on_port, caplog, monkeypatch):
    """Broken hellos, clients that leave and clients that never speak: none leaves a line, or keeps a connection."""
    monkeypatch.setattr(tls_port, "_SECONDS", 0.3)

    async def strangers(address):
        assert await talk(address, b"\x16\x03\x01\x00\x05hello") != b"hello"
        assert await talk(address, b"") == b"", "silence is not waited for"
        assert await talk(address, b"\x16\x03\x01") == b"", "half a hello neither"
        for sent in (b"", b"\x16", b"G"):
            _, writer = await asyncio.open_connection(*address[:2])
            writer.write(sent)
            writer.transport.abort()
        await asyncio.sleep(0)

    with caplog.at_level(logging.DEBUG):
        on_port(strangers)
    assert [record for record in caplog.records if record.levelno > logging.DEBUG] == []


def test_a_client_that_does_not_trust_the_authority_is_no_complaint(on_port, caplog):
    async def distrustful(address):
        with pytest.raises(ssl.SSLCertVerificationError):
            await talk(address, b"", ssl=ssl.create_default_context(), server_hostname="localhost")

    with caplog.at_level(logging.INFO):
        on_port(distrustful)
    assert caplog.records == []


class Exhausted(socket.socket):
    """A listening socket of a process that has no file descriptors left for a while."""

    refusals = 2

    def accept(self):
        if self.refusals:
            self.refusals -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


def test_who_finds_no_file_descriptor_left_gets_his_turn_later(tls, monkeypatch):
    monkeypatch.setattr(tls_port, "_PAUSE", 0.01)

    async def work():
        with contextlib.closing(Exhausted()) as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            port = TlsPort(listener, tls.context, Echo)
            try:
                assert await asyncio.wait_for(echoed(listener.getsockname(), tls), 20) == (b"hello", "TLSv1.3")
            finally:
                port.close()
            assert listener.refusals == 0

    asyncio.run(work())


@pytest.mark.parametrize("turns", [0, 1, 5], ids=["not-begun", "begun", "waiting"])
def test_a_closed_port_drops_who_has_not_finished_his_hello(tls, turns):
    async def work():
        with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as listener:
            port = TlsPort(listener, tls.context, Echo)
            with socket.create_connection(listener.getsockname()) as client:
                port._accept()
                for _ in range(turns):
                    await asyncio.sleep(0)
                port.close()
                for _ in range(3):  # the cancelled task, its end, and one to spare
                    await asyncio.sleep(0)
                assert client.recv(1) == b""
            assert port._beginning == {}

    asyncio.run(work())
