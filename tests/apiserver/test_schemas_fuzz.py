"""Whatever schema a definition may have, whatever object is sent: it is judged, and no walk over it fails."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kplane_apiserver.definitions.crds import prepare_crd
from kplane_apiserver.definitions.structural import schema_faults
from kplane_apiserver.schemas.compiled import CompiledSchema
from kplane_apiserver.schemas.shape import check_shape
from kplane_core.errors import BadRequest

NAMES = st.sampled_from(["a", "b", "apiVersion", "kind", "metadata", "spec"])
SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-3, 3) | st.text(max_size=3)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=12,
)
KEYWORDS = {
    "type": st.sampled_from(["object", "array", "string", "integer", "number", "boolean", "null", ""]),
    "format": st.sampled_from(["date-time", "uri", "byte", "duration", "int32", "odd"]),
    "nullable": st.booleans(),
    "default": VALUES,
    "enum": st.lists(VALUES, max_size=3),
    "maximum": st.integers(-2, 2),
    "minimum": st.floats(-2, 2),
    "exclusiveMinimum": st.booleans(),
    "multipleOf": st.sampled_from([0, 1, 0.5, 2]),
    "maxLength": st.integers(0, 3),
    "minLength": st.integers(0, 3),
    "minItems": st.integers(0, 2),
    "maxItems": st.integers(0, 2),
    "minProperties": st.integers(0, 2),
    "maxProperties": st.integers(0, 2),
    "pattern": st.sampled_from(["^a", "[", r"\z$", "(?P<n>x)", ""]),
    "required": st.lists(NAMES, max_size=2),
    "x-kubernetes-int-or-string": st.booleans(),
    "x-kubernetes-preserve-unknown-fields": st.booleans(),
    "x-kubernetes-embedded-resource": st.booleans(),
    "x-kubernetes-list-type": st.sampled_from(["atomic", "set", "map", "odd"]),
    "x-kubernetes-list-map-keys": st.lists(NAMES, max_size=2),
}
RULES = st.lists(
    st.fixed_dictionaries(
        {"rule": st.sampled_from(["self.a == 1", "self == oldSelf", "has(self.b)", "size(self) > 1", "self >"])},
        optional={"optionalOldSelf": st.booleans(), "messageExpression": st.just("self.a")},
    ),
    max_size=2,
)


def nested(inner):
    branches = st.lists(inner, max_size=2)
    return st.fixed_dictionaries(
        {},
        optional={
            **KEYWORDS,
            "properties": st.dictionaries(NAMES, inner, max_size=3),
            "additionalProperties": inner | st.booleans(),
            "items": inner,
            "anyOf": branches,
            "allOf": branches,
            "oneOf": branches,
            "not": inner,
            "x-kubernetes-validations": RULES,
        },
    )


SCHEMAS = st.recursive(st.fixed_dictionaries({}, optional=KEYWORDS), nested, max_leaves=6)


@settings(max_examples=100, deadline=None)
@given(schema=SCHEMAS, new=st.dictionaries(NAMES, VALUES), old=st.none() | st.dictionaries(NAMES, VALUES))
def test_no_schema_of_the_right_form_breaks_a_write(schema, new, old):
    check_shape(schema)
    list(schema_faults(schema, "schema"))
    compiled = CompiledSchema(schema, keep_unknown=False)
    compiled.fit(new, [])
    assert not compiled.fit(new, []), "what fits stays as it is"
    if old is not None:
        compiled.fit(old)
    assert compiled.causes(new, old) is not None
    if old is not None:
        assert compiled.causes(old, old) == [], "what did not change is not judged again"


@pytest.mark.parametrize(
    ("schema", "complaint"),
    [
        ({"properties": 7}, "Expected `object | null`, got `int` - at `{}.properties`"),
        (
            {"properties": {"a": {"required": "a"}}},
            "Expected `array | null`, got `str` - at `{}.properties[...].required`",
        ),
        ({"items": {"maxLength": "5"}}, "Expected `int | null`, got `str` - at `{}.items.maxLength`"),
        ({"x-kubernetes-validations": ["self"]}, "Expected `object`, got `str` - at `{}.x-kubernetes-validations[0]`"),
        ({"type": ["string", "null"]}, "Expected `str | null`, got `array` - at `{}.type`"),
    ],
)
def test_a_keyword_of_another_type_is_refused_by_name(schema, complaint):
    with pytest.raises(msgspec.ValidationError):
        check_shape(schema)
    crd = {
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }
    with pytest.raises(BadRequest) as caught:
        prepare_crd(crd, None, "now")
    place = "spec.versions[0].schema.openAPIV3Schema"
    head = 'CustomResourceDefinition in version "v1" cannot be handled as a CustomResourceDefinition: '
    assert str(caught.value) == head + complaint.format(place)
