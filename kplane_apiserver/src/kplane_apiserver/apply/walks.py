"""Walks over objects by their types: which fields an object has, what differs, what goes, what comes."""

from collections import Counter, deque
from typing import Any, NamedTuple

from kplane_apiserver.apply.fieldsets import SELF, FieldSet, is_member, paths
from kplane_apiserver.apply.schema import Node
from kplane_core.errors import BadRequest

Object = dict[str, Any]

_NESTED = (dict, list)


class Comparison(NamedTuple):
    """What differs between two states of an object.

    Attributes:
        removed: the fields that only the old one has.
        modified: the fields that have another value.
        added: the fields that only the new one has.
    """

    removed: FieldSet
    modified: FieldSet
    added: FieldSet


# --- sets -------------------------------------------------------------------------------------------------------------


def applied_fields(document: Object, node: Node) -> FieldSet:
    """Return the fields that a manifest sets: its leaves, what users named, and the elements of lists."""
    fields: FieldSet = {}
    for name, value in document.items():
        child, named = node.child(name)
        inner = _applied(value, child, member=not named)
        if inner is not None:
            fields["f:" + name] = inner
    return fields


def _applied(value: Any, node: Node, *, member: bool) -> FieldSet | None:
    if isinstance(value, dict):
        if not value or node.atomic:
            return {}
        inner = applied_fields(value, node)
    elif isinstance(value, list):
        if node.list_type == "atomic":
            return {}
        inner = {}
        for item, element, twice in _elements(value, node):
            found = None if twice else _applied(item, node.item, member=True)
            inner[element] = found or {}
    else:
        return {}
    if member and inner:
        inner[SELF] = {}
    return inner if inner or member else None


def _whole(value: Any, node: Node) -> FieldSet:
    """Return the fields that come or go together with a value: every place in it."""
    if isinstance(value, dict):
        if not value or node.atomic:
            return {}
        inner = {
            "f:" + name: _whole(one, node.child(name)[0]) if isinstance(one, _NESTED) else {}
            for name, one in value.items()
        }
    elif isinstance(value, list):
        if not value or node.list_type == "atomic":
            return {}
        inner = {element: {} if twice else _whole(item, node.item) for item, element, twice in _elements(value, node)}
    else:
        return {}
    if inner:
        inner[SELF] = {}
    return inner


def _elements(items: list[Any], node: Node) -> list[tuple[Any, str, bool]]:
    """Return a list's elements with their names and whether several have that name; those without name are left out."""
    found: dict[str, tuple[Any, str, bool]] = {}
    for item in items:
        element = node.element(item)
        if element is not None:
            found[element] = (item, element, element in found)
    return list(found.values())


# --- differences ------------------------------------------------------------------------------------------------------


def compare(old: Object, new: Object, node: Node) -> Comparison:
    """Return what differs between two states of an object.

    Args:
        old: the one state.
        new: the other.
        node: their types.
    """
    result = Comparison({}, {}, {})
    _compare_objects(old, new, node, result)
    return result


def _compare_objects(old: Object, new: Object, node: Node, result: Comparison) -> None:
    for name, value in new.items():
        before = old.get(name)
        if value == before and (before is not None or name in old):
            continue
        child = node.child(name)[0]
        if name not in old:
            if name in node.present and isinstance(value, dict | list):
                _compare(_empty(value), value, child, "f:" + name, result)
            else:
                result.added["f:" + name] = _whole(value, child)
        else:
            _compare(before, value, child, "f:" + name, result)
    for name, before in old.items():
        if name not in new:
            child = node.child(name)[0]
            if name in node.present and isinstance(before, dict | list):
                _compare(before, _empty(before), child, "f:" + name, result)
            else:
                result.removed["f:" + name] = _whole(before, child)


def _empty(value: Object | list[Any]) -> Object | list[Any]:
    return {} if isinstance(value, dict) else []


def _compare(old: Any, new: Any, node: Node, element: str, result: Comparison) -> None:
    inner = Comparison({}, {}, {})
    if isinstance(old, dict) and isinstance(new, dict) and not node.atomic:
        _compare_objects(old, new, node, inner)
    elif isinstance(old, list) and isinstance(new, list) and node.list_type != "atomic":
        _compare_lists(old, new, node, inner)
    else:
        result.modified[element] = {}
        return
    for whole, part in zip(result, inner, strict=True):
        if part:
            whole[element] = part


def _compare_lists(old: list[Any], new: list[Any], node: Node, result: Comparison) -> None:
    before = {element: (item, twice) for item, element, twice in _elements(old, node)}
    after = {element: (item, twice) for item, element, twice in _elements(new, node)}
    for element, (item, twice) in after.items():
        was = before.get(element)
        if was is None:
            result.added[element] = {} if twice else _whole(item, node.item)
        elif twice or was[1]:
            if _named(old, element, node) != _named(new, element, node):
                result.modified[element] = {}
        elif was[0] != item:
            _compare(was[0], item, node.item, element, result)
    for element, (item, twice) in before.items():
        if element not in after:
            result.removed[element] = {} if twice else _whole(item, node.item)


def _named(items: list[Any], element: str, node: Node) -> list[Any]:
    return [item for item in items if node.element(item) == element]


# --- merging and removing ---------------------------------------------------------------------------------------------


def merge(live: Any, applied: Any, node: Node) -> Any:
    """Return what a manifest makes of a stored value: nothing goes, lists merge by the names of their elements."""
    if isinstance(applied, dict) and isinstance(live, dict) and not node.atomic:
        result = dict(live)
        for name, value in applied.items():
            result[name] = merge(live[name], value, node.child(name)[0]) if name in live else value
        return result
    if isinstance(applied, list) and isinstance(live, list) and node.list_type != "atomic":
        return _merge_lists(live, applied, node)
    return applied


def _merge_lists(live: list[Any], applied: list[Any], node: Node) -> list[Any]:  # noqa: C901 (one walk, in one piece)
    """Merge element by element; the order is upstream's, whose walk this follows step by step.

    The manifest's elements stand in its order. One that only the server has stays behind those that it was behind.
    """
    item_node = node.item
    left = [node.element(item) for item in live]
    right = [str(node.element(item)) for item in applied]
    known = Counter(left)
    stored = {element: item for element, item in zip(left, live, strict=True) if known[element] == 1}
    wanted = dict(zip(right, applied, strict=True))
    shared = deque(element for element in right if element in known)
    result: list[Any] = []
    merged: set[str] = set()
    at = upto = 0

    def take(element: str) -> None:
        merged.add(element)
        item = wanted[element]
        result.append(merge(stored[element], item, item_node) if element in stored else item)
        if shared and shared[0] == element:
            shared.popleft()

    while at < len(left) or upto < len(right):
        element = left[at] if at < len(left) else None
        if at < len(left) and upto < len(right):
            if element == right[upto]:
                take(right[upto])
                at, upto = at + 1, upto + 1
                continue
            if element in wanted and shared and shared[0] != element:
                at += 1
                continue
        if at < len(left):
            if element not in wanted:
                result.append(live[at])
                at += 1
                continue
            if element in merged:
                at += 1
        if upto < len(right):
            take(right[upto])
            upto += 1
    return result


def remove(value: Object, fields: FieldSet, node: Node) -> Object:
    """Return an object without a set of fields; what is left empty by that stays, as somebody owns it."""
    result: Object = {}
    for name, inner in value.items():
        found = fields.get("f:" + name)
        if found is None:
            result[name] = inner
        elif not is_member(found):
            result[name] = _remove(inner, found, node.child(name)[0])
    return result


def _remove(value: Any, fields: FieldSet, node: Node) -> Any:
    if isinstance(value, dict) and not node.atomic:
        return remove(value, fields, node)
    if not isinstance(value, list) or node.list_type == "atomic":
        return value
    result = []
    for item in value:
        found = fields.get(node.element(item) or "")
        if found is None:
            result.append(item)
        elif not is_member(found):
            result.append(_remove(item, found, node.item))
    return result


def with_named(fields: FieldSet, node: Node) -> FieldSet:
    """Return a set to which the fields that the types name were added wherever something below them is in it."""
    result: FieldSet = {}
    for element, inner in fields.items():
        if element == SELF or not inner:
            result[element] = inner
            continue
        if element.startswith("f:"):
            child, named = node.child(element[2:])
        else:
            child, named = node.item, False
        deeper = with_named(inner, child)
        result[element] = {SELF: {}, **deeper} if named else deeper
    return result


def check_elements(value: Any, node: Node, path: str = "", *, closed: bool = True) -> None:
    """Refuse a manifest with elements that have no name or share one, or with fields that its types do not have.

    Args:
        value: the manifest, or a part of it.
        node: its types.
        path: where the part stands.
        closed: whether fields that the types do not have are refused.

    Raises:
        BadRequest: worded as upstream.
    """
    if isinstance(value, dict):
        if node.atomic and not node.strict:
            return
        for name, inner in value.items():
            child, named = node.child(name)
            if closed and node.strict and not named:
                raise BadRequest(f"{path}.{name}: field not declared in schema")
            if isinstance(inner, dict | list):
                check_elements(inner, child, f"{path}.{name}", closed=closed)
    elif isinstance(value, list) and node.list_type != "atomic":
        _check_list(value, node, path, closed=closed)


def _check_list(items: list[Any], node: Node, path: str, *, closed: bool) -> None:
    seen: set[str] = set()
    for position, item in enumerate(items):
        element = node.element(item)
        if element is None:
            keys = " ".join(f'"{key}"' for key in node.keys)
            raise BadRequest(
                f"{path}: element {position}: associative list with keys has an element that omits all key fields "
                f"[{keys}] (and doesn't have default values for any key fields)"
                if node.list_type == "map"
                else f"{path}: element {position}: a set may hold scalars and objects, but no lists"
            )
        text = next(paths({element: {}}))
        if element in seen:
            # An object is its own key in a set; upstream prints it whole, but it may hold secrets.
            said = '[="object"]' if node.list_type == "set" and isinstance(item, dict) else text
            raise BadRequest(f"{path}: duplicate entries for key {said}")
        seen.add(element)
        check_elements(item, node.item, path + text, closed=closed)
