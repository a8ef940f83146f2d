"""JSON patches (RFC 6902) by way of the jsonpatch library, with upstream's limits and answers."""

from typing import Any

import msgspec
from jsonpatch import InvalidJsonPatch, JsonPatch, JsonPatchException, JsonPatchTestFailed
from jsonpointer import JsonPointer, JsonPointerException

from kplane_apiserver.wire.bodies import check_nesting
from kplane_core.errors import ApiError, BadRequest, Status, StatusCause

MAX_OPERATIONS = 10_000
MAX_COPIED = 3 << 20
REJECTED = "the server rejected our request due to an error in our request"


def apply_json_patch(target: dict[str, Any], operations: Any) -> dict[str, Any]:
    """Return `target` changed by the operations, one after the other; `target` is changed in place.

    Raises:
        BadRequest: `operations` is not a JSON patch.
        ApiError: 413 when there are too many operations, 422 when one does not apply or a `test` fails.
    """
    _check(operations)
    copied = 0
    document: Any = target
    for operation in operations:
        if operation["op"] == "copy":
            copied += _size_at(document, operation)
            if copied > MAX_COPIED:
                raise _rejected(operation, f"the copies of the patch are larger than {MAX_COPIED} bytes")
        document = _apply(document, operation)
    if not isinstance(document, dict):
        raise _rejected(operations[-1], "the result is not an object")
    check_nesting(document)
    return document


def _check(operations: Any) -> None:
    if not isinstance(operations, list):
        raise BadRequest("error decoding patch: a JSON patch is a list of operations")
    if len(operations) > MAX_OPERATIONS:
        count = len(operations)
        message = f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {count}"
        raise ApiError(Status(413, "RequestEntityTooLarge", f"Request entity too large: {message}"))
    for number, operation in enumerate(operations):
        if not isinstance(operation, dict):
            raise BadRequest(f"error decoding patch: operation {number} is not an object")
        if not isinstance(operation.get("op"), str) or not isinstance(operation.get("path"), str):
            raise BadRequest(f"error decoding patch: operation {number} lacks op or path")


def _apply(document: Any, operation: dict[str, Any]) -> Any:
    name, path = operation["op"], operation["path"]
    try:
        return JsonPatch([operation]).apply(document, in_place=True)
    except JsonPatchTestFailed:
        raise _rejected(operation, "the value is not the tested one") from None
    except InvalidJsonPatch as error:
        # Safe to show: it speaks of the operation. Other messages hold parts of the document, which may be a Secret.
        raise BadRequest(f"error decoding patch: {name} {path}: {error.args[0]}") from None
    except (JsonPatchException, JsonPointerException):
        source = f" from {operation['from']}" if "from" in operation else ""
        raise _rejected(operation, f"the {name} operation{source} does not apply: no such path") from None


def _size_at(document: Any, operation: dict[str, Any]) -> int:
    try:
        value = JsonPointer(operation.get("from", "")).resolve(document, None)
    except (JsonPointerException, TypeError):
        return 0  # applying it gives the answer
    return len(msgspec.json.encode(value))


def _rejected(operation: dict[str, Any], detail: str) -> ApiError:
    """Return upstream's 422; what it keeps to itself, where and why, stands in the cause."""
    cause = StatusCause("UnexpectedServerResponse", detail, operation["path"] or "/")
    return ApiError(Status(422, "Invalid", REJECTED, causes=(cause,)))
