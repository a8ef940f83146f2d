"""Custom resources over HTTP: served at once, per cluster, and gone with their definition."""

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"


def definition(*, scope="Namespaced", versions=("v1",), subresources=None, plural="widgets", kind="Widget"):
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "metadata": {"name": f"{plural}.example.com"},
        "spec": {
            "group": "example.com",
            "scope": scope,
            "names": {"plural": plural, "kind": kind},
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": version == versions[0],
                    "schema": schema,
                    "subresources": subresources or {},
                }
                for version in versions
            ],
        },
    }


def _define(cluster, **fields):
    answer = cluster.post(DEFINITIONS, definition(**fields))
    assert answer.status_code == 201, answer.text
    return answer.json()


def test_a_defined_kind_is_served_by_the_next_request(cluster):
    created = _define(cluster)
    conditions = {one["type"]: one["status"] for one in created["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}
    answer = cluster.post(WIDGETS, {"metadata": {"name": "w"}, "spec": {"a": 1}})
    assert answer.status_code == 201
    assert answer.json()["kind"] == "Widget"
    assert answer.json()["metadata"]["generation"] == 1
    listed = cluster.get(WIDGETS).json()
    assert listed["kind"] == "WidgetList"
    assert len(listed["items"]) == 1


def test_a_definition_serves_its_own_cluster_alone(live):
    one, ten = live.cluster("crd1"), live.cluster("crd10")
    _define(one)
    assert ten.get(WIDGETS).status_code == 404
    _define(ten, scope="Cluster")
    one.post(WIDGETS, {"metadata": {"name": "mine"}})
    ten.post("/apis/example.com/v1/widgets", {"metadata": {"name": "theirs"}})
    assert [item["metadata"]["name"] for item in one.get(WIDGETS).json()["items"]] == ["mine"]
    theirs = ten.get("/apis/example.com/v1/widgets").json()["items"]
    assert [item["metadata"]["name"] for item in theirs] == ["theirs"]
    assert "namespace" not in theirs[0]["metadata"]


def test_versions_share_their_objects_and_answer_in_their_own_name(cluster):
    _define(cluster, versions=("v2", "v1"))
    cluster.post(WIDGETS, {"metadata": {"name": "w"}, "spec": {"a": 1}})
    in_v2 = WIDGETS.replace("/v1/", "/v2/")
    first, second = cluster.get(f"{WIDGETS}/w").json(), cluster.get(f"{in_v2}/w").json()
    assert first["apiVersion"] == "example.com/v1"
    assert second == {**first, "apiVersion": "example.com/v2"}
    listed = cluster.get(WIDGETS).json()
    assert listed["items"] == [first]
    assert cluster.put(f"{WIDGETS}/w", first).json() == first, "another version's name alone is no change"
    with cluster.watch(WIDGETS) as events:
        assert events.next()["object"] == first
        patched = cluster.patch(f"{in_v2}/w", {"spec": {"a": 2}}).json()
        assert events.next()["object"] == {**patched, "apiVersion": "example.com/v1"}


def test_a_custom_kind_takes_no_strategic_patch_and_no_update_without_version(cluster):
    _define(cluster)
    cluster.post(WIDGETS, {"metadata": {"name": "w"}})
    assert cluster.patch(f"{WIDGETS}/w", {}, "strategic-merge-patch+json").status_code == 415
    answer = cluster.put(f"{WIDGETS}/w", {"metadata": {"name": "w"}})
    assert answer.status_code == 422
    assert "metadata.resourceVersion: Invalid value: 0: must be specified for an update" in answer.json()["message"]


def test_a_status_subresource_splits_status_from_the_rest(cluster):
    _define(cluster, subresources={"status": {}})
    created = cluster.post(WIDGETS, {"metadata": {"name": "w"}, "spec": {"a": 1}, "status": {"x": 1}}).json()
    assert "status" not in created
    by_status = cluster.patch(f"{WIDGETS}/w/status", {"spec": {"a": 2}, "status": {"x": 2}}).json()
    assert (by_status["spec"], by_status["status"]) == ({"a": 1}, {"x": 2})
    assert by_status["metadata"]["generation"] == 1


def test_deleting_a_definition_deletes_its_objects_once_nothing_holds_them(cluster, eventually):
    _define(cluster)
    cluster.post(WIDGETS, {"metadata": {"name": "free"}})
    cluster.post(WIDGETS, {"metadata": {"name": "held", "finalizers": ["example.com/hold"]}})
    deleted = cluster.delete(f"{DEFINITIONS}/widgets.example.com")
    assert deleted.status_code == 200
    assert deleted.json()["metadata"]["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]
    eventually(lambda: cluster.get(f"{WIDGETS}/free").status_code == 404)
    assert cluster.get(f"{DEFINITIONS}/widgets.example.com").status_code == 200
    cluster.patch(f"{WIDGETS}/held", {"metadata": {"finalizers": None}})
    eventually(lambda: cluster.get(f"{DEFINITIONS}/widgets.example.com").status_code == 404)
    assert cluster.get(WIDGETS).status_code == 404
    assert cluster.server.keys(f"/widgets/clusters/{cluster.name}/") == []
    _define(cluster)
    assert cluster.get(WIDGETS).json()["items"] == []


def test_a_name_that_becomes_free_is_given_to_the_definition_that_waits_for_it(cluster, eventually):
    _define(cluster)
    waiting = _define(cluster, plural="gadgets", kind="Widget")
    conditions = {one["type"]: one["status"] for one in waiting["status"]["conditions"]}
    assert conditions["NamesAccepted"] == "False"
    assert cluster.get("/apis/example.com/v1/gadgets").status_code == 404
    cluster.delete(f"{DEFINITIONS}/widgets.example.com")
    eventually(lambda: cluster.get("/apis/example.com/v1/gadgets").status_code == 200)


def test_a_deleted_cluster_takes_definitions_and_their_objects_along(serve, eventually):
    server = serve()
    cluster = server.cluster("c1")
    _define(cluster)
    cluster.post(WIDGETS, {"metadata": {"name": "w", "finalizers": ["example.com/hold"]}})
    server.client.delete("/apis/kplane.dev/v1/clusters/c1")
    eventually(lambda: server.keys("/clusters/c1/") == [])
    eventually(lambda: server.client.get("/apis/kplane.dev/v1/clusters/c1").status_code == 404)
    assert cluster.get(WIDGETS).status_code == 404


def test_a_deprecated_version_warns_in_a_header(cluster):
    document = definition(versions=("v2", "v1"))
    document["spec"]["versions"][1].update(deprecated=True, deprecationWarning='use "v2"')
    cluster.post(DEFINITIONS, document)
    assert cluster.get(WIDGETS).headers["warning"] == '299 - "use \\"v2\\""'
    assert "warning" not in cluster.get(WIDGETS.replace("/v1/", "/v2/")).headers


def test_without_a_status_subresource_status_is_a_field_like_any_other(cluster):
    _define(cluster)
    created = cluster.post(WIDGETS, {"metadata": {"name": "w"}, "status": {"x": 1}}).json()
    assert created["status"] == {"x": 1}
    patched = cluster.patch(f"{WIDGETS}/w", {"status": {"x": 2}}).json()
    assert patched["status"] == {"x": 2}
    assert patched["metadata"]["generation"] == 2
    assert cluster.get(f"{WIDGETS}/w/status").status_code == 404
