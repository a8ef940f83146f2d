"""A complete answer as a value, for the parts of the server that know no HTTP machinery."""

import attrs

JSON = "application/json"


@attrs.frozen
class Answer:
    """What goes back to the client.

    Attributes:
        body: the bytes; empty for 304.
        content_type: the media type, with its parameters.
        status: the HTTP status.
        headers: further headers, names in lower case.
    """

    body: bytes
    content_type: str = JSON
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()


def cacheable(
    body: bytes, etag: str, if_none_match: str, *, content_type: str = JSON, headers: tuple[tuple[str, str], ...] = ()
) -> Answer:
    """Return the body with its ETag, or 304 without a body when the client already has it.

    Args:
        body: what the client would get.
        etag: names the body's content, without quotes.
        if_none_match: the request's header; empty when absent.
        content_type: the media type.
        headers: further headers of both answers.
    """
    quoted = f'"{etag}"'
    tagged = (("etag", quoted), *headers)
    known = {tag.strip().removeprefix("W/") for tag in if_none_match.split(",")}
    if quoted in known or "*" in known:
        return Answer(b"", content_type, 304, tagged)
    return Answer(body, content_type, 200, tagged)
