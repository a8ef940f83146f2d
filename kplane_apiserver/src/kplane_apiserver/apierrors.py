"""The API server's own answers to requests that no store ever sees, worded as apimachinery words them.

Clients match on reason and code, people read the message, and tests of existing tools compare the sentences: so each
answer is made here once. What a store raises is translated in `kplane_core.errors`.
"""

from collections.abc import Iterable, Sequence

import msgspec

from kplane_core.errors import ApiError, BadRequest, InvalidError, Status, StatusCause, Subject

PATH_NOT_FOUND = "the server could not find the requested resource"
METHOD_NOT_ALLOWED = "the server does not allow this method on the requested resource"


class MethodNotAllowed(ApiError):
    """The path does not take this HTTP method: 405.

    Args:
        allowed: the methods that it takes.
        message: why, where more can be said than that it does not.
    """

    def __init__(self, allowed: Sequence[str], message: str = METHOD_NOT_ALLOWED) -> None:
        super().__init__(Status(405, "MethodNotAllowed", message))
        self.allowed = tuple(allowed)


class UnsupportedMediaType(ApiError):
    """The body's Content-Type is not one that this request can carry: 415.

    Args:
        accepted: the media types that would do.
    """

    def __init__(self, accepted: Iterable[str]) -> None:
        self.accepted = tuple(accepted)
        listed = ", ".join(self.accepted)
        message = f"the body of the request was in an unknown format - accepted media types include: {listed}"
        super().__init__(Status(415, "UnsupportedMediaType", message))


class NotAcceptable(ApiError):
    """None of the media types in Accept can be produced: 406.

    Args:
        accepted: the media types that can.
    """

    def __init__(self, accepted: Iterable[str]) -> None:
        self.accepted = tuple(accepted)
        message = f"only the following media types are accepted: {', '.join(self.accepted)}"
        super().__init__(Status(406, "NotAcceptable", message))


class RequestEntityTooLarge(ApiError):
    """The body is longer than the server reads: 413.

    Args:
        limit: the longest body that is read, in bytes.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        super().__init__(
            Status(
                413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit} bytes ({readable(limit)})"
            )
        )


def readable(size: int) -> str:
    """Return a number of bytes the way people write limits, for example `3 MiB`."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size // unit} {name}" if size % unit == 0 else f"{size / unit:.1f} {name}"
    return f"{size} bytes"


def path_not_found() -> ApiError:
    """Return the 404 for a path, group, version or resource that is not served."""
    return ApiError(Status(404, "NotFound", PATH_NOT_FOUND))


def forbidden(subject: Subject, detail: str) -> ApiError:
    """Return the 403 that says why."""
    named = f' "{subject.name}"' if subject.name else ""
    message = f"{subject.qualified()}{named} is forbidden: {detail}"
    return ApiError(Status(403, "Forbidden", message, name=subject.name, group=subject.group, kind=subject.resource))


def unauthorized(message: str) -> ApiError:
    """Return the 401 for a request without the credentials that it takes."""
    return ApiError(Status(401, "Unauthorized", message))


def request_timeout(detail: str, retry_after: int = 0) -> ApiError:
    """Return the 504 for a request that took longer than it may."""
    return ApiError(Status(504, "Timeout", f"Timeout: {detail}", retry_after=retry_after))


def service_unavailable(message: str, retry_after: int = 0) -> ApiError:
    """Return the 503 for a server that is starting, draining or has lost its database."""
    return ApiError(Status(503, "ServiceUnavailable", message, retry_after=retry_after))


def generate_name_conflict(subject: Subject, retry_after: int = 1) -> ApiError:
    """Return the 409 for a `generateName` that found only taken names."""
    message = (
        f'{subject.qualified()} "{subject.name}" already exists, the server was not able to generate a unique name '
        "for the object"
    )
    return ApiError(
        Status(
            409,
            "AlreadyExists",
            message,
            name=subject.name,
            group=subject.group,
            kind=subject.resource,
            retry_after=retry_after,
        )
    )


# --- single faults of an object; several of them make one 422 ---------------------------------------------------------


def invalid(causes: Sequence[StatusCause], *, kind: str, name: str, group: str = "") -> InvalidError:
    """Return the 422 for an object of `kind` (the kind, not the plural) with these faults."""
    return InvalidError(causes, kind=kind, group=group, name=name)


def cannot_be_handled(kind: str, version: str, detail: str, *, found: str = "") -> BadRequest:
    """Return the 400 for a body that does not have the form of its kind.

    Args:
        kind: the kind that is wanted.
        version: its version, without the group: upstream leaves it out here.
        detail: what is wrong.
        found: the kind that the body names, if it is another one.
    """
    return BadRequest(f'{found or kind} in version "{version}" cannot be handled as a {kind}: {detail}')


def json_type(value: object) -> str:
    """Return what JSON calls a value, with its article: `an array`, `a string`, `null`."""
    names = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


def unprocessable(message: str) -> ApiError:
    """Return the 422 for a request that can be read but not carried out, such as a patch that does not apply."""
    return ApiError(Status(422, "Invalid", message))


def field_required(field: str, detail: str = "") -> StatusCause:
    """Return the cause for a field that must be there."""
    return StatusCause("FieldValueRequired", "Required value" + (f": {detail}" if detail else ""), field)


def field_invalid(field: str, value: object, detail: str) -> StatusCause:
    """Return the cause for a field whose value is malformed."""
    return StatusCause("FieldValueInvalid", f"Invalid value: {_shown(value)}: {detail}", field)


def field_forbidden(field: str, detail: str) -> StatusCause:
    """Return the cause for a field that may not be set."""
    return StatusCause("FieldValueForbidden", f"Forbidden: {detail}", field)


def field_not_supported(field: str, value: object, supported: Iterable[str]) -> StatusCause:
    """Return the cause for a value that is not one of the supported ones."""
    listed = ", ".join(f'"{one}"' for one in supported)
    message = f"Unsupported value: {_shown(value)}" + (f": supported values: {listed}" if listed else "")
    return StatusCause("FieldValueNotSupported", message, field)


def field_too_long(field: str, limit: int) -> StatusCause:
    """Return the cause for a value that is longer than it may be."""
    return StatusCause("FieldValueTooLong", f"Too long: may not be more than {limit} bytes", field)


def _shown(value: object) -> str:
    """Write a value as Go's `%#v`-like field errors do for the types that JSON has."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return msgspec.json.encode(value).decode()
        case list() | dict():
            return msgspec.json.encode(value).decode()
        case _:
            return str(value)
