"""Objects to bytes and back: canonical JSON through msgspec.

The canonical form starts with `apiVersion`, `kind` and `metadata`, in that order, and has every other key sorted, at
every depth. It never holds a resourceVersion or selfLink. So equal objects have equal bytes (the no-op rule of
`guaranteed_update` rests on it), and a resourceVersion can be spliced in without parsing.
"""

import re
from typing import Any

import msgspec

from kplane_core.errors import DecodeError

_ENCODER = msgspec.json.Encoder(order="sorted")
_DECODER = msgspec.json.Decoder(dict[str, Any])
_HEAD = (("apiVersion", b'"apiVersion":'), ("kind", b'"kind":'))
_NOT_STORED = ("resourceVersion", "selfLink")
_METADATA = b'"metadata":{'
_KUBERNETES_PROTOBUF = b"k8s\0"
_WRITE_JSON = (
    "stored data is in Kubernetes' protobuf encoding, which is not read here: let the API server that writes it store "
    "JSON (--storage-media-type=application/json) and write the object again"
)
# What follows the opening brace matters: a splice before anything else than a name or the closing brace is no JSON.
_CANONICAL_HEAD = re.compile(rb'\{(?:"apiVersion":"[^"\\]*",)?(?:"kind":"[^"\\]*",)?"metadata":\{["}]').match


class _MetadataProbe(msgspec.Struct):
    resource_version: Any = msgspec.field(default=msgspec.UNSET, name="resourceVersion")
    self_link: Any = msgspec.field(default=msgspec.UNSET, name="selfLink")


class _Probe(msgspec.Struct):
    metadata: _MetadataProbe


_PROBE = msgspec.json.Decoder(_Probe)


def encode_object(document: dict[str, Any]) -> bytes:
    """Return the canonical JSON of an object, without resourceVersion and selfLink.

    Args:
        document: the object; left as it is. Missing metadata is added empty.

    Raises:
        DecodeError: it holds something that JSON cannot, or metadata that is no object.
    """
    metadata = document.get("metadata")
    if metadata is None:
        metadata = {}
    elif not isinstance(metadata, dict):
        raise DecodeError("the object's metadata is not a JSON object")
    try:
        if "resourceVersion" in metadata or "selfLink" in metadata:
            metadata = {key: value for key, value in metadata.items() if key not in _NOT_STORED}
        parts, written = [], ["metadata"]
        for key, opening in _HEAD:
            value = document.get(key)
            # Only text may stand before the metadata: the splice point is found by its look.
            if value and isinstance(value, str):
                parts.append(opening + _ENCODER.encode(value))
                written.append(key)
        parts.append(b'"metadata":' + _ENCODER.encode(metadata))
        rest = {key: value for key, value in document.items() if key not in written}
        if rest:
            parts.append(_ENCODER.encode(rest)[1:-1])
    except (TypeError, ValueError, AttributeError, msgspec.MsgspecError, RecursionError) as error:
        raise DecodeError(f"the object cannot be written as JSON: {error}") from error
    return b"{" + b",".join(parts) + b"}"


def decode_object(raw: bytes) -> dict[str, Any]:
    """Return the JSON object that `raw` holds.

    Raises:
        DecodeError: it is not a JSON object.
    """
    try:
        return _DECODER.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        if raw.startswith(_KUBERNETES_PROTOBUF):
            raise DecodeError(_WRITE_JSON) from error
        raise DecodeError(f"stored data is not a JSON object: {error}") from error


def canonical(raw: bytes) -> bytes:
    """Return stored JSON in the canonical head form, unchanged if it already has it.

    Data written by others (another key order, a stored resourceVersion, no metadata) is decoded and encoded anew.

    Raises:
        DecodeError: it is not a JSON object.
    """
    if _CANONICAL_HEAD(raw):
        try:
            metadata = _PROBE.decode(raw).metadata
            if not raw.isascii():
                raw.decode()  # the probe passes over text without looking at its encoding
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise DecodeError(f"stored data is not a JSON object: {error}") from error
        if metadata.resource_version is msgspec.UNSET and metadata.self_link is msgspec.UNSET:
            return raw
    return encode_object(decode_object(raw))


def splice_resource_version(raw: bytes, revision: int) -> bytes:
    """Return canonical JSON with `metadata.resourceVersion` set.

    Args:
        raw: canonical JSON, as `encode_object` and `canonical` return it.
        revision: the resourceVersion; 0 leaves it out.
    """
    if not revision or not raw:
        return raw
    # In canonical form no quote can stand unescaped before the object's own metadata, so the first match is it.
    at = raw.find(_METADATA) + len(_METADATA)
    if raw.startswith(b"}", at):
        return b'%s"resourceVersion":"%d"%s' % (raw[:at], revision, raw[at:])
    return raw.replace(_METADATA, b'"metadata":{"resourceVersion":"%d",' % revision, 1)
