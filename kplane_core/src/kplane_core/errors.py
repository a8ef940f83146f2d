"""One tree of errors, each convertible to a Kubernetes Status.

The classes mirror what the Kubernetes apiserver's storage layer raises, so that a backend, the cache and the HTTP layer
speak of a failure in the same words. The per-verb translation of a storage error into an HTTP answer stands at the
end, in `status_for`; its table comes from upstream's `pkg/registry/rest` error interpretation.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, ClassVar, Literal

import attrs

Verb = Literal["get", "list", "create", "update", "delete", "watch"]


@attrs.frozen
class StatusCause:
    """One reason within a Status: what kind of fault, in words, and which field."""

    reason: str
    message: str
    field: str = ""


@attrs.frozen
class Status:
    """A Kubernetes `v1.Status` of kind Failure.

    Attributes:
        code: the HTTP status code.
        reason: the machine-readable reason, for example `NotFound`.
        message: the sentence for people.
        name: the object concerned, if any.
        group: its API group.
        kind: its resource (upstream puts the plural here).
        uid: its uid.
        causes: the single faults.
        retry_after: seconds after which a retry makes sense; 0 means none is suggested.
        continue_token: a replacement continue token (`metadata.continue`), for an expired list.
    """

    code: int
    reason: str
    message: str
    name: str = ""
    group: str = ""
    kind: str = ""
    uid: str = ""
    causes: tuple[StatusCause, ...] = ()
    retry_after: int = 0
    continue_token: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the Status as the API object that clients receive."""
        details: dict[str, Any] = {}
        for key in ("name", "group", "kind", "uid"):
            if value := getattr(self, key):
                details[key] = value
        if self.causes:
            details["causes"] = [_cause_dict(cause) for cause in self.causes]
        if self.retry_after:
            details["retryAfterSeconds"] = self.retry_after
        document: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {"continue": self.continue_token} if self.continue_token else {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
        }
        if details:
            document["details"] = details
        document["code"] = self.code
        return document


def _cause_dict(cause: StatusCause) -> dict[str, str]:
    document = {"reason": cause.reason, "message": cause.message}
    if cause.field:
        document["field"] = cause.field
    return document


class KplaneError(Exception):
    """The root of every error that kplane raises on purpose.

    Attributes:
        partial: for a failed list, the ObjectList of the items that could be read; None otherwise.
    """

    partial: Any = None

    def status(self) -> Status:
        """Return the Kubernetes Status that tells a client of this error."""
        return Status(500, "InternalError", f"Internal error occurred: {self}")


class UsageError(KplaneError):
    """An operator's mistake: printed as one line, exit code 2."""


# --- errors that already are an API answer ---------------------------------------------------------------


class ApiError(KplaneError):
    """An error whose HTTP answer is already decided."""

    def __init__(self, status: Status) -> None:
        super().__init__(status.message)
        self._status = status

    def status(self) -> Status:
        """Return the Status given at construction."""
        return self._status


class BadRequest(ApiError):
    """The request cannot be understood: 400."""

    def __init__(self, message: str) -> None:
        super().__init__(Status(400, "BadRequest", message))


class TooLargeResourceVersion(ApiError):
    """The asked resourceVersion lies beyond the newest one: 504 with the cause `ResourceVersionTooLarge`.

    Args:
        minimum: the asked resourceVersion.
        current: the newest one known here.
        retry_after: seconds; the plain store says 0, a cache 1.
    """

    def __init__(self, minimum: int, current: int, retry_after: int = 0) -> None:
        super().__init__(
            Status(
                504,
                "Timeout",
                f"Timeout: Too large resource version: {minimum}, current: {current}",
                causes=(StatusCause("ResourceVersionTooLarge", "Too large resource version"),),
                retry_after=retry_after,
            )
        )
        self.minimum = minimum
        self.current = current


class Expired(ApiError):
    """The asked resourceVersion or continue token is older than the kept history: 410."""

    LIST: ClassVar[str] = "The resourceVersion for the provided list is too old."
    WATCH: ClassVar[str] = "The resourceVersion for the provided watch is too old."
    CONTINUE: ClassVar[str] = (
        "The provided continue parameter is too old to display a consistent list result. "
        "You can start a new list without the continue parameter, or use the continue token in this response to "
        "retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - "
        "objects that were created, modified, or deleted between the time the first chunk was returned and now may "
        "show up in the list."
    )

    def __init__(self, message: str, continue_token: str = "") -> None:
        super().__init__(Status(410, "Expired", message, continue_token=continue_token))


class TooManyRequests(ApiError):
    """The server cannot answer now and asks for patience: 429."""

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(Status(429, "TooManyRequests", message, retry_after=retry_after))


class StoreReadError(ApiError):
    """Stored data cannot be read: 500 `StorageReadError`, one cause per unreadable record."""

    def __init__(self, message: str, *, name: str = "", kind: str = "", causes: Sequence[StatusCause] = ()) -> None:
        super().__init__(Status(500, "StorageReadError", message, name=name, kind=kind, causes=tuple(causes)))


# --- the storage layer's own errors ----------------------------------------------------------------------


class StorageCode(IntEnum):
    """Upstream's numeric storage error codes."""

    KEY_NOT_FOUND = 1
    KEY_EXISTS = 2
    RESOURCE_VERSION_CONFLICTS = 3
    INVALID_OBJ = 4
    UNREACHABLE = 5
    TIMEOUT = 6
    CORRUPT_OBJ = 7


class StorageError(KplaneError):
    """A failed storage operation on one key.

    Args:
        key: the key as the caller wrote it.
        detail: what went wrong beyond the class's own sentence.
        resource_version: informational; 0 when unknown.
    """

    code: ClassVar[StorageCode]
    text: ClassVar[str]

    def __init__(self, key: str, detail: str = "", resource_version: int = 0) -> None:
        super().__init__(key, detail, resource_version)
        self.key = key
        self.detail = detail
        self.resource_version = resource_version

    def __str__(self) -> str:
        return (
            f"StorageError: {self.text}, Code: {self.code:d}, Key: {self.key}, "
            f"ResourceVersion: {self.resource_version}, AdditionalErrorMsg: {self.detail}"
        )

    def status(self) -> Status:
        """Return 500 `Unknown`: an error that no verb translated (see `status_for`)."""
        return Status(500, "Unknown", str(self))


class KeyNotFound(StorageError):
    """The key holds no object."""

    code = StorageCode.KEY_NOT_FOUND
    text = "key not found"


class KeyExists(StorageError):
    """The key already holds an object."""

    code = StorageCode.KEY_EXISTS
    text = "key exists"


class ResourceVersionConflicts(StorageError):
    """The object changed meanwhile. Reserved: the store retries instead of raising it."""

    code = StorageCode.RESOURCE_VERSION_CONFLICTS
    text = "resource version conflicts"

    def status(self) -> Status:
        """Return 409, as upstream does even where no verb translated it."""
        return Status(409, "Unknown", str(self))


class InvalidObj(StorageError):
    """A precondition does not hold for the stored object."""

    code = StorageCode.INVALID_OBJ
    text = "invalid object"


class Unreachable(StorageError):
    """The database cannot be reached, or did not answer within its deadline."""

    code = StorageCode.UNREACHABLE
    text = "server not reachable"


class StorageTimeout(StorageError):
    """The deadline passed while the answer was put together; for stores with one of their own, callers here cancel."""

    code = StorageCode.TIMEOUT
    text = "request timeout"


class CorruptObj(StorageError):
    """The stored bytes cannot be transformed or decoded."""

    code = StorageCode.CORRUPT_OBJ
    text = "corrupt object"


class InternalError(KplaneError):
    """Something that should not happen: a failed transformer, an object without metadata, a broken backend."""


class InvalidKey(KplaneError):
    """The key is not one that this store may touch."""


class RVSetOnCreate(KplaneError):
    """An object to be created carries a resourceVersion."""

    def __init__(self) -> None:
        super().__init__("resourceVersion should not be set on objects to be created")


class StorageNotReady(KplaneError):
    """The cache in front of the store is (re)initializing."""

    def __init__(self, detail: str = "") -> None:
        super().__init__("storage not ready" + (f": {detail}" if detail else ""))


class DecodeError(KplaneError):
    """Stored bytes are not a JSON object."""


class InvalidError(KplaneError):
    """One or more fields of the request or object are invalid.

    Args:
        causes: one per field.
        name: the object concerned, if it has a name.
        group: its API group.
        kind: its kind.
    """

    def __init__(self, causes: Sequence[StatusCause], *, name: str = "", group: str = "", kind: str = "") -> None:
        self.causes = tuple(causes)
        self.name, self.group, self.kind = name, group, kind
        super().__init__("; ".join(_cause_text(cause) for cause in self.causes))

    def status(self) -> Status:
        """Return 422 `Invalid` worded as upstream words it."""
        subject = f"{self.kind}.{self.group}" if self.group else self.kind
        listed = [_cause_text(cause) for cause in self.causes]
        text = listed[0] if len(listed) == 1 else "[" + ", ".join(listed) + "]"
        return Status(
            422,
            "Invalid",
            f'{subject} "{self.name}" is invalid: {text}',
            name=self.name,
            group=self.group,
            kind=self.kind,
            causes=self.causes,
        )


def _cause_text(cause: StatusCause) -> str:
    return f"{cause.field}: {cause.message}" if cause.field else cause.message


# --- storage error -> API answer, per verb ---------------------------------------------------------------


@attrs.frozen
class Subject:
    """What a request was about, for the words of its answer.

    Attributes:
        resource: the plural, for example `pods`.
        group: the API group, empty for the core group.
        name: the object's name, if the request named one.
    """

    resource: str
    group: str = ""
    name: str = ""

    def qualified(self) -> str:
        """Return `resource.group`, or just the resource in the core group."""
        return f"{self.resource}.{self.group}" if self.group else self.resource


def not_found(subject: Subject) -> ApiError:
    """Return the 404 that names the object."""
    message = f'{subject.qualified()} "{subject.name}" not found'
    return ApiError(Status(404, "NotFound", message, name=subject.name, group=subject.group, kind=subject.resource))


def already_exists(subject: Subject) -> ApiError:
    """Return the 409 for a create on an existing name."""
    message = f'{subject.qualified()} "{subject.name}" already exists'
    return ApiError(
        Status(409, "AlreadyExists", message, name=subject.name, group=subject.group, kind=subject.resource)
    )


def conflict(subject: Subject, detail: str) -> ApiError:
    """Return the 409 for a write that lost against another one."""
    message = f'Operation cannot be fulfilled on {subject.qualified()} "{subject.name}": {detail}'
    return ApiError(Status(409, "Conflict", message, name=subject.name, group=subject.group, kind=subject.resource))


def server_timeout(subject: Subject, verb: Verb, retry_after: int = 2) -> ApiError:
    """Return upstream's ServerTimeout: HTTP 500 with a retry hint (not 504)."""
    message = (
        f"The {verb} operation against {subject.qualified()} could not be completed at this time, please try again."
    )
    return ApiError(
        Status(
            500,
            "ServerTimeout",
            message,
            name=verb,
            group=subject.group,
            kind=subject.resource,
            retry_after=retry_after,
        )
    )


def status_for(error: KplaneError, verb: Verb, subject: Subject) -> Status:
    """Return the Status that a client gets when `error` ended `verb` on `subject`.

    Args:
        error: what the store raised.
        verb: the storage verb that was running.
        subject: the resource and name of the request.

    Returns:
        The Status, with code, reason and details as upstream's API server words them.
    """
    translated = _translate(error, verb, subject)
    return translated.status()


def _translate(error: KplaneError, verb: Verb, subject: Subject) -> KplaneError:  # noqa: PLR0911 - one row of the table each
    match error, verb:
        case (KeyNotFound(), "get" | "update" | "delete"):
            return not_found(subject)
        case (KeyNotFound(), "list"):
            return not_found(attrs.evolve(subject, name=""))
        case (KeyExists(), "create"):
            return already_exists(subject)
        case (KeyExists() | ResourceVersionConflicts() | InvalidObj(), "update" | "delete"):
            return conflict(subject, error.detail or str(error))
        case (Unreachable(), "get" | "list" | "create" | "update" | "delete"):
            return server_timeout(subject, verb)
        case (StorageTimeout(), "list"):
            return server_timeout(subject, verb)
        case (CorruptObj(), _):
            return ApiError(Status(500, "InternalError", f"Internal error occurred: {error}"))
        case _:
            return error
