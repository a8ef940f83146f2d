"""Server-side apply over HTTP: conflicts, force, removal, dry runs, subresources, and kubectl's migration."""

import json

import pytest
from tests.apiserver.conftest import CONFIG_MAPS

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def config_map(data=None, **metadata):
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", **metadata}}
    return {**document, "data": data} if data is not None else document


def apply(cluster, document, manager, path=f"{CONFIG_MAPS}/a", **query):
    return cluster.patch(path, document, "apply-patch+yaml", fieldManager=manager, **query)


def deployment(image="i", **spec):
    labels = {"app": "d"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": image}]}}
    spec = {"selector": {"matchLabels": labels}, "template": template, **spec}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec}


def test_a_conflict_names_managers_and_fields(cluster):
    cluster.post(CONFIG_MAPS, config_map({"x": "1", "y": "1"}), fieldManager="one")
    answer = apply(cluster, config_map({"x": "2"}), "two")
    assert answer.status_code == 409
    status = answer.json()
    assert status["message"] == 'Apply failed with 1 conflict: conflict with "one" using v1: .data.x'
    assert status["reason"] == "Conflict"
    assert status["details"] == {
        "causes": [{"reason": "FieldManagerConflict", "message": 'conflict with "one" using v1', "field": ".data.x"}]
    }
    assert apply(cluster, config_map({"x": "1", "y": "1"}), "three").is_success
    both = apply(cluster, config_map({"x": "2", "y": "2"}), "two").json()["message"]
    assert both == (
        'Apply failed with 4 conflicts: conflicts with "one" using v1:\n- .data.x\n- .data.y\n'
        'conflicts with "three":\n- .data.x\n- .data.y'
    )
    forced = apply(cluster, config_map({"x": "2"}), "two", force="true").json()
    assert forced["data"] == {"x": "2", "y": "1"}


def test_what_is_no_longer_applied_goes_unless_another_owns_it(cluster):
    assert apply(cluster, config_map({"x": "1", "y": "1", "z": "1"}), "one").status_code == 201
    assert apply(cluster, config_map({"y": "1"}), "two").status_code == 200
    assert apply(cluster, config_map({"x": "1"}), "one").json()["data"] == {"x": "1", "y": "1"}


def test_the_same_apply_again_writes_nothing(cluster):
    first = apply(cluster, deployment(replicas=2), "one", f"{DEPLOYMENTS}/d").json()
    assert apply(cluster, deployment(replicas=2), "one", f"{DEPLOYMENTS}/d").json() == first
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"k": "v"}}
    path = "/api/v1/namespaces/default/secrets/s"
    before = apply(cluster, secret, "one", path).json()
    assert apply(cluster, secret, "one", path).json() == before


def test_a_dry_run_says_what_would_be_and_stores_nothing(cluster):
    cluster.config_map("a", data={"x": "1"})
    before = cluster.get(f"{CONFIG_MAPS}/a").json()
    dry = apply(cluster, config_map({"y": "2"}), "two", dryRun="All").json()
    assert dry["data"] == {"x": "1", "y": "2"}
    assert "two" in [entry["manager"] for entry in dry["metadata"]["managedFields"]]
    assert cluster.get(f"{CONFIG_MAPS}/a").json() == before


def test_status_and_spec_are_applied_apart(cluster):
    created = apply(cluster, {**deployment(replicas=2), "status": {"replicas": 9}}, "one", f"{DEPLOYMENTS}/d")
    assert "status" not in created.json()
    status = {**deployment(replicas=7), "status": {"replicas": 1}}
    answer = apply(cluster, status, "ctl", f"{DEPLOYMENTS}/d/status").json()
    assert (answer["spec"]["replicas"], answer["status"]) == (2, {"replicas": 1})
    [entry] = [entry for entry in answer["metadata"]["managedFields"] if entry.get("subresource")]
    assert entry["fieldsV1"] == {"f:status": {"f:replicas": {}}}
    assert apply(cluster, deployment(replicas=3), "one", f"{DEPLOYMENTS}/d").json()["status"] == {"replicas": 1}
    assert apply(cluster, deployment(), "x", f"{DEPLOYMENTS}/none/status").status_code in {400, 404}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"metadata": {"name": "a", "managedFields": []}}, "metadata.managedFields must be nil"),
        ({"kind": "Secret"}, "invalid object type: /v1, Kind=Secret"),
        ({"apiVersion": "v2"}, "invalid object type: /v2, Kind=ConfigMap"),
        (
            {"dta": {}},
            "failed to create typed patch object (a; /v1, Kind=ConfigMap): .dta: field not declared in schema",
        ),
    ],
)
def test_what_cannot_be_applied_is_refused(cluster, change, words):
    answer = apply(cluster, {**config_map({"x": "1"}), **change}, "one")
    assert (answer.status_code, answer.json()["message"]) == (400, words)


def test_the_first_apply_finds_the_owner_of_what_was_there_before(cluster):
    cluster.config_map("a", data={"x": "1"})
    cluster.patch(f"{CONFIG_MAPS}/a", {"metadata": {"managedFields": []}})
    answer = apply(cluster, config_map({"x": "2"}), "one")
    assert (
        answer.json()["message"] == 'Apply failed with 1 conflict: conflict with "before-first-apply" using v1: .data.x'
    )


def test_kubectl_takes_over_what_it_applied_from_the_client_side(cluster):
    applied = config_map({"x": "1"})
    before = config_map({"x": "1"}, annotations={LAST_APPLIED: json.dumps(applied)})
    cluster.post(CONFIG_MAPS, before, fieldManager="kubectl-client-side-apply")
    assert apply(cluster, config_map({"x": "2"}), "other").status_code == 409
    answer = apply(cluster, config_map({"x": "2"}), "kubectl")
    assert answer.json()["data"] == {"x": "2"}
    assert json.loads(answer.json()["metadata"]["annotations"][LAST_APPLIED]) == config_map({"x": "2"})


def test_a_version_in_the_manifest_is_a_precondition(cluster):
    made = cluster.config_map("a", data={"x": "1"})
    cluster.patch(f"{CONFIG_MAPS}/a", {"data": {"x": "2"}})
    old = config_map({"y": "1"}, resourceVersion=made["metadata"]["resourceVersion"])
    assert apply(cluster, old, "one", force="true").status_code == 409
