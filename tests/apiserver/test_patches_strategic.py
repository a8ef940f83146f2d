"""Strategic merge patches: lists merge by the names of their elements, directives act, order is upstream's."""

import copy
import gzip
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kplane_apiserver.kinds import builtin_kinds
from kplane_apiserver.patches import STRATEGIC_MERGE_PATCH, apply_patch
from kplane_core.errors import ApiError, BadRequest

POD = ("", "v1", "pods")
DEPLOYMENT = ("apps", "v1", "deployments")


def merged(live: dict[str, Any], patch: dict[str, Any], key: tuple[str, str, str] = POD) -> dict[str, Any]:
    before = copy.deepcopy(live)
    result = apply_patch(builtin_kinds()[key], STRATEGIC_MERGE_PATCH, msgspec.json.encode(patch), live)
    assert live == before
    return result


def spec(live: dict[str, Any], patch: dict[str, Any], key: tuple[str, str, str] = POD) -> Any:
    return merged({"spec": live}, {"spec": patch}, key)["spec"]


def names(items: list[dict[str, Any]]) -> list[str]:
    return [item["name"] for item in items]


def containers(*listed: str) -> list[dict[str, Any]]:
    return [{"name": name, "image": name} for name in listed]


# --- what kubectl does ------------------------------------------------------------------------------------------------


def test_set_image_changes_one_container_by_its_name() -> None:
    """`kubectl set image deployment/web sidecar=proxy:2`"""
    live = {
        "replicas": 2,
        "template": {
            "spec": {"containers": [{"name": "web", "image": "web:1"}, {"name": "sidecar", "image": "proxy:1"}]}
        },
    }
    patch = {
        "template": {
            "spec": {
                "$setElementOrder/containers": [{"name": "web"}, {"name": "sidecar"}],
                "containers": [{"name": "sidecar", "image": "proxy:2"}],
            }
        }
    }
    assert spec(live, patch, DEPLOYMENT) == {
        "replicas": 2,
        "template": {
            "spec": {"containers": [{"name": "web", "image": "web:1"}, {"name": "sidecar", "image": "proxy:2"}]}
        },
    }


def test_an_environment_variable_is_deleted_by_a_directive() -> None:
    live = {"containers": [{"name": "web", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]}]}
    patch = {"containers": [{"name": "web", "env": [{"$patch": "delete", "name": "A"}]}]}
    assert spec(live, patch) == {"containers": [{"name": "web", "env": [{"name": "B", "value": "2"}]}]}


def test_labels_and_annotations_merge_and_null_removes() -> None:
    live = {"metadata": {"labels": {"a": "1", "b": "2"}, "annotations": {"x": "y"}}}
    patch = {"metadata": {"labels": {"a": None, "c": "3"}, "annotations": None}}
    assert merged(live, patch) == {"metadata": {"labels": {"b": "2", "c": "3"}}}


def test_finalizers_are_united_and_removed_one_by_one() -> None:
    live = {"metadata": {"finalizers": ["a", "b"]}}
    assert merged(live, {"metadata": {"finalizers": ["b", "c"]}}) == {"metadata": {"finalizers": ["a", "b", "c"]}}
    removal = {"$deleteFromPrimitiveList/finalizers": ["a"], "$setElementOrder/finalizers": ["b"]}
    assert merged(live, {"metadata": removal}) == {"metadata": {"finalizers": ["b"]}}


def test_owner_references_merge_by_uid() -> None:
    live = {"metadata": {"ownerReferences": [{"uid": "1", "name": "a"}, {"uid": "2", "name": "b"}]}}
    patch = {"metadata": {"ownerReferences": [{"uid": "2", "controller": True}, {"uid": "1", "$patch": "delete"}]}}
    assert merged(live, patch) == {"metadata": {"ownerReferences": [{"uid": "2", "name": "b", "controller": True}]}}


def test_conditions_of_a_status_merge_by_type() -> None:
    live = {"status": {"conditions": [{"type": "Ready", "status": "False"}, {"type": "Init", "status": "True"}]}}
    patch = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    result = merged(live, patch)["status"]["conditions"]
    assert {one["type"]: one["status"] for one in result} == {"Ready": "True", "Init": "True"}


def test_tolerations_have_no_merge_key_and_are_replaced() -> None:
    live = {"tolerations": [{"key": "a", "operator": "Exists"}, {"key": "b", "operator": "Exists"}]}
    assert spec(live, {"tolerations": [{"key": "c"}]}) == {"tolerations": [{"key": "c"}]}


def test_arguments_are_replaced() -> None:
    live = {"containers": [{"name": "a", "args": ["1", "2"]}]}
    assert spec(live, {"containers": [{"name": "a", "args": ["3"]}]}) == {"containers": [{"name": "a", "args": ["3"]}]}


def test_volumes_switch_their_source_with_retain_keys() -> None:
    """What `kubectl apply` sends when an emptyDir becomes a configMap."""
    live = {"volumes": [{"name": "data", "emptyDir": {}}]}
    patch = {
        "$setElementOrder/volumes": [{"name": "data"}],
        "volumes": [{"$retainKeys": ["name", "configMap"], "name": "data", "configMap": {"name": "settings"}}],
    }
    assert spec(live, patch) == {"volumes": [{"name": "data", "configMap": {"name": "settings"}}]}


def test_a_deployment_strategy_switches_with_retain_keys() -> None:
    live = {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}
    patch = {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}
    assert spec(live, patch, DEPLOYMENT) == {"strategy": {"type": "Recreate"}}


def test_the_selector_of_a_disruption_budget_is_replaced_as_its_type_says() -> None:
    budget = ("policy", "v1", "poddisruptionbudgets")
    live = {"selector": {"matchLabels": {"a": "1"}}, "minAvailable": 1}
    assert spec(live, {"selector": {"matchLabels": {"b": "2"}}}, budget) == {
        "selector": {"matchLabels": {"b": "2"}},
        "minAvailable": 1,
    }


# --- ports: one merge key, two keys -----------------------------------------------------------------------------------


SERVICE = ("", "v1", "services")
DNS = [{"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53, "protocol": "TCP"}]


def test_ports_of_one_number_are_told_apart_by_their_protocol() -> None:
    result = spec({"ports": DNS}, {"ports": [{"port": 53, "protocol": "TCP", "targetPort": 5353}]}, SERVICE)
    assert result == {"ports": [DNS[0], {**DNS[1], "targetPort": 5353}]}


def test_both_ports_of_one_number_can_be_patched_at_once() -> None:
    both = [{"port": 53, "protocol": protocol, "nodePort": node} for protocol, node in (("TCP", 1), ("UDP", 2))]
    result = spec({"ports": DNS}, {"ports": both}, SERVICE)["ports"]
    assert {port["protocol"]: port["nodePort"] for port in result} == {"TCP": 1, "UDP": 2}
    assert names(result) == ["dns", "dns-tcp"]


def test_a_second_protocol_beside_one_that_stays_is_a_new_port() -> None:
    stored = [{"port": 53, "protocol": "UDP"}]
    both = [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]
    assert spec({"ports": stored}, {"ports": both}, SERVICE) == {"ports": both}


def test_a_port_without_a_protocol_is_found_by_its_number() -> None:
    stored = [{"port": 80, "protocol": "TCP"}]
    assert spec({"ports": stored}, {"ports": [{"port": 80, "name": "web"}]}, SERVICE)["ports"] == [
        {"port": 80, "protocol": "TCP", "name": "web"}
    ]
    assert spec({"ports": [{"port": 80}]}, {"ports": [{"port": 80, "protocol": "TCP"}]}, SERVICE)["ports"] == [
        {"port": 80, "protocol": "TCP"}
    ]


def test_the_protocol_of_a_port_can_be_changed() -> None:
    stored = [{"port": 80, "protocol": "TCP", "name": "web"}]
    assert spec({"ports": stored}, {"ports": [{"port": 80, "protocol": "SCTP"}]}, SERVICE)["ports"] == [
        {"port": 80, "protocol": "SCTP", "name": "web"}
    ]


def test_one_of_two_ports_of_one_number_can_be_deleted() -> None:
    deleted = {"$patch": "delete", "port": 53, "protocol": "UDP"}
    assert spec({"ports": DNS}, {"ports": [deleted]}, SERVICE) == {"ports": [DNS[1]]}
    assert spec({"ports": DNS}, {"ports": [{"$patch": "delete", "port": 53}]}, SERVICE) == {"ports": []}


def test_a_new_list_keeps_both_ports_of_one_number() -> None:
    assert spec({}, {"ports": DNS}, SERVICE) == {"ports": DNS}


# --- order ------------------------------------------------------------------------------------------------------------


def test_without_an_order_new_elements_come_first() -> None:
    assert names(spec({"containers": containers("a", "b")}, {"containers": containers("n")})["containers"]) == [
        "n",
        "a",
        "b",
    ]


def test_without_an_order_known_elements_keep_their_places() -> None:
    result = spec({"containers": containers("a", "b", "c", "d")}, {"containers": containers("b", "d")})
    assert names(result["containers"]) == ["a", "b", "c", "d"]


def test_the_patch_may_turn_the_order_round() -> None:
    result = spec({"containers": containers("a", "b", "c")}, {"containers": containers("c", "a")})
    assert names(result["containers"]) == ["b", "c", "a"]


@pytest.mark.parametrize(
    ("stored", "order", "result"),
    [
        ("abc", "cba", "cba"),
        ("abc", "ac", "abc"),
        ("abcd", "db", "acdb"),
        ("ab", "ba", "ba"),
        ("abc", "", "abc"),
        ("", "ab", ""),
        ("abc", "xcya", "bca"),
    ],
)
def test_an_order_alone_moves_stored_elements(stored: str, order: str, result: str) -> None:
    patch = {"$setElementOrder/containers": [{"name": name} for name in order]}
    assert "".join(names(spec({"containers": containers(*stored)}, patch)["containers"])) == result


def test_an_order_places_new_elements_between_stored_ones() -> None:
    patch = {
        "$setElementOrder/containers": [{"name": name} for name in ("a", "n", "b")],
        "containers": containers("n"),
    }
    assert names(spec({"containers": containers("a", "b")}, patch)["containers"]) == ["a", "n", "b"]


def test_stored_elements_that_the_order_does_not_name_stay_before_those_they_stood_before() -> None:
    patch = {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}], "containers": containers("b")}
    result = spec({"containers": containers("a", "injected", "b")}, patch)
    assert names(result["containers"]) == ["injected", "b", "a"]


def test_an_order_of_plain_values_moves_them() -> None:
    live = {"metadata": {"finalizers": ["a", "b", "c"]}}
    patch = {"metadata": {"$setElementOrder/finalizers": ["c", "d", "a"], "finalizers": ["d"]}}
    assert merged(live, patch) == {"metadata": {"finalizers": ["b", "c", "d", "a"]}}


def test_an_order_for_a_list_that_is_nowhere_does_nothing() -> None:
    assert spec({"nodeName": "x"}, {"$setElementOrder/containers": [{"name": "a"}]}) == {"nodeName": "x"}


def test_an_order_for_a_new_list_is_kept() -> None:
    patch = {"$setElementOrder/containers": [{"name": "a"}, {"name": "b"}], "containers": containers("a", "b")}
    assert spec({}, patch) == {"containers": containers("a", "b")}


# --- directives -------------------------------------------------------------------------------------------------------


def test_replace_takes_the_objects_of_the_patch_as_they_are() -> None:
    live = {"securityContext": {"runAsUser": 1, "fsGroup": 2}}
    patch = {"securityContext": {"$patch": "replace", "runAsUser": 3, "fsGroup": None}}
    assert spec(live, patch) == {"securityContext": {"runAsUser": 3}}


def test_replace_at_the_top_replaces_everything() -> None:
    assert merged({"a": 1, "b": 2}, {"$patch": "replace", "c": {"d": 1}}) == {"c": {"d": 1}}


def test_delete_empties_an_object() -> None:
    assert spec({"securityContext": {"runAsUser": 1}}, {"securityContext": {"$patch": "delete"}}) == {
        "securityContext": {}
    }


def test_merge_is_what_happens_anyway() -> None:
    assert spec({"securityContext": {"runAsUser": 1}}, {"securityContext": {"$patch": "merge", "fsGroup": 2}}) == {
        "securityContext": {"runAsUser": 1, "fsGroup": 2}
    }


def test_replace_in_a_list_takes_the_list_of_the_patch() -> None:
    patch = {"containers": [*containers("x"), {"$patch": "replace"}, {"$patch": "delete", "name": "a"}]}
    assert spec({"containers": containers("a", "b")}, patch) == {"containers": containers("x")}


def test_replace_alone_empties_a_list() -> None:
    assert spec({"containers": containers("a")}, {"containers": [{"$patch": "replace"}]}) == {"containers": []}


def test_deleting_what_is_not_there_does_nothing() -> None:
    patch = {
        "containers": [{"$patch": "delete", "name": "x"}],
        "securityContext": {"$patch": "delete"},
        "$deleteFromPrimitiveList/finalizers": ["a"],
    }
    assert spec({"containers": containers("a")}, patch) == {"containers": containers("a")}


def test_what_is_new_is_stored_without_directives_and_nulls() -> None:
    patch = {
        "$setElementOrder/containers": [{"name": "a"}],
        "containers": [
            {
                "name": "a",
                "image": None,
                "resources": {"limits": None, "requests": {"cpu": "1"}},
                "$retainKeys": ["name", "resources"],
            },
            {"name": "b", "$patch": "delete"},
        ],
        "affinity": {"$patch": "delete"},
        "securityContext": {"$patch": "replace", "runAsUser": 1},
    }
    assert spec({}, patch) == {
        "containers": [{"name": "a", "resources": {"requests": {"cpu": "1"}}}],
        "securityContext": {"runAsUser": 1},
    }


def test_a_new_element_of_a_stored_list_is_stored_without_directives_and_nulls() -> None:
    new = {"name": "n", "image": None, "env": [{"name": "A", "value": "1"}], "$setElementOrder/env": [{"name": "A"}]}
    assert spec({"containers": []}, {"containers": [new]}) == {
        "containers": [{"name": "n", "env": [{"name": "A", "value": "1"}]}]
    }


def test_keys_that_only_begin_with_a_dollar_are_data() -> None:
    live = {"data": {"$ref": "a"}}
    assert merged(live, {"data": {"$schema": "b"}}, ("", "v1", "configmaps")) == {"data": {"$ref": "a", "$schema": "b"}}


def test_values_of_another_type_are_replaced() -> None:
    assert spec({"a": {"b": 1}, "c": [1], "d": 1}, {"a": [2], "c": {"e": 3}, "d": {"f": 4}}) == {
        "a": [2],
        "c": {"e": 3},
        "d": {"f": 4},
    }


def test_a_kind_without_published_types_merges_objects_and_replaces_lists() -> None:
    cluster = ("kplane.dev", "v1", "clusters")
    assert merged({"spec": {"a": [1], "b": {"c": 1}}}, {"spec": {"a": [2], "b": {"d": 2}}}, cluster) == {
        "spec": {"a": [2], "b": {"c": 1, "d": 2}}
    }


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("patch", "words"),
    [
        ({"$patch": "explode"}, "unknown patch type 'explode'"),
        ({"containers": [{"name": "a", "$patch": 1}]}, "unknown patch type 1"),
        ({"$setElementOrder/containers": "a"}, "setElementOrder list"),
        ({"$deleteFromPrimitiveList/x": {}}, "primitive list"),
        ({"$retainKeys": "a"}, "retainKeys"),
        ({"$retainKeys": ["a"], "b": 1}, "retainKeys"),
        (
            {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}], "containers": containers("a", "b")},
            "does not match",
        ),
        ({"$setElementOrder/containers": [{"name": "b"}], "containers": containers("a")}, "does not match"),
    ],
)
def test_a_malformed_directive_is_a_bad_request(patch: dict[str, Any], words: str) -> None:
    with pytest.raises(BadRequest, match=words):
        spec({"containers": containers("a", "b")}, patch)


@pytest.mark.parametrize(
    ("patch", "words"),
    [
        ({"containers": [{"image": "x"}]}, "merge key: name"),
        ({"containers": [{"name": None}]}, "merge key: name"),
        ({"containers": ["a"]}, "merge key: name"),
        ({"containers": [{"$patch": "delete"}]}, "merge key: name"),
        ({"containers": [["a"]]}, "lists of lists"),
    ],
)
def test_an_element_that_does_not_fit_its_list_is_422(patch: dict[str, Any], words: str) -> None:
    with pytest.raises(ApiError, match=words) as caught:
        spec({"containers": containers("a")}, patch)
    assert caught.value.status().code == 422
    assert "spec.containers" in str(caught.value)


def test_stored_elements_without_a_name_stay() -> None:
    live = {"containers": [{"image": "nameless"}, "text", *containers("a")]}
    result = spec(live, {"containers": [{"name": "a", "image": "new"}]})
    assert result == {"containers": [{"image": "nameless"}, "text", {"name": "a", "image": "new"}]}


# --- against upstream's own library -----------------------------------------------------------------------------------


def without_leftovers(value: Any) -> Any:
    """Drop what upstream's library leaves in new elements and its typed objects drop a moment later."""
    if isinstance(value, list):
        return [without_leftovers(item) for item in value if not (isinstance(item, dict) and "$patch" in item)]
    if isinstance(value, dict):
        return {
            key: without_leftovers(inner)
            for key, inner in value.items()
            if inner is not None and not key.startswith("$")
        }
    return value


def test_upstreams_own_library_gives_the_same_results() -> None:
    """Some 600 random patches as kubectl sends them; see tools/generate_strategic_fixtures.py."""
    groups = {"pods": "", "services": "", "deployments": "apps"}
    cases = json.loads(gzip.decompress((Path(__file__).parent / "data/strategic_merge.json.gz").read_bytes()))
    for case in cases:
        key = (groups[case["resource"]], "v1", case["resource"])
        assert merged(case["live"], case["patch"], key) == without_leftovers(case["result"]), case
    assert len(cases) > 500


# --- properties -------------------------------------------------------------------------------------------------------


NAMES = st.lists(st.sampled_from("abcdef"), unique=True, max_size=6)


@given(NAMES, NAMES)
def test_replacing_a_keyed_list_the_way_kubectl_does_gives_the_wanted_list(
    stored: list[str], wanted: list[str]
) -> None:
    """kubectl sends the wanted order, the new or changed elements, and a deletion for each that is gone."""
    patch = {
        "$setElementOrder/containers": [{"name": name} for name in wanted],
        "containers": [
            *({"name": name, "image": "new"} for name in wanted),
            *({"name": name, "$patch": "delete"} for name in stored if name not in wanted),
        ],
    }
    result = spec({"containers": containers(*stored)}, patch)
    assert result == {"containers": [{"name": name, "image": "new"} for name in wanted]}


@given(NAMES, NAMES)
def test_merging_a_keyed_list_loses_and_doubles_nothing(stored: list[str], given_names: list[str]) -> None:
    result = names(spec({"containers": containers(*stored)}, {"containers": containers(*given_names)})["containers"])
    assert sorted(result) == sorted({*stored, *given_names})
    assert [name for name in result if name in given_names] == given_names
    assert [name for name in result if name not in given_names] == [n for n in stored if n not in given_names]


@given(NAMES, NAMES)
def test_a_strategic_merge_applied_twice_changes_nothing_more(stored: list[str], given_names: list[str]) -> None:
    patch = {"containers": containers(*given_names)}
    once = spec({"containers": containers(*stored)}, patch)
    assert spec(once, patch) == once


DIRECTIVES = (
    "$patch",
    "$retainKeys",
    "$setElementOrder/containers",
    "$deleteFromPrimitiveList/args",
    "$setElementOrder/args",
)
FIELDS = st.sampled_from(["name", "containers", "args", "spec", "securityContext", *DIRECTIVES])
WORDS = (
    st.none()
    | st.booleans()
    | st.integers(0, 2)
    | st.sampled_from(["a", "replace", "merge", "delete", "name", "containers"])
)
TREES = st.recursive(
    WORDS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=4), max_leaves=15
)


@given(st.dictionaries(FIELDS, TREES, max_size=3), st.dictionaries(FIELDS, TREES, max_size=3))
def test_random_patches_apply_or_are_refused(live: dict[str, Any], patch: dict[str, Any]) -> None:
    try:
        assert isinstance(spec(live, patch), dict)
    except ApiError as error:
        code = error.status().code
    else:
        code = 200
    assert code in {200, 400, 422}
