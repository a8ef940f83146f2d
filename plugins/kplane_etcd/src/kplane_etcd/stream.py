"""One watch stream: opened, read response by response with fragments joined, asked for progress, ended."""

import asyncio
from collections.abc import Sequence
from typing import Any, Final, Self

import attrs
import grpc
import grpc.aio

from kplane_core.engine.interface import EngineUnreachable
from kplane_core.errors import KplaneError
from kplane_etcd import wire
from kplane_etcd.endpoints import Endpoint
from kplane_etcd.errors import AccessRefused, is_stale_token_reason, shortened, translate
from kplane_etcd.transport import Transport

_ASK_PROGRESS: Final = wire.WatchRequest(progress_request=wire.WatchProgressRequest())


class StreamLost(KplaneError):
    """The stream ended; the watch may go on with another one."""


class StaleToken(StreamLost):
    """The watch was refused because of its token."""


class StreamCompacted(KplaneError):
    """The changes from the start of the watch on are gone.

    Args:
        compacted: the compaction revision.
    """

    def __init__(self, compacted: int) -> None:
        super().__init__(f"compacted at {compacted}")
        self.compacted = compacted


@attrs.frozen
class Span:
    """What to watch, and from where.

    Attributes:
        key: the first key.
        end: the first key not watched.
        after: the revision after which it starts.
        progress: whether progress is to be told from time to time.
    """

    key: bytes
    end: bytes
    after: int
    progress: bool = False


class WatchStream:
    """A stream with exactly one watch on it; made by `open`.

    Attributes:
        revision: the newest revision of the member when it took the watch on.
        endpoint: the member.
    """

    def __init__(self, call: Any, endpoint: Endpoint) -> None:
        self._call = call
        self.endpoint = endpoint
        self.revision = 0
        self._asking: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, transport: Transport, span: Span) -> Self:
        """Open a stream and its watch, and wait until etcd has taken it on.

        Raises:
            StreamLost: it was not taken on; another attempt may succeed.
            StreamCompacted: the start is compacted.
            AccessRefused: we may not.
        """
        call, endpoint = await transport.watch_stream()
        stream = cls(call, endpoint)
        request = wire.WatchCreateRequest(
            key=span.key,
            range_end=span.end,
            start_revision=span.after + 1,
            prev_kv=True,
            progress_notify=span.progress,
        )
        # Fragments are not asked for: cutting a large response up costs etcd several times what sending it whole does.
        try:
            async with asyncio.timeout(transport.attempt_timeout):
                await stream._write(wire.WatchRequest(create_request=request))
                while not (response := await stream._read()).created:
                    pass
        except TimeoutError as error:
            await stream.aclose()
            raise StreamLost(f"etcd did not take on a watch within {transport.attempt_timeout:g} s") from error
        except BaseException:
            await stream.aclose()
            raise
        if response.canceled:
            await stream.aclose()
            raise _refusal(response)
        stream.revision = response.header.revision
        return stream

    async def read(self) -> tuple[Sequence[wire.Event], int]:
        """Return the next events, all of the last one's revision included; or none and the revision of progress.

        Raises:
            StreamLost: the stream ended.
            StreamCompacted: the start is compacted.
            AccessRefused: we may not any more.
        """
        events: list[wire.Event] = []
        while True:
            response = await self._read()
            if response.canceled:
                raise _refusal(response)
            more = response.fragment
            if not more and not events:
                return response.events, response.header.revision
            events += response.events
            if not more:
                return events, response.header.revision

    def ask_progress(self) -> None:
        """Ask for a response with the revision reached, unless that is being asked."""
        if self._asking is None or self._asking.done():
            # Not awaited by the caller: when he gives up, gRPC would end the whole stream.
            self._asking = asyncio.create_task(self._ask(), name="kplane-etcd-progress")

    async def _ask(self) -> None:
        try:
            await self._call.write(_ASK_PROGRESS)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            # Whoever reads the stream learns that it has ended.
            return

    async def _write(self, request: wire.WatchRequest) -> None:
        try:
            await self._call.write(request)
        except grpc.aio.AioRpcError as error:
            raise _lost(error) from error
        except asyncio.InvalidStateError:
            raise _lost(await self._failure()) from None

    async def _read(self) -> wire.WatchResponse:
        try:
            response = await self._call.read()
        except grpc.aio.AioRpcError as error:
            raise _lost(error) from error
        if response is grpc.aio.EOF:
            raise StreamLost("etcd ended the watch stream")
        found: wire.WatchResponse = response
        return found

    async def _failure(self) -> grpc.aio.AioRpcError:
        return grpc.aio.AioRpcError(
            await self._call.code(),
            await self._call.initial_metadata(),
            await self._call.trailing_metadata(),
            await self._call.details(),
        )

    def cancel(self) -> None:
        """End the stream; idempotent."""
        self._call.cancel()
        if self._asking is not None:
            self._asking.cancel()

    async def aclose(self) -> None:
        """End the stream and wait until nothing of it runs."""
        self.cancel()
        if self._asking is not None:
            await asyncio.wait([self._asking])
        await self._call.code()


def _lost(error: grpc.aio.AioRpcError) -> KplaneError:
    found = translate(error, write=False, timeout=0)
    if isinstance(found, AccessRefused):
        if error.code() is grpc.StatusCode.UNAUTHENTICATED:
            return StaleToken(str(found))
        return found
    return StreamLost(str(found))


def _refusal(response: wire.WatchResponse) -> KplaneError:
    """Return the error that a cancelled watch stands for; etcd may cancel in the same breath as it confirms."""
    if response.compact_revision:
        return StreamCompacted(response.compact_revision)
    reason = shortened(response.cancel_reason)
    if is_stale_token_reason(reason):
        return StaleToken(f"etcd refuses the watch: {reason}")
    if "permission denied" in reason:
        return AccessRefused(f"etcd refuses the watch: {reason}")
    return StreamLost(f"etcd cancelled the watch: {reason or 'it gave no reason'}")


def unreachable(error: KplaneError) -> EngineUnreachable:
    """Return the error that the end of a watch is told as."""
    return error if isinstance(error, EngineUnreachable) else EngineUnreachable(str(error))
