"""Paging: which revision and start key a list request means, and continue tokens."""

import base64
import binascii
from typing import Annotated

import attrs
import msgspec

from kplane_core.errors import BadRequest, InvalidError
from kplane_core.storage.versioner import parse_resource_version

_ENCODING = "meta.k8s.io/v1"


class _Token(msgspec.Struct):
    v: str = ""
    rv: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] = 0
    start: str = ""


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(_Token)


def encode_continue(key: str, prefix: str, revision: int) -> str:
    """Return the token that continues a list at `key`, inclusive.

    Args:
        key: the full key to start at, usually the last evaluated key and a NUL.
        prefix: the full prefix of the list.
        revision: the list's revision; -1 for "the newest".

    Raises:
        ValueError: the key is not below the prefix.
    """
    if not key.startswith(prefix):
        raise ValueError(f"unable to encode continue: key {key!r} is not below {prefix!r}")
    token = _Token(_ENCODING, revision, key[len(prefix) :])
    return base64.urlsafe_b64encode(_ENCODER.encode(token)).decode().rstrip("=")


def decode_continue(token: str, prefix: str) -> tuple[str, int]:
    """Return the full start key and the revision that a token carries (negative: the newest).

    Args:
        token: what the client sent.
        prefix: the full prefix of the list.

    Raises:
        BadRequest: the token is damaged, of an unknown version, or tries to leave the prefix.
    """
    try:
        decoded = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        parsed = _DECODER.decode(decoded)
    except (binascii.Error, ValueError, msgspec.DecodeError, RecursionError) as error:
        raise _invalid("continue key is not valid") from error
    if parsed.v != _ENCODING:
        raise _invalid("server does not recognize this encoded version")
    if parsed.rv == 0:
        raise _invalid("incorrect encoded start resourceVersion")
    if not parsed.start:
        raise _invalid("encoded start key empty")
    path = parsed.start if parsed.start.startswith("/") else "/" + parsed.start
    if path != "/" and any(segment in {"", ".", ".."} for segment in path[1:].split("/")):
        raise _invalid("continue key is not valid")
    return prefix + path[1:], parsed.rv


def _invalid(why: str) -> BadRequest:
    return BadRequest(f"invalid continue token: {why}")


@attrs.frozen
class ListPlan:
    """What a list request asks of the storage.

    Attributes:
        start: the full key to start at; empty for the beginning.
        at: the exact revision to read; 0 for the newest.
        minimum: the snapshot must not be older than this.
        continued: whether a continue token led here.
    """

    start: str = ""
    at: int = 0
    minimum: int = 0
    continued: bool = False


def plan_list(
    *, prefix: str, recursive: bool, resource_version: str, match: str, limit: int, continue_token: str
) -> ListPlan:
    """Return the plan for a list request, by upstream's rules.

    Args:
        prefix: the full prefix of the list.
        recursive: whether a directory is listed; otherwise continue tokens are ignored.
        resource_version: as the client sent it.
        match: "", "Exact" or "NotOlderThan".
        limit: items per page; 0 for all.
        continue_token: as the client sent it.

    Raises:
        BadRequest: the request contradicts itself, or holds a bad version, match or token.
    """
    if recursive and continue_token:
        start, revision = decode_continue(continue_token, prefix)
        if resource_version not in {"", "0"}:
            raise BadRequest("specifying resource version is not allowed when using continue")
        return ListPlan(start=start, at=max(revision, 0), continued=True)
    if not resource_version:
        return ListPlan()
    revision = parse_or_bad_request(resource_version)
    match match:
        case "NotOlderThan":
            return ListPlan(minimum=revision)
        case "Exact":
            return ListPlan(at=revision)
        case "":
            # The legacy rule: a limited list at a version is an exact one.
            exact = recursive and limit > 0 and revision > 0
            return ListPlan(at=revision) if exact else ListPlan(minimum=revision)
        case _:
            raise BadRequest(f"unknown ResourceVersionMatch value: {match}")


def parse_or_bad_request(resource_version: str) -> int:
    """Return the revision, answering garbage with 400 on every path.

    Raises:
        BadRequest: it is no resourceVersion.
    """
    try:
        return parse_resource_version(resource_version)
    except InvalidError as error:
        raise BadRequest(f"invalid resource version: {error}") from error
