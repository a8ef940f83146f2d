"""Rules of a tenant cannot hold up the server: whatever they ask for ends in a clear error, soon and within memory."""

import resource

import pytest

from kplane_apiserver.schemas import cel_cost
from kplane_apiserver.schemas.compiled import CompiledSchema

RULES = "x-kubernetes-validations"
MANY = ["a"] * 9_000
LONG = "x" * 1_000_000
OUT_OF_BUDGET = (
    'Invalid value: "object": validation failed due to running out of cost budget, no further validation rules will '
    "be run"
)


def said(rules, value):
    spec = {"type": "object", "x-kubernetes-preserve-unknown-fields": True, RULES: [{"rule": text} for text in rules]}
    compiled = CompiledSchema({"type": "object", "properties": {"spec": spec}}, keep_unknown=False)
    return [cause.message for cause in compiled.causes({"spec": value}, None)]


def doubled(text, times):
    for level in range(times):
        text = f"[{text}].map(a{level}, a{level} + a{level})[0]"
    return text


def test_a_loop_over_a_list_that_is_too_long_says_so():
    assert said(["self.l.all(x, x == 'a')"], {"l": ["a"] * 9_999}) == []
    [message] = said(["self.l.all(x, x == 'a')"], {"l": ["a"] * 10_000})
    assert message == (
        "Invalid value: \"object\": call cost exceeds limit for rule: self.l.all(x, x == 'a'): "
        "its loops take 10000 rounds or more"
    )


def test_rules_that_take_too_long_are_ended_and_no_more_are_run(monkeypatch):
    monkeypatch.setattr(cel_cost, "SECONDS", 0.05)
    slow = "self.l.all(x, self.m.indexOf(x) < 0)"
    assert said([slow, "false", slow], {"l": MANY, "m": ["b"] * 9_000}) == [OUT_OF_BUDGET]


def test_a_loop_that_swallows_errors_is_ended_too(monkeypatch):
    monkeypatch.setattr(cel_cost, "SECONDS", 0.05)
    assert said(["self.l.exists(x, self.m.indexOf(x) < 0 && false) || true"], {"l": MANY, "m": MANY}) == [OUT_OF_BUDGET]


def test_many_small_rules_share_one_budget(monkeypatch):
    monkeypatch.setattr(cel_cost, "SECONDS", 0.02)
    item = {"type": "object", "properties": {"n": {"type": "integer"}}, RULES: [{"rule": "self.n > 0"}]}
    schema = {"type": "object", "properties": {"list": {"type": "array", "items": item}}}
    compiled = CompiledSchema(schema, keep_unknown=False)
    found = compiled.causes({"list": [{"n": 1}] * 50_000}, None)
    assert [cause.message for cause in found] == [OUT_OF_BUDGET]
    assert compiled.causes({"list": [{"n": 1}]}, None) == [], "the next object has its own"


@pytest.mark.parametrize(
    ("rule", "value"),
    [
        ("self.l.map(x, x + self.b).size() > 0", {"l": MANY, "b": LONG}),
        ("self.l.map(x, self.b).join('').size() > 0", {"l": MANY, "b": LONG}),
        ("self.l.map(x, self.l.map(y, self.b)).indexOf('x') > 0", {"l": ["a"] * 100, "b": LONG}),
        ("self.b.replace('x', self.b).size() > 0", {"b": LONG}),
        ("self.b.split('').join(self.b).size() > 0", {"b": LONG}),
        ("'%s%s'.format([self.b, self.b]).size() > 0", {"b": LONG}),
        ("self.b.split('').size() > 0", {"b": LONG}),
        (f"{doubled('self.b', 9)}.size() > 0", {"b": LONG}),
        ("quantity('1e999999999').asInteger() > 0", {}),
    ],
)
def test_a_rule_cannot_fill_the_memory(rule, value):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    [message] = said([rule], value)
    assert message.startswith('Invalid value: "object": ')
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert grown < cel_cost.MEMORY * 1.5


@pytest.mark.parametrize("rule", ["self.b.find('(x+x+)+y') == ''", "!self.b.matches('(x+x+)+y')"])
def test_a_pattern_takes_time_as_the_text_is_long(rule):
    assert said([rule], {"b": LONG}) == []


def test_what_real_rules_do_is_far_from_any_bound():
    items = [{"name": f"n-{number}", "port": number} for number in range(1_000)]
    rules = [
        "self.items.all(i, i.name.matches('^[a-z0-9-]+$') && i.port < 65536)",
        "self.items.map(i, i.name + self.suffix).join(',').size() > 0",
        "self.items.filter(i, i.port > 500).size() == 499",
        "self.items.map(i, '%s:%d'.format([i.name, i.port])).isSorted() || true",
    ]
    assert said(rules, {"items": items, "suffix": ".example.com"}) == []
