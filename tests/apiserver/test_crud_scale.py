"""The scale subresource: replicas of builtin and custom kinds."""

import pytest

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


@pytest.fixture
def web(cluster):
    spec = {"selector": {"matchLabels": {"app": "web"}}}
    cluster.post(DEPLOYMENTS, {"metadata": {"name": "web"}, "spec": spec})
    return cluster


def test_a_scale_shows_replicas_and_selector(web):
    web.patch(f"{DEPLOYMENTS}/web/status", {"status": {"replicas": 3}})
    scale = web.get(f"{DEPLOYMENTS}/web/scale").json()
    metadata = scale.pop("metadata")
    assert scale == {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "spec": {"replicas": 1},
        "status": {"replicas": 3, "selector": "app=web"},
    }
    assert metadata["name"] == "web"
    assert metadata["resourceVersion"] == web.get(f"{DEPLOYMENTS}/web").json()["metadata"]["resourceVersion"]


def test_a_selector_of_expressions_is_written_as_a_query_would_be(cluster):
    expressions = [
        {"key": "a", "operator": "In", "values": ["y", "x"]},
        {"key": "b", "operator": "NotIn", "values": ["z"]},
        {"key": "c", "operator": "Exists"},
        {"key": "d", "operator": "DoesNotExist"},
    ]
    cluster.post(DEPLOYMENTS, {"metadata": {"name": "w"}, "spec": {"selector": {"matchExpressions": expressions}}})
    selector = cluster.get(f"{DEPLOYMENTS}/w/scale").json()["status"]["selector"]
    assert selector == "a in (x,y),b notin (z),c,!d"
    assert cluster.get(DEPLOYMENTS, labelSelector=selector).status_code == 200


@pytest.mark.parametrize("kind", ["merge-patch+json", "strategic-merge-patch+json"])
def test_a_patched_scale_changes_the_object(web, kind):
    answer = web.patch(f"{DEPLOYMENTS}/web/scale", {"spec": {"replicas": 5}}, kind)
    assert answer.status_code == 200
    assert answer.json()["spec"] == {"replicas": 5}
    deployment = web.get(f"{DEPLOYMENTS}/web").json()
    assert deployment["spec"] == {"selector": {"matchLabels": {"app": "web"}}, "replicas": 5}
    assert deployment["metadata"]["generation"] == 2
    assert answer.json()["metadata"]["resourceVersion"] == deployment["metadata"]["resourceVersion"]


def test_an_updated_scale_must_be_of_the_newest_version_and_of_this_object(web):
    scale = web.get(f"{DEPLOYMENTS}/web/scale").json()
    scale["spec"]["replicas"] = 2
    assert web.put(f"{DEPLOYMENTS}/web/scale", scale).status_code == 200
    assert web.put(f"{DEPLOYMENTS}/web/scale", scale).status_code == 409
    del scale["metadata"]["resourceVersion"]
    assert web.put(f"{DEPLOYMENTS}/web/scale", scale, dryRun="All").json()["spec"] == {"replicas": 2}
    scale["metadata"]["uid"] = "other"
    assert web.put(f"{DEPLOYMENTS}/web/scale", scale).status_code == 409
    scale["metadata"] = {"name": "else"}
    assert web.put(f"{DEPLOYMENTS}/web/scale", scale).status_code == 400
    assert web.put(f"{DEPLOYMENTS}/web/scale", {"kind": "Deployment"}).status_code == 400


@pytest.mark.parametrize(
    ("replicas", "code", "words"),
    [
        (-1, 422, "spec.replicas: Invalid value: -1: must be greater than or equal to 0"),
        *(
            (wrong, 400, 'Scale in version "v1" cannot be handled as a Scale: spec.replicas must be a whole number of ')
            for wrong in (2**31, "3", True, 1.5, {"secret": "word"})
        ),
    ],
)
def test_replicas_are_a_whole_number(web, replicas, code, words):
    answer = web.patch(f"{DEPLOYMENTS}/web/scale", {"spec": {"replicas": replicas}})
    assert answer.status_code == code
    assert words in answer.json()["message"]
    assert "secret" not in answer.text


def test_dry_run_scales_nothing(web):
    answer = web.patch(f"{DEPLOYMENTS}/web/scale", {"spec": {"replicas": 5}}, dryRun="All")
    assert answer.json()["spec"] == {"replicas": 5}
    assert "replicas" not in web.get(f"{DEPLOYMENTS}/web").json()["spec"]


def test_a_custom_kind_scales_by_the_paths_of_its_definition(cluster):
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.size.wanted",
                "statusReplicasPath": ".status.size",
                "labelSelectorPath": ".status.selector",
            },
        },
    }
    spec = {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "rings", "kind": "Ring"},
        "versions": [version],
    }
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    assert cluster.post(path, {"metadata": {"name": "rings.example.com"}, "spec": spec}).status_code == 201
    rings = "/apis/example.com/v1/namespaces/default/rings"
    cluster.post(rings, {"metadata": {"name": "r"}, "spec": {"colour": "red"}})
    cluster.patch(f"{rings}/r/status", {"status": {"size": 2, "selector": "ring=r"}})
    assert cluster.get(f"{rings}/r/scale").json()["spec"] == {}
    scaled = cluster.patch(f"{rings}/r/scale", {"spec": {"replicas": 4}}).json()
    assert scaled["spec"] == {"replicas": 4}
    assert scaled["status"] == {"replicas": 2, "selector": "ring=r"}
    assert cluster.get(f"{rings}/r").json()["spec"] == {"colour": "red", "size": {"wanted": 4}}


def test_what_cannot_be_scaled_has_no_scale(cluster):
    cluster.config_map("a")
    assert cluster.get("/api/v1/namespaces/default/configmaps/a/scale").status_code == 404
    assert cluster.get(f"{DEPLOYMENTS}/nope/scale").status_code == 404


# --- server-side apply ------------------------------------------------------------------------------------------------


SCALE = {"apiVersion": "autoscaling/v1", "kind": "Scale"}
OWNS_REPLICAS = {"f:spec": {"f:replicas": {}}}


def create(cluster, replicas=1, **metadata):
    spec = {"selector": {"matchLabels": {"app": "web"}}, "replicas": replicas}
    answer = cluster.post(DEPLOYMENTS, {"metadata": {"name": "web", **metadata}, "spec": spec}, fieldManager="creator")
    assert answer.status_code == 201


def apply_scale(cluster, replicas, manager, path=f"{DEPLOYMENTS}/web", metadata=None, **query):
    manifest = {**SCALE, "metadata": {"name": path.rpartition("/")[2], **(metadata or {})}}
    if replicas is not None:
        manifest["spec"] = {"replicas": replicas}
    return cluster.patch(f"{path}/scale", manifest, "apply-patch+yaml", fieldManager=manager, **query)


def owners(cluster, path=f"{DEPLOYMENTS}/web"):
    """Who owns the replicas: (manager, operation, apiVersion, subresource)."""
    return [
        (entry["manager"], entry["operation"], entry["apiVersion"], entry.get("subresource", ""))
        for entry in cluster.get(path).json()["metadata"]["managedFields"]
        if "f:replicas" in entry["fieldsV1"].get("f:spec", {})
    ]


def test_an_applied_scale_conflicts_with_who_set_the_replicas_and_can_be_forced(cluster):
    create(cluster)
    refused = apply_scale(cluster, 3, "scaler")
    assert refused.status_code == 409
    assert refused.json()["message"] == (
        'Apply failed with 1 conflict: conflict with "creator" using apps/v1: .spec.replicas'
    )
    assert cluster.get(f"{DEPLOYMENTS}/web").json()["spec"]["replicas"] == 1
    forced = apply_scale(cluster, 3, "scaler", force="true")
    assert (forced.status_code, forced.json()["kind"], forced.json()["spec"]) == (200, "Scale", {"replicas": 3})
    assert cluster.get(f"{DEPLOYMENTS}/web").json()["spec"]["replicas"] == 3
    assert owners(cluster) == [("scaler", "Apply", "apps/v1", "scale")]


def test_who_applies_the_replicas_that_are_there_shares_them(cluster):
    create(cluster)
    assert apply_scale(cluster, 1, "scaler").status_code == 200
    assert owners(cluster) == [("scaler", "Apply", "apps/v1", "scale"), ("creator", "Update", "apps/v1", "")]


def test_an_applied_scale_leaves_what_others_own_of_the_object(cluster):
    create(cluster, labels={"a": "b"})
    apply_scale(cluster, 3, "scaler", force="true")
    entries = {
        entry["manager"]: entry for entry in cluster.get(f"{DEPLOYMENTS}/web").json()["metadata"]["managedFields"]
    }
    assert entries["scaler"]["fieldsV1"] == OWNS_REPLICAS
    assert entries["scaler"]["time"]
    assert entries["creator"]["fieldsV1"]["f:metadata"] == {"f:labels": {".": {}, "f:a": {}}}
    assert "f:selector" in entries["creator"]["fieldsV1"]["f:spec"]


def test_a_later_update_takes_the_replicas_from_who_applied_them(cluster):
    create(cluster)
    apply_scale(cluster, 3, "scaler", force="true")
    cluster.patch(f"{DEPLOYMENTS}/web/scale", {"spec": {"replicas": 4}}, fieldManager="updater")
    assert owners(cluster) == [("updater", "Update", "apps/v1", "scale")]
    assert apply_scale(cluster, 3, "scaler").status_code == 409
    assert apply_scale(cluster, 4, "scaler").status_code == 200


def test_an_apply_of_the_object_conflicts_with_an_applied_scale(cluster):
    create(cluster)
    apply_scale(cluster, 3, "scaler", force="true")
    manifest = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": 9}}
    refused = cluster.patch(f"{DEPLOYMENTS}/web", manifest, "apply-patch+yaml", fieldManager="other")
    assert refused.status_code == 409
    assert refused.json()["message"].endswith('conflict with "scaler" with subresource "scale": .spec.replicas')


def test_applying_the_same_scale_again_changes_nothing(cluster):
    create(cluster)
    apply_scale(cluster, 3, "scaler", force="true")
    before = cluster.get(f"{DEPLOYMENTS}/web").json()
    assert apply_scale(cluster, 3, "scaler").status_code == 200
    assert cluster.get(f"{DEPLOYMENTS}/web").json() == before


def test_an_applied_scale_of_an_older_version_or_another_object_is_refused(cluster):
    create(cluster)
    old = cluster.get(f"{DEPLOYMENTS}/web").json()["metadata"]["resourceVersion"]
    cluster.patch(f"{DEPLOYMENTS}/web", {"metadata": {"labels": {"new": "er"}}})
    for metadata in ({"resourceVersion": old}, {"uid": "other"}):
        assert apply_scale(cluster, 1, "scaler", metadata=metadata, force="true").status_code == 409
    assert apply_scale(cluster, 1, "scaler", metadata={"name": "else"}).status_code == 400
    assert apply_scale(cluster, -1, "scaler", force="true").status_code == 422
    assert cluster.get(f"{DEPLOYMENTS}/web").json()["spec"]["replicas"] == 1


def test_an_applied_scale_needs_a_manager_and_an_object(cluster):
    assert apply_scale(cluster, 1, "scaler").status_code == 404
    create(cluster)
    refused = cluster.patch(f"{DEPLOYMENTS}/web/scale", {**SCALE, "spec": {"replicas": 1}}, "apply-patch+yaml")
    assert (refused.status_code, refused.json()["details"]["causes"][0]["field"]) == (422, "fieldManager")
    wrong = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}}
    assert cluster.patch(f"{DEPLOYMENTS}/web/scale", wrong, "apply-patch+yaml", fieldManager="a").status_code == 400


def test_a_dry_run_of_an_applied_scale_records_nothing(cluster):
    create(cluster)
    before = cluster.get(f"{DEPLOYMENTS}/web").json()
    answer = apply_scale(cluster, 3, "scaler", force="true", dryRun="All")
    assert (answer.status_code, answer.json()["spec"]) == (200, {"replicas": 3})
    assert cluster.get(f"{DEPLOYMENTS}/web").json() == before


def test_the_applied_scale_of_a_custom_kind_owns_the_field_of_its_definition(cluster):
    scale = {"specReplicasPath": ".spec.size.wanted", "statusReplicasPath": ".status.size"}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
        "subresources": {"scale": scale},
    }
    names = {"plural": "knots", "kind": "Knot"}
    spec = {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]}
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    assert cluster.post(path, {"metadata": {"name": "knots.example.com"}, "spec": spec}).status_code == 201
    knots = "/apis/example.com/v1/namespaces/default/knots"
    size = {"size": {"wanted": 1}}
    knot = {"apiVersion": "example.com/v1", "kind": "Knot", "metadata": {"name": "k"}, "spec": size}
    cluster.post(knots, knot, fieldManager="creator")
    refused = apply_scale(cluster, 2, "scaler", f"{knots}/k")
    assert 'conflict with "creator" using example.com/v1: .spec.replicas' in refused.json()["message"]
    assert apply_scale(cluster, 2, "scaler", f"{knots}/k", force="true").status_code == 200
    found = cluster.get(f"{knots}/k").json()
    assert found["spec"] == {"size": {"wanted": 2}}
    (entry,) = [entry for entry in found["metadata"]["managedFields"] if entry["manager"] == "scaler"]
    assert entry["fieldsV1"] == {"f:spec": {"f:size": {"f:wanted": {}}}}
