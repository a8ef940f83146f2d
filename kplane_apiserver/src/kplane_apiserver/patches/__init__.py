"""Change an object by the body of a PATCH request, in each of the four forms that Kubernetes has.

The result never shares anything with the object it was made from, so that the caller may go on changing it.
"""

from typing import Any

import msgspec

from kplane_apiserver.apierrors import UnsupportedMediaType
from kplane_apiserver.kinds import Kind
from kplane_apiserver.patches.apply import apply_merge
from kplane_apiserver.patches.json_patch import apply_json_patch
from kplane_apiserver.patches.merge import merge_patch
from kplane_apiserver.patches.strategic import strategic_merge
from kplane_apiserver.wire.bodies import as_object, decode_json, decode_yaml, media_type

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

__all__ = [
    "APPLY_PATCH",
    "JSON_PATCH",
    "MERGE_PATCH",
    "STRATEGIC_MERGE_PATCH",
    "apply_patch",
    "patch_types",
]


def patch_types(kind: Kind) -> tuple[str, ...]:
    """Return the media types that a PATCH of `kind` may have: a custom kind has no strategic merge."""
    if kind.custom is not None:
        return (JSON_PATCH, MERGE_PATCH, APPLY_PATCH)
    return (JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH, APPLY_PATCH)


def apply_patch(kind: Kind, content_type: str, body: bytes, live: dict[str, Any]) -> dict[str, Any]:
    """Return `live` as the patch in `body` changes it; `live` itself stays as it is.

    Args:
        kind: the kind of `live`.
        content_type: the request's Content-Type; it says which form of patch it is.
        body: the patch.
        live: the object as it is stored.

    Raises:
        UnsupportedMediaType: `kind` cannot be patched in that form.
        BadRequest: the body is not a patch of that form.
        ApiError: 422, the patch does not apply to `live`.
    """
    form = media_type(content_type)
    if form not in patch_types(kind):
        raise UnsupportedMediaType(patch_types(kind))
    value = decode_yaml(body) if form == APPLY_PATCH else decode_json(body)
    # By far the fastest deep copy of what only holds JSON's types.
    target = msgspec.json.decode(msgspec.json.encode(live))
    if form == JSON_PATCH:
        return apply_json_patch(target, value)
    patch = as_object(value)
    if form == MERGE_PATCH:
        return as_object(merge_patch(target, patch))
    if form == STRATEGIC_MERGE_PATCH:
        return strategic_merge(kind, target, patch)
    return apply_merge(kind, target, patch)
