"""The calls of google.spanner.v1.Spanner on one channel: deadlines, headers, and errors translated."""

import asyncio
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote

import grpc

from kplane_spanner import messages
from kplane_spanner.errors import Away, translate
from kplane_spanner.messages import RowReader

_SERVICE: Final = "/google.spanner.v1.Spanner/"
_ATTEMPTS: Final = 4
_PAUSE: Final = 0.05

Metadata = tuple[tuple[str, str], ...]


class Calls:
    """What the engine asks of Spanner, each call with a deadline.

    Calls that may be repeated without harm are repeated when the connection breaks. A commit is one of them: it names
    its transaction, and the database commits a transaction once.

    Args:
        channel: an open channel, closed by whoever made it.
        database: the full name of the database.
        timeout: seconds that a call may take.
    """

    def __init__(self, channel: Any, database: str, timeout: float) -> None:
        self.database = database
        self._timeout = timeout
        self._create = _unary(channel, "BatchCreateSessions", messages.BatchCreateSessionsResponse)
        self._delete = _unary(channel, "DeleteSession", None)
        self._begin = _unary(channel, "BeginTransaction", messages.Transaction)
        self._commit = _unary(channel, "Commit", messages.CommitResponse)
        self._rollback = _unary(channel, "Rollback", None)
        self._read = _stream(channel, "StreamingRead")
        self._sql = _stream(channel, "ExecuteStreamingSql")

    def headers(self, session: str) -> Metadata:
        """Return what tells Spanner's front end where the calls of a session go."""
        return (
            ("google-cloud-resource-prefix", self.database),
            ("x-goog-request-params", f"session={quote(session, safe='')}"),
            ("x-goog-spanner-route-to-leader", "true"),
        )

    async def create_sessions(self, count: int) -> list[str]:
        """Return the names of new sessions, at least one."""
        request = messages.BatchCreateSessionsRequest(database=self.database, session_count=count)
        headers: Metadata = (
            ("google-cloud-resource-prefix", self.database),
            ("x-goog-request-params", f"database={quote(self.database, safe='')}"),
        )
        response = await self._repeated(lambda: self._create(request, timeout=self._timeout, metadata=headers))
        return [session.name for session in response.session]

    async def delete_session(self, session: str, within: float) -> None:
        """Delete a session, if the database answers within so many seconds."""
        request = messages.DeleteSessionRequest(name=session)
        headers = (("google-cloud-resource-prefix", self.database),)
        await self._once(lambda: self._delete(request, timeout=within, metadata=headers))

    async def begin(self, request: Any, headers: Metadata) -> Any:
        """Begin a transaction and return it."""
        return await self._repeated(lambda: self._begin(request, timeout=self._timeout, metadata=headers))

    async def commit(self, request: Any, headers: Metadata) -> int:
        """Commit a transaction and return its microsecond."""
        response = await self._repeated(lambda: self._commit(request, timeout=self._timeout, metadata=headers))
        return messages.micros(response.commit_timestamp)

    async def rollback(self, request: Any, headers: Metadata, within: float) -> None:
        """Give up a transaction, if the database answers within so many seconds."""
        await self._once(lambda: self._rollback(request, timeout=within, metadata=headers))

    async def read(self, request: Any, headers: Metadata, *, repeat: bool = True) -> RowReader:
        """Read rows by key.

        Args:
            request: a ReadRequest.
            headers: of the session.
            repeat: False within a transaction, whose first read may have begun it.
        """
        call = self._once if not repeat else self._repeated
        return await call(lambda: self._collect(self._read, request, headers))  # type: ignore[no-any-return]

    async def sql(self, request: Any, headers: Metadata, *, repeat: bool = True) -> RowReader:
        """Run a query; see `read`."""
        call = self._once if not repeat else self._repeated
        return await call(lambda: self._collect(self._sql, request, headers))  # type: ignore[no-any-return]

    async def _collect(self, method: Any, request: Any, headers: Metadata) -> RowReader:
        rows = RowReader()
        stream = method(request, timeout=self._timeout, metadata=headers)
        try:
            async for message in stream:
                rows.take(message)
        except asyncio.CancelledError:
            # Only then the driver's own tasks have ended, too: who cancels a read finds nothing left of it.
            stream.cancel()
            await stream.code()
            await asyncio.sleep(0)
            raise
        return rows

    async def _repeated(self, call: Callable[[], Any]) -> Any:
        for attempt in range(_ATTEMPTS):
            try:
                return await self._once(call)
            except Away as error:
                if not error.passing or attempt == _ATTEMPTS - 1:
                    raise
            await asyncio.sleep(_PAUSE * 2**attempt)
        raise AssertionError("the last attempt returns or raises")

    async def _once(self, call: Callable[[], Any]) -> Any:
        try:
            return await call()
        except grpc.aio.AioRpcError as error:
            raise translate(error, self.database) from error
        except grpc.aio.UsageError as error:  # the channel was closed below us
            raise Away(f"Spanner database {self.database}: the connection is closed") from error


def _unary(channel: Any, method: str, answer: Any) -> Any:
    return channel.unary_unary(
        _SERVICE + method,
        request_serializer=_serialize,
        response_deserializer=answer.FromString if answer is not None else None,
    )


def _stream(channel: Any, method: str) -> Any:
    return channel.unary_stream(
        _SERVICE + method,
        request_serializer=_serialize,
        response_deserializer=messages.PartialResultSet.FromString,
    )


def _serialize(request: Any) -> bytes:
    data: bytes = request.SerializeToString()
    return data
