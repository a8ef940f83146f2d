"""What etcd and gRPC report, as errors of kplane; foreign exceptions stop at `translate`."""

import re
from collections.abc import Callable, Mapping
from typing import Final

import grpc
import grpc.aio

from kplane_core.engine.interface import EngineUnreachable, ValueTooLarge
from kplane_core.errors import InternalError, KplaneError, Status

COMPACTED = "required revision has been compacted"
FUTURE = "required revision is a future revision"
_LEASE_GONE = "requested lease not found"
_TOO_LARGE = "request is too large"
_NO_SPACE = "database space exceeded"
_NO_USER = "user name is empty"
_NO_LOGIN = "authentication failed"
_USUAL_LIMIT = 1_572_864
_OLD_AUTH = "revision of auth store is old"
_NOT_CONNECTED = "failed to connect to all addresses"
# A message longer than what gRPC lets etcd take: "received message larger than max (2100033 vs. 2097152)".
_LONGER_THAN_MAX = re.compile(r"message larger than max \((\d+) vs\. (\d+)\)")
_LONGEST = 300


class RequestTooLarge(ValueTooLarge):
    """etcd does not take a request of this size."""

    def __str__(self) -> str:
        return (
            f"the object has {self.size} bytes, which is more than etcd takes in one request: its "
            f"--max-request-bytes, {self.limit} unless it was told otherwise, counts keys and overhead too"
        )


class DatabaseFull(KplaneError):
    """etcd's space quota is used up: it refuses writes, below 3.6 deletions too, but still takes compactions."""

    def __init__(self) -> None:
        super().__init__(
            "etcd's space quota is used up (alarm NOSPACE): it takes no more writes until the members are defragmented "
            "(etcdctl defrag), which gives back what compaction freed, and the alarm is disarmed (etcdctl alarm disarm)"
        )

    def status(self) -> Status:
        """Return 507: nothing is wrong with the request, and nothing with the server."""
        return Status(507, "InsufficientStorage", str(self))


class AccessRefused(EngineUnreachable):
    """etcd knows nobody by these credentials, or does not allow them this."""


class LeaseGone(KplaneError):
    """The lease that a write named has ended; nothing was written."""


class NotImplementedByServer(KplaneError):
    """The server does not know this method or field; nothing was done."""


class Overloaded(EngineUnreachable):
    """etcd refuses the request because it has too many in hand; nothing was done."""


class CompactedRevision(KplaneError):
    """The asked revision has been compacted; internal, the engine adds which and where history starts."""


class RevisionAhead(KplaneError):
    """The asked revision does not exist yet; internal, the engine adds which and what the newest is."""


def translate(error: grpc.aio.AioRpcError, *, write: bool, timeout: float, size: int = 0) -> KplaneError:
    """Return the error of kplane that a failed call stands for.

    Args:
        error: what gRPC raised.
        write: whether the call may have changed something.
        timeout: the seconds it was given.
        size: bytes of the value that was to be written.
    """
    code, details = error.code(), error.details() or ""
    unknown = "; whether the write was done is not known" if write else ""
    if (refusal := _REFUSALS.get(code)) is not None and (found := refusal(details, size)) is not None:
        return found
    match code:
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return EngineUnreachable(f"etcd gave no answer within {timeout:.3g} s{unknown}")
        case grpc.StatusCode.UNAVAILABLE:
            unsent = _NOT_CONNECTED in details
            return EngineUnreachable(f"etcd cannot be reached: {shortened(details)}{'' if unsent else unknown}")
    return InternalError(f"etcd answered {code.name}: {shortened(details)}{unknown}")


def _out_of_range(details: str, _size: int) -> KplaneError | None:
    if COMPACTED in details:
        return CompactedRevision(details)
    return RevisionAhead(details) if FUTURE in details else None


def _invalid(details: str, size: int) -> KplaneError | None:
    if _TOO_LARGE in details:
        return RequestTooLarge(size, _USUAL_LIMIT)
    if _NO_USER in details:
        return AccessRefused("etcd asks for a user: set --etcd-username and --etcd-password-file")
    return AccessRefused("etcd knows no user with this name and password") if _NO_LOGIN in details else None


def _exhausted(details: str, size: int) -> KplaneError | None:
    if _NO_SPACE in details:
        return DatabaseFull()
    if "too many requests" in details:
        return Overloaded("etcd has too many requests in hand")
    if size and (found := _LONGER_THAN_MAX.search(details)):
        return RequestTooLarge(size, int(found[2]))
    return None


def _not_found(details: str, _size: int) -> KplaneError | None:
    return LeaseGone(details) if _LEASE_GONE in details else None


def _denied(details: str, _size: int) -> KplaneError:
    return AccessRefused(f"etcd refuses access: {shortened(details)}")


def _unknown_method(details: str, _size: int) -> KplaneError:
    return NotImplementedByServer(shortened(details))


_REFUSALS: Final[Mapping[grpc.StatusCode, Callable[[str, int], KplaneError | None]]] = {
    grpc.StatusCode.OUT_OF_RANGE: _out_of_range,
    grpc.StatusCode.INVALID_ARGUMENT: _invalid,
    grpc.StatusCode.RESOURCE_EXHAUSTED: _exhausted,
    grpc.StatusCode.NOT_FOUND: _not_found,
    grpc.StatusCode.PERMISSION_DENIED: _denied,
    grpc.StatusCode.UNAUTHENTICATED: _denied,
    grpc.StatusCode.UNIMPLEMENTED: _unknown_method,
}
"""What etcd says when it has done nothing, and the request was the reason."""


def was_never_sent(error: grpc.aio.AioRpcError) -> bool:
    """Whether a call failed because there was no connection to send it on, so that even a write may be tried again."""
    return error.code() is grpc.StatusCode.UNAVAILABLE and _NOT_CONNECTED in (error.details() or "")


def wants_new_token(error: grpc.aio.AioRpcError) -> bool:
    """Whether the call was refused, unseen, because its token has expired or is older than a change of the users."""
    return error.code() is grpc.StatusCode.UNAUTHENTICATED or _OLD_AUTH in (error.details() or "")


def wants_user(error: grpc.aio.AioRpcError) -> bool:
    """Whether the call was refused, unseen, because it said nothing of who calls."""
    return _NO_USER in (error.details() or "")


def is_stale_token_reason(reason: str) -> bool:
    """Whether a watch was refused because of the token."""
    return "nauthenticated" in reason or "invalid auth token" in reason or _OLD_AUTH in reason


def is_longer_than_max(error: KplaneError) -> bool:
    """Whether an answer did not fit into one message."""
    return isinstance(error, InternalError) and _LONGER_THAN_MAX.search(str(error)) is not None


def shortened(text: str) -> str:
    """Return a text of another system on one line, with its middle left out when it is long."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST // 2]} … {line[-_LONGEST // 2 :]}"
