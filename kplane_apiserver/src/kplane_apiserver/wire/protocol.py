"""The HTTP connection below the application: uvicorn's, with a bound on the size of a request's head.

uvicorn bounds the head only with its slower parser; with httptools a client could make the server hold headers without
end. The bound costs one addition per chunk; the exact size is summed up only when a cheap upper bound is exceeded.
"""

from typing import Any, ClassVar

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from kplane_core.errors import Status


class BoundedProtocol(HttpToolsProtocol):
    """One connection that answers 431 to a request line and headers larger than `max_header_size` together."""

    max_header_size: ClassVar[int] = 64 * 1024

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._chunk = 0  # size of the chunk being parsed
        self._pending = 0  # upper bound of the head's size so far
        self._head_open = False
        self._too_large = False

    def data_received(self, data: bytes) -> None:
        """Parse a chunk; refuse a head that grows beyond the limit before it ends."""
        self._chunk = len(data)
        self._pending += self._chunk
        super().data_received(data)
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
        if self._pending > self.max_header_size:
            size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
            if size > self.max_header_size:
                self._too_large = True
                raise ValueError("request head too large")  # the parser stops and asks for a 400
        super().on_headers_complete()

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
