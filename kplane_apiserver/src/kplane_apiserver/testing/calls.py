"""Requests that a test's own hand makes: through the whole server, but not through a socket."""

import asyncio
from typing import Any

import attrs
import msgspec

from kplane_apiserver.serve import Asgi
from kplane_apiserver.wire.http import Message


@attrs.frozen
class Answer:
    """What the server answered.

    Attributes:
        status: the HTTP status code.
        body: the bytes.
    """

    status: int
    body: bytes

    def json(self) -> Any:
        """Return the body's document."""
        return msgspec.json.decode(self.body)


async def call(
    app: Asgi, method: str, path: str, document: Any = None, content_type: str = "application/json"
) -> Answer:
    """Send one request to an ASGI application and return the whole answer; not for watches, which have no end.

    Args:
        app: the application.
        method: the HTTP method.
        path: the path, with the query if there is one.
        document: what becomes the JSON of the body.
        content_type: its media type, which also names the type of a patch.
    """
    body = b"" if document is None else msgspec.json.encode(document)
    raw_path, _, query = path.encode().partition(b"?")
    scope = {
        "type": "http",
        "method": method,
        "path": raw_path.decode(),
        "raw_path": raw_path,
        "query_string": query,
        "headers": [(b"content-type", content_type.encode()), (b"user-agent", b"kplane-testing")],
    }
    status, chunks, sent = 0, [], False

    async def receive() -> Message:
        nonlocal sent
        if sent:
            await asyncio.Event().wait()  # the client stays until it has its answer
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        else:
            chunks.append(message.get("body", b""))

    await app(scope, receive, send)
    return Answer(status, b"".join(chunks))
