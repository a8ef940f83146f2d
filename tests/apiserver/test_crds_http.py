"""Custom kinds over HTTP: installed, served, changed and removed while the server runs, each cluster for itself."""

import time
from collections.abc import Callable
from typing import Any

import pytest

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
THINGS = "/apis/example.com/v1/namespaces/default/things"
TABLE = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
AGGREGATED = {"accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"}


def version(name: str, *, storage: bool = False, **fields: Any) -> dict[str, Any]:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {"name": name, "served": True, "storage": storage, "schema": {"openAPIV3Schema": schema}} | fields


def crd(plural: str = "things", kind: str = "Thing", **names: Any) -> dict[str, Any]:
    columns = [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}]
    return {
        "metadata": {"name": f"{plural}.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind} | names,
            "versions": [version("v1", storage=True, additionalPrinterColumns=columns, subresources={"status": {}})],
        },
    }


def thing(name: str, **fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **fields.pop("metadata", {})}, "spec": {"size": 3}, **fields}


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_kind_is_served_from_the_answer_to_its_definition_on(cluster, live) -> None:
    assert cluster.get(THINGS).status_code == 404
    created = cluster.post(DEFINITIONS, crd())
    assert created.status_code == 201, created.text
    conditions = {entry["type"]: entry["status"] for entry in created.json()["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}
    assert cluster.post(THINGS, thing("a")).status_code == 201
    assert cluster.get(THINGS).json()["kind"] == "ThingList"
    groups = {item["metadata"]["name"] for item in cluster.request("GET", "/apis", headers=AGGREGATED).json()["items"]}
    assert "example.com" in groups
    assert "apis/example.com/v1" in cluster.get("/openapi/v3").json()["paths"]
    other = live.cluster()
    assert other.get(THINGS).status_code == 404
    assert other.post(DEFINITIONS, crd()).status_code == 201
    assert other.get(THINGS).json()["items"] == []


def test_its_columns_are_printed(cluster) -> None:
    cluster.post(DEFINITIONS, crd())
    cluster.post(THINGS, thing("a"))
    for path in (THINGS, f"{THINGS}/a"):
        table = cluster.request("GET", path, headers=TABLE).json()
        assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Size"]
        assert table["rows"][0]["cells"] == ["a", 3]
        assert table["rows"][0]["object"]["metadata"]["name"] == "a"


def test_a_bad_definition_is_refused_with_a_cause_per_fault(cluster) -> None:
    bad = crd()
    bad["spec"] |= {"scope": "Galaxy", "versions": [version("v1")]}
    answer = cluster.post(DEFINITIONS, bad)
    assert answer.status_code == 422
    fields = [cause["field"] for cause in answer.json()["details"]["causes"]]
    assert fields == ["spec.scope", "spec.versions"]
    assert cluster.get(f"{DEFINITIONS}/things.example.com").status_code == 404


def test_a_changed_definition_serves_its_new_version(cluster) -> None:
    cluster.post(DEFINITIONS, crd())
    cluster.post(THINGS, thing("a"))
    versions = [version("v1", storage=True), version("v2")]
    changed = cluster.patch(f"{DEFINITIONS}/things.example.com", {"spec": {"versions": versions}})
    assert changed.status_code == 200, changed.text
    assert cluster.get(f"{THINGS}/a".replace("v1", "v2")).json()["apiVersion"] == "example.com/v2"
    assert cluster.patch(f"{DEFINITIONS}/things.example.com", {"spec": {"scope": "Cluster"}}).status_code == 422


def test_a_status_that_a_client_writes_does_not_stop_the_kind(cluster) -> None:
    cluster.post(DEFINITIONS, crd())
    extra = {"status": {"storedVersions": ["v1"]}}
    assert cluster.patch(f"{DEFINITIONS}/things.example.com/status", extra).status_code == 200
    assert cluster.get(THINGS).status_code == 200


def test_a_tenants_definition_puts_nothing_among_the_clusters_of_the_root(cluster, live) -> None:
    document = crd("clusters", "Cluster", listKind="ClusterList", singular="cluster")
    document["metadata"]["name"] = "clusters.kplane.dev"
    document["spec"] |= {"group": "kplane.dev", "scope": "Cluster", "versions": [version("v2", storage=True)]}
    made = cluster.post(DEFINITIONS, document).json()
    conditions = {entry["type"]: entry["status"] for entry in made["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "False", "Established": "False"}
    forged = [{"type": name, "status": "True"} for name in conditions]
    status = {"status": {"acceptedNames": made["spec"]["names"], "storedVersions": ["v2"], "conditions": forged}}
    assert cluster.patch(f"{DEFINITIONS}/clusters.kplane.dev/status", status).status_code == 200
    assert cluster.post("/apis/kplane.dev/v2/clusters", {"metadata": {"name": "c2"}}).status_code == 404
    assert live.keys(f"/kplane.dev/clusters/clusters/{cluster.name}/") == []


def test_a_removed_definition_takes_its_objects_along(cluster, live) -> None:
    other = live.cluster()
    for one in (cluster, other):
        one.post(DEFINITIONS, crd())
        one.post(THINGS, thing("a"))
    assert cluster.delete(f"{DEFINITIONS}/things.example.com").status_code == 200
    until(lambda: cluster.get(THINGS).status_code == 404)
    assert live.keys(f"/things/clusters/{cluster.name}/") == []
    assert other.get(f"{THINGS}/a").status_code == 200
    cluster.post(DEFINITIONS, crd())
    assert cluster.get(THINGS).json()["items"] == []


def test_a_definition_waits_for_the_finalizers_of_its_objects(cluster) -> None:
    cluster.post(DEFINITIONS, crd())
    cluster.post(THINGS, thing("held", metadata={"finalizers": ["example.com/wait"]}))
    cluster.post(THINGS, thing("free"))
    cluster.delete(f"{DEFINITIONS}/things.example.com")
    until(lambda: len(cluster.get(THINGS).json()["items"]) == 1)
    assert "deletionTimestamp" in cluster.get(f"{THINGS}/held").json()["metadata"]
    assert cluster.get(f"{DEFINITIONS}/things.example.com").status_code == 200
    cluster.patch(f"{THINGS}/held", {"metadata": {"finalizers": None}})
    until(lambda: cluster.get(f"{DEFINITIONS}/things.example.com").status_code == 404)


def test_a_definition_that_waits_for_a_name_is_served_once_it_is_free(cluster) -> None:
    cluster.post(DEFINITIONS, crd())
    second = cluster.post(DEFINITIONS, crd("others", "Thing")).json()
    assert second["status"]["conditions"][0]["reason"] == "ListKindConflict"
    others = THINGS.replace("things", "others")
    assert cluster.get(others).status_code == 404
    cluster.delete(f"{DEFINITIONS}/things.example.com")
    until(lambda: cluster.get(others).status_code == 200)


@pytest.mark.parametrize("spec", [None, [], "x", {"versions": 3}])
def test_a_definition_of_the_wrong_shape_is_refused_and_the_server_goes_on(cluster, spec: Any) -> None:
    answer = cluster.post(DEFINITIONS, {"metadata": {"name": "things.example.com"}, "spec": spec})
    assert answer.status_code in (400, 422)
    assert answer.json()["kind"] == "Status"
    assert cluster.get(DEFINITIONS).json()["items"] == []
