"""A definition whose schema contradicts itself is refused, and one that asks for more than it gets is warned."""

from typing import Any

import pytest

from kplane_apiserver.definitions.crds import prepare_crd
from kplane_apiserver.schemas.definitions import definition_warnings
from kplane_core.errors import InvalidError

TEXT = {"type": "string"}
SCHEMA = "spec.versions[0].schema.openAPIV3Schema"
LIST = "x-kubernetes-list-type"
PRESERVE = "x-kubernetes-preserve-unknown-fields"
KEYS = "x-kubernetes-list-map-keys"


def definition(schema: dict[str, Any], **version: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing"},
            "versions": [
                {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, **version}
            ],
        },
    }


def faults(crd: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(InvalidError) as caught:
        prepare_crd(crd, None, "now")
    return {cause.field: cause.message for cause in caught.value.causes}


def a(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def items(schema: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "array", "items": schema} | more


NAMED = a(name=TEXT) | {"required": ["name"]}


@pytest.mark.parametrize(
    ("field", "place", "message"),
    [
        (TEXT | {"default": 7}, ".default", 'Invalid value: "integer":  in body must be of type string: "integer"'),
        (a(n=TEXT) | {"default": {"x": 1}}, ".default", 'Invalid value: "object": must not have unknown fields'),
        (
            a(n={"type": "integer", "minimum": 1}) | {"default": {"n": 0}},
            ".default.n",
            "Invalid value: 0: n in body should be greater than or equal to 1",
        ),
        (TEXT | {LIST: "set"}, ".type", f'Invalid value: "string": must be array if {LIST} is specified'),
        (
            items(TEXT, **{LIST: "bag"}),
            f".{LIST}",
            'Unsupported value: "bag": supported values: "atomic", "map", "set"',
        ),
        (items(NAMED, **{LIST: "map"}), f".{KEYS}", f"Required value: must not be empty if {LIST} is map"),
        (items(NAMED, **{KEYS: ["name"]}), f".{LIST}", f"Invalid value: null: must be map if {KEYS} is non-empty"),
        (
            items(TEXT, **{LIST: "map", KEYS: ["name"]}),
            ".items.type",
            f'Invalid value: "string": must be object if parent array\'s {LIST} is map',
        ),
        (
            items(a(name=TEXT), **{LIST: "map", KEYS: ["name"]}),
            ".items.properties[name].default",
            f"Required value: this property is in {KEYS}, so it must have a default or be a required property",
        ),
        (
            items(NAMED, **{LIST: "map", KEYS: ["other"]}),
            f".{KEYS}[0]",
            'Invalid value: "other": entries must all be names of item properties',
        ),
        (items(NAMED, **{LIST: "map", KEYS: ["name", "name"]}), f".{KEYS}[1]", 'Duplicate value: "name"'),
        (
            items(a(), **{LIST: "set"}),
            ".items.x-kubernetes-map-type",
            f"Invalid value: null: must be atomic as item of a list with {LIST}=set",
        ),
        (
            TEXT | {"x-kubernetes-int-or-string": True},
            ".type",
            "Forbidden: must be empty if x-kubernetes-int-or-string is true",
        ),
        (
            {"type": "object", "x-kubernetes-embedded-resource": True},
            ".properties",
            f"Required value: must not be empty if x-kubernetes-embedded-resource is true without {PRESERVE}",
        ),
        (
            {"type": "object", "x-kubernetes-preserve-unknown-fields": False},
            ".x-kubernetes-preserve-unknown-fields",
            "Invalid value: false: must be true or undefined",
        ),
        (
            a() | {"x-kubernetes-map-type": "loose"},
            ".x-kubernetes-map-type",
            'Unsupported value: "loose": supported values: "atomic", "granular"',
        ),
        (
            a(b=TEXT) | {"anyOf": [{"properties": {"c": {"minLength": 1}}}]},
            ".properties[c]",
            f"Required value: because it is defined in {SCHEMA}.properties[spec].anyOf[0].properties[c]",
        ),
        (
            a(b=TEXT) | {"allOf": [{"properties": {"b": {"default": "x"}}}]},
            ".allOf[0].properties[b].default",
            "Forbidden: must be undefined to be structural",
        ),
    ],
)
def test_a_schema_that_contradicts_itself_is_refused(field: dict[str, Any], place: str, message: str) -> None:
    assert faults(definition(a(spec=field))) == {f"{SCHEMA}.properties[spec]{place}": message}


@pytest.mark.parametrize(
    "field",
    [
        TEXT | {"default": "x"},
        a(n={"type": "integer", "default": 1}) | {"default": {}},
        items(NAMED, **{LIST: "map", KEYS: ["name"]}),
        items(a(name=TEXT | {"default": "x"}), **{LIST: "map", KEYS: ["name"]}),
        items(TEXT, **{LIST: "set"}),
        items(a() | {"x-kubernetes-map-type": "atomic"}, **{LIST: "set"}),
        {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}], "default": "80%"},
        {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True},
        a(b=TEXT) | {"anyOf": [{"properties": {"b": {"minLength": 1}}}, {"required": ["b"]}]},
    ],
)
def test_a_schema_that_does_not_is_accepted(field: dict[str, Any]) -> None:
    prepare_crd(definition(a(spec=field)), None, "now")


def test_of_its_metadata_a_schema_may_bound_the_name_alone() -> None:
    prepare_crd(definition(a(metadata=a(name=TEXT | {"maxLength": 5}))), None, "now")
    assert faults(definition(a(metadata=a(labels={"type": "object"})))) == {
        f"{SCHEMA}.properties[metadata]": "Forbidden: must not specify anything other than name and generateName, but "
        "metadata is implicitly specified"
    }


@pytest.mark.parametrize(
    ("paths", "place", "message"),
    [
        ([""], "[0].jsonPath", "Required value"),
        ([".spec.list[0]"], "[0].jsonPath", "is an invalid path"),
        ([".metadata.name"], "[0].jsonPath", "must not point to fields in metadata"),
        ([".spec.list"], "[0].jsonPath", "must point to a field of type string, boolean or integer"),
        ([".spec.absent"], "[0].jsonPath", "must point to a field of type string, boolean or integer"),
        ([".spec.name", ".spec.name"], "[1].jsonPath", 'Duplicate value: ".spec.name"'),
        ([f".spec.f{number}" for number in range(9)], "", "Too many: 9: must have at most 8 items"),
    ],
)
def test_selectable_fields_are_scalars_of_the_schema(paths: list[str], place: str, message: str) -> None:
    more = {f"f{number}": TEXT for number in range(9)}
    schema = a(spec=a(name=TEXT, list=items(TEXT), **more))
    found = faults(definition(schema, selectableFields=[{"jsonPath": path} for path in paths]))
    assert message in found[f"spec.versions[0].selectableFields{place}"]


def test_the_paths_of_a_scale_have_no_indexes() -> None:
    scale = {"specReplicasPath": ".spec.a[0]", "statusReplicasPath": ".status.b"}
    assert faults(definition(a(), subresources={"scale": scale})) == {
        "spec.versions[0].subresources.scale.specReplicasPath": 'Invalid value: ".spec.a[0]": should be a json path '
        "without array notation"
    }


@pytest.mark.parametrize(
    ("conversion", "field", "message"),
    [
        ({"strategy": "Webhook"}, "strategy", 'Invalid value: "Webhook": conversion webhooks are not called here'),
        ({"strategy": "Odd"}, "strategy", 'Unsupported value: "Odd": supported values: "None"'),
        ({"webhook": {}}, "strategy", "Required value"),
        ({"strategy": "None", "webhook": {"a": 1}}, "webhook", "Forbidden: should not be set when strategy is not"),
    ],
)
def test_a_conversion_that_will_not_take_place_is_refused(conversion: dict[str, Any], field: str, message: str) -> None:
    crd = definition(a())
    crd["spec"]["conversion"] = conversion
    [found] = faults(crd).items()
    assert found[0] == f"spec.conversion.{field}"
    assert found[1].startswith(message)


def test_a_definition_that_was_stored_with_a_webhook_can_still_be_written() -> None:
    crd = definition(a())
    crd["spec"]["conversion"] = {"strategy": "Webhook"}
    assert prepare_crd(crd, crd, "now")["spec"]["conversion"] == {"strategy": "Webhook"}


@pytest.mark.parametrize("pattern", [r"^(a)\1$", "^(?!kube-)", "a(?=b)", "(?<!a)b"])
def test_a_pattern_that_kubernetes_cannot_read_is_refused(pattern: str) -> None:
    found = faults(definition(a(spec=items(TEXT | {"pattern": pattern}))))
    assert list(found) == [f"{SCHEMA}.properties[spec].items.pattern"]
    assert "must be a valid regular expression, but isn't" in next(iter(found.values()))


def test_what_will_not_be_done_is_warned_of() -> None:
    crd = definition(a(spec=items(TEXT | {"pattern": r"^\p{Greek}+$"})))
    crd["spec"]["versions"].append(crd["spec"]["versions"][0] | {"name": "v2", "storage": False})
    crd["spec"]["conversion"] = {"strategy": "Webhook"}
    place = "schema.openAPIV3Schema.properties[spec].items.pattern"
    assert definition_warnings(crd) == [
        f"spec.versions[0].{place}: this pattern is not checked: it cannot be read here",
        f"spec.versions[1].{place}: this pattern is not checked: it cannot be read here",
        "spec.conversion: webhooks are not called: the versions share their fields, as with the strategy None",
    ]
