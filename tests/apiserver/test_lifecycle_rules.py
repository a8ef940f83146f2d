"""What ConfigMaps and Secrets may hold, what of them may change, and what every namespace begins with."""

import base64
import itertools
import time

import pytest

MAPS = "/api/v1/namespaces/default/configmaps"
SECRETS = "/api/v1/namespaces/default/secrets"
FIXED = "Forbidden: field is immutable when `immutable` is set"


def encoded(text):
    return base64.b64encode(text.encode()).decode()


def causes(answer):
    assert answer.status_code == 422, answer.text
    return [(one["field"], one["message"]) for one in answer.json()["details"]["causes"]]


def test_an_immutable_config_map_keeps_its_data_and_stays_immutable(cluster):
    cluster.config_map("a", data={"k": "v"}, immutable=True)
    assert causes(cluster.patch(f"{MAPS}/a", {"data": {"k": "w"}})) == [("data", FIXED)]
    assert causes(cluster.patch(f"{MAPS}/a", {"binaryData": {"b": "AA=="}})) == [("binaryData", FIXED)]
    assert causes(cluster.patch(f"{MAPS}/a", {"immutable": False})) == [("immutable", FIXED)]
    assert cluster.patch(f"{MAPS}/a", {"metadata": {"labels": {"a": "b"}}}).status_code == 200
    assert cluster.delete(f"{MAPS}/a").status_code == 200


def test_a_config_map_can_be_made_immutable_later(cluster):
    cluster.config_map("a", data={"k": "v"})
    assert cluster.patch(f"{MAPS}/a", {"data": {"k": "w"}, "immutable": True}).status_code == 200
    assert causes(cluster.patch(f"{MAPS}/a", {"data": {"k": "x"}})) == [("data", FIXED)]


def test_an_immutable_secret_keeps_its_data_and_every_secret_its_type(cluster):
    secret = {"metadata": {"name": "s"}, "stringData": {"k": "v"}, "immutable": True}
    assert cluster.post(SECRETS, secret).status_code == 201
    assert causes(cluster.patch(f"{SECRETS}/s", {"stringData": {"k": "w"}})) == [("data", FIXED)]
    assert cluster.patch(f"{SECRETS}/s", {"stringData": {"k": "v"}}).status_code == 200
    changed = causes(cluster.patch(f"{SECRETS}/s", {"type": "example.com/other"}))
    assert changed == [("type", 'Invalid value: "example.com/other": field is immutable')]


def test_a_mebibyte_is_the_most_that_they_hold(cluster):
    assert cluster.post(MAPS, {"metadata": {"name": "a"}, "data": {"k": "x" * 1024 * 1024}}).status_code == 201
    more = {"metadata": {"name": "b"}, "data": {"k": "x" * 1024 * 1024}, "binaryData": {"b": "AA=="}}
    assert causes(cluster.post(MAPS, more)) == [("[]", "Too long: may not be more than 1048576 bytes")]
    wide = {"metadata": {"name": "b"}, "data": {"k": "\u00e9" * 600 * 1024}}
    assert cluster.post(MAPS, wide).status_code == 422
    assert cluster.post(SECRETS, {"metadata": {"name": "a"}, "stringData": {"k": "x" * 1024 * 1024}}).status_code == 201
    big = {"metadata": {"name": "b"}, "data": {"k": encoded("x" * (1024 * 1024 + 1))}}
    assert causes(cluster.post(SECRETS, big)) == [("data", "Too long: may not be more than 1048576 bytes")]


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("a/b", "a valid config key must consist of"),
        ("..", "must not be '..'"),
        ("..a", "must not start with '..'"),
        ("k" * 254, "must be no more than 253 characters"),
    ],
)
def test_keys_are_names_of_files(cluster, key, words):
    (field, message), *_ = causes(cluster.post(MAPS, {"metadata": {"name": "a"}, "data": {key: ""}}))
    assert field == f"data[{key}]"
    assert words in message


def test_a_key_stands_in_one_of_the_two_maps(cluster):
    answer = cluster.post(MAPS, {"metadata": {"name": "a"}, "data": {"k": ""}, "binaryData": {"k": ""}})
    assert causes(answer) == [("data[k]", 'Invalid value: "k": duplicate of key present in binaryData')]


@pytest.mark.parametrize(
    ("kind", "missing"),
    [
        ("kubernetes.io/tls", ["data[tls.crt]", "data[tls.key]"]),
        ("kubernetes.io/ssh-auth", ["data[ssh-privatekey]"]),
        ("kubernetes.io/basic-auth", ["data[username]", "data[password]"]),
        ("kubernetes.io/dockerconfigjson", ["data[.dockerconfigjson]"]),
        ("kubernetes.io/service-account-token", ["metadata.annotations[kubernetes.io/service-account.name]"]),
    ],
)
def test_a_secret_of_a_known_type_holds_what_its_users_need(cluster, kind, missing):
    answer = cluster.post(SECRETS, {"metadata": {"name": "s"}, "type": kind})
    assert causes(answer) == [(field, "Required value") for field in missing]


def test_a_faulty_secret_is_not_shown(cluster):
    data = {".dockerconfigjson": encoded("hunter2")}
    answer = cluster.post(SECRETS, {"metadata": {"name": "s"}, "type": "kubernetes.io/dockerconfigjson", "data": data})
    assert "redacted" in causes(answer)[0][1]
    assert "hunter2" not in answer.text
    assert data[".dockerconfigjson"] not in answer.text


@pytest.mark.parametrize("data", [{"k": 1}, {"k": True}, {"k": ["x"]}])
@pytest.mark.parametrize("path", [MAPS, SECRETS])
def test_values_are_texts(cluster, path, data):
    answer = cluster.post(path, {"metadata": {"name": "a"}, "data": data})
    assert answer.status_code == 400
    assert "cannot unmarshal" in answer.json()["message"]


def test_secrets_and_binary_data_are_base64(cluster):
    assert cluster.post(SECRETS, {"metadata": {"name": "a"}, "data": {"k": "not!base64"}}).status_code == 400
    assert cluster.post(MAPS, {"metadata": {"name": "a"}, "binaryData": {"k": "A"}}).status_code == 400


def test_owner_references_are_complete_and_one_of_them_controls(cluster):
    def references(*many):
        return cluster.post(MAPS, {"metadata": {"name": "a", "ownerReferences": list(many)}})

    good = {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u", "controller": True}
    field = "metadata.ownerReferences"
    assert causes(references({**good, "apiVersion": ""}))[0] == (
        f"{field}.apiVersion",
        'Invalid value: "": version must not be empty',
    )
    found = causes(references({"apiVersion": "v1"}))
    assert [name for name, _ in found] == [f"{field}.kind", f"{field}.name", f"{field}.uid"]
    assert "is disallowed from being an owner" in causes(references({**good, "kind": "Event"}))[0][1]
    both = causes(references(good, {**good, "name": "p", "uid": "v"}))[0][1]
    assert both.endswith('Only one reference can have Controller set to true. Found "true" in references for o and p')
    assert references("x").status_code in {400, 422}


def test_every_namespace_gets_its_default_service_account_and_gets_it_back(cluster, eventually):
    for name in ("default", "kube-system", "kube-public", "kube-node-lease"):
        assert cluster.get(f"/api/v1/namespaces/{name}/serviceaccounts/default").status_code == 200
    cluster.post("/api/v1/namespaces", {"metadata": {"name": "n"}})
    account = "/api/v1/namespaces/n/serviceaccounts/default"
    eventually(lambda: cluster.get(account).status_code == 200)
    uid = cluster.get(account).json()["metadata"]["uid"]
    assert cluster.delete(account).status_code == 200
    eventually(lambda: cluster.get(account).status_code == 200)
    assert cluster.get(account).json()["metadata"]["uid"] != uid


def test_a_namespace_that_goes_takes_its_service_account_along(cluster, eventually):
    cluster.post("/api/v1/namespaces", {"metadata": {"name": "n"}})
    account = "/api/v1/namespaces/n/serviceaccounts/default"
    eventually(lambda: cluster.get(account).status_code == 200)
    cluster.delete("/api/v1/namespaces/n")
    eventually(lambda: cluster.get("/api/v1/namespaces/n").status_code == 404)
    assert not [
        item for item in cluster.get("/api/v1/serviceaccounts").json()["items"] if item["metadata"]["namespace"] == "n"
    ]


def test_an_update_gives_an_event_its_whole_time_again(serve):
    cluster = serve(event_ttl=2).cluster()
    path = "/api/v1/namespaces/default/events"
    for name in ("updated", "left-alone"):
        cluster.post(path, {"metadata": {"name": name}, "involvedObject": {"kind": "Pod", "name": "p"}, "count": 1})
    deadline = time.monotonic() + 10
    for count in itertools.count(2):
        assert time.monotonic() < deadline, "no event expired"
        assert cluster.patch(f"{path}/updated", {"count": count}).status_code == 200
        if cluster.get(f"{path}/left-alone").status_code == 404:
            break
        time.sleep(0.1)
    assert cluster.get(f"{path}/updated").status_code == 200


def test_a_namespace_tells_what_keeps_it_from_going(cluster, eventually):
    cluster.post("/api/v1/namespaces", {"metadata": {"name": "n"}})
    maps = "/api/v1/namespaces/n/configmaps"
    for name in ("a", "b"):
        cluster.post(maps, {"metadata": {"name": name, "finalizers": ["example.com/hold"]}})
    cluster.delete("/api/v1/namespaces/n")

    def conditions():
        found = cluster.get("/api/v1/namespaces/n").json()["status"].get("conditions", [])
        return {one["type"]: (one["status"], one["reason"], one["message"]) for one in found}

    eventually(conditions)
    assert conditions()["NamespaceContentRemaining"] == (
        "True",
        "SomeResourcesRemain",
        "Some resources are remaining: configmaps. has 2 resource instances",
    )
    assert conditions()["NamespaceFinalizersRemaining"] == (
        "True",
        "SomeFinalizersRemain",
        "Some content in the namespace has finalizers remaining: example.com/hold in 2 resource instances",
    )
    assert conditions()["NamespaceDeletionContentFailure"][:2] == ("False", "ContentDeleted")
    cluster.patch(f"{maps}/a", {"metadata": {"finalizers": None}})
    eventually(lambda: "configmaps. has 1 " in conditions()["NamespaceContentRemaining"][2])
    cluster.patch(f"{maps}/b", {"metadata": {"finalizers": None}})
    eventually(lambda: cluster.get("/api/v1/namespaces/n").status_code == 404)
