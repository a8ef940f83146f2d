"""Which fields of a custom kind a definition may offer to field selectors."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from kplane_apiserver.apierrors import field_invalid, field_required
from kplane_core.errors import StatusCause

_LIMIT = 8
_SIMPLE = re.compile(r"(?:\.[A-Za-z_][-\w]*)+", re.ASCII)
_SCALARS = ("boolean", "integer", "string")


def selectable_faults(paths: Sequence[str], schema: dict[str, Any], place: str) -> Iterator[StatusCause]:
    """Yield what is wrong with a version's `selectableFields`.

    Args:
        paths: their JSON paths.
        schema: the version's schema.
        place: where the list stands in the definition.
    """
    if len(paths) > _LIMIT:
        yield StatusCause("FieldValueTooMany", f"Too many: {len(paths)}: must have at most {_LIMIT} items", place)
    for position, path in enumerate(paths):
        field = f"{place}[{position}].jsonPath"
        if not path:
            yield field_required(field)
        elif not _SIMPLE.fullmatch(path):
            yield field_invalid(field, path, "is an invalid path: must be a simple json path without array notation")
        elif path.startswith(".metadata"):
            yield field_invalid(field, path, "must not point to fields in metadata")
        elif _type_at(schema, path) not in _SCALARS:
            words = (
                "must point to a field of type string, boolean or integer. Enum string fields and strings with formats "
                "are allowed"
            )
            yield field_invalid(field, path, words)
        elif path in paths[:position]:
            yield StatusCause("FieldValueDuplicate", f'Duplicate value: "{path}"', field)


def _type_at(schema: Any, path: str) -> Any:
    for name in path.lstrip(".").split("."):
        schema = (schema.get("properties") or {}).get(name) if isinstance(schema, dict) else None
    return schema.get("type") if isinstance(schema, dict) else None
