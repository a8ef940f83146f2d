"""Reviews are answered truthfully and never stored."""

import pytest

AUTHORIZATION = "/apis/authorization.k8s.io/v1"
ASKED = {"resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "default"}}


@pytest.mark.parametrize(
    ("path", "spec"),
    [
        (f"{AUTHORIZATION}/selfsubjectaccessreviews", ASKED),
        (f"{AUTHORIZATION}/subjectaccessreviews", {**ASKED, "user": "somebody"}),
        (f"{AUTHORIZATION}/namespaces/default/localsubjectaccessreviews", {**ASKED, "user": "somebody"}),
    ],
)
def test_everything_is_allowed_and_the_reason_says_why(cluster, path, spec):
    answer = cluster.post(path, {"spec": spec})
    assert answer.status_code == 201
    document = answer.json()
    assert document["status"] == {"allowed": True, "reason": "the server authorizes every request"}
    assert document["spec"] == spec
    assert cluster.server.keys("reviews") == []
    assert cluster.get(path).status_code == 405
    assert cluster.get(f"{path}/a").status_code == 404


def test_a_client_is_nobody_and_a_token_is_nobodys(cluster):
    path = "/apis/authentication.k8s.io/v1"
    who = cluster.post(f"{path}/selfsubjectreviews", {}).json()
    assert who["status"]["userInfo"] == {"username": "system:anonymous", "groups": ["system:unauthenticated"]}
    token = cluster.post(f"{path}/tokenreviews", {"spec": {"token": "t"}}).json()
    assert token["status"]["authenticated"] is False
    rules = cluster.post(f"{AUTHORIZATION}/selfsubjectrulesreviews", {"spec": {"namespace": "default"}}).json()
    assert rules["status"]["resourceRules"] == [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]


@pytest.mark.parametrize(
    ("path", "spec", "code"),
    [
        (f"{AUTHORIZATION}/selfsubjectaccessreviews", {}, 422),
        (f"{AUTHORIZATION}/selfsubjectaccessreviews", {**ASKED, "nonResourceAttributes": {"path": "/"}}, 422),
        (f"{AUTHORIZATION}/subjectaccessreviews", ASKED, 422),
        (f"{AUTHORIZATION}/namespaces/other/localsubjectaccessreviews", {**ASKED, "user": "somebody"}, 422),
        (f"{AUTHORIZATION}/selfsubjectrulesreviews", {}, 400),
        ("/apis/authentication.k8s.io/v1/tokenreviews", {}, 400),
        (f"{AUTHORIZATION}/selfsubjectaccessreviews", {"resourceAttributes": {"verb": 1}}, 400),
    ],
)
def test_a_review_that_does_not_ask_one_thing_is_refused(cluster, path, spec, code):
    answer = cluster.post(path, {"spec": spec})
    assert answer.status_code == code
    assert answer.json()["reason"] == ("Invalid" if code == 422 else "BadRequest")


def test_a_review_has_no_name(cluster):
    answer = cluster.post(f"{AUTHORIZATION}/selfsubjectaccessreviews", {"metadata": {"name": "mine"}, "spec": ASKED})
    assert answer.status_code == 422
    assert answer.json()["details"]["causes"][0]["message"].endswith("must be empty")
