"""Who set which field stands in `metadata.managedFields`, whatever kind of write it was."""

import pytest
from tests.apiserver.conftest import CONFIG_MAPS

from kplane_apiserver.apply import Tracking
from kplane_apiserver.apply.managers import UPDATE, Entry, Manager, cap_updaters, manager_name
from kplane_apiserver.kinds import builtin_kinds

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
LABELS = {"app": "d"}


def deployment():
    container = {"name": "c", "image": "i", "ports": [{"containerPort": 80}], "env": [{"name": "A", "value": "1"}]}
    template = {"metadata": {"labels": LABELS}, "spec": {"containers": [container]}}
    spec = {"replicas": 1, "selector": {"matchLabels": LABELS}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec}


def entries(answer):
    assert answer.is_success, answer.text
    return answer.json()["metadata"].get("managedFields", [])


def test_a_create_is_recorded_as_upstream_records_it(cluster):
    [entry] = entries(cluster.post(DEPLOYMENTS, deployment(), fieldManager="me"))
    assert entry.pop("time") == cluster.get(f"{DEPLOYMENTS}/d").json()["metadata"]["creationTimestamp"]
    named = {".": {}, "f:name": {}, "f:value": {}}
    container = {
        ".": {},
        "f:name": {},
        "f:image": {},
        "f:env": {".": {}, 'k:{"name":"A"}': named},
        "f:ports": {".": {}, 'k:{"containerPort":80,"protocol":"TCP"}': {".": {}, "f:containerPort": {}}},
    }
    template = {
        "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
        "f:spec": {"f:containers": {'k:{"name":"c"}': container}},
    }
    assert entry == {
        "manager": "me",
        "operation": "Update",
        "apiVersion": "apps/v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": {"f:replicas": {}, "f:selector": {}, "f:template": template}},
    }


def test_a_client_without_a_name_goes_by_its_user_agent(cluster):
    created = cluster.request(
        "POST", CONFIG_MAPS, json={"metadata": {"name": "a"}, "data": {"k": "v"}}, headers={"user-agent": "tool/v1 (x)"}
    )
    assert [entry["manager"] for entry in entries(created)] == ["tool"]


@pytest.mark.parametrize(
    ("given", "agent", "name"),
    [("m", "x/1", "m"), ("", "x/1 y", "x"), ("", "a\tb", "ab"), ("", "", "unknown"), ("", "é" * 100, "é" * 64)],
)
def test_names_of_managers(given, agent, name):
    assert manager_name(given, agent) == name


def test_updates_take_fields_over_and_one_manager_has_one_entry(cluster):
    cluster.post(CONFIG_MAPS, {"metadata": {"name": "a"}, "data": {"x": "1", "y": "1"}}, fieldManager="one")
    changed = cluster.put(
        f"{CONFIG_MAPS}/a", {"metadata": {"name": "a"}, "data": {"x": "1", "y": "2"}}, fieldManager="two"
    )
    owned = {entry["manager"]: entry["fieldsV1"] for entry in entries(changed)}
    assert owned == {"one": {"f:data": {".": {}, "f:x": {}}}, "two": {"f:data": {"f:y": {}}}}
    patched = cluster.patch(f"{CONFIG_MAPS}/a", {"data": {"z": "1", "x": None}}, fieldManager="two")
    owned = {entry["manager"]: entry["fieldsV1"] for entry in entries(patched)}
    assert owned == {"one": {"f:data": {}}, "two": {"f:data": {"f:y": {}, "f:z": {}}}}


def test_a_write_that_changes_nothing_changes_no_entry_and_no_version(cluster):
    before = cluster.post(CONFIG_MAPS, {"metadata": {"name": "a"}, "data": {"x": "1"}}, fieldManager="one").json()
    same = {"metadata": {"name": "a"}, "data": {"x": "1"}}
    assert cluster.put(f"{CONFIG_MAPS}/a", same, fieldManager="two").json()["metadata"] == before["metadata"]
    assert cluster.patch(f"{CONFIG_MAPS}/a", {"data": {"x": "1"}}, fieldManager="two").json() == before


def test_subresources_have_entries_of_their_own(cluster):
    cluster.post(DEPLOYMENTS, deployment(), fieldManager="me")
    cluster.patch(f"{DEPLOYMENTS}/d/status", {"status": {"replicas": 1}}, fieldManager="ctl")
    scale = {"spec": {"replicas": 4}}
    assert cluster.patch(f"{DEPLOYMENTS}/d/scale", scale, fieldManager="auto").is_success
    found = {
        (one["manager"], one.get("subresource")): one["fieldsV1"] for one in entries(cluster.get(f"{DEPLOYMENTS}/d"))
    }
    assert found["ctl", "status"] == {"f:status": {"f:replicas": {}}}
    assert found["auto", "scale"] == {"f:spec": {"f:replicas": {}}}
    assert "f:replicas" not in found["me", None]["f:spec"]


@pytest.mark.parametrize("nothing", [[], [{}]])
def test_an_empty_list_ends_the_recording(cluster, nothing):
    cluster.config_map("a", data={"x": "1"})
    cleared = cluster.patch(f"{CONFIG_MAPS}/a", {"metadata": {"managedFields": nothing}})
    assert "managedFields" not in cleared.json()["metadata"]
    assert entries(cluster.patch(f"{CONFIG_MAPS}/a", {"data": {"x": "2"}})) == []


def test_entries_can_be_rewritten_as_kubectl_does_when_it_migrates(cluster):
    [entry] = entries(cluster.post(CONFIG_MAPS, {"metadata": {"name": "a"}, "data": {"x": "1"}}, fieldManager="old"))
    replaced = [
        {
            "op": "replace",
            "path": "/metadata/managedFields",
            "value": [{**entry, "operation": "Apply", "manager": "new"}],
        }
    ]
    answer = cluster.patch(f"{CONFIG_MAPS}/a", replaced, "json-patch+json")
    assert [(one["manager"], one["operation"]) for one in entries(answer)] == [("new", "Apply")]


@pytest.mark.parametrize(
    "broken",
    [
        [{"manager": "x", "operation": "Delete", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {}}],
        [{"manager": "x", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:a": 1}}],
        [
            {
                "manager": "x",
                "operation": "Update",
                "apiVersion": "v1",
                "fieldsType": "FieldsV1",
                "fieldsV1": {"k:nope": {}},
            }
        ],
        [{"manager": 1, "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1"}],
        ["x"],
        {"a": 1},
    ],
)
def test_entries_that_cannot_be_read_are_passed_over(cluster, broken):
    before = cluster.config_map("a", data={"x": "1"})["metadata"]["managedFields"]
    answer = cluster.patch(f"{CONFIG_MAPS}/a", {"metadata": {"managedFields": broken}})
    assert entries(answer) == before


def test_more_than_ten_updaters_are_put_together():
    managed = {
        Manager(f"m{number:02}", UPDATE, "v1", ""): Entry("v1", {f"f:{number}": {}}, f"2026-01-01T00:00:{number:02}Z")
        for number in range(13)
    }
    cap_updaters(managed)
    assert len(managed) == 10
    bucket = managed[Manager("ancient-changes", UPDATE, "v1", "")]
    assert bucket.fields == {f"f:{number}": {} for number in range(4)}
    assert bucket.time == "2026-01-01T00:00:03Z"


def test_stored_entries_that_cannot_be_read_are_none():
    document = {"metadata": {"name": "a", "managedFields": [{"manager": "m", "fieldsV1": {"f:data": 1}}]}, "data": {}}
    new = {"metadata": {"name": "a"}, "data": {"x": "1"}}
    Tracking(builtin_kinds()["", "v1", "configmaps"], "me", "", "2026-01-01T00:00:00Z").updated(new, document, None)
    assert new["metadata"] == {"name": "a"}
