"""Creating objects over HTTP."""

import re

import pytest

MAPS = "/api/v1/namespaces/default/configmaps"


def test_a_created_object_is_answered_as_it_is_then_read(cluster):
    answer = cluster.post(MAPS, {"metadata": {"name": "a", "labels": {"x": "y"}}, "data": {"k": "v"}})
    assert answer.status_code == 201
    assert answer.headers["content-type"] == "application/json"
    created = answer.json()
    assert created == cluster.get(f"{MAPS}/a").json()
    metadata = created.pop("metadata")
    assert created == {"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "v"}}
    assert metadata["name"] == "a"
    assert metadata["namespace"] == "default"
    assert metadata["labels"] == {"x": "y"}
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", metadata["uid"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", metadata["creationTimestamp"])
    assert int(metadata["resourceVersion"]) > 0
    assert "generation" not in metadata


def test_what_the_server_owns_is_not_the_clients_to_set(cluster):
    given = {
        "name": "a",
        "uid": "mine",
        "creationTimestamp": "2000-01-01T00:00:00Z",
        "deletionTimestamp": "2000-01-01T00:00:00Z",
        "generation": 7,
        "selfLink": "/x",
        "resourceVersion": "0",
        "managedFields": [{"manager": "m"}],
    }
    metadata = cluster.post(MAPS, {"metadata": given}).json()["metadata"]
    assert metadata["uid"] != "mine"
    assert metadata["creationTimestamp"] > "2020"
    assert not {"deletionTimestamp", "generation", "selfLink", "managedFields"} & metadata.keys()


def test_a_second_object_of_the_name_is_already_there(cluster):
    cluster.config_map("a")
    answer = cluster.post(MAPS, {"metadata": {"name": "a"}})
    assert answer.status_code == 409
    status = answer.json()
    assert status["reason"] == "AlreadyExists"
    assert status["message"] == 'configmaps "a" already exists'
    assert status["details"] == {"name": "a", "kind": "configmaps"}


def test_generated_names_add_five_letters_and_never_clash(cluster):
    names = {cluster.post(MAPS, {"metadata": {"generateName": "job-"}}).json()["metadata"]["name"] for _ in range(50)}
    assert len(names) == 50
    assert all(re.fullmatch(r"job-[a-z0-9]{5}", name) for name in names)
    long = cluster.post(MAPS, {"metadata": {"generateName": "x" * 80}}).json()["metadata"]["name"]
    assert len(long) == 63


def test_a_resource_version_on_create_is_refused(cluster):
    answer = cluster.post(MAPS, {"metadata": {"name": "a", "resourceVersion": "5"}})
    assert answer.status_code == 400
    assert answer.json()["message"] == "resourceVersion should not be set on objects to be created"


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (
            {"apiVersion": "v2", "metadata": {"name": "a"}},
            "the API version in the data (v2) does not match the expected API version (v1)",
        ),
        ({"kind": "Secret", "metadata": {"name": "a"}}, 'Secret in version "v1" cannot be handled as a ConfigMap'),
        (
            {"metadata": {"name": "a", "namespace": "other"}},
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        ({"metadata": ["a"]}, "metadata must be an object, not an array"),
        ([], "the body of the request must be an object"),
        ({"metadata": {"name": "a"}, "data": "x"}, "data must be an object, not a string"),
    ],
)
def test_a_body_that_is_not_what_the_url_names_is_400(cluster, document, message):
    answer = cluster.post(MAPS, document)
    assert answer.status_code == 400
    assert answer.json()["reason"] == "BadRequest"
    assert message in answer.json()["message"]


def test_a_namespace_that_does_not_exist_takes_nothing(cluster):
    answer = cluster.post("/api/v1/namespaces/nope/configmaps", {"metadata": {"name": "a"}})
    assert answer.status_code == 404
    assert answer.json()["message"] == 'namespaces "nope" not found'


def test_a_namespace_is_active_and_labelled_with_its_name(cluster):
    created = cluster.post("/api/v1/namespaces", {"metadata": {"name": "n"}}).json()
    assert created["metadata"]["labels"] == {"kubernetes.io/metadata.name": "n"}
    assert created["spec"] == {"finalizers": ["kubernetes"]}
    assert created["status"] == {"phase": "Active"}


def test_a_secrets_plain_data_is_folded_into_its_encoded_data(cluster):
    path = "/api/v1/namespaces/default/secrets"
    created = cluster.post(path, {"metadata": {"name": "s"}, "stringData": {"a": "b"}, "data": {"c": "ZA=="}}).json()
    assert created["data"] == {"a": "Yg==", "c": "ZA=="}
    assert created["type"] == "Opaque"
    assert "stringData" not in created
    updated = cluster.patch(f"{path}/s", {"stringData": {"a": "e"}}).json()
    assert updated["data"] == {"a": "ZQ==", "c": "ZA=="}


def test_a_status_on_create_is_dropped_and_generation_starts_at_one(cluster):
    path = "/apis/apps/v1/namespaces/default/deployments"
    created = cluster.post(path, {"metadata": {"name": "d"}, "spec": {"replicas": 1}, "status": {"replicas": 9}}).json()
    assert "status" not in created
    assert created["metadata"]["generation"] == 1


def test_nulls_of_builtin_kinds_are_left_out_as_a_typed_decode_has_it(cluster):
    created = cluster.post(
        MAPS, {"metadata": {"name": "a", "creationTimestamp": None, "labels": None}, "data": None}
    ).json()
    assert "data" not in created
    assert "labels" not in created["metadata"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "metadata.name: Required value: name or generateName is required"),
        ("A_b", 'metadata.name: Invalid value: "A_b": a lowercase RFC 1123 subdomain'),
        ("..", 'metadata.name: Invalid value: ".."'),
        ("a/b", 'metadata.name: Invalid value: "a/b"'),
        ("x" * 254, "must be no more than 253 characters"),
        ("a%2fb", 'metadata.name: Invalid value: "a%2fb"'),
    ],
)
def test_bad_names_are_422_with_a_cause_and_reach_no_store(cluster, name, words):
    answer = cluster.post(MAPS, {"metadata": {"name": name}})
    assert answer.status_code == 422
    status = answer.json()
    assert status["reason"] == "Invalid"
    assert words in status["message"]
    assert status["message"].startswith(f'ConfigMap "{name}" is invalid')
    assert status["details"]["causes"][0]["field"] == "metadata.name"
    assert cluster.get(MAPS).json()["items"] == []


@pytest.mark.parametrize(
    ("metadata", "field"),
    [
        ({"labels": {"a": "b c"}}, "metadata.labels"),
        ({"labels": {"-": "b"}}, "metadata.labels"),
        ({"labels": {"a": 1}}, "metadata.labels"),
        ({"labels": {"x/" * 2 + "y": "b"}}, "metadata.labels"),
        ({"labels": ["a"]}, "metadata.labels"),
        ({"annotations": {"a": True}}, "metadata.annotations"),
        ({"annotations": {"a": "x" * (256 * 1024)}}, "metadata.annotations"),
        ({"finalizers": ["no spaces please"]}, "metadata.finalizers"),
        ({"finalizers": "x"}, "metadata.finalizers"),
    ],
)
def test_bad_metadata_is_422_naming_the_field(cluster, metadata, field):
    answer = cluster.post(MAPS, {"metadata": {"name": "a", **metadata}})
    assert answer.status_code == 422
    assert answer.json()["details"]["causes"][0]["field"] == field


def test_names_follow_their_kinds_rules(cluster):
    services = "/api/v1/namespaces/default/services"
    assert cluster.post(services, {"metadata": {"name": "1a"}}).status_code == 422
    assert cluster.post(services, {"metadata": {"name": "a1"}}).status_code == 201
    assert cluster.post("/api/v1/namespaces", {"metadata": {"name": "a.b"}}).status_code == 422
    roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    assert cluster.post(roles, {"metadata": {"name": "system:Any_Thing"}}).status_code == 201
    assert cluster.get(f"{roles}/system:Any_Thing").status_code == 200


def test_dry_run_answers_as_if_and_changes_nothing(cluster):
    answer = cluster.post(MAPS, {"metadata": {"name": "a"}, "data": {"k": "v"}}, dryRun="All")
    assert answer.status_code == 201
    assert answer.json()["data"] == {"k": "v"}
    assert answer.json()["metadata"]["uid"]
    assert "resourceVersion" not in answer.json()["metadata"]
    assert cluster.get(f"{MAPS}/a").status_code == 404
    cluster.config_map("a")
    assert cluster.post(MAPS, {"metadata": {"name": "a"}}, dryRun="All").status_code == 409
    missing = "/api/v1/namespaces/nope/configmaps"
    assert cluster.post(missing, {"metadata": {"name": "a"}}, dryRun="All").status_code == 404


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"dryRun": "Some"}, 'dryRun: Unsupported value: "Some": supported values: "All"'),
        ({"fieldValidation": "Loose"}, 'fieldValidation: Unsupported value: "Loose"'),
        ({"fieldManager": "m" * 129}, "fieldManager: Too long"),
    ],
)
def test_unknown_write_options_are_422(cluster, query, message):
    answer = cluster.post(MAPS, {"metadata": {"name": "a"}}, **query)
    assert answer.status_code == 422
    assert answer.json()["details"]["kind"] == "CreateOptions"
    assert message in answer.json()["message"]


def test_events_expire_after_their_time(serve):
    cluster = serve(event_ttl=1).cluster()
    path = "/api/v1/namespaces/default/events"
    cluster.post(path, {"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": "p"}, "reason": "Started"})
    with cluster.watch(path) as events:
        seen = events.take(2)
    assert [event["type"] for event in seen] == ["ADDED", "DELETED"]
    assert cluster.get(f"{path}/e").status_code == 404


def test_yaml_bodies_are_read_and_yaml_is_answered_when_asked(cluster):
    headers = {"content-type": "application/yaml", "accept": "application/yaml"}
    body = "metadata:\n  name: a\ndata:\n  k: 'yes'\n"
    answer = cluster.request("POST", MAPS, content=body, headers=headers)
    assert answer.status_code == 201
    assert answer.headers["content-type"] == "application/yaml"
    assert "k: 'yes'" in answer.text
    assert cluster.get(f"{MAPS}/a").json()["data"] == {"k": "yes"}


def test_a_missing_content_type_means_json(cluster):
    answer = cluster.request("POST", MAPS, content=b'{"metadata":{"name":"a"}}')
    assert answer.status_code == 201


def test_an_unknown_content_type_is_415(cluster):
    answer = cluster.request("POST", MAPS, content=b"a=b", headers={"content-type": "text/csv"})
    assert answer.status_code == 415
    assert answer.json()["reason"] == "UnsupportedMediaType"
