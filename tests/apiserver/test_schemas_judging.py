"""A custom object is judged by its schema in the words of a Kubernetes API server."""

import time
from typing import Any

import pytest

from kplane_apiserver.schemas.compiled import CompiledSchema

TEXT = {"type": "string"}
LOGIC = '<nil>: Invalid value: "": "spec"'


def schema_of(spec: dict[str, Any], **more: Any) -> CompiledSchema:
    schema = {"type": "object", "properties": {"spec": spec}} | more
    return CompiledSchema(schema, keep_unknown=False)


def faults(spec: dict[str, Any], value: Any, old: Any = None) -> list[str]:
    """What is said of `spec: value`."""
    before = None if old is None else {"spec": old}
    causes = schema_of(spec).causes({"spec": value}, before)
    return [f"{cause.field}: {cause.message}" for cause in causes]


def a(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


@pytest.mark.parametrize(
    ("schema", "value", "said"),
    [
        (TEXT, 7, 'spec: Invalid value: "integer": spec in body must be of type string: "integer"'),
        (TEXT, None, 'spec: Invalid value: "null": spec in body must be of type string: "null"'),
        (TEXT, 1.5, 'spec: Invalid value: "number": spec in body must be of type string: "number"'),
        ({"type": "integer"}, True, 'spec: Invalid value: "boolean": spec in body must be of type integer: "boolean"'),
        ({"type": "integer"}, 1.5, 'spec: Invalid value: "number": spec in body must be of type integer: "number"'),
        ({"type": "boolean"}, "x", 'spec: Invalid value: "string": spec in body must be of type boolean: "string"'),
        ({"type": "number"}, {}, 'spec: Invalid value: "object": spec in body must be of type number: "object"'),
        ({"type": "object"}, [], 'spec: Invalid value: "array": spec in body must be of type object: "array"'),
        (
            {"x-kubernetes-int-or-string": True},
            True,
            'spec: Invalid value: "boolean": spec in body must be of type integer,string: "boolean"',
        ),
        (TEXT | {"minLength": 2}, "x", 'spec: Invalid value: "x": spec in body should be at least 2 chars long'),
        (TEXT | {"maxLength": 2}, "xyz", "spec: Too long: may not be more than 2 bytes"),
        (TEXT | {"pattern": "^a+$"}, "a\n", "spec: Invalid value: \"a\\n\": spec in body should match '^a+$'"),
        (
            TEXT | {"format": "date-time"},
            "noon",
            'spec: Invalid value: "noon": spec in body must be of type date-time: "noon"',
        ),
        (TEXT | {"enum": ["a", "b"]}, "c", 'spec: Unsupported value: "c": supported values: "a", "b"'),
        ({"type": "integer", "enum": [1, 2]}, 3, 'spec: Unsupported value: 3: supported values: "1", "2"'),
        (
            {"type": "integer", "minimum": 1},
            0,
            "spec: Invalid value: 0: spec in body should be greater than or equal to 1",
        ),
        (
            {"type": "integer", "minimum": 1, "exclusiveMinimum": True},
            1,
            "spec: Invalid value: 1: spec in body should be greater than 1",
        ),
        (
            {"type": "integer", "maximum": 10.0},
            11,
            "spec: Invalid value: 11: spec in body should be less than or equal to 10",
        ),
        (
            {"type": "number", "maximum": 1, "exclusiveMaximum": True},
            1,
            "spec: Invalid value: 1: spec in body should be less than 1",
        ),
        (
            {"type": "integer", "multipleOf": 3},
            4,
            "spec: Invalid value: 4: spec in body should be a multiple of 3",
        ),
        (
            {"type": "array", "items": TEXT, "minItems": 1},
            [],
            "spec: Invalid value: 0: spec in body should have at least 1 items",
        ),
        ({"type": "array", "items": TEXT, "maxItems": 1}, ["a", "b"], "spec: Too many: 2: must have at most 1 item"),
        (
            {"type": "object", "minProperties": 1},
            {},
            "spec: Invalid value: 0: spec in body should have at least 1 properties",
        ),
        ({"type": "object", "maxProperties": 0}, {"a": 1}, "spec: Too many: 1: must have at most 0 items"),
        (a(b=TEXT) | {"required": ["b"]}, {}, "spec.b: Required value"),
        (
            {"type": "array", "items": a(b=TEXT)},
            [{}, {"b": 1}],
            'spec[1].b: Invalid value: "integer": spec[1].b in body must be of type string: "integer"',
        ),
        (
            {"type": "object", "additionalProperties": TEXT},
            {"k": 1},
            'spec.k: Invalid value: "integer": spec.k in body must be of type string: "integer"',
        ),
        (
            {"type": "array", "items": TEXT, "x-kubernetes-list-type": "set"},
            ["a", "b", "a"],
            'spec[2]: Duplicate value: "a"',
        ),
        (
            {"type": "array", "items": a(), "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n", "p"]},
            [{"n": "a", "p": 1}, {"n": "a", "p": 2}, {"n": "a", "p": 1, "x": 2}],
            'spec[2]: Duplicate value: {"n":"a","p":1}',
        ),
        (
            {"type": "object", "not": {"required": ["b"]}},
            {"b": 1},
            f"{LOGIC} must not validate the schema (not)",
        ),
        (
            {"type": "object", "oneOf": [{"required": ["b"]}, {"required": ["c"]}]},
            {"b": 1, "c": 1},
            f"{LOGIC} must validate one and only one schema (oneOf). Found 2 valid alternatives",
        ),
    ],
)
def test_one_fault_is_told_as_kubernetes_tells_it(schema: dict[str, Any], value: Any, said: str) -> None:
    assert faults(schema, value) == [said]


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (TEXT | {"nullable": True}, None),
        ({"type": "object", "nullable": True}, None),
        ({"type": "integer"}, 2.0),
        ({"type": "number"}, 2),
        ({"x-kubernetes-int-or-string": True}, "80%"),
        ({"x-kubernetes-int-or-string": True}, 80),
        (TEXT | {"maxLength": 2}, "éé"),
        (TEXT | {"format": "made-up"}, "anything"),
        ({"type": "integer", "enum": [1]}, 1.0),
        ({"type": "array", "items": TEXT, "x-kubernetes-list-type": "atomic"}, ["a", "a"]),
        (
            {"type": "array", "items": a(), "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n"]},
            [{}, {}],
        ),
        ({"x-kubernetes-preserve-unknown-fields": True}, [1, {"a": None}]),
        ({"type": "object", "anyOf": [{"required": ["b"]}, {"required": ["c"]}]}, {"c": 1}),
    ],
)
def test_what_the_schema_allows_has_no_fault(schema: dict[str, Any], value: Any) -> None:
    assert faults(schema, value) == []


def test_true_is_not_one() -> None:
    assert faults({"enum": [1]}, True) == ['spec: Unsupported value: true: supported values: "1"']
    assert faults({"type": "array", "items": {}, "x-kubernetes-list-type": "set"}, [1, True, "1"]) == []


def test_of_several_schemas_the_nearest_one_says_why() -> None:
    branches = [a(b={"minimum": 5}, c={"minimum": 5}), a(b={"minimum": 3})]
    schema = a(b={"type": "integer"}, c={"type": "integer"})
    assert faults(schema | {"anyOf": branches}, {"b": 1, "c": 1}) == [
        '<nil>: Invalid value: "": "spec" must validate at least one schema (anyOf)',
        "spec.b: Invalid value: 1: spec.b in body should be greater than or equal to 3",
    ]
    assert faults(schema | {"allOf": branches}, {"b": 4, "c": 9}) == [
        "spec.b: Invalid value: 4: spec.b in body should be greater than or equal to 5",
        '<nil>: Invalid value: "": "spec" must validate all the schemas (allOf)',
    ]


def test_an_embedded_object_says_what_it_is() -> None:
    schema = {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True}
    assert faults(schema, {"kind": "Pod"}) == ["spec.apiVersion: Required value: must not be empty"]
    assert faults(schema, {"kind": "Pod", "apiVersion": "v1"}) == []


def test_faults_of_what_did_not_change_are_forgiven() -> None:
    """A definition that became stricter does not lock its objects: only what a write touches must be valid."""
    schema = a(
        old=TEXT | {"maxLength": 1},
        new=TEXT | {"maxLength": 1},
        items={
            "type": "array",
            "items": a(name=TEXT, size={"type": "integer", "maximum": 3}),
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        },
        plain={"type": "array", "items": TEXT | {"maxLength": 1}},
    )
    before = {"old": "long", "new": "long", "items": [{"name": "a", "size": 9}], "plain": ["long"]}
    after = {
        "old": "long",
        "new": "longer",
        "items": [{"name": "b", "size": 8}, {"name": "a", "size": 9}],
        "plain": ["long", "x"],
    }
    assert faults(schema, after, before) == [
        "spec.new: Too long: may not be more than 1 bytes",
        "spec.items[0].size: Invalid value: 8: spec.items[0].size in body should be less than or equal to 3",
        "spec.plain[0]: Too long: may not be more than 1 bytes",
    ]


def test_a_value_that_only_python_holds_for_the_same_is_judged() -> None:
    assert faults(a(n={"type": "integer"}), {"n": True}, {"n": 1}) == [
        'spec.n: Invalid value: "boolean": spec.n in body must be of type integer: "boolean"'
    ]


def test_a_valid_object_of_a_kilobyte_is_judged_in_microseconds() -> None:
    item = a(name=TEXT, value={"type": "integer"}, on={"type": "boolean"}) | {"required": ["name"]}
    keyed = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    compiled = schema_of(a(items={"type": "array", "items": item, **keyed}, note=TEXT | {"maxLength": 500}))
    items = [{"name": f"name-{number}", "value": number, "on": True} for number in range(20)]
    document = {"spec": {"items": items, "note": "x" * 100}}
    compiled.fit(document)
    best = float("inf")
    for _ in range(30):
        started = time.process_time_ns()
        for _ in range(20):
            compiled.fit(document)
            compiled.causes(document, None)
        best = min(best, (time.process_time_ns() - started) / 20_000)
    # A generous bound for busy machines; it takes about 30 microseconds.
    assert best < 200
