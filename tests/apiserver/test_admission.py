"""What the server decides about objects before they are stored, as pure functions."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kplane_apiserver.clusters.admission import (
    has_finalizers,
    has_generation,
    prepare_create,
    prepare_deletion,
    prepare_status,
    prepare_update,
    without_nulls,
)
from kplane_apiserver.kinds import builtin_kinds
from kplane_core.errors import ApiError, InvalidError

NOW = "2026-01-02T03:04:05Z"
KINDS = builtin_kinds()
DEPLOYMENT = KINDS["apps", "v1", "deployments"]
NAMESPACE = KINDS["", "v1", "namespaces"]
CONFIG_MAP = KINDS["", "v1", "configmaps"]


def _stored(**fields):
    document = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, **fields}
    prepare_create(DEPLOYMENT, document, "default", NOW)
    return document


def test_every_builtin_kind_can_be_created():
    for kind in KINDS.values():
        needed = {"roleRef": {"kind": "ClusterRole", "name": "view"}} if kind.plural.endswith("rolebindings") else {}
        document = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "a"}, **needed}
        prepare_create(kind, document, "default" if kind.namespaced else "", NOW)
        assert document["metadata"]["creationTimestamp"] == NOW
        assert ("namespace" in document["metadata"]) is kind.namespaced


@pytest.mark.parametrize(
    ("key", "counts"),
    [
        (("apps", "v1", "deployments"), True),
        (("", "v1", "pods"), True),
        (("networking.k8s.io", "v1", "networkpolicies"), True),
        (("", "v1", "configmaps"), False),
        (("", "v1", "namespaces"), False),
        (("", "v1", "services"), False),
        (("", "v1", "secrets"), False),
    ],
)
def test_kinds_with_a_spec_that_somebody_acts_on_count_generations(key, counts):
    assert has_generation(KINDS[key]) is counts


def test_an_update_keeps_what_the_server_owns():
    old = _stored(spec={"replicas": 1}, status={"replicas": 0})
    old["status"] = {"replicas": 1}
    new = {"metadata": {"name": "d", "generation": 9, "managedFields": []}, "spec": {"replicas": 2}, "status": {}}
    prepare_update(DEPLOYMENT, new, old)
    assert new["metadata"]["uid"] == old["metadata"]["uid"]
    assert new["metadata"]["creationTimestamp"] == NOW
    assert new["metadata"]["generation"] == 2
    assert new["status"] == {"replicas": 1}


def test_an_update_is_the_same_when_it_is_prepared_again():
    old = _stored(spec={"replicas": 1})
    new = {"metadata": {"name": "d"}, "spec": {"replicas": 2}}
    prepare_update(DEPLOYMENT, new, old)
    once = copy.deepcopy(new)
    prepare_update(DEPLOYMENT, new, old)
    assert new == once


def test_a_uid_of_another_object_is_a_conflict():
    with pytest.raises(ApiError) as caught:
        prepare_update(DEPLOYMENT, {"metadata": {"name": "d", "uid": "x"}}, _stored())
    assert caught.value.status().code == 409


def test_a_status_update_changes_nothing_else():
    old = _stored(spec={"replicas": 1})
    result = prepare_status(DEPLOYMENT, {"metadata": {"labels": {"a": "b"}}, "spec": {}, "status": {"x": 1}}, old)
    assert result == {**old, "status": {"x": 1}}
    assert "status" not in prepare_status(DEPLOYMENT, {"metadata": {}}, result)


def test_deletion_marks_and_counts():
    document = _stored()
    prepare_deletion(DEPLOYMENT, document, NOW)
    assert document["metadata"]["deletionTimestamp"] == NOW
    assert document["metadata"]["deletionGracePeriodSeconds"] == 0
    assert document["metadata"]["generation"] == 2


def test_a_namespace_is_held_by_its_spec_too():
    document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}}
    prepare_create(NAMESPACE, document, "", NOW)
    assert has_finalizers(document)
    document["spec"] = {}
    assert not has_finalizers(document)
    document["metadata"]["finalizers"] = ["example.com/x"]
    assert has_finalizers(document)


def test_every_fault_is_told_at_once():
    document = {"metadata": {"name": "A", "labels": {"-": "v", "k": "!"}, "finalizers": [1]}}
    with pytest.raises(InvalidError) as caught:
        prepare_create(CONFIG_MAP, document, "default", NOW)
    assert len(caught.value.status().causes) == 4
    assert caught.value.status().message.startswith('ConfigMap "A" is invalid: [')


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)


@given(_JSON)
def test_no_member_is_null_once_nulls_are_left_out(value):
    def members(found):
        if isinstance(found, dict):
            assert None not in found.values()
            for member in found.values():
                members(member)
        elif isinstance(found, list):
            for member in found:
                members(member)

    members(without_nulls(value))
    assert without_nulls(without_nulls(value)) == without_nulls(value)
