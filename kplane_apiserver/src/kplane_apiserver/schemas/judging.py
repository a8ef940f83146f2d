"""Does a value fit its schema? A schema is compiled once to a tree of closures that add each fault they find to a list.

A place is a chain of pairs that is written out only for a fault, so that a valid object costs little more than a walk.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from kplane_apiserver.schemas import words
from kplane_apiserver.schemas.formats import FORMATS
from kplane_apiserver.schemas.patterns import compile_pattern
from kplane_apiserver.schemas.places import Fault, Place

Schema = dict[str, Any]
Faults = list[Fault]
Judge = Callable[[Any, Place, Faults], None]

_IS_TYPE: Mapping[str, Callable[[Any], bool]] = {
    "object": lambda value: type(value) is dict,
    "array": lambda value: type(value) is list,
    "string": lambda value: type(value) is str,
    "boolean": lambda value: type(value) is bool,
    "number": lambda value: type(value) is int or type(value) is float,
    "integer": lambda value: type(value) is int or (type(value) is float and value.is_integer()),
}


def compile_judge(schema: Any) -> Judge | None:
    """Return the function that judges values of a schema; None when it asks for nothing."""
    if not isinstance(schema, dict):
        return None
    plain = _plain(schema)
    if plain is not None:
        return plain
    found = (*_logic(schema), _text(schema), _number(schema), _array(schema), _enumerated(schema))
    judges = [judge for judge in found if judge is not None]
    kinds = _types(schema)
    if kinds == ("object",) and not judges:
        # One call less for each object, of which there are many.
        return _object(schema, typed=True)
    if (last := _object(schema, typed=False)) is not None:
        judges.append(last)
    return _typed(schema, kinds, judges) if kinds or judges else None


def _types(schema: Schema) -> tuple[str, ...]:
    if schema.get("x-kubernetes-int-or-string"):
        return ("integer", "string")
    kind = schema.get("type")
    return (kind,) if isinstance(kind, str) and kind in _IS_TYPE else ()


def _typed(schema: Schema, kinds: tuple[str, ...], judges: Sequence[Judge]) -> Judge:
    """Judge the type, then all the rest; null is judged by its type alone."""
    nullable = bool(schema.get("nullable"))
    checks = tuple(_IS_TYPE[kind] for kind in kinds)
    only = checks[0] if len(checks) == 1 else None
    wanted = ",".join(kinds)
    single = judges[0] if len(judges) == 1 else None

    def judge(value: Any, place: Place, faults: Faults) -> None:
        if value is None:
            if not nullable and kinds:
                faults.append(words.wrong_type(place, wanted, value))
            return
        if only is not None:
            if not only(value):
                faults.append(words.wrong_type(place, wanted, value))
        elif checks and not any(check(value) for check in checks):
            faults.append(words.wrong_type(place, wanted, value))
        if single is not None:
            single(value, place, faults)
        else:
            for each in judges:
                each(value, place, faults)

    return judge


_PLAIN = frozenset({"type", "description", "title", "default", "example", "externalDocs", "nullable", "format"})


def _plain(schema: Schema) -> Judge | None:
    """Return the judge of a scalar of which nothing more is asked than its type: by far the most common schemas."""
    kind = schema.get("type")
    wanted = {"string": str, "boolean": bool, "integer": int}.get(kind) if isinstance(kind, str) else None
    if wanted is None or not schema.keys() <= _PLAIN or schema.get("format") in FORMATS:
        return None
    nullable = bool(schema.get("nullable"))
    fits = _IS_TYPE[str(kind)]

    def judge(value: Any, place: Place, faults: Faults) -> None:
        if type(value) is not wanted and not (nullable and value is None) and not fits(value):
            faults.append(words.wrong_type(place, str(kind), value))

    return judge


# --- by type ----------------------------------------------------------------------------------------------------------


def _text(schema: Schema) -> Judge | None:
    longest, shortest, pattern = schema.get("maxLength"), schema.get("minLength"), schema.get("pattern")
    matches = compile_pattern(pattern) if pattern else None
    form = schema.get("format")
    has_format = FORMATS.get(form.replace("_", "-")) if isinstance(form, str) else None
    if longest is None and not shortest and matches is None and has_format is None:
        return None

    def judge(value: Any, place: Place, faults: Faults) -> None:
        if type(value) is not str:
            return
        if longest is not None and len(value) > longest:
            faults.append(words.too_long(place, longest))
        elif shortest and len(value) < shortest:
            faults.append(words.out_of_bounds(place, value, f"should be at least {shortest} chars long"))
        elif matches is not None and not matches(value):
            faults.append(words.out_of_bounds(place, value, f"should match '{pattern}'"))
        if has_format is not None and not has_format(value):
            faults.append(words.wrong_format(place, str(form), value))

    return judge


def _number(schema: Schema) -> Judge | None:
    low, high, step = schema.get("minimum"), schema.get("maximum"), schema.get("multipleOf")
    open_low, open_high = bool(schema.get("exclusiveMinimum")), bool(schema.get("exclusiveMaximum"))
    if low is None and high is None and not step:
        return None

    def judge(value: Any, place: Place, faults: Faults) -> None:
        if type(value) is not int and type(value) is not float:
            return
        if step and not _is_multiple(value, step):
            faults.append(words.out_of_bounds(place, value, f"should be a multiple of {_number_text(step)}"))
        if high is not None and (value > high or (open_high and value == high)):
            relation = "less than" if open_high else "less than or equal to"
            faults.append(words.out_of_bounds(place, value, f"should be {relation} {_number_text(high)}"))
        if low is not None and (value < low or (open_low and value == low)):
            relation = "greater than" if open_low else "greater than or equal to"
            faults.append(words.out_of_bounds(place, value, f"should be {relation} {_number_text(low)}"))

    return judge


def _is_multiple(value: float, step: float) -> bool:
    return bool(value % step == 0 if isinstance(value, int) and isinstance(step, int) else (value / step) % 1 == 0)


def _number_text(number: float) -> str:
    return str(int(number)) if isinstance(number, float) and number.is_integer() else str(number)


def _array(schema: Schema) -> Judge | None:
    items = compile_judge(schema.get("items"))
    least, most = schema.get("minItems"), schema.get("maxItems")
    repeated = _repeated(schema)
    if items is None and not least and most is None and repeated is None:
        return None

    def judge(value: Any, place: Place, faults: Faults) -> None:
        if type(value) is not list:
            return
        if items is not None:
            for position, inner in enumerate(value):
                items(inner, (place, position), faults)
        if least and len(value) < least:
            faults.append(words.out_of_bounds(place, len(value), f"should have at least {least} items"))
        if most is not None and len(value) > most:
            faults.append(words.too_many(place, len(value), most))
        if repeated is not None:
            repeated(value, place, faults)

    return judge


def _repeated(schema: Schema) -> Judge | None:
    """Return what finds equal items in a set, and items with equal keys in a map; None for other lists."""
    keys: Sequence[str] = schema.get("x-kubernetes-list-map-keys") or ()
    match schema.get("x-kubernetes-list-type"):
        case "set":
            identity: Callable[[Any], Any] = _hashable
        case "map":
            identity = _by_key(keys[0]) if len(keys) == 1 else _by_keys(keys)
        case _:
            return None

    def judge(value: Any, place: Place, faults: Faults) -> None:
        seen: set[Any] = set()
        for position, item in enumerate(value):
            key = identity(item)
            if key in seen:
                where = (place, position)
                if keys and type(item) is dict:
                    named = {name: item[name] for name in keys if name in item}
                    faults.append(words.duplicate_keys(where, named))
                else:
                    faults.append(words.duplicate(where, item))
            elif key is not None:
                seen.add(key)

    return judge


def _by_key(name: str) -> Callable[[Any], Any]:
    def identity(item: Any) -> Any:
        key = item.get(name) if type(item) is dict else None
        return key if key is None or type(key) is str else _hashable(key)

    return identity


def _by_keys(names: Sequence[str]) -> Callable[[Any], Any]:
    def identity(item: Any) -> Any:
        if type(item) is not dict:
            return None
        found = [(name, item[name]) for name in names if name in item]
        return _hashable(found) if found else None

    return identity


def _hashable(value: Any) -> Any:
    """Return what is equal for equal JSON: true is not 1, and 1.0 is."""
    if type(value) is str:
        return value
    if type(value) is float and value.is_integer():
        value = int(value)
    return type(value) is bool, msgspec.json.encode(value, order="sorted")


def _enumerated(schema: Schema) -> Judge | None:
    listed = schema.get("enum")
    if not isinstance(listed, list) or not listed:
        return None
    texts = frozenset(one for one in listed if isinstance(one, str))
    others = frozenset(_hashable(one) for one in listed if not isinstance(one, str))

    def judge(value: Any, place: Place, faults: Faults) -> None:
        known = value in texts if type(value) is str else bool(others) and _hashable(value) in others
        if not known:
            faults.append(words.not_listed(place, value, listed))

    return judge


def _object(schema: Schema, *, typed: bool) -> Judge | None:
    """Return the judge of objects; `typed` makes it the one that tells of another type."""
    known = {name: compile_judge(child) for name, child in (schema.get("properties") or {}).items()}
    additional = compile_judge(schema.get("additionalProperties"))
    required = tuple(name for name in schema.get("required") or () if isinstance(name, str))
    bounds = (schema.get("minProperties") or 0, schema.get("maxProperties"))
    embedded = bool(schema.get("x-kubernetes-embedded-resource"))
    if not (typed or any(known.values()) or additional or required or bounds != (0, None) or embedded):
        return None
    judge = _object_judge(known, additional, required, bounds, embedded=embedded)
    if not typed:
        return judge
    nullable = bool(schema.get("nullable"))

    def judge_typed(value: Any, place: Place, faults: Faults) -> None:
        if type(value) is dict:
            judge(value, place, faults)
        elif not (nullable and value is None):
            faults.append(words.wrong_type(place, "object", value))

    return judge_typed


def _object_judge(
    known: Mapping[str, Judge | None],
    additional: Judge | None,
    required: Sequence[str],
    bounds: tuple[int, int | None],
    *,
    embedded: bool,
) -> Judge:
    find, bounded = known.get, bounds != (0, None)

    def judge(value: Any, place: Place, faults: Faults) -> None:
        if type(value) is not dict or (bounded and _count_fault(value, place, faults, *bounds)):
            return
        for name, inner in value.items():
            each = find(name, additional)
            if each is not None:
                each(inner, (place, name), faults)
        for name in required:
            if name not in value:
                faults.append(words.missing(place, name))
        if embedded:
            faults.extend(words.missing_text(place, name) for name in ("apiVersion", "kind") if not value.get(name))

    return judge


def _count_fault(value: Any, place: Place, faults: Faults, least: int, most: int | None) -> bool:
    if len(value) < least:
        faults.append(words.out_of_bounds(place, len(value), f"should have at least {least} properties"))
        return True
    if most is not None and len(value) > most:
        faults.append(words.too_many(place, len(value), most))
        return True
    return False


# --- combinations -----------------------------------------------------------------------------------------------------


def _logic(schema: Schema) -> list[Judge]:
    found = [
        _any_of(_branches(schema, "anyOf")),
        _one_of(_branches(schema, "oneOf")),
        _all_of(_branches(schema, "allOf")),
    ]
    negated = schema.get("not")
    if isinstance(negated, dict):
        found.append(_not(compile_judge(negated) or _accept))
    return [judge for judge in found if judge is not None]


def _branches(schema: Schema, junctor: str) -> list[Judge]:
    found = schema.get(junctor)
    branches = found if isinstance(found, list) else []
    return [compile_judge(branch) or _accept for branch in branches if isinstance(branch, dict)]


def _accept(_value: Any, _place: Place, _faults: Faults) -> None:
    """Find no fault in anything."""


def _faults_of(branch: Judge, value: Any, place: Place) -> Faults:
    faults: Faults = []
    branch(value, place, faults)
    return faults


def _any_of(branches: Sequence[Judge]) -> Judge | None:
    if not branches:
        return None

    def judge(value: Any, place: Place, faults: Faults) -> None:
        best: Faults | None = None
        for branch in branches:
            found = _faults_of(branch, value, place)
            if not found:
                return
            if best is None or len(found) < len(best):
                best = found
        faults.append(words.not_logical(place, "must validate at least one schema (anyOf)"))
        faults.extend(best or ())

    return judge


def _one_of(branches: Sequence[Judge]) -> Judge | None:
    if not branches:
        return None

    def judge(value: Any, place: Place, faults: Faults) -> None:
        tried = [_faults_of(branch, value, place) for branch in branches]
        valid = sum(not found for found in tried)
        if valid == 1:
            return
        found = f"Found {valid} valid alternatives" if valid else "Found none valid"
        faults.append(words.not_logical(place, f"must validate one and only one schema (oneOf). {found}"))
        if not valid:
            fewest: Faults = min(tried, key=_count)
            faults.extend(fewest)

    return judge


def _count(faults: Faults) -> int:
    return len(faults)


def _all_of(branches: Sequence[Judge]) -> Judge | None:
    if not branches:
        return None

    def judge(value: Any, place: Place, faults: Faults) -> None:
        tried = [_faults_of(branch, value, place) for branch in branches]
        failed = [found for found in tried if found]
        if failed:
            more = ". None validated" if len(failed) == len(tried) else ""
            for found in failed:
                faults.extend(found)
            faults.append(words.not_logical(place, f"must validate all the schemas (allOf){more}"))

    return judge


def _not(branch: Judge) -> Judge:
    def judge(value: Any, place: Place, faults: Faults) -> None:
        if not _faults_of(branch, value, place):
            faults.append(words.not_logical(place, "must not validate the schema (not)"))

    return judge
