"""JSON merge patches (RFC 7386)."""

from typing import Any


def merge_patch(target: Any, patch: Any) -> Any:
    """Return `target` with `patch` merged in: objects merge by key, null removes a key, all else replaces.

    Objects within `target` are changed in place; `patch` is not changed, but its values become part of the result.
    """
    if not isinstance(patch, dict):
        return patch
    result = target if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result
