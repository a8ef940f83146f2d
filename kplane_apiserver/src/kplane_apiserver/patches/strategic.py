"""Strategic merge patches: merge patches that know Kubernetes' types, so that lists merge by the name of an element.

Directives that a patch may carry, at the place they act on:

- `$patch: replace` in an object: take the patch's object as it is; in an element of a list: take the patch's list.
- `$patch: delete` in an object: empty it; in an element of a keyed list: remove the element of that key.
- `$patch: merge`: what happens anyway.
- `$retainKeys: [..]`: of the stored object keep these keys only.
- `$setElementOrder/<list>: [..]`: put the elements in this order.
- `$deleteFromPrimitiveList/<list>: [..]`: remove these values.

Order within a merged list: the patch's elements as the patch (or `$setElementOrder`) lists them; each stored element
that the patch does not name stays before those it was stored before, and new elements come as early as that allows.

One thing is better than upstream's: elements that share their merge key, such as the ports 53/TCP and 53/UDP, are told
apart by the list's other keys where the patch gives them.
"""

from typing import Any

from kplane_apiserver.apierrors import unprocessable
from kplane_apiserver.kinds import Kind
from kplane_apiserver.patches.shapes import KEY_DEFAULTS, Shape, shape_of
from kplane_core.errors import BadRequest

DIRECTIVE = "$patch"
RETAIN_KEYS = "$retainKeys"
ELEMENT_ORDER = "$setElementOrder/"
DELETE_PRIMITIVES = "$deleteFromPrimitiveList/"

Object = dict[str, Any]
Items = list[Any]


def strategic_merge(kind: Kind, live: Object, patch: Object) -> Object:
    """Return `live` with a strategic merge patch applied; both are changed in place.

    Args:
        kind: the builtin kind of `live`; its published types say how lists merge.
        live: the object as it is stored.
        patch: the patch.

    Raises:
        BadRequest: a directive is malformed.
        ApiError: 422, the patch does not fit the types, such as an element without its merge key.
    """
    return _merge_object(live, patch, shape_of(kind), "")


def _merge_object(live: Object, patch: Object, shape: Shape, path: str) -> Object:
    directive = patch.pop(DIRECTIVE, "merge")
    if directive == "replace":
        return _plain_object(patch)
    if directive == "delete":
        return {}
    if directive != "merge":
        raise BadRequest(f"unknown patch type {directive!r} in {path or 'the patch'}: use replace, merge or delete")
    _retain_keys(live, patch, path)
    orders, deletions = _split_list_directives(patch, path)
    for key in orders.keys() & (live.keys() - patch.keys()):
        if isinstance(live[key], list):
            live[key] = _ordered(live[key], live[key], orders[key], _Naming(shape.field(key).merge_key))
    for key, value in patch.items():
        if value is None:
            live.pop(key, None)
        else:
            _merge_field(live, key, value, shape.field(key), f"{path}.{key}".lstrip("."), orders.get(key))
    for key, values in deletions.items():
        if isinstance(live.get(key), list):
            live[key] = [item for item in live[key] if not _contains(values, item)]
    return live


def _merge_field(live: Object, key: str, value: Any, shape: Shape, path: str, order: Items | None) -> None:
    stored = live.get(key)
    if order and isinstance(value, list):
        _check_order(value, order, _Naming(shape.merge_key), path)
    if isinstance(stored, dict) and isinstance(value, dict) and shape.strategy != "replace":
        live[key] = _merge_object(stored, value, shape, path)
    elif isinstance(stored, list) and isinstance(value, list):
        live[key] = _merge_list(stored, value, shape, path, order)
    elif isinstance(value, dict) and value.get(DIRECTIVE) == "delete":
        live.pop(key, None)
    else:
        live[key] = _plain(value)


# --- directives -------------------------------------------------------------------------------------------------------


def _retain_keys(live: Object, patch: Object, path: str) -> None:
    if RETAIN_KEYS not in patch:
        return
    kept = patch.pop(RETAIN_KEYS)
    named = [key for key, value in patch.items() if value is not None and not key.startswith("$")]
    if not isinstance(kept, list) or any(key not in kept for key in named):
        raise BadRequest(f"invalid patch format of retainKeys in {path or 'the patch'}: it must list the patch's keys")
    for key in live.keys() - {key for key in kept if isinstance(key, str)}:
        del live[key]


def _split_list_directives(patch: Object, path: str) -> tuple[dict[str, Items], dict[str, Items]]:
    """Take the directives about lists out of `patch`: the orders and the deletions, by field."""
    found: dict[str, dict[str, Items]] = {ELEMENT_ORDER: {}, DELETE_PRIMITIVES: {}}
    names = {ELEMENT_ORDER: "setElementOrder list", DELETE_PRIMITIVES: "primitive list"}
    for prefix, fields in found.items():
        for directive in [key for key in patch if key.startswith(prefix)]:
            value = patch.pop(directive)
            if not isinstance(value, list):
                raise BadRequest(
                    f"invalid patch format of {names[prefix]}: {path or 'the patch'} {directive} is no list"
                )
            fields[directive.removeprefix(prefix)] = value
    return found[ELEMENT_ORDER], found[DELETE_PRIMITIVES]


def _check_order(patch: Items, order: Items, named: "_Naming", path: str) -> None:
    """Refuse a patch whose elements do not stand in the order that it asks for itself."""
    remaining = iter([named(item) for item in order])
    for item in patch:
        if not _is_directive(item) and named(item) not in remaining:
            raise BadRequest(f"the order in patch list {path} does not match its {ELEMENT_ORDER.rstrip('/')} list")


# --- lists ------------------------------------------------------------------------------------------------------------


class _Naming:
    """Names the elements of a list: by the merge key, or a scalar by itself.

    Args:
        merge_key: the field that names an element; empty for a list of scalars.
    """

    def __init__(self, merge_key: str) -> None:
        self.merge_key = merge_key

    def __call__(self, item: Any) -> tuple[str, Any] | None:
        """Return a name that can be compared and hashed; None for an element without one."""
        value = item
        if self.merge_key:
            value = item.get(self.merge_key) if isinstance(item, dict) else None
        # Python holds 1 and True for the same, JSON does not.
        return None if isinstance(value, dict | list | None) else (_type_name(value), value)


def _type_name(value: Any) -> str:
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__


def _merge_list(stored: Items, patch: Items, shape: Shape, path: str, order: Items | None) -> Items:
    named = _Naming(shape.merge_key)
    replacing = any(isinstance(item, dict) and item.get(DIRECTIVE) == "replace" for item in patch)
    if shape.strategy != "merge" or replacing:
        merged = [_plain(item) for item in patch if not _is_directive(item)]
        return merged if order is None else _ordered(merged, stored, order, named)
    if any(isinstance(item, list) for item in (*stored, *patch)):
        raise unprocessable(f"lists of lists are not supported: {path}")
    if shape.merge_key or any(isinstance(item, dict) for item in (*stored, *patch)):
        before = _without_deleted(stored, patch, shape, path)
        patch = [item for item in patch if not _is_directive(item)]
        merged = _merge_keyed(list(before), patch, shape, path)
    else:
        before = stored
        merged = list({named(item): item for item in (*stored, *patch)}.values())
    return _ordered(merged, before, patch if order is None else order, named)


def _without_deleted(stored: Items, patch: Items, shape: Shape, path: str) -> Items:
    """Return the stored elements that the patch does not delete, and check that it names all of its own."""
    if not shape.merge_key:
        raise unprocessable(f"cannot merge lists without merge key for {path}")
    named = _Naming(shape.merge_key)
    for item in patch:
        if not isinstance(item, dict) or named(item) is None:
            raise unprocessable(f"an element of {path} does not contain declared merge key: {shape.merge_key}")
        if item.get(DIRECTIVE) == "delete":
            stored = [one for one in stored if named(one) != named(item) or not _agree(one, item, shape.keys)]
        elif _is_directive(item):
            raise BadRequest(f"unknown patch type {item[DIRECTIVE]!r} in {path}: use replace, merge or delete")
    return stored


def _merge_keyed(stored: Items, patch: Items, shape: Shape, path: str) -> Items:
    """Return `stored`, changed in place, with the elements of the patch merged into those they name or appended."""
    places = _match(stored, patch, shape, _Naming(shape.merge_key))
    for item, place in zip(patch, places, strict=True):
        inner = f"{path}[{shape.merge_key}={item[shape.merge_key]}]"
        if place is None:
            stored.append(_merge_object({}, dict(item), shape.item(), inner))
        else:
            stored[place] = _merge_object(stored[place], dict(item), shape.item(), inner)
    return stored


def _match(stored: Items, patch: Items, shape: Shape, named: _Naming) -> list[int | None]:
    """Return, for each element of the patch, the place of the stored element that it changes."""
    places: list[int | None] = []
    for item in patch:
        same = [place for place, one in enumerate(stored) if named(one) == named(item)]
        exact = [place for place in same if _agree(stored[place], item, shape.keys)]
        places.append(exact[0] if exact else -1 if same else None)
    for number, item in enumerate(patch):
        if places[number] == -1:  # the element differs in another key: that key is changed, or it is a new element
            free = (place for place, one in enumerate(stored) if named(one) == named(item) and place not in places)
            places[number] = next(free, None)
    return places


def _agree(stored: Object, item: Object, keys: list[str]) -> bool:
    """Whether both have the same value for each key that the patch's element gives."""
    return all(stored.get(key, KEY_DEFAULTS.get(key)) == item[key] for key in keys if key in item)


def _ordered(merged: Items, before: Items, order: Items, named: _Naming) -> Items:
    """Put the elements that `order` names in that order, and weave the others in where they were stored.

    Args:
        merged: the elements, those that were stored first and in the order of `before`.
        before: the list as it was stored.
        order: elements, or stand-ins with their merge key only.
        named: how elements are named.
    """
    wanted = {named(item): place for place, item in reversed(list(enumerate(order)))}
    wanted.pop(None, None)
    was = {named(item): place for place, item in reversed(list(enumerate(before)))}
    first = sorted((item for item in merged if named(item) in wanted), key=lambda item: wanted[named(item)])
    others = [item for item in merged if named(item) not in wanted]
    result: Items = []
    for item in first:
        place = was.get(named(item), -1)
        while others and was.get(named(others[0]), place) < place:
            result.append(others.pop(0))
        result.append(item)
    return result + others


def _contains(values: Items, item: Any) -> bool:
    named = _Naming("")
    return named(item) is not None and named(item) in [named(value) for value in values]


def _is_directive(item: Any) -> bool:
    """Whether an element of a list says what to do with the list, and is not meant to be stored."""
    return isinstance(item, dict) and item.get(DIRECTIVE, "merge") != "merge"


# --- what is new ------------------------------------------------------------------------------------------------------


def _plain(value: Any) -> Any:
    """Return a value of the patch as it is stored where nothing was: without directives and nulls."""
    if isinstance(value, dict):
        return _plain_object(value)
    if isinstance(value, list):
        return [_plain(item) for item in value if not _is_directive(item)]
    return value


def _plain_object(value: Object) -> Object:
    directives = (ELEMENT_ORDER, DELETE_PRIMITIVES)
    return {
        key: _plain(inner)
        for key, inner in value.items()
        if inner is not None
        and key not in {DIRECTIVE, RETAIN_KEYS}
        and not key.startswith(directives)
        and not (isinstance(inner, dict) and inner.get(DIRECTIVE) == "delete")
    }
