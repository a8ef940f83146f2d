"""Defaults of a schema come into objects when they are written, and into stored ones when they are read."""

import copy
import json

import pytest

from kplane_apiserver.schemas.compiled import CompiledSchema

WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SIZE = {"type": "integer", "default": 3}


def a(**properties):
    return {"type": "object", "properties": properties}


def definition(spec):
    schema = {"openAPIV3Schema": a(spec=spec)}
    return {
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }


def filled(spec, value):
    document = {"spec": copy.deepcopy(value)}
    changed = CompiledSchema(a(spec=spec), keep_unknown=False).fit(document)
    assert changed == (document["spec"] != value)
    return document["spec"]


@pytest.mark.parametrize(
    ("schema", "value", "result"),
    [
        (a(size=SIZE), {}, {"size": 3}),
        (a(size=SIZE), {"size": 0}, {"size": 0}),
        (a(size=SIZE), {"size": None}, {"size": 3}),
        (a(size=SIZE | {"nullable": True}), {"size": None}, {"size": None}),
        (a(inner=a(size=SIZE)), {}, {}),
        (a(inner=a(size=SIZE) | {"default": {}}), {}, {"inner": {"size": 3}}),
        ({"type": "array", "items": a(size=SIZE)}, [{}, {"size": 1}], [{"size": 3}, {"size": 1}]),
        ({"type": "array", "items": SIZE}, [None, 1], [3, 1]),
        ({"type": "object", "additionalProperties": a(size=SIZE)}, {"k": {}}, {"k": {"size": 3}}),
        ({"type": "object", "additionalProperties": SIZE}, {"k": None}, {"k": 3}),
        (a(on={"type": "boolean", "default": False}), {}, {"on": False}),
    ],
)
def test_a_default_stands_in_for_what_is_left_out(schema, value, result):
    assert filled(schema, value) == result


def test_objects_do_not_share_their_defaults():
    schema = a(list={"type": "array", "items": {"type": "string"}, "default": ["a"]})
    first, second = filled(schema, {}), filled(schema, {})
    first["list"].append("b")
    assert second == {"list": ["a"]}


def test_a_new_default_is_seen_by_readers_and_changes_no_generation(cluster):
    cluster.post(DEFINITIONS, definition(a(size={"type": "integer"})))
    created = cluster.post(WIDGETS, {"metadata": {"name": "w"}, "spec": {}}).json()
    path = f"{DEFINITIONS}/widgets.example.com"
    stored = cluster.get(path).json()
    stored["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = a(spec=a(size=SIZE))
    assert cluster.put(path, stored).status_code == 200
    expected = {**created, "spec": {"size": 3}}
    assert cluster.get(f"{WIDGETS}/w").json() == expected
    assert cluster.get(WIDGETS).json()["items"] == [expected]
    with cluster.watch(WIDGETS, resourceVersion="0") as events:
        assert events.next()["object"] == expected
    labelled = cluster.patch(f"{WIDGETS}/w", {"metadata": {"labels": {"a": "b"}}}).json()
    assert labelled["metadata"]["generation"] == 1
    assert labelled["spec"] == {"size": 3}


def test_a_written_object_is_answered_and_stored_with_its_defaults(live, cluster):
    cluster.post(DEFINITIONS, definition(a(size=SIZE)))
    created = cluster.post(WIDGETS, {"metadata": {"name": "w"}, "spec": {}}).json()
    assert created["spec"] == {"size": 3}

    async def stored():
        page = await live.connection.engine.scan("/", "0")
        return [record.value for record in page.records if f"/{cluster.name}/" in record.key]

    written = [json.loads(value) for value in live.call(stored())]
    assert [document["spec"] for document in written if document["kind"] == "Widget"] == [{"size": 3}]
