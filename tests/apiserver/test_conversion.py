"""Conversions between the forms of a kind: total on whatever JSON is stored, and back again without a loss."""

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kplane_apiserver.conversion import converts, in_version, sibling, stored_form
from kplane_apiserver.kinds import builtin_kinds

KINDS = builtin_kinds()
EVENT, NEW_EVENT = KINDS["", "v1", "events"], KINDS["events.k8s.io", "v1", "events"]
V1, V2 = (KINDS["autoscaling", version, "horizontalpodautoscalers"] for version in ("v1", "v2"))
PAIRS = [(EVENT, NEW_EVENT), (NEW_EVENT, EVENT), (V1, V2), (V2, V1)]
NAMES = [
    "metadata",
    "annotations",
    "spec",
    "status",
    "metrics",
    "currentMetrics",
    "conditions",
    "behavior",
    "type",
    "resource",
    "object",
    "target",
    "current",
    "averageUtilization",
    "averageValue",
    "value",
    "name",
    "regarding",
    "involvedObject",
    "note",
    "targetCPUUtilizationPercentage",
    "autoscaling.alpha.kubernetes.io/metrics",
    "autoscaling.alpha.kubernetes.io/behavior",
]

names = st.sampled_from(NAMES)
scalars = st.none() | st.booleans() | st.integers(-3, 300) | st.sampled_from(["cpu", "Resource", "{}", "[{}]", ""])
anything = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4))
objects = st.dictionaries(names, anything, max_size=6)


@pytest.mark.parametrize(("kind", "other"), PAIRS, ids=lambda kind: kind.api_version)
@given(document=objects)
def test_whatever_is_stored_has_the_other_form(kind, other, document):
    before = {**document, "apiVersion": kind.api_version, "kind": kind.kind}
    kept = copy.deepcopy(before)
    converted = in_version(other, dict(before))
    assert (converted["apiVersion"], converted["kind"]) == (other.api_version, other.kind)
    assert stored_form(other, dict(converted))["apiVersion"] == other.storage_api_version
    assert before == kept, "what was given may be shared with others: nothing inside it changes"


def _text(value):
    return json.dumps(value, sort_keys=True)


quantity = st.sampled_from(["1", "500m", "2Gi"])
percentage = st.integers(1, 100)
utilization = percentage.map(lambda value: {"type": "Utilization", "averageUtilization": value})
average = quantity.map(lambda value: {"type": "AverageValue", "averageValue": value})
whole = quantity.map(lambda value: {"type": "Value", "value": value})
metric = st.fixed_dictionaries(
    {"name": st.sampled_from("abc")}, optional={"selector": st.just({"matchLabels": {"a": "b"}})}
)
described = st.just({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"})


def source(kind, field, **parts):
    return st.fixed_dictionaries({"type": st.just(kind), field: st.fixed_dictionaries(parts)})


others = st.lists(
    source("Resource", "resource", name=st.just("memory"), target=utilization | average)
    | source("Resource", "resource", name=st.just("cpu"), target=average)
    | source("ContainerResource", "containerResource", name=st.just("cpu"), container=st.just("c"), target=utilization)
    | source("Pods", "pods", metric=metric, target=average)
    | source("Object", "object", describedObject=described, metric=metric, target=whole | average)
    | source("External", "external", metric=metric, target=whole | average),
    max_size=3,
)
cpu = source("Resource", "resource", name=st.just("cpu"), target=utilization)
policies = st.lists(st.just({"type": "Pods", "value": 4, "periodSeconds": 60}), min_size=1, max_size=2)
rules = st.fixed_dictionaries({"policies": policies}, optional={"stabilizationWindowSeconds": st.integers(0, 3600)})
behavior = st.dictionaries(st.sampled_from(["scaleUp", "scaleDown"]), rules, min_size=1)
specs = st.fixed_dictionaries({"maxReplicas": percentage, "metrics": others}, optional={"behavior": behavior})


@given(spec=specs, first=cpu, annotations=st.dictionaries(st.sampled_from("ab"), st.just("text"), min_size=1))
def test_an_autoscaler_of_v2_comes_back_from_v1_as_it_was(spec, first, annotations):
    # v1 can name the utilization of the CPU only where that is the first thing said of the CPU.
    metrics = [*spec["metrics"], first]
    if any(found.get("resource", {}).get("name") == "cpu" for found in spec["metrics"]):
        metrics = [first, *spec["metrics"]]
    document = {"apiVersion": V2.api_version, "kind": V2.kind, "metadata": {"annotations": annotations}}
    document["spec"] = {**spec, "metrics": metrics}
    back = in_version(V2, in_version(V1, dict(document)))
    for one in (back, document):
        one["spec"]["metrics"] = sorted(one["spec"]["metrics"], key=_text)  # v1 keeps no place for the CPU
    assert back == document


@given(
    document=st.dictionaries(st.sampled_from(["regarding", "note", "deprecatedCount", "type", "series", "x"]), scalars)
)
def test_an_event_comes_back_as_it_was(document):
    given = {**document, "apiVersion": NEW_EVENT.api_version, "kind": "Event"}
    assert in_version(NEW_EVENT, in_version(EVENT, dict(given))) == given


def test_only_these_kinds_have_forms():
    found = {kind.storage_resource for kind in KINDS.values() if converts(kind)}
    assert found == {"events", "horizontalpodautoscalers.autoscaling"}
    shared = {}
    for kind in KINDS.values():
        shared.setdefault(kind.storage_resource, set()).add(kind.api_version)
    assert {name for name, versions in shared.items() if len(versions) > 1} == found, "a second form needs a conversion"


def test_a_sibling_is_another_form_of_the_same_objects():
    assert sibling(EVENT, "events.k8s.io/v1") is NEW_EVENT
    assert sibling(NEW_EVENT, "v1") is EVENT
    assert sibling(V2, "autoscaling/v1") is V1
    for version in ("v1", "v2", "autoscaling/v1", "", "nonsense/v1"):
        assert sibling(EVENT, version) is None
    assert sibling(KINDS["apps", "v1", "deployments"], "v1") is None
