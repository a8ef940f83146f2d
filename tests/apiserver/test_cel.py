"""Validation rules in CEL: run on writes, worded as Kubernetes words them, and known to be missing where CEL is."""

import pytest

from kplane_apiserver.definitions.crds import prepare_crd
from kplane_apiserver.schemas import cel
from kplane_apiserver.schemas.compiled import CompiledSchema
from kplane_apiserver.schemas.definitions import definition_warnings
from kplane_apiserver.schemas.words import UNCHECKED
from kplane_core.errors import InvalidError

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"
RULES = "x-kubernetes-validations"
TEXT = {"type": "string"}
NUMBER = {"type": "integer"}


def a(*rules, **properties):
    return {"type": "object", "properties": properties, RULES: list(rules)}


def rule(text, **more):
    return {"rule": text, **more}


def said(spec, value, old=None):
    compiled = CompiledSchema({"type": "object", "properties": {"spec": spec}}, keep_unknown=False)
    before = None if old is None else {"spec": old}
    return [(cause.reason, cause.field, cause.message) for cause in compiled.causes({"spec": value}, before)]


def definition(spec):
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    return {
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        (rule("self.n > 5", message="too few"), ("FieldValueInvalid", "spec", "Invalid value: too few")),
        (rule("self.n > 5"), ("FieldValueInvalid", "spec", "Invalid value: failed rule: self.n > 5")),
        (
            rule("self.n > 5", fieldPath=".n", reason="FieldValueForbidden", message="no"),
            ("FieldValueForbidden", "spec.n", "Forbidden: no"),
        ),
        (
            rule("self.n > 5", messageExpression="'%d is too few'.format([self.n])", message="unused"),
            ("FieldValueInvalid", "spec", "Invalid value: 1 is too few"),
        ),
        (
            rule("self.n > 5", messageExpression="self.absent", message="instead"),
            ("FieldValueInvalid", "spec", "Invalid value: instead"),
        ),
        (
            rule("self.absent == 1", message="m"),
            (
                "FieldValueInvalid",
                "spec",
                'Invalid value: "object": no such key: absent evaluating rule: m',
            ),
        ),
        (
            rule("self.n / 0 == 1", message="m"),
            ("FieldValueInvalid", "spec", 'Invalid value: "object": division by zero evaluating rule: m'),
        ),
    ],
)
def test_a_rule_that_does_not_hold_says_so(given, fault):
    assert said(a(given, n=NUMBER), {"n": 1}) == [fault]
    assert said(a(rule("self.n > 0"), n=NUMBER), {"n": 1}) == []


def test_a_rule_about_a_scalar_shows_its_value():
    schema = a(n=NUMBER | {RULES: [rule("self > 5", message="too few")]})
    assert said(schema, {"n": 1}) == [("FieldValueInvalid", "spec.n", "Invalid value: 1: too few")]
    assert said(schema, {}) == [], "what is absent is not judged"


def test_rules_reach_items_and_map_values():
    inner = a(rule("self.n > 5", message="m"), n=NUMBER)
    schema = a(list={"type": "array", "items": inner}, map={"type": "object", "additionalProperties": inner})
    found = said(schema, {"list": [{"n": 9}, {"n": 1}], "map": {"k": {"n": 1}}})
    assert [field for _, field, _ in found] == ["spec.list[1]", "spec.map[k]"]


def test_a_transition_rule_judges_changes_only():
    schema = a(name=TEXT | {RULES: [rule("self == oldSelf", message="is immutable")]})
    assert said(schema, {"name": "a"}) == []
    assert said(schema, {"name": "a"}, {"name": "a"}) == []
    assert said(schema, {"name": "a"}, {}) == []
    assert said(schema, {"name": "b"}, {"name": "a"}) == [
        ("FieldValueInvalid", "spec.name", 'Invalid value: "b": is immutable')
    ]


def test_items_of_a_map_are_compared_by_their_keys():
    item = a(rule("self.n >= oldSelf.n", message="shrinks"), name=TEXT, n=NUMBER)
    keyed = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    schema = a(items={"type": "array", "items": item, **keyed})
    old = {"items": [{"name": "a", "n": 5}, {"name": "b", "n": 1}]}
    assert said(schema, {"items": [{"name": "b", "n": 2}, {"name": "c", "n": 0}, {"name": "a", "n": 5}]}, old) == []
    assert [field for _, field, _ in said(schema, {"items": [{"name": "b", "n": 2}, {"name": "a", "n": 4}]}, old)] == [
        "spec.items[1]"
    ]


def test_an_optional_old_value_is_there_on_create_too():
    text = "oldSelf.orValue(0) < self && (oldSelf.hasValue() || self == 1) && 'oldSelf' != ''"
    schema = a(n=NUMBER | {RULES: [rule(text, optionalOldSelf=True, message="counts up from 1")]})
    assert said(schema, {"n": 1}) == []
    assert said(schema, {"n": 2}, {"n": 1}) == []
    assert len(said(schema, {"n": 2})) == 1
    assert len(said(schema, {"n": 1}, {"n": 2})) == 1


def test_a_value_that_did_not_change_is_not_judged_again():
    schema = a(rule("self.n > 5", message="m"), n=NUMBER)
    assert said(schema, {"n": 1}, {"n": 1}) == []
    assert len(said(schema, {"n": 2}, {"n": 1})) == 1


def test_rules_are_not_run_on_objects_with_graver_faults():
    found = said(a(rule("self.n > 5"), n=NUMBER), {"n": "x"})
    assert found[0][0] == "FieldValueTypeInvalid"
    assert found[1:] == [
        (
            "FieldValueInvalid",
            "<nil>",
            f"Invalid value: null: {UNCHECKED}",
        )
    ]


@pytest.mark.parametrize(
    "text",
    [
        "self.list.all(x, x > 0) && self.list.exists(x, x == 2) && size(self.list) == 3",
        "self.list.sum() == 6 && self.list.min() == 1 && self.list.max() == 3 && self.list.isSorted()",
        "sets.contains(self.list, [1, 2]) && sets.intersects([9, 1], self.list)",
        "sets.equivalent([3, 2, 1], self.list) && !sets.equivalent([1], self.list)",
        "'a1b22'.find('[0-9]+') == '1' && 'a1b22'.findAll('[0-9]+') == ['1', '22'] && self.text.matches('^[a-z]+$')",
        "isURL('https://example.com:80/a?b=c') && url('https://example.com:80/a').getHost() == 'example.com:80'",
        "url('https://example.com:80/a').getHostname() == 'example.com' && !isURL('x')",
        "quantity('1Gi').isGreaterThan(quantity('1G')) && quantity('500m').compareTo(quantity('0.5')) == 0",
        "isQuantity('2Ki') && !isQuantity('2X') && quantity('2k').asInteger() == 2000",
        "isIP('::1') && ip('::1').isLoopback() && ip('10.0.0.1').family() == 4 && !isIP('x')",
        "cidr('10.0.0.0/8').containsIP('10.1.2.3') && cidr('10.0.0.0/8').prefixLength() == 8 && isCIDR('::/0')",
        "self.time > timestamp('2026-01-01T00:00:00Z') && self.wait == duration('90s') && self.bytes == b'hi'",
        "self.ratio == 2.0 && type(self.ratio) == double",
        "self.__namespace__ == 'n' && self.with__dash__dash == 'd'",
        "has(self.text) && !has(self.absent) && self.?absent.orValue('x') == 'x'",
        "self.either == '80%' || self.either == 80",
        "cel.bind(x, self.list, cel.bind(y, x[0], x.all(z, z >= y)) && x[2] == 3) && 'cel.bind(' != ', )'",
    ],
)
def test_rules_have_the_functions_and_types_of_kubernetes(text):
    numbers = {"type": "array", "items": NUMBER}
    schema = a(
        rule(text),
        list=numbers,
        text=TEXT,
        time=TEXT | {"format": "date-time"},
        wait=TEXT | {"format": "duration"},
        bytes=TEXT | {"format": "byte"},
        ratio={"type": "number"},
        namespace=TEXT,
        either={"x-kubernetes-int-or-string": True},
        **{"with-dash": TEXT},
    )
    value = {
        "list": [1, 2, 3],
        "text": "abc",
        "time": "2026-06-01T00:00:00Z",
        "wait": "1m30s",
        "bytes": "aGk=",
        "ratio": 2,
        "namespace": "n",
        "with-dash": "d",
        "either": "80%",
    }
    assert said(schema, value) == []


@pytest.mark.parametrize(
    ("given", "field", "start"),
    [
        (rule("self.n >"), "rule", 'Invalid value: "self.n >": compilation failed: ERROR: <input>:1:9: Syntax error'),
        (
            rule("unknown > 1"),
            "rule",
            'Invalid value: "unknown > 1": compilation failed: ERROR: <input>:1:1: undeclared',
        ),
        (
            rule("cel.bind(x, 1"),
            "rule",
            'Invalid value: "cel.bind(x, 1": compilation failed: ERROR: <input>:1:14: Syntax',
        ),
        (rule(""), "rule", "Required value: rule is not specified"),
        (rule("true", message=" "), "message", 'Invalid value: " ": message must be non-empty if specified'),
        (rule("true", message="a\nb"), "message", 'Invalid value: "a\\nb": message must not contain line breaks'),
        (rule("true\n&& true"), "message", "Required value: message must be specified if rule contains line breaks"),
        (rule("true", reason="Odd"), "reason", 'Unsupported value: "Odd": supported values: "FieldValueDuplicate"'),
        (rule("true", messageExpression="1 +"), "messageExpression", 'Invalid value: "1 +": compilation failed'),
        (
            rule("self.n.matches('(')"),
            "rule",
            "Invalid value: \"self.n.matches('(')\": compilation failed: invalid matches",
        ),
        (
            rule("'x'.find( r'[' ) == ''"),
            "rule",
            "Invalid value: \"'x'.find( r'[' ) == ''\": compilation failed: invalid",
        ),
        (rule("1"), "rule", 'Invalid value: "1": cel expression must evaluate to a bool'),
        (
            rule("true", messageExpression="1"),
            "messageExpression",
            'Invalid value: "1": messageExpression must evaluate',
        ),
        (rule("true", fieldPath=".x"), "fieldPath", 'Invalid value: ".x": fieldPath must be a valid path'),
        (rule("true", fieldPath="n"), "fieldPath", 'Invalid value: "n": fieldPath must be a valid path'),
        (rule("true", optionalOldSelf=True), "optionalOldSelf", "Invalid value: true: may not be set if oldSelf"),
    ],
)
def test_a_definition_with_a_bad_rule_is_refused(given, field, start):
    with pytest.raises(InvalidError) as caught:
        prepare_crd(definition(a(given, n=NUMBER)), None, "now")
    [cause] = caught.value.causes
    assert cause.field == f"spec.versions[0].schema.openAPIV3Schema.properties[spec].{RULES}[0].{field}"
    assert cause.message.startswith(start)


def test_rules_are_enforced_over_http(cluster):
    schema = a(
        rule("self.n < 5", message="too many"),
        n=NUMBER,
        name=TEXT | {RULES: [rule("self == oldSelf", message="is immutable")]},
    )
    created = cluster.post(DEFINITIONS, definition(schema))
    assert created.status_code == 201, created.text
    assert "warning" not in created.headers
    refused = cluster.post(WIDGETS, {"metadata": {"name": "w"}, "spec": {"n": 7}})
    assert refused.status_code == 422
    assert refused.json()["message"] == 'Widget.example.com "w" is invalid: spec: Invalid value: too many'
    cluster.post(WIDGETS, {"metadata": {"name": "w"}, "spec": {"n": 1, "name": "a"}})
    changed = cluster.patch(f"{WIDGETS}/w", {"spec": {"name": "b"}})
    assert changed.json()["details"]["causes"] == [
        {"reason": "FieldValueInvalid", "message": 'Invalid value: "b": is immutable', "field": "spec.name"}
    ]


@pytest.mark.parametrize(
    "text",
    [
        "self.n.foo()",
        "authorizer.path('/')",
        "lists.range(3) == []",
        "[1].sum(1) == 1",
        "math.greatest(1, 2) == 2",
        "self.list.transformSet(k, v, v)",
    ],
)
def test_a_function_that_is_not_offered_is_refused_at_once_and_by_name(cluster, text):
    answer = cluster.post(DEFINITIONS, definition(a(rule(text), n=NUMBER)))
    assert answer.status_code == 422
    [cause] = answer.json()["details"]["causes"]
    assert cause["field"].endswith(f"{RULES}[0].rule")
    assert "compilation failed: ERROR: <input>:1:" in cause["message"]
    assert "undeclared reference" in cause["message"]


def test_a_definition_keeps_a_rule_that_it_was_stored_with():
    """A server that compiles more strictly than the one before does not lock the definitions."""
    stored = definition(a(rule("foo(self.n)"), n=NUMBER))
    changed = definition(a(rule("foo(self.n)"), n=NUMBER | {"description": "new"}))
    assert prepare_crd(changed, stored, "now")["spec"]["versions"] == changed["spec"]["versions"]
    assert definition_warnings(changed)[0].endswith("this rule is not enforced: it cannot be compiled")
    with pytest.raises(InvalidError):
        prepare_crd(definition(a(rule("bar(self.n)"), n=NUMBER)), stored, "now")


def test_a_field_path_may_lead_through_lists_of_fields_and_maps():
    inner = {"type": "object", "additionalProperties": a(**{"odd-name": TEXT})}
    schema = a(rule("false", fieldPath=".map['a b']['odd-name']", message="m"), map=inner)
    assert said(schema, {}) == [("FieldValueInvalid", "spec.map[a b].odd-name", "Invalid value: m")]


def test_without_the_extra_rules_are_accepted_and_said_not_to_be_enforced(monkeypatch, caplog):
    """Whoever defines rules must know that they do nothing here."""
    monkeypatch.setattr(cel, "available", lambda: False)
    crd = definition(a(rule("self.n > 5"), rule("not CEL at all"), n=NUMBER))
    prepare_crd(crd, None, "now")
    assert said(a(rule("self.n > 5"), n=NUMBER), {"n": 1}) == []
    [warning] = definition_warnings(crd)
    assert warning == (
        "2 validation rules (x-kubernetes-validations) are not enforced: this server has no CEL; "
        "install kplane-apiserver[cel]"
    )
    assert "not enforced" in caplog.text
