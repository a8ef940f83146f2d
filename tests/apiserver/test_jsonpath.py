"""The paths of printer columns lead where Kubernetes' own evaluator leads, and never raise when applied."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kplane_apiserver.printers.jsonpath import JSONPathError, parse_jsonpath

DOCUMENT: dict[str, Any] = {
    "metadata": {"name": "web", "annotations": {"example.com/size": "big", "a.b": "dotted"}},
    "spec": {"replicas": 3, "ports": [{"port": 80, "name": "http"}, {"port": 443, "name": "https"}], "on": True},
    "status": {
        "conditions": [
            {"type": "Ready", "status": "False", "reason": "Waiting"},
            {"type": "Synced", "status": "True"},
            {"type": "Odd ] one", "status": "Unknown"},
        ]
    },
}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".metadata.name", ["web"]),
        ("{.metadata.name}", ["web"]),
        ("$.metadata.name", ["web"]),
        ("metadata.name", ["web"]),
        (".spec.replicas", [3]),
        (".spec.ports[0].port", [80]),
        (".spec.ports[-1].port", [443]),
        (".spec.ports[7].port", []),
        (".spec.ports[*].port", [80, 443]),
        (".spec.ports.*.name", ["http", "https"]),
        (".spec.ports[0:1].name", ["http"]),
        (".spec.ports[1:].name", ["https"]),
        (r".metadata.annotations.example\.com/size", ["big"]),
        (".metadata.annotations['a.b']", ["dotted"]),
        ('.metadata.annotations["a.b"]', ["dotted"]),
        (".metadata['name','missing']", ["web"]),
        ('.status.conditions[?(@.type=="Ready")].status', ["False"]),
        ('.status.conditions[?(@.type == "Synced")].status', ["True"]),
        (".status.conditions[?(@.type=='Odd ] one')].status", ["Unknown"]),
        ('.status.conditions[?(@.type!="Ready")].type', ["Synced", "Odd ] one"]),
        (".status.conditions[?(@.reason)].type", ["Ready"]),
        (".spec.ports[?(@.port>100)].name", ["https"]),
        (".spec.ports[?(@.port<=80)].name", ["http"]),
        (".spec.ports[?(@.port==443)].name", ["https"]),
        ("..port", [80, 443]),
        (".spec..name", ["http", "https"]),
        (".spec.missing.deeper", []),
        (".metadata.name.deeper", []),
    ],
)
def test_a_path_leads_to_its_values(path: str, found: list[Any]) -> None:
    assert parse_jsonpath(path).find(DOCUMENT) == found


def test_true_is_not_one_and_text_is_not_ordered_against_numbers() -> None:
    document = {"items": [{"on": True}, {"on": 1}, {"on": "x"}]}
    assert parse_jsonpath(".items[?(@.on==true)]").find(document) == [{"on": True}]
    assert parse_jsonpath(".items[?(@.on==1)]").find(document) == [{"on": 1}]
    assert parse_jsonpath(".items[?(@.on>0)]").find(document) == [{"on": 1}]


@pytest.mark.parametrize(
    "path", ["", "  ", ".a[", ".a[?(@.b]", ".a['b]", ".a b", ".a[b]", ".a[?(@.b==c)]", ".a]", "..", ".a."]
)
def test_a_text_that_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(JSONPathError, match="JSONPath"):
        parse_jsonpath(path)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "type"]), inner, max_size=3),
    max_leaves=10,
)


@given(JSON, st.sampled_from([".a.b", ".a[0].b", "..b", ".a[*]", '.a[?(@.type=="b")].a', ".a[?(@.b<3)]", ".a[1:].b"]))
def test_applying_a_path_never_raises(document: Any, path: str) -> None:
    assert isinstance(parse_jsonpath(path).find(document), list)


@given(st.text(alphabet=".[]?()@'\"=*:a1\\ ", max_size=14))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        path = parse_jsonpath(text)
    except JSONPathError:
        return
    assert isinstance(path.find(DOCUMENT), list)
