"""Failures on demand: the next so many requests of a kind are refused, or made to wait."""

from collections.abc import Mapping

from kplane_apiserver.testing.requests import RecordedRequest
from kplane_core.errors import Status, UsageError

ANY = "*"
_VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", ANY)
_REASONS: Mapping[int, str] = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    413: "RequestEntityTooLarge",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}
_PATIENCE = frozenset({429, 503})
_HIGHEST = 599


class Fault:
    """What happens to the next requests of one kind.

    Args:
        verb: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`, or `*`.
        resource: `pods`, `deployments.apps`, `pods/status`, or `*` for every path.
        status: the status code to answer; 0 lets the request through.
        times: how many requests it meets; 0 for all.
        name: only requests about this object.
        seconds: how long they wait before that.
        retry_after: what the answer's Retry-After header says; None for 1 with 429 and 503 and no header otherwise.
        message: the message of the Status.

    Attributes:
        hits: how many requests it met.

    Raises:
        UsageError: there is no such verb, or the status is none of a failure.
    """

    def __init__(
        self,
        verb: str,
        resource: str,
        *,
        status: int = 0,
        times: int = 1,
        name: str = "",
        seconds: float = 0.0,
        retry_after: int | None = None,
        message: str = "",
    ) -> None:
        if verb not in _VERBS:
            raise UsageError(f"there is no verb {verb!r}; there are {', '.join(_VERBS)}")
        if status and not min(_REASONS) <= status <= _HIGHEST:
            raise UsageError(f"a failure has a status from 400 to {_HIGHEST}, not {status}")
        if times < 0 or seconds < 0:
            raise UsageError(f"times and seconds cannot be negative, got {times} and {seconds:g}")
        self.verb = verb
        self.resource = resource
        self.status = status
        self.name = name
        self.seconds = seconds
        self.hits = 0
        self._times = times
        self._active = True
        self._message = message
        self._retry_after = int(status in _PATIENCE) if retry_after is None else retry_after

    def __repr__(self) -> str:
        what = f"status={self.status}" if self.status else f"seconds={self.seconds:g}"
        return f"<fault {self.verb} {self.resource} {what} hits={self.hits}>"

    @property
    def active(self) -> bool:
        """Whether it will meet further requests."""
        return self._active and (not self._times or self.hits < self._times)

    def cancel(self) -> None:
        """Let all further requests through; idempotent."""
        self._active = False

    def meets(self, request: RecordedRequest) -> bool:
        """Return whether it is the turn of this request, and count it."""
        if not self.active or self.verb not in {ANY, request.verb} or self.name not in {"", request.name}:
            return False
        if self.resource != ANY and self.resource not in _spellings(request):
            return False
        self.hits += 1
        return True

    def answer(self, request: RecordedRequest) -> Status:
        """Return the failure that the client is told."""
        reason = _REASONS.get(self.status, "InternalError" if self.status >= 500 else "Unknown")  # noqa: PLR2004 (HTTP)
        if reason == "Conflict" and request.verb == "create":
            reason = "AlreadyExists"
        message = self._message or f"this test makes {request.verb} {request.resource or request.path} fail"
        return Status(
            self.status,
            reason,
            message,
            name=request.name,
            group=request.group,
            kind=request.resource,
            retry_after=self._retry_after,
        )


def _spellings(request: RecordedRequest) -> tuple[str, str]:
    tail = f"/{request.subresource}" if request.subresource else ""
    full = f"{request.resource}.{request.group}" if request.group else request.resource
    return f"{request.resource}{tail}", f"{full}{tail}"
