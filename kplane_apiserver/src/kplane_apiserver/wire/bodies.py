"""Read a request body into a dict, in whichever of the three forms it came: JSON, YAML or protobuf."""

from typing import Any

import msgspec

from kplane_apiserver.apierrors import UnsupportedMediaType, json_type
from kplane_apiserver.wire import protobuf
from kplane_core.errors import BadRequest

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
ACCEPTED = (JSON, YAML, PROTOBUF)
MAX_NESTING = 200


def media_type(content_type: str) -> str:
    """Return the media type in a Content-Type header: lower case, without its parameters."""
    return content_type.partition(";")[0].strip().lower()


def decode_body(content_type: str, body: bytes) -> dict[str, Any]:
    """Return the object in a request body.

    Args:
        content_type: the Content-Type header; empty means JSON.
        body: the whole body.

    Raises:
        BadRequest: the body cannot be read, or is not an object; the message says where.
        UnsupportedMediaType: the Content-Type is none of the three, or protobuf for a kind without a protobuf form.
    """
    if not body:
        raise BadRequest("the body of the request is empty, an object is expected")
    kind = media_type(content_type)
    if kind in {JSON, ""}:
        return as_object(decode_json(body))
    if kind == YAML:
        return as_object(decode_yaml(body))
    if kind == PROTOBUF:
        return protobuf.decode(body)
    raise UnsupportedMediaType(ACCEPTED)


def as_object(value: Any) -> dict[str, Any]:
    """Return `value` if it is a JSON object.

    Raises:
        BadRequest: it is something else.
    """
    if isinstance(value, dict):
        return value
    raise BadRequest(f"the body of the request must be an object, not {json_type(value)}")


# --- JSON -------------------------------------------------------------------------------------------------------------


def decode_json(body: bytes) -> Any:
    """Return the value of a JSON body; of a key given twice the last one counts.

    Raises:
        BadRequest: the body is not JSON, or is nested more than MAX_NESTING deep.
    """
    try:
        value = msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        fault = str(error).removeprefix("JSON is malformed: ")
        raise BadRequest(f"the body of the request is not valid JSON: {fault}") from None
    except RecursionError:
        raise _too_deep() from None
    # The brackets bound the depth, so that almost no body has to be walked.
    if body.count(b"{") + body.count(b"[") > MAX_NESTING:
        check_nesting(value)
    return value


def check_nesting(value: Any) -> None:
    """Refuse what is nested deeper than the code that walks objects can follow.

    Raises:
        BadRequest: `value` is nested more than MAX_NESTING deep.
    """
    level = [value]
    for _ in range(MAX_NESTING):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return
    raise _too_deep()


def _too_deep() -> BadRequest:
    return BadRequest(f"the body of the request is nested more than {MAX_NESTING} deep")


# --- YAML -------------------------------------------------------------------------------------------------------------


def decode_yaml(body: bytes) -> Any:
    """Return the value of a YAML body, made of JSON's types only (see `yamlbody`).

    Raises:
        BadRequest: the body is not one YAML document that JSON could hold, or is nested more than MAX_NESTING deep.
    """
    if body.lstrip()[:1] == b"{":  # kubectl sends JSON under the name of YAML, and JSON is read far faster
        try:
            return decode_json(body)
        except BadRequest:
            pass  # a YAML flow mapping: the YAML reader decides, and its message is the better one
    from kplane_apiserver.wire import yamlbody  # noqa: PLC0415 - many servers never see YAML, and PyYAML loads slowly

    value = yamlbody.load(body, MAX_NESTING)
    if isinstance(value, dict | list):
        check_nesting(value)
    return value
