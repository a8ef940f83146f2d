"""The HTTP connection below the application: uvicorn's, with bounds on the size of a request's head and on its time.

uvicorn bounds the head's size only with its slower parser; with httptools a client could make the server hold headers
without end. The bound costs one addition per chunk; the exact size is summed up only when a cheap upper bound is
exceeded. uvicorn bounds the time between requests only, so that whoever connects and sends little could keep the
connection for good. The timer runs while a head is awaited or incomplete, and most requests come in one piece.
"""

import asyncio
from typing import Any, ClassVar

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from kplane_core.errors import Status

_LARGE = 64 * 1024


class GatheredTransport:
    """A transport that sends in one piece what is written to it in one turn of the event loop.

    uvicorn writes the head of an answer and its body one after the other: two system calls, and over TLS two records,
    where one would do.

    Args:
        transport: the connection's own.
        loop: its event loop.
    """

    __slots__ = ("_loop", "_parts", "_size", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._parts: list[bytes] = []
        self._size = 0

    def write(self, data: bytes) -> None:
        """Send this, with what else is written before the loop's next turn."""
        if len(data) >= _LARGE:
            self._flush()
            self._transport.write(data)  # not worth a copy
            return
        self._parts.append(data)
        self._size += len(data)
        if self._size >= _LARGE:
            self._flush()
        elif len(self._parts) == 1:
            self._loop.call_soon(self._flush)

    def close(self) -> None:
        """Send what was written, then close."""
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        """Close at once; nothing more is sent."""
        self._parts = []
        self._transport.abort()

    def is_closing(self) -> bool:
        """Whether the connection is closing or closed."""
        return self._transport.is_closing()

    def _flush(self) -> None:
        parts, self._parts, self._size = self._parts, [], 0
        if parts and not self._transport.is_closing():
            self._transport.write(parts[0] if len(parts) == 1 else b"".join(parts))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class BoundedProtocol(HttpToolsProtocol):
    """One connection, with bounds on a request's head: its request line and headers.

    It answers 431 to a head larger than `max_header_size`, and closes when one is not complete after `head_seconds`.
    """

    max_header_size: ClassVar[int] = 64 * 1024
    head_seconds: ClassVar[float] = 32

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._chunk = 0  # size of the chunk being parsed
        self._pending = 0  # upper bound of the head's size so far
        self._head_open = False
        self._too_large = False
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request's head."""
        super().connection_made(transport)
        self.transport = GatheredTransport(transport, self.loop)  # type: ignore[assignment]
        self._timer = self._wait_for_head(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing more."""
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse a chunk; refuse a head that grows beyond the limit before it ends."""
        self._chunk = len(data)
        self._pending += self._chunk
        super().data_received(data)
        # uvicorn ends its own wait for the next request with whatever comes; a request that is answered has a deadline.
        if self._timer is None and (self._head_open or self.cycle is None or self.cycle.response_complete):
            self._timer = self._wait_for_head(self.transport)
        if self._head_open and self._pending > self.max_header_size and not self.transport.is_closing():
            self._too_large = True
            self.send_400_response("")

    def on_message_begin(self) -> None:
        """Start to count: the head cannot be larger than what is being parsed."""
        self._pending = self._chunk
        self._head_open = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Hand the request on, if its head is within the limit."""
        self._head_open = False
        self._stop_timer()
        if self._pending > self.max_header_size:
            size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
            if size > self.max_header_size:
                self._too_large = True
                raise ValueError("request head too large")  # the parser stops and asks for a 400
        super().on_headers_complete()

    def _wait_for_head(self, transport: asyncio.Transport) -> asyncio.TimerHandle:
        # Not `close`, which over TLS waits for the client's last word.
        return self.loop.call_later(self.head_seconds, transport.abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def send_400_response(self, msg: str) -> None:
        """Answer a request that cannot be parsed, as a Kubernetes Status, and close the connection."""
        if self._too_large:
            limit = self.max_header_size
            status = Status(431, "RequestHeaderFieldsTooLarge", f"request line and headers exceed {limit} bytes")
        else:
            status = Status(400, "BadRequest", msg)
        body = msgspec.json.encode(status.to_dict())
        phrase = b"431 Request Header Fields Too Large" if self._too_large else b"400 Bad Request"
        self.transport.write(
            b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b"
            % (phrase, len(body), body)
        )
        self.transport.close()


def bounded_protocol(max_header_size: int) -> type[BoundedProtocol]:
    """Return the connection class with its limit: uvicorn takes a class and makes the connections itself."""
    return type("BoundedProtocol", (BoundedProtocol,), {"max_header_size": max_header_size})
