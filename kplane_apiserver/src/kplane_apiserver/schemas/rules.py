"""`x-kubernetes-validations`: a schema's rules, run on the values of an object and of the one it replaces."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import msgspec

from kplane_apiserver.apierrors import field_forbidden, field_invalid, field_required
from kplane_apiserver.schemas import cel_cost, words
from kplane_apiserver.schemas.cel import CelCostError, CelError, Expression, Values, compile_expression
from kplane_apiserver.schemas.cel_values import compile_convert
from kplane_apiserver.schemas.places import Fault, MapKey, Place, text_of
from kplane_core.errors import StatusCause

RULES = "x-kubernetes-validations"
Schema = dict[str, Any]
Check = Callable[[Any, Any, Place, list[Fault]], None]
"""Runs the rules on a value and on the one that it replaces, or None; adds to the faults."""

_STEP = re.compile(r"\.(?P<name>[A-Za-z_][\w-]*)|\['(?P<key>(?:[^'\\]|\\.)+)'\]", re.ASCII)
_MESSAGE_LIMIT = 5 * 1024
_OUT_OF_BUDGET = "validation failed due to running out of cost budget, no further validation rules will be run"


@attrs.frozen
class Rule:
    """One compiled rule.

    Attributes:
        holds: the rule itself.
        text: what is said of it when nothing better is known.
        message: what is said when it does not hold; empty for "failed rule".
        words: makes the message, if it can.
        reason: the type of the fault.
        field_path: the field that the fault names, below the value that the rule is about.
    """

    holds: Expression
    text: str
    message: str = ""
    words: Expression | None = None
    reason: str = "FieldValueInvalid"
    field_path: str = ""


def each_rule(schema: Any, path: str) -> Iterator[tuple[dict[str, Any], str, Schema]]:
    """Yield every rule of a schema as it is written, with the path at which it stands and the schema around it."""
    if not isinstance(schema, dict):
        return
    rules = schema.get(RULES)
    for position, rule in enumerate(rules if isinstance(rules, list) else ()):
        if isinstance(rule, dict):
            yield rule, f"{path}.{RULES}[{position}]", schema
    properties = schema.get("properties")
    for name, child in properties.items() if isinstance(properties, dict) else ():
        yield from each_rule(child, f"{path}.properties[{name}]")
    yield from each_rule(schema.get("additionalProperties"), f"{path}.additionalProperties")
    yield from each_rule(schema.get("items"), f"{path}.items")
    branches = schema.get("allOf")
    for position, branch in enumerate(branches if isinstance(branches, list) else ()):
        yield from each_rule(branch, f"{path}.allOf[{position}]")


def field_path(schema: Any, path: str) -> str | None:
    """Return a rule's `fieldPath` as faults write it below the value; None when the schema has no such field."""
    written, at = "", 0
    while at < len(path):
        match = _STEP.match(path, at)
        if match is None or not isinstance(schema, dict):
            return None
        name = match["name"] or match["key"].replace("\\'", "'")
        properties = schema.get("properties")
        if isinstance(properties, dict) and name in properties:
            written, schema = f"{written}.{name}", properties[name]
        elif isinstance(schema.get("additionalProperties"), dict):
            written, schema = f"{written}[{name}]", schema["additionalProperties"]
        else:
            return None
        at = match.end()
    return written


def compile_rules(schema: Any) -> Check | None:
    """Return what runs the rules of a schema; None when it has none. A rule that cannot be compiled is left out."""
    if not isinstance(schema, dict):
        return None
    rules = [rule for given in schema.get(RULES) or () if (rule := _rule(given, schema)) is not None]
    inner = [check for check in (_properties(schema), _items(schema), *_all_of(schema)) if check is not None]
    if not rules:
        return None if not inner else inner[0] if len(inner) == 1 else _several(inner)
    return _several([_node(schema, rules), *inner])


def _rule(given: dict[str, Any], schema: Schema) -> Rule | None:
    text = (given.get("rule") or "").strip()
    if not text:
        return None
    optional = bool(given.get("optionalOldSelf"))
    message = (given.get("message") or "").strip()
    try:
        holds = compile_expression(text, optional_old=optional)
    except CelError:
        return None  # told to whoever defines it
    try:
        expression = given.get("messageExpression") or ""
        spoken = compile_expression(expression.strip()) if expression.strip() else None
    except CelError:
        spoken = None
    path = field_path(schema, given.get("fieldPath") or "") or ""
    return Rule(holds, text, message, spoken, given.get("reason") or "FieldValueInvalid", path)


def _several(checks: Sequence[Check]) -> Check:
    def check(new: Any, old: Any, place: Place, faults: list[Fault]) -> None:
        for each in checks:
            each(new, old, place, faults)

    return check


def _properties(schema: Schema) -> Check | None:
    properties = schema.get("properties") or {}
    known = {name: found for name, child in properties.items() if (found := compile_rules(child))}
    extra = compile_rules(schema.get("additionalProperties"))
    if not known and extra is None:
        return None

    def check(new: Any, old: Any, place: Place, faults: list[Fault]) -> None:
        if type(new) is not dict:
            return
        before: Mapping[str, Any] = old if type(old) is dict else {}
        for name, each in known.items():
            if name in new:
                each(new[name], before.get(name), (place, name), faults)
        if extra is not None:
            for name, inner in new.items():
                if name not in properties:
                    extra(inner, before.get(name), (place, MapKey(name)), faults)

    return check


def _items(schema: Schema) -> Check | None:
    each = compile_rules(schema.get("items"))
    if each is None:
        return None
    keys = tuple(schema.get("x-kubernetes-list-map-keys") or ())
    is_map = schema.get("x-kubernetes-list-type") == "map"

    def check(new: Any, old: Any, place: Place, faults: list[Fault]) -> None:
        if type(new) is not list:
            return
        before = {identity(item, keys): item for item in old} if is_map and type(old) is list else {}
        for position, item in enumerate(new):
            each(item, before.get(identity(item, keys)) if before else None, (place, position), faults)

    return check


def identity(item: Any, keys: Sequence[str]) -> bytes:
    """Return what tells an item of a list of the type map from its others."""
    return msgspec.json.encode([item.get(key) for key in keys] if type(item) is dict else item)


def _all_of(schema: Schema) -> list[Check]:
    branches = schema.get("allOf")
    found = [compile_rules(branch) for branch in (branches if isinstance(branches, list) else ())]
    return [check for check in found if check is not None]


def _node(schema: Schema, rules: Sequence[Rule]) -> Check:
    convert = compile_convert(schema) or _as_it_is

    def check(new: Any, old: Any, place: Place, faults: list[Fault]) -> None:
        if new is None:
            return
        same = old is not None and new == old
        values: Values | None = None
        budget = cel_cost.current()
        for rule in rules:
            if budget.exhausted:
                return  # which is said already
            uses_old = rule.holds.uses_old
            # What an earlier write left behind is forgiven; a rule about the change is about the change alone.
            if (same and not uses_old) or (uses_old and old is None and not rule.holds.optional_old):
                continue
            if values is None:
                values = Values(convert(new), None if old is None else convert(old), (new, old))
            fault = _fault(rule, values, place, new)
            if fault is not None:
                faults.append(Fault(place, fault))

    return check


def _as_it_is(value: Any) -> Any:
    return value


def _fault(rule: Rule, values: Values, place: Place, value: Any) -> StatusCause | None:
    said = rule.message or rule.text
    try:
        cel_cost.current().check()
        if rule.holds(values) is True:
            return None
    except cel_cost.CostError:
        return field_invalid(text_of(place), words.type_name(value), _OUT_OF_BUDGET)
    except CelCostError as error:
        spent = cel_cost.current().exhausted
        detail = _OUT_OF_BUDGET if spent else f"call cost exceeds limit for rule: {said}: {error}"
        return field_invalid(text_of(place), words.type_name(value), detail)
    except CelError as error:
        detail = f"{error} evaluating rule: {said}"
        if str(error) == "no such overload":
            detail = (
                f"'{error}': call arguments did not match a supported operator, function or macro signature for rule: "
                f"{said}"
            )
        return field_invalid(text_of(place), words.type_name(value), detail)
    field = text_of(place) + rule.field_path
    detail = _message(rule, values) or rule.message or f"failed rule: {rule.text}"
    return _cause(rule.reason, field.lstrip("."), None if isinstance(value, (dict, list)) else value, detail)


def _message(rule: Rule, values: Values) -> str:
    if rule.words is None:
        return ""
    try:
        found = rule.words(values)
    except CelError:
        return ""
    text = found.strip() if isinstance(found, str) else ""
    return "" if "\n" in text or len(text) > _MESSAGE_LIMIT else text


def _cause(reason: str, field: str, shown: Any, detail: str) -> StatusCause:
    match reason:
        case "FieldValueForbidden":
            return field_forbidden(field, detail)
        case "FieldValueRequired":
            return field_required(field, detail)
        case "FieldValueDuplicate":
            text = "Duplicate value" if shown is None else words.duplicate((), shown).cause.message
            return StatusCause("FieldValueDuplicate", text, field)
        case _ if shown is None:
            return StatusCause("FieldValueInvalid", f"Invalid value: {detail}", field)
        case _:
            return field_invalid(field, shown, detail)
