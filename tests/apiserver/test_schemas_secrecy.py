"""What is wrong with a custom object is told by field and by the one bad value; the object itself is never shown."""

import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kplane_apiserver.schemas.compiled import CompiledSchema

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"
RULES = "x-kubernetes-validations"
MARKER = "hunter2"
TEXT: dict[str, Any] = {"type": "string"}
KEYED = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a"]}

FIELDS = st.sampled_from(["a", "b", "c"])
SCALARS = st.integers(-2, 2) | st.booleans() | st.none() | st.just(MARKER)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=3), max_leaves=15
)


def nested(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    branches = st.lists(inner, min_size=1, max_size=2)
    return st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["object", "array", "string", "integer"]),
            "enum": st.lists(st.just({"a": 1}) | st.integers(0, 1) | st.just("x"), min_size=1, max_size=2),
            "maxLength": st.integers(0, 3),
            "minLength": st.integers(8, 9),
            "pattern": st.just("^x"),
            "format": st.sampled_from(["date", "ipv4"]),
            "minimum": st.just(1),
            "maxItems": st.integers(0, 1),
            "maxProperties": st.integers(0, 1),
            "required": st.lists(FIELDS, max_size=2),
            "properties": st.dictionaries(FIELDS, inner, max_size=3),
            "additionalProperties": inner,
            "items": inner,
            "anyOf": branches,
            "oneOf": branches,
            "allOf": branches,
            "not": inner,
            "x-kubernetes-list-type": st.sampled_from(["set", "map"]),
            "x-kubernetes-list-map-keys": st.just(["a"]),
            RULES: st.lists(
                st.fixed_dictionaries(
                    {
                        "rule": st.sampled_from(
                            ["false", "self.a == 1", "int(self.b) > 1", "self > 1", "url(self.c) == 1"]
                        )
                    },
                    optional={"reason": st.sampled_from(["FieldValueDuplicate", "FieldValueInvalid"])},
                ),
                max_size=1,
            ),
        },
    )


SCHEMAS = st.recursive(st.just(TEXT), nested, max_leaves=8)


def numbered(value: Any, place: str, numbers: Any, places: dict[str, str]) -> Any:
    """Make every marker one of its own, and note where it stands."""
    if value == MARKER:
        marker = f"{MARKER}-{next(numbers)}-"
        places[marker] = place
        return marker
    if isinstance(value, list):
        return [numbered(inner, f"{place}[{at}]", numbers, places) for at, inner in enumerate(value)]
    if isinstance(value, dict):
        return {name: numbered(inner, f"{place}.{name}", numbers, places) for name, inner in value.items()}
    return value


@settings(max_examples=200, deadline=None)
@given(SCHEMAS, VALUES)
def test_a_fault_shows_no_value_but_the_one_that_it_names(schema: dict[str, Any], value: Any) -> None:
    places: dict[str, str] = {}
    document = {"spec": numbered(value, "spec", itertools.count(), places)}
    compiled = CompiledSchema({"type": "object", "properties": {"spec": schema}}, keep_unknown=True)
    for cause in compiled.causes(document, None):
        for marker, place in places.items():
            if marker in cause.message:
                field = cause.field.replace("[a]", ".a").replace("[b]", ".b").replace("[c]", ".c")
                # Equal keys are told as keys: they are what is wrong.
                keys = [field, f"{field}.a"] if cause.reason == "FieldValueDuplicate" else [field]
                assert place in keys, (cause, document)


@pytest.fixture
def widgets(cluster: Any) -> Any:
    """A cluster with a kind that has a secret, a number, a set of objects and rules."""
    inner = {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"password": TEXT}}
    spec = {
        "type": "object",
        "properties": {
            "password": TEXT,
            "size": {"type": "integer", "enum": [1, 2, 3]},
            "pair": {"type": "array", "items": inner, "x-kubernetes-list-type": "set"},
            "free": {"x-kubernetes-preserve-unknown-fields": True, RULES: [{"rule": "!has(self.bad)"}]},
        },
        RULES: [{"rule": "!has(self.size) || self.size < 3"}, {"rule": "self.password != '' || self.absent > 1"}],
    }
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    names = {"plural": "widgets", "kind": "Widget"}
    versions = [{"name": "v1", "served": True, "storage": True, "schema": schema}]
    crd = {"group": "example.com", "scope": "Namespaced", "names": names, "versions": versions}
    assert cluster.post(DEFINITIONS, {"metadata": {"name": "widgets.example.com"}, "spec": crd}).status_code == 201
    good = {"metadata": {"name": "w"}, "spec": {"password": MARKER}}
    assert cluster.post(WIDGETS, good).status_code == 201
    return cluster


BAD = [
    {"size": "x"},
    {"size": 7},
    {"size": {"password": MARKER}},
    {"size": 3},
    {"pair": [{"password": MARKER}, {"password": MARKER}]},
    {"free": {"bad": MARKER}},
    {"unknown": MARKER},
]


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("verb", ["post", "put", "merge-patch+json", "apply-patch+yaml"])
def test_a_refusal_never_shows_what_else_an_object_holds(widgets: Any, verb: str, bad: dict[str, Any]) -> None:
    spec = {"password": MARKER, **bad}
    document = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": spec}
    strict = {"fieldValidation": "Strict"}
    if verb == "post":
        document["metadata"]["name"] = "other"
        answer = widgets.post(WIDGETS, document, **strict)
    elif verb == "put":
        document["metadata"]["resourceVersion"] = widgets.get(f"{WIDGETS}/w").json()["metadata"]["resourceVersion"]
        answer = widgets.put(f"{WIDGETS}/w", document, **strict)
    else:
        apply = {"fieldManager": "m", "force": "true"} if verb == "apply-patch+yaml" else {}
        answer = widgets.patch(f"{WIDGETS}/w", document, verb, **strict, **apply)
    assert answer.status_code in {400, 422}, answer.text
    assert MARKER not in json.dumps(dict(answer.headers)) + answer.text
