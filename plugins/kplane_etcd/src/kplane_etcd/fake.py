"""A gRPC server that answers as etcd does when something is wrong, by script; production code never loads it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final

import grpc
import grpc.aio

from kplane_etcd import wire
from kplane_etcd.methods import AUTHENTICATE, COMPACT, LEASE_GRANT, RANGE, STATUS, TXN, WATCH_PATH, Method
from kplane_etcd.servers import free_ports

Unary = Callable[[Any, Any], Awaitable[Any]]
"""Takes a request and gRPC's context, returns the response or aborts the context."""
Stream = Callable[["WatchCall"], AsyncIterator[wire.WatchResponse]]
"""Takes an open watch stream and yields what it answers; the stream ends with it."""

_REQUESTS: Final[dict[str, Any]] = {
    RANGE.path: wire.RangeRequest,
    TXN.path: wire.TxnRequest,
    COMPACT.path: wire.CompactionRequest,
    LEASE_GRANT.path: wire.LeaseGrantRequest,
    STATUS.path: wire.StatusRequest,
    AUTHENTICATE.path: wire.AuthenticateRequest,
}


class WatchCall:
    """One watch stream, as the server sees it.

    Attributes:
        created: the request that began it.
        metadata: what the client sent along.
    """

    def __init__(
        self, created: wire.WatchCreateRequest, requests: AsyncIterator[wire.WatchRequest], context: Any
    ) -> None:
        self.created = created
        self.metadata = dict(context.invocation_metadata() or ())
        self._requests = requests
        self._context = context

    async def next_request(self) -> wire.WatchRequest:
        """Wait for the client's next request."""
        return await anext(self._requests)

    async def abort(self, code: grpc.StatusCode, details: str) -> None:
        """End the stream with an error."""
        await self._context.abort(code, details)


class FakeEtcd:
    """Listens like one member of etcd.

    Attributes:
        revision: what every header says.
        version: what `Status` says.
        received: every unary request, in order.
        watches: every watch stream, in order.
        streams: what the streams answer, one after the other; the last script serves all that follow.
    """

    def __init__(self, *streams: Stream, version: str = "3.5.16", revision: int = 100) -> None:
        self.revision = revision
        self.version = version
        self.received: list[Any] = []
        self.metadata: list[dict[str, str]] = []
        self.watches: list[WatchCall] = []
        self.streams: Sequence[Stream] = streams
        self._handlers: dict[str, Unary] = {
            RANGE.path: self._range,
            TXN.path: self._txn,
            STATUS.path: self._status,
            AUTHENTICATE.path: self._authenticate,
        }
        self._server: grpc.aio.Server | None = None
        (self.port,) = free_ports(1)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    def on(self, method: Method[Any], handler: Unary) -> None:
        """Let a handler answer a method."""
        self._handlers[method.path] = handler

    def header(self) -> wire.ResponseHeader:
        """Return a response header."""
        return wire.ResponseHeader(cluster_id=1, member_id=1, revision=self.revision, raft_term=1)

    async def start(self) -> None:
        """Listen."""
        self._server = grpc.aio.server()
        self._server.add_generic_rpc_handlers((_Router(self),))
        self._server.add_insecure_port(f"127.0.0.1:{self.port}")
        await self._server.start()

    async def stop(self) -> None:
        """Cut everybody off; `start` listens at the same place again."""
        if self._server is not None:
            await self._server.stop(0)
        self._server = None

    async def unary(self, path: str, request: Any, context: Any) -> Any:
        """Answer one call."""
        self.received.append(request)
        self.metadata.append(dict(context.invocation_metadata() or ()))
        if path not in self._handlers:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, f"unknown method {path}")
        return await self._handlers[path](request, context)

    async def watch(
        self, requests: AsyncIterator[wire.WatchRequest], context: Any
    ) -> AsyncIterator[wire.WatchResponse]:
        """Answer one watch stream by its script."""
        call = WatchCall((await anext(requests)).create_request, requests, context)
        script = self.streams[min(len(self.watches), len(self.streams) - 1)]
        self.watches.append(call)
        async for response in script(call):
            yield response

    async def _range(self, _request: Any, _context: Any) -> wire.RangeResponse:
        return wire.RangeResponse(header=self.header())

    async def _txn(self, _request: Any, _context: Any) -> wire.TxnResponse:
        self.revision += 1
        return wire.TxnResponse(header=self.header(), succeeded=True)

    async def _status(self, _request: Any, _context: Any) -> wire.StatusResponse:
        return wire.StatusResponse(header=self.header(), version=self.version, dbSize=4096)

    async def _authenticate(self, request: Any, _context: Any) -> wire.AuthenticateResponse:
        return wire.AuthenticateResponse(header=self.header(), token=f"token-of-{request.name}")


class _Router(grpc.GenericRpcHandler):
    """Finds the handler of a method."""

    def __init__(self, fake: FakeEtcd) -> None:
        self._fake = fake

    def service(self, handler_call_details: Any) -> Any:
        """Return what handles a call; None for a method that nobody knows."""
        path = handler_call_details.method
        if path == WATCH_PATH:
            return grpc.stream_stream_rpc_method_handler(self._fake.watch, wire.WatchRequest.FromString, wire.serialize)
        if path not in _REQUESTS:
            return None

        async def answer(request: Any, context: Any) -> Any:
            return await self._fake.unary(path, request, context)

        return grpc.unary_unary_rpc_method_handler(answer, _REQUESTS[path].FromString, wire.serialize)


def created(revision: int = 100, **more: Any) -> wire.WatchResponse:
    """Return the response that takes a watch on."""
    return wire.WatchResponse(header=wire.ResponseHeader(revision=revision), created=True, **more)


def puts(*revisions: int, header: int = 0, fragment: bool = False, key: bytes = b"/a") -> wire.WatchResponse:
    """Return a response with one creation per revision, under a header that may say something else."""
    events = [
        wire.Event(kv=wire.KeyValue(key=key, value=b"{}", create_revision=revision, mod_revision=revision))
        for revision in revisions
    ]
    return wire.WatchResponse(
        header=wire.ResponseHeader(revision=header or revisions[-1]), events=events, fragment=fragment
    )


def progress(revision: int) -> wire.WatchResponse:
    """Return the answer to a progress request."""
    return wire.WatchResponse(header=wire.ResponseHeader(revision=revision), watch_id=-1)


async def for_ever() -> None:
    """Wait until the stream is cancelled."""
    await asyncio.Event().wait()
