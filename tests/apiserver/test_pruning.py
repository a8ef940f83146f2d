"""What a schema does not know is not stored, and the client can know of it."""

import pytest

from kplane_apiserver.schemas.compiled import CompiledSchema, unknown_fields

WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
PRESERVE = {"x-kubernetes-preserve-unknown-fields": True}
SPEC = {"type": "object", "properties": {"size": {"type": "integer"}, "note": {"type": "string"}}}


def define(cluster, spec=SPEC, **version):
    schema = {"type": "object", "properties": {"spec": spec}}
    document = {
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [
                {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, **version}
            ],
        },
    }
    answer = cluster.post(DEFINITIONS, document)
    assert answer.status_code == 201, answer.text


def pruned(spec, value):
    places = []
    document = {"spec": value}
    CompiledSchema({"type": "object", "properties": {"spec": spec}}, keep_unknown=False).fit(document, places)
    return document["spec"], unknown_fields(places)


@pytest.mark.parametrize(
    ("schema", "value", "kept", "unknown"),
    [
        (SPEC, {"size": 1, "x": {"y": 1}}, {"size": 1}, ['unknown field "spec.x"']),
        ({"type": "object"}, {"x": 1}, {}, ['unknown field "spec.x"']),
        ({"type": "object", **PRESERVE}, {"x": {"y": 1}}, {"x": {"y": 1}}, []),
        (PRESERVE, [{"x": 1}], [{"x": 1}], []),
        (
            {"type": "object", **PRESERVE, "properties": {"in": SPEC}},
            {"x": 1, "in": {"size": 1, "x": 2}},
            {"x": 1, "in": {"size": 1}},
            ['unknown field "spec.in.x"'],
        ),
        (
            {"type": "array", "items": SPEC},
            [{"x": 1}, {"size": 2}, {"x": 3}],
            [{}, {"size": 2}, {}],
            ['unknown field "spec[0].x"', 'unknown field "spec[2].x"'],
        ),
        (
            {"type": "object", "additionalProperties": SPEC},
            {"k": {"x": 1, "size": 1}},
            {"k": {"size": 1}},
            ['unknown field "spec.k.x"'],
        ),
        ({"type": "object", "additionalProperties": True}, {"k": {"x": 1}}, {"k": {"x": 1}}, []),
        (
            {"type": "object", "x-kubernetes-embedded-resource": True, "properties": {"spec": SPEC}},
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "odd": 1}, "spec": {"x": 1}, "status": {}},
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {}},
            ['unknown field "spec.metadata.odd"', 'unknown field "spec.spec.x"', 'unknown field "spec.status"'],
        ),
        (SPEC, {"size": None, "note": "x"}, {"note": "x"}, []),
        ({"type": "object", "properties": {"a": {"type": "string", "nullable": True}}}, {"a": None}, {"a": None}, []),
        (SPEC, "no object", "no object", []),
    ],
)
def test_unknown_fields_and_meaningless_nulls_go(schema, value, kept, unknown):
    assert pruned(schema, value) == (kept, unknown)


def test_an_unknown_field_is_warned_of_and_not_stored(cluster):
    define(cluster)
    answer = cluster.post(WIDGETS, {"metadata": {"name": "w", "odd": 1}, "spec": {"size": 1, "sise": 2}})
    assert answer.status_code == 201
    assert answer.headers.get_list("warning") == [
        '299 - "unknown field \\"metadata.odd\\""',
        '299 - "unknown field \\"spec.sise\\""',
    ]
    assert answer.json()["spec"] == {"size": 1}
    assert cluster.get(f"{WIDGETS}/w").json() == answer.json()
    patched = cluster.patch(f"{WIDGETS}/w", {"spec": {"sise": 3}})
    assert patched.headers.get_list("warning") == ['299 - "unknown field \\"spec.sise\\""']
    assert patched.json() == answer.json(), "nothing that is stored changed"
    ignored = cluster.patch(f"{WIDGETS}/w", {"spec": {"sise": 3}}, fieldValidation="Ignore")
    assert "warning" not in ignored.headers


def test_strict_field_validation_refuses_unknown_fields(cluster):
    define(cluster)
    refused = cluster.post(WIDGETS, {"metadata": {"name": "w"}, "spec": {"b": 2, "a": 2}}, fieldValidation="Strict")
    assert refused.status_code == 400
    assert refused.json()["message"] == (
        'Widget in version "v1" cannot be handled as a Widget: strict decoding error: unknown field "spec.a", '
        'unknown field "spec.b"'
    )
    assert cluster.get(f"{WIDGETS}/w").status_code == 404
    cluster.post(WIDGETS, {"metadata": {"name": "w"}, "spec": {"size": 1}})
    patched = cluster.patch(f"{WIDGETS}/w", {"spec": {"a": 2}}, fieldValidation="Strict")
    assert patched.status_code == 422
    [cause] = patched.json()["details"]["causes"]
    assert cause["field"] == "patch"
    assert cause["message"].endswith(': strict decoding error: unknown field "spec.a"')


def test_each_version_shows_its_own_fields(cluster):
    """Versions share what is stored; each reader sees what its version knows."""
    versions = []
    for name, field in (("v1", "old"), ("v2", "new")):
        spec = {"type": "object", "properties": {field: {"type": "string"}, "both": {"type": "string"}}}
        schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
        versions.append({"name": name, "served": True, "storage": name == "v1", "schema": schema})
    names = {"plural": "widgets", "kind": "Widget"}
    spec = {"group": "example.com", "scope": "Namespaced", "names": names, "versions": versions}
    assert cluster.post(DEFINITIONS, {"metadata": {"name": "widgets.example.com"}, "spec": spec}).status_code == 201
    cluster.post(WIDGETS, {"metadata": {"name": "w"}, "spec": {"old": "a", "both": "b"}})
    in_v2 = WIDGETS.replace("/v1/", "/v2/")
    assert cluster.get(f"{WIDGETS}/w").json()["spec"] == {"old": "a", "both": "b"}
    assert cluster.get(f"{in_v2}/w").json()["spec"] == {"both": "b"}
    [item] = cluster.get(in_v2).json()["items"]
    assert item["spec"] == {"both": "b"}
    assert item["apiVersion"] == "example.com/v2"
