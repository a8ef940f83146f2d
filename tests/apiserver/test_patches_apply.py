"""Server-side apply without owners: the manifest is merged in by the types of the lists, and nothing goes."""

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kplane_apiserver.kinds import CustomKind, Kind, builtin_kinds
from kplane_apiserver.patches import APPLY_PATCH, apply_patch
from kplane_core.errors import BadRequest

SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "hosts": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["host", "port"],
                    "items": {"type": "object"},
                },
                "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                "plain": {"type": "array", "items": {"type": "object"}},
                "whole": {"type": "object", "x-kubernetes-map-type": "atomic"},
                "byName": {
                    "type": "object",
                    "additionalProperties": {"type": "array", "x-kubernetes-list-type": "set", "items": {}},
                },
            },
        }
    },
}
WIDGET = Kind(
    "example.com", "v1", "Widget", "widgets", "widget", "WidgetList", True, (), custom=CustomKind(schema=SCHEMA)
)


def applied(live: dict[str, Any], manifest: dict[str, Any], kind: Kind) -> dict[str, Any]:
    before = copy.deepcopy(live)
    result = apply_patch(kind, APPLY_PATCH, msgspec.json.encode(manifest), live)
    assert live == before
    return result


def builtin(live: dict[str, Any], manifest: dict[str, Any], group: str = "", plural: str = "pods") -> Any:
    kind = builtin_kinds()[group, "v1", plural]
    return applied({"spec": live}, {"spec": manifest}, kind)["spec"]


def custom(live: dict[str, Any], manifest: dict[str, Any]) -> Any:
    return applied({"spec": live}, {"spec": manifest}, WIDGET)["spec"]


def test_containers_merge_by_name_and_new_ones_come_last() -> None:
    live = {"containers": [{"name": "a", "image": "a:1", "tty": True}, {"name": "b", "image": "b:1"}]}
    manifest = {"containers": [{"name": "n", "image": "n:1"}, {"name": "a", "image": "a:2"}]}
    assert builtin(live, manifest)["containers"] == [
        {"name": "a", "image": "a:2", "tty": True},
        {"name": "b", "image": "b:1"},
        {"name": "n", "image": "n:1"},
    ]


def test_ports_merge_by_number_and_protocol_which_is_tcp_unless_said() -> None:
    live = {"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53}]}
    manifest = {"ports": [{"port": 53, "protocol": "TCP", "name": "tcp"}, {"port": 53, "protocol": "SCTP"}]}
    assert builtin(live, manifest, plural="services")["ports"] == [
        {"port": 53, "protocol": "UDP"},
        {"port": 53, "protocol": "TCP", "name": "tcp"},
        {"port": 53, "protocol": "SCTP"},
    ]


def test_sets_are_united_and_other_lists_replaced() -> None:
    live = {"metadata": {"finalizers": ["a", "b"]}, "spec": {"containers": [{"name": "a", "args": ["1", "2"]}]}}
    manifest = {"metadata": {"finalizers": ["b", "c"]}, "spec": {"containers": [{"name": "a", "args": ["3"]}]}}
    assert applied(live, manifest, builtin_kinds()["", "v1", "pods"]) == {
        "metadata": {"finalizers": ["a", "b", "c"]},
        "spec": {"containers": [{"name": "a", "args": ["3"]}]},
    }


def test_atomic_objects_are_replaced_and_others_merge() -> None:
    live = {"nodeSelector": {"a": "1"}, "securityContext": {"runAsUser": 1}}
    manifest = {"nodeSelector": {"b": "2"}, "securityContext": {"fsGroup": 2}}
    assert builtin(live, manifest) == {
        "nodeSelector": {"b": "2"},
        "securityContext": {"runAsUser": 1, "fsGroup": 2},
    }


def test_a_selector_is_one_piece() -> None:
    assert builtin(
        {"selector": {"matchLabels": {"a": "1"}}}, {"selector": {"matchLabels": {"b": "2"}}}, "apps", "deployments"
    ) == {"selector": {"matchLabels": {"b": "2"}}}


def test_nothing_that_the_manifest_leaves_out_goes_and_nulls_say_nothing() -> None:
    assert builtin(
        {"nodeName": "n", "hostname": "h"}, {"hostname": None, "subdomain": "s", "affinity": {"podAffinity": None}}
    ) == {
        "nodeName": "n",
        "hostname": "h",
        "subdomain": "s",
        "affinity": {},
    }


def test_custom_kinds_merge_by_the_marks_of_their_schema() -> None:
    live = {"hosts": [{"host": "a", "port": 1, "x": 1}, {"host": "a", "port": 2}], "tags": ["p"], "plain": [1]}
    manifest = {"hosts": [{"host": "a", "port": 1, "y": 2}], "tags": ["q"], "plain": [2]}
    assert custom(live, manifest) == {
        "hosts": [{"host": "a", "port": 1, "x": 1, "y": 2}, {"host": "a", "port": 2}],
        "tags": ["p", "q"],
        "plain": [2],
    }
    assert custom({"whole": {"a": 1}, "byName": {"k": [1]}}, {"whole": {"b": 2}, "byName": {"k": [2]}}) == {
        "whole": {"b": 2},
        "byName": {"k": [1, 2]},
    }


def test_the_metadata_of_custom_kinds_merges_like_any_other() -> None:
    live = {"metadata": {"finalizers": ["a"], "ownerReferences": [{"uid": "1"}]}}
    manifest = {"metadata": {"finalizers": ["b"], "ownerReferences": [{"uid": "2"}], "labels": {"x": "y"}}}
    assert applied(live, manifest, WIDGET) == {
        "metadata": {"finalizers": ["a", "b"], "ownerReferences": [{"uid": "1"}, {"uid": "2"}], "labels": {"x": "y"}}
    }


def test_a_custom_kind_without_a_schema_merges_objects_and_replaces_lists() -> None:
    bare = Kind("example.com", "v1", "Bare", "bares", "bare", "BareList", True, (), custom=CustomKind())
    assert applied({"spec": {"a": [1], "b": {"c": 1}}}, {"spec": {"a": [2], "b": {"d": 2}}}, bare) == {
        "spec": {"a": [2], "b": {"c": 1, "d": 2}}
    }


def test_a_manifest_may_be_yaml() -> None:
    result = apply_patch(WIDGET, APPLY_PATCH, b"spec:\n  tags:\n  - q\n", {"spec": {"tags": ["p"]}})
    assert result == {"spec": {"tags": ["p", "q"]}}


def test_two_documents_are_refused() -> None:
    with pytest.raises(BadRequest, match="another document"):
        apply_patch(WIDGET, APPLY_PATCH, b"a: 1\n---\nb: 2\n", {})


NAMES = st.lists(st.sampled_from("abcd"), unique=True, max_size=4)


@given(NAMES, NAMES)
def test_applying_twice_changes_nothing_more(stored: list[str], wanted: list[str]) -> None:
    manifest = {"containers": [{"name": name, "image": "new"} for name in wanted]}
    once = builtin({"containers": [{"name": name} for name in stored]}, manifest)
    assert builtin(once, manifest) == once
    assert [item["name"] for item in once["containers"]] == stored + [name for name in wanted if name not in stored]
