"""The port of a server with TLS: each connection is told apart by its first byte, before the handshake.

Who speaks plain HTTP to it gets an answer that he can read, as upstream gives it, and neither he nor a handshake that
fails leaves a line in the log: whoever scans ports could fill it.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable

_HANDSHAKE = b"\x16"
_SECONDS = 10.0
"""What the first byte and the handshake may take, each."""
_PLAIN = "Client sent an HTTP request to an HTTPS server.\n"
_ANSWER = (
    "HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n"
    f"Content-Length: {len(_PLAIN)}\r\nConnection: close\r\n\r\n{_PLAIN}"
).encode()
_PAUSE = 1.0
_AT_A_TIME = 100


class TlsPort:
    """Accepts connections on a listening socket until it is closed.

    Args:
        listener: the socket; it stays the caller's to close.
        context: the server's end of TLS.
        protocol: makes the protocol of a connection.
    """

    def __init__(
        self, listener: socket.socket, context: ssl.SSLContext, protocol: Callable[[], asyncio.BaseProtocol]
    ) -> None:
        self._listener = listener
        self._context = context
        self._protocol = protocol
        self._beginning: dict[asyncio.Task[None], socket.socket | None] = {}
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None
        listener.setblocking(False)
        self._loop.add_reader(listener, self._accept)

    def close(self) -> None:
        """Accept nothing more, and drop the connections whose handshake is not done."""
        self._loop.remove_reader(self._listener)
        if self._pause is not None:
            self._pause.cancel()
        for task in list(self._beginning):
            task.cancel()

    def _accept(self) -> None:
        """Take the connections that wait, some at a time: others want their turn too."""
        for _ in range(_AT_A_TIME):
            try:
                connection, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionError):
                return
            except OSError:  # no more file descriptors: those who wait get their turn when some are free again
                self._loop.remove_reader(self._listener)
                self._pause = self._loop.call_later(_PAUSE, self._loop.add_reader, self._listener, self._accept)
                return
            task = self._loop.create_task(self._begin(connection))
            self._beginning[task] = connection
            task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[None]) -> None:
        """Close a connection that was not handed over, however that came about."""
        connection = self._beginning.pop(task)
        if connection is not None:
            connection.close()

    async def _begin(self, connection: socket.socket) -> None:
        """Hand the connection over to its protocol with the handshake, or answer who speaks plain HTTP."""
        with contextlib.suppress(OSError, TimeoutError):  # also what a handshake raises that fails
            async with asyncio.timeout(_SECONDS):
                first = await _first_byte(connection)
            if first == _HANDSHAKE:
                await self._hand_over(connection)
            elif first:
                _answer_plain(connection)

    async def _hand_over(self, connection: socket.socket) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._beginning[task] = None  # from here on it is the transport that closes it
        await self._loop.connect_accepted_socket(
            self._protocol, connection, ssl=self._context, ssl_handshake_timeout=_SECONDS
        )


async def _first_byte(connection: socket.socket) -> bytes:
    """Return the first byte that comes, and leave it where it is; nothing when the client closes."""
    connection.setblocking(False)
    loop = asyncio.get_running_loop()
    while True:
        with contextlib.suppress(BlockingIOError):
            return connection.recv(1, socket.MSG_PEEK)
        ready = loop.create_future()
        loop.add_reader(connection, _resolve, ready)
        try:
            await ready
        finally:
            loop.remove_reader(connection)


def _resolve(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


def _answer_plain(connection: socket.socket) -> None:
    """Answer a request that came without TLS, as far as that goes in one piece."""
    connection.recv(65536)  # what is left unread would make the system reset the connection and lose the answer
    connection.send(_ANSWER)
    connection.shutdown(socket.SHUT_WR)
