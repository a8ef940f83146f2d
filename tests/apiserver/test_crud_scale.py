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


@pytest.mark.parametrize(("replicas", "code"), [(-1, 422), (2**31, 422), ("3", 400), (True, 400), (1.5, 400)])
def test_replicas_are_a_whole_number(web, replicas, code):
    assert web.patch(f"{DEPLOYMENTS}/web/scale", {"spec": {"replicas": replicas}}).status_code == code


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
