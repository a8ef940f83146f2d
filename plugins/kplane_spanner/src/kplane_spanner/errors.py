"""What Spanner answers, as errors; the one place where the driver's errors end."""

from typing import Any, Final

import grpc
from google.rpc.error_details_pb2 import RetryInfo

from kplane_core.engine.interface import EngineUnreachable
from kplane_core.errors import InternalError, KplaneError, UsageError

_RETRY_INFO: Final = "google.rpc.retryinfo-bin"
_AWAY: Final = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNKNOWN,
    }
)
_PASSING: Final = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL})


class Aborted(KplaneError):
    """The transaction lost against another one and must be done again from its beginning.

    Args:
        retry_after: seconds that the database asks to wait; 0 when it asks for none.
    """

    def __init__(self, retry_after: float = 0.0) -> None:
        super().__init__("the transaction was aborted")
        self.retry_after = retry_after


class RowExists(KplaneError):
    """A row that was to be inserted is there already."""


class SessionLost(KplaneError):
    """The database does not know the session any more."""


class SnapshotTooOld(KplaneError):
    """The database no longer has the versions that a read of the past asks for."""


class Away(EngineUnreachable):
    """The database gave no answer.

    Args:
        message: what happened.
        passing: the same call may well succeed when it is made again at once.
    """

    def __init__(self, message: str, *, passing: bool = False) -> None:
        super().__init__(message)
        self.passing = passing


class DatabaseGone(EngineUnreachable):
    """The database, its instance or one of its tables does not exist."""


class SchemaError(UsageError):
    """The database holds something else than the tables that kplane makes."""


def translate(error: grpc.aio.AioRpcError, database: str) -> KplaneError:  # noqa: PLR0911 - one row of the table each
    """Return what a failed call means.

    Args:
        error: as the driver raised it.
        database: the full name of the database, for the message.
    """
    code, details = error.code(), error.details() or ""
    match code:
        case grpc.StatusCode.ABORTED:
            return Aborted(_retry_after(error))
        case grpc.StatusCode.ALREADY_EXISTS:
            return RowExists(details)
        case grpc.StatusCode.NOT_FOUND if "Session not found" in details:
            return SessionLost(details)
        case grpc.StatusCode.NOT_FOUND:
            return DatabaseGone(f"Spanner database {database}: {details}")
        case grpc.StatusCode.FAILED_PRECONDITION if "staleness" in details or "too old" in details.lower():
            return SnapshotTooOld(details)
        case _ if code in _AWAY:
            return Away(f"Spanner database {database}: {code.name}: {details}", passing=code in _PASSING)
        case _:
            return InternalError(f"Spanner database {database} refused a call: {code.name}: {details}")


def _retry_after(error: grpc.aio.AioRpcError) -> float:
    metadata: Any = error.trailing_metadata() or ()
    for key, value in metadata:
        if key == _RETRY_INFO:
            delay = RetryInfo.FromString(value).retry_delay
            return float(delay.seconds + delay.nanos / 1e9)
    return 0.0
