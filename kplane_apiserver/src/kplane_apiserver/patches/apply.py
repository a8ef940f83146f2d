"""Server-side apply without field ownership, for what is not stored itself, such as a Scale: nothing goes.

Objects that are stored are applied by `kplane_apiserver.apply`.

Objects merge by key. Lists that the types call a map merge by their keys, sets are united, all other lists and atomic
objects are replaced. A field that an earlier manifest had and this one has not stays.
"""

from typing import Any

from kplane_apiserver.kinds import Kind
from kplane_apiserver.patches.shapes import KEY_DEFAULTS, Shape, shape_of


def apply_merge(kind: Kind, live: dict[str, Any], applied: dict[str, Any]) -> dict[str, Any]:
    """Return `live` with the manifest `applied` merged in; `live` is changed in place.

    Args:
        kind: the kind of both.
        live: the object as it is stored.
        applied: the manifest; nulls in it say nothing.
    """
    merged: dict[str, Any] = _merge(live, applied, shape_of(kind))
    return merged


def _merge(live: Any, applied: Any, shape: Shape) -> Any:
    if isinstance(live, dict) and isinstance(applied, dict) and not shape.atomic:
        for key, value in applied.items():
            if value is not None:
                live[key] = _merge(live.get(key), value, shape.field(key))
        return live
    if isinstance(live, list) and isinstance(applied, list):
        if shape.list_type == "map":
            return _merge_keyed(live, applied, shape)
        if shape.list_type == "set":
            return live + [item for item in applied if item not in live]
    return _without_nulls(applied)


def _merge_keyed(live: list[Any], applied: list[Any], shape: Shape) -> list[Any]:
    keys, item_shape = shape.keys, shape.item()
    places = {_name(item, keys): place for place, item in enumerate(live)}
    for item in applied:
        place = places.get(_name(item, keys))
        if place is None:
            live.append(_without_nulls(item))
        else:
            live[place] = _merge(live[place], item, item_shape)
    return live


def _name(item: Any, keys: list[str]) -> str:
    if not isinstance(item, dict):
        return repr(item)
    return repr([item.get(key, KEY_DEFAULTS.get(key)) for key in keys])


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value
