"""Selection: the two selector languages against a naive evaluator, attributes, and the predicate."""

import contextlib
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kplane_core.errors import BadRequest, DecodeError
from kplane_core.storage import (
    Attributes,
    Predicate,
    attribute_func,
    encode_object,
    parse_field_selector,
    parse_label_selector,
)

# A busy machine is no failure.
PATIENT = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])

# --- labels: the language --------------------------------------------------------------------------------

EMPTY = frozenset([""])


@pytest.mark.parametrize(
    ("text", "requirements"),
    [
        ("", []),
        ("   ", []),
        ("x", [("x", "exists", set())]),
        ("!x", [("x", "!", set())]),
        ("! x", [("x", "!", set())]),
        ("x=a", [("x", "=", {"a"})]),
        ("x==a", [("x", "=", {"a"})]),
        ("x = a", [("x", "=", {"a"})]),
        ("x!=a", [("x", "!=", {"a"})]),
        ("x=", [("x", "=", {""})]),
        ("x!=", [("x", "!=", {""})]),
        ("x in (a,b)", [("x", "in", {"a", "b"})]),
        ("x in(a)", [("x", "in", {"a"})]),
        ("x  in  ( a , b )", [("x", "in", {"a", "b"})]),
        ("x notin (a)", [("x", "notin", {"a"})]),
        ("x in ()", [("x", "in", {""})]),
        ("x in (a,)", [("x", "in", {"a", ""})]),
        ("x>5", [("x", "gt", {"5"})]),
        ("x < -7", [("x", "lt", {"-7"})]),
        ("in in (in)", [("in", "in", {"in"})]),
        ("notin", [("notin", "exists", set())]),
        ("x=a,y!=b,!z", [("x", "=", {"a"}), ("y", "!=", {"b"}), ("z", "!", set())]),
        ("x=,y in (a,b) , z", [("x", "=", {""}), ("y", "in", {"a", "b"}), ("z", "exists", set())]),
        ("kubernetes.io/os=linux", [("kubernetes.io/os", "=", {"linux"})]),
        ("a/b_c.d-e=F_g.h-I", [("a/b_c.d-e", "=", {"F_g.h-I"})]),
    ],
)
def test_label_selectors_read_as_in_kubernetes(text, requirements):
    parsed = parse_label_selector(text)
    assert [(one.key, one.operator, set(one.values)) for one in parsed.requirements] == requirements


@pytest.mark.parametrize(
    "text",
    [
        ",",
        "x,",
        ",x",
        "x,,y",
        "x y",
        "=a",
        "!",
        "!=a",
        "!x=a",
        "x=a=b",
        "x===a",
        "x=a b",
        "x in",
        "x in a",
        "x in (a",
        "x in a)",
        "x in (a b)",
        "x in ((a))",
        "x notin",
        "x=(a)",
        "x>a",
        "x>",
        "x>1_0",
        "x>\u0665",
        "x>9223372036854775808",
        "x<=5",
        "x=a/b",
        "x=-a",
        "x=a-",
        "x=" + "a" * 64,
        "-x",
        "x-",
        "/x",
        "a/",
        "a/b/c",
        "A/b",
        "a..b/c",
        "a.-b/c",
        "-a/b",
        "x" * 64,
        "a" * 254 + "/x",
        "é",
        "x=é",
        "x=a\0",
    ],
    ids=lambda text: text[:24],
)
def test_what_is_no_label_selector_is_a_bad_request(text):
    with pytest.raises(BadRequest) as caught:
        parse_label_selector(text)
    assert caught.value.status().code == 400


@pytest.mark.parametrize("text", ["x" * 63, "a" * 253 + "/" + "x" * 63, "x=" + "a" * 63, "x in (" + "a" * 63 + ")"])
def test_the_longest_keys_and_values_are_taken(text):
    assert len(parse_label_selector(text).requirements) == 1


@PATIENT
@given(st.text(st.sampled_from("xyz=!<>,() \tinot.-_/aA1\\é\0\n"), max_size=20) | st.text(max_size=12))
def test_no_text_breaks_the_label_parser(text):
    with contextlib.suppress(BadRequest):
        parse_label_selector(text).matches({"x": "a"})


# --- labels: the meaning ---------------------------------------------------------------------------------

KEYS = st.sampled_from(["x", "y", "a.io/z"])
VALUES = st.sampled_from(["", "a", "b", "5", "07", "1_0", "99999999999999999999"])
LABELS = st.dictionaries(KEYS, VALUES | st.just("-3"), max_size=3)
TERMS = st.one_of(
    st.tuples(KEYS, st.sampled_from(["=", "==", "!="]), VALUES.map(lambda value: [value])),
    st.tuples(KEYS, st.sampled_from(["in", "notin"]), st.lists(VALUES, min_size=1, max_size=3)),
    st.tuples(KEYS, st.sampled_from(["exists", "!"]), st.just([])),
    st.tuples(KEYS, st.sampled_from([">", "<"]), st.sampled_from([["5"], ["-3"], ["0"]])),
)


def written(key, operator, values):
    match operator:
        case "in" | "notin":
            return f"{key} {operator} ({', '.join(values)})"
        case "exists":
            return key
        case "!":
            return f"!{key}"
        case _:
            return f"{key}{operator}{values[0]}"


def holds(key, operator, values, labels):
    """Say what a term means, the slow way."""
    if operator == "exists":
        return key in labels
    if operator == "!":
        return key not in labels
    if operator in {"=", "==", "in"}:
        return key in labels and labels[key] in values
    if operator in {"!=", "notin"}:
        return key not in labels or labels[key] not in values
    numbers = {"5": 5, "-3": -3, "07": 7, "0": 0}
    if labels.get(key) not in numbers:
        return False
    left, right = numbers[labels[key]], numbers[values[0]]
    return left > right if operator == ">" else left < right


@PATIENT
@given(st.lists(TERMS, max_size=4), LABELS)
def test_label_selectors_mean_what_a_naive_evaluator_says(terms, labels):
    text = ",".join(written(*term) for term in terms)
    assert parse_label_selector(text).matches(labels) == all(holds(*term, labels) for term in terms)


@pytest.mark.parametrize("value", ["", "1_0", " 5", "five", "9223372036854775808", "9" * 5000, "\u0665"])
def test_a_label_that_is_no_int64_is_neither_more_nor_less(value):
    for text in ("x>0", "x<0", "x>-1", "x<9223372036854775807"):
        assert not parse_label_selector(text).matches({"x": value})


# --- fields ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("", []),
        (",,", []),
        ("metadata.name=a", [("metadata.name", "a", True)]),
        ("metadata.name==a", [("metadata.name", "a", True)]),
        ("metadata.name!=a", [("metadata.name", "a", False)]),
        ("a=", [("a", "", True)]),
        ("a=1,b!=2", [("a", "1", True), ("b", "2", False)]),
        (r"a=x\,y\=z\\", [("a", "x,y=z\\", True)]),
        ("a=b\\,", [("a", "b,", True)]),
        ("a=b c", [("a", "b c", True)]),
        ("a=b!c", [("a", "b!c", True)]),
        ("a=é\n", [("a", "é\n", True)]),
    ],
)
def test_field_selectors_read_as_in_kubernetes(text, terms):
    assert [tuple(term) for term in parse_field_selector(text).terms] == terms


@pytest.mark.parametrize(
    "text", ["a", "=a", "!=a", "a=b=c", "a===b", r"a=\x", "a=b\\", "\\", "a\\=b", "a=\\\n", "a=1,b"]
)
def test_what_is_no_field_selector_is_a_bad_request(text):
    with pytest.raises(BadRequest, match="invalid selector"):
        parse_field_selector(text)


@PATIENT
@given(st.text(st.sampled_from("ab=!,\\.\n "), max_size=12) | st.text(max_size=12))
def test_no_text_breaks_the_field_parser(text):
    with contextlib.suppress(BadRequest):
        parse_field_selector(text).matches({"a": "b"})


FIELD_VALUES = st.text(st.sampled_from("ab,=\\! \n"), max_size=4)
FIELD_TERMS = st.tuples(
    st.sampled_from(["metadata.name", "spec.nodeName"]), st.sampled_from(["=", "==", "!="]), FIELD_VALUES
)


@PATIENT
@given(
    st.lists(FIELD_TERMS, max_size=3),
    st.dictionaries(st.sampled_from(["metadata.name", "spec.nodeName"]), FIELD_VALUES),
)
def test_field_selectors_mean_what_a_naive_evaluator_says(terms, fields):
    """Whatever a value holds, escaping carries it through."""

    def escaped(value):
        return value.replace("\\", "\\\\").replace(",", "\\,").replace("=", "\\=")

    selector = parse_field_selector(",".join(f"{field}{operator}{escaped(value)}" for field, operator, value in terms))
    expected = all((fields.get(field, "") == value) == (operator != "!=") for field, operator, value in terms)
    assert selector.matches(fields) == expected


def test_a_pinned_field_is_found():
    selector = parse_field_selector("spec.nodeName!=n,metadata.name=a")
    assert selector.exact("metadata.name") == "a"
    assert selector.exact("spec.nodeName") is None
    assert selector.exact("metadata.namespace") is None


# --- attributes ------------------------------------------------------------------------------------------

POD_FIELDS = {"spec.nodeName": "", "spec.restartPolicy": "Always", "status.phase": "Pending"}


def test_attributes_are_labels_name_namespace_and_the_asked_fields_with_their_defaults():
    raw = encode_object(
        {"metadata": {"name": "a", "namespace": "ns", "labels": {"x": "1"}}, "spec": {"nodeName": "n"}, "status": {}}
    )
    assert attribute_func(POD_FIELDS)(raw) == Attributes(
        {"x": "1"},
        {
            "metadata.name": "a",
            "metadata.namespace": "ns",
            "spec.nodeName": "n",
            "spec.restartPolicy": "Always",
            "status.phase": "Pending",
        },
    )


def test_a_cluster_scoped_resource_has_no_namespace_to_select():
    raw = encode_object({"metadata": {"name": "a", "namespace": "stray"}})
    assert attribute_func(namespaced=False)(raw) == Attributes({}, {"metadata.name": "a"})


@pytest.mark.parametrize(
    ("value", "text"), [(True, "true"), (False, "false"), (3, "3"), ("x", "x"), ("", ""), (None, "default")]
)
def test_a_field_of_any_type_is_seen_as_text(value, text):
    raw = encode_object({"metadata": {}, "spec": {"suspend": value}})
    assert attribute_func({"spec.suspend": "default"})(raw).fields["spec.suspend"] == text


@pytest.mark.parametrize(
    "field", ["spec.class", "spec.a-b", "spec.from.x y", "metadata.uid", "involvedObject.name", "é.ß"]
)
def test_any_path_can_be_a_field(field):
    """Custom resources choose their selectable fields themselves."""
    document: dict = {"metadata": {}}
    *parents, last = field.split(".")
    place = document
    for name in parents:
        place = place.setdefault(name, {})
    place[last] = "v"
    assert attribute_func({field: ""})(encode_object(document)).fields[field] == "v"
    assert attribute_func({field: ""})(encode_object({})).fields[field] == ""


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b"{}",
        b'{"metadata":null}',
        b'{"metadata":{"labels":{"x":1}}}',
        b'{"metadata":{"labels":[]}}',
        b'{"metadata":{"name":7}}',
        b'{"metadata":{},"spec":3}',
    ],
)
def test_attributes_that_cannot_be_read_are_a_decode_error(raw):
    with pytest.raises(DecodeError, match="attributes cannot be read"):
        attribute_func(POD_FIELDS)(raw)


# --- predicate -------------------------------------------------------------------------------------------

POD = encode_object({"metadata": {"name": "a", "labels": {"x": "1"}}})


def never(_raw):
    raise AssertionError("an empty predicate must not look at the object")


def test_the_empty_predicate_selects_everything_without_a_look():
    assert Predicate().empty
    assert Predicate(limit=5, continue_token="t").matcher(never) is None


@pytest.mark.parametrize(
    ("labels", "fields", "expected"),
    [
        ("x=1", "", True),
        ("x=2", "", False),
        ("", "metadata.name=a", True),
        ("", "metadata.name=b", False),
        ("x=1", "metadata.name=a", True),
        ("x=1", "metadata.name=b", False),
        ("x=2", "metadata.name=a", False),
        ("", "metadata.unknown=", True),
        ("", "metadata.unknown!=", False),
    ],
)
def test_both_selectors_must_match(labels, fields, expected):
    predicate = Predicate(labels=parse_label_selector(labels), fields=parse_field_selector(fields))
    matches = predicate.matcher(attribute_func())
    assert matches is not None
    assert matches(POD) is expected


def test_an_object_whose_attributes_cannot_be_read_does_not_match():
    for text in ("x=1", "x!=1", "!x"):
        matches = Predicate(labels=parse_label_selector(text)).matcher(attribute_func())
        assert matches is not None
        assert not matches(b'{"metadata":{"labels":{"x":1}}}')


def test_a_predicates_own_attributes_win():
    predicate = Predicate(
        fields=parse_field_selector("special=yes"), attributes=lambda _raw: Attributes({}, {"special": "yes"})
    )
    matches = predicate.matcher(never)
    assert matches is not None
    assert matches(json.dumps({}).encode())


@pytest.mark.parametrize(
    ("fields", "token", "name"),
    [
        ("metadata.name=a", "", "a"),
        ("metadata.name=a,spec.x=1", "", "a"),
        ("metadata.name!=a", "", None),
        ("metadata.namespace=a", "", None),
        ("", "", None),
        ("metadata.name=a", "t", None),
    ],
)
def test_one_name_is_pinned_only_on_a_first_page(fields, token, name):
    assert Predicate(fields=parse_field_selector(fields), continue_token=token).matches_single() == name
