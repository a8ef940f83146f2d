"""HTTP over plain ASGI: the request as handlers see it, and the two ways to answer."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, MutableMapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import parse_qsl

import msgspec

from kplane_apiserver.apierrors import RequestEntityTooLarge
from kplane_apiserver.identity import ANONYMOUS
from kplane_apiserver.wire.routes import Route
from kplane_core.errors import BadRequest, Status, Subject, Verb

if TYPE_CHECKING:
    from kplane_apiserver.kinds import Kind

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

JSON = b"application/json"

_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True", ""})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_VERBS: Mapping[str, Verb] = {
    "POST": "create",
    "PUT": "update",
    "PATCH": "update",
    "DELETE": "delete",
}
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f]")
# Many clients refuse an answer with long headers, or with more than a hundred.
_MOST_WARNINGS = 64
_WARNING_LENGTH = 1024
_WARNINGS_LENGTH = 4096


class ClientDisconnected(Exception):
    """The client went away while its request was still being read."""


class Request:
    """One request: its route, its query and, when a handler wants it, its body.

    Args:
        scope: the ASGI scope.
        receive: the ASGI receive function.
        route: what the path asks for.
        max_body: bytes that the body may have.

    Attributes:
        user: who it is from.
        kind: the kind that the route names, once it is known to exist.
        warnings: what the client is told besides the answer, in Warning headers.
    """

    __slots__ = ("_max_body", "_query", "kind", "method", "receive", "route", "scope", "user", "warnings")

    def __init__(self, scope: Scope, receive: Receive, route: Route, max_body: int) -> None:
        self.scope = scope
        self.receive = receive
        self.route = route
        method: str = scope["method"]
        # A HEAD is answered as a GET whose body is not sent.
        self.method = "GET" if method == "HEAD" else method
        self._max_body = max_body
        self._query: dict[str, str] | None = None
        self.user = ANONYMOUS
        self.kind: Kind | None = None
        self.warnings: list[str] = []

    @property
    def query(self) -> Mapping[str, str]:
        """The query's parameters; of a repeated one the first counts, as upstream has it."""
        if self._query is None:
            text: bytes = self.scope["query_string"]
            self._query = _parse_query(text) if text else {}
        return self._query

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Return a boolean parameter, spelled as Go's ParseBool reads it; present and empty means true.

        Raises:
            BadRequest: it is spelled otherwise.
        """
        value = self.query.get(name)
        if value is None:
            return default
        if value in _TRUE:
            return True
        if value in _FALSE:
            return False
        raise BadRequest(f"the query parameter {name} must be true or false, not {value[:80]!r}")

    def integer(self, name: str) -> int:
        """Return a parameter that is a whole number, 0 when absent.

        Raises:
            BadRequest: it is not one, or is out of range.
        """
        value = self.query.get(name, "")
        if not value:
            return 0
        try:
            number = int(value)
        except ValueError:
            raise BadRequest(f"the query parameter {name} must be a whole number, not {value[:80]!r}") from None
        if not 0 <= number < 2**63:
            raise BadRequest(f"the query parameter {name} must lie between 0 and 2^63-1, not {value[:80]!r}")
        return number

    def header(self, name: bytes) -> bytes:
        """Return a header's first value, empty when absent; `name` is in lower case."""
        for key, value in self.scope["headers"]:
            if key == name:
                return bytes(value)
        return b""

    @property
    def content_type(self) -> str:
        """The Content-Type header; empty when absent."""
        return self.header(b"content-type").decode("latin-1")

    @property
    def user_agent(self) -> str:
        """The User-Agent header; empty when absent."""
        return self.header(b"user-agent").decode("latin-1")

    @property
    def verb(self) -> Verb:
        """The storage verb, for the words of an error."""
        verb = _VERBS.get(self.method)
        if verb is not None:
            return verb
        return "get" if self.route.name else "list"

    @property
    def subject(self) -> Subject:
        """What the request is about, for the words of an error."""
        return Subject(self.route.resource, self.route.group, self.route.name)

    async def body(self) -> bytes:
        """Return the whole body.

        Raises:
            RequestEntityTooLarge: naming the limit, as soon as it is known to be passed.
            ClientDisconnected: the client went away.
        """
        declared = self.header(b"content-length")
        if declared.isdigit():
            self._check_limit(int(declared))
        message = await self.receive()
        if not message.get("more_body") and message["type"] == "http.request":
            whole: bytes = message.get("body", b"")
            self._check_limit(len(whole))
            return whole
        chunks = bytearray()
        while True:
            if message["type"] == "http.disconnect":
                raise ClientDisconnected
            chunks += message.get("body", b"")
            self._check_limit(len(chunks))
            if not message.get("more_body"):
                return bytes(chunks)
            message = await self.receive()

    def _check_limit(self, size: int) -> None:
        if size > self._max_body:
            raise RequestEntityTooLarge(self._max_body)


def _parse_query(text: bytes) -> dict[str, str]:
    parameters: dict[str, str] = {}
    for key, value in parse_qsl(text.decode("latin-1"), keep_blank_values=True):
        parameters.setdefault(key, value)
    return parameters


class Response:
    """A whole answer.

    Args:
        body: its bytes.
        status: the HTTP status code.
        content_type: its media type.
        headers: more headers, names in lower case.
    """

    __slots__ = ("body", "content_type", "headers", "status")

    def __init__(
        self,
        body: bytes,
        status: int = 200,
        content_type: bytes = JSON,
        headers: tuple[tuple[bytes, bytes], ...] = (),
    ) -> None:
        self.body = body
        self.status = status
        self.content_type = content_type
        self.headers = headers

    async def send(self, send: Send) -> None:
        """Send the answer."""
        headers = [(b"content-type", self.content_type), (b"content-length", b"%d" % len(self.body)), *self.headers]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body})


class LargeResponse(Response):
    """A whole answer that is made piece by piece while it is sent, and never lies in memory at once.

    Its length is not told: to find it out would mean to look at everything twice.

    Args:
        pieces: its bytes, in order.
    """

    __slots__ = ("_pieces",)

    def __init__(self, pieces: Iterable[bytes]) -> None:
        super().__init__(b"")
        self._pieces = pieces

    async def send(self, send: Send) -> None:
        """Send the answer as fast as the client takes it, and let others have their turn after each piece."""
        headers = [(b"content-type", self.content_type), *self.headers]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        for piece in self._pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": b""})


class StreamResponse(Protocol):
    """An answer that is sent while it comes into being."""

    async def stream(self, send: Send) -> None:
        """Send the answer until it ends or the client goes away."""
        ...


def warning_headers(texts: Iterable[str]) -> Iterator[tuple[bytes, bytes]]:
    """Yield the headers that make kubectl print warnings, each once: the first ones, and of a long one its beginning.

    Clients can name what they like in them, so control characters are left out.
    """
    left = _WARNINGS_LENGTH
    for text in islice(dict.fromkeys(texts), _MOST_WARNINGS):
        shown = text[:_WARNING_LENGTH]
        left -= len(shown)
        if left < 0:
            return
        quoted = _UNPRINTABLE.sub(" ", shown).replace("\\", "\\\\").replace('"', '\\"')
        yield b"warning", f'299 - "{quoted}"'.encode("ascii", "replace")


def json_response(document: object, status: int = 200) -> Response:
    """Return an answer with a JSON document."""
    return Response(msgspec.json.encode(document), status)


def status_response(status: Status) -> Response:
    """Return the answer that tells a client of a failure."""
    headers = ((b"retry-after", b"%d" % status.retry_after),) if status.retry_after else ()
    return Response(msgspec.json.encode(status.to_dict()), status.code, JSON, headers)
