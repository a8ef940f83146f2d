"""Answers that a client may keep: with an ETag, and 304 for one who still has them."""

from kplane_apiserver.wire.http import JSON, Response


def tagged(
    body: bytes,
    etag: str,
    if_none_match: bytes,
    *,
    content_type: bytes = JSON,
    headers: tuple[tuple[bytes, bytes], ...] = (),
) -> Response:
    """Return the body with its ETag, or 304 without a body when the client already has it.

    Args:
        body: what the client would get.
        etag: names the body's content, without quotes.
        if_none_match: the request's header; empty when absent.
        content_type: the media type.
        headers: further headers of both answers.
    """
    quoted = b'"%s"' % etag.encode("ascii")
    all_headers = ((b"etag", quoted), (b"vary", b"Accept"), *headers)
    known = {tag.strip().removeprefix(b"W/") for tag in if_none_match.split(b",")}
    if quoted in known or b"*" in known:
        return Response(b"", 304, content_type, all_headers)
    return Response(body, 200, content_type, all_headers)
