"""Reviews say what the gate would do."""

import pytest

AUTHORIZATION = "/apis/authorization.k8s.io/v1"
AUTHENTICATION = "/apis/authentication.k8s.io/v1"
AUDIENCE = "https://kubernetes.default.svc.cluster.local"


def status(answer):
    assert answer.status_code == 201, answer.text
    return answer.json()["status"]


def on(verb, resource, namespace="default", **more):
    return {"resourceAttributes": {"verb": verb, "resource": resource, "namespace": namespace, **more}}


def test_who_am_i(admin):
    answer = status(admin("alice,dev").post(f"{AUTHENTICATION}/selfsubjectreviews", {}))
    assert answer == {"userInfo": {"username": "alice", "groups": ["dev", "system:authenticated"]}}


def test_may_i_tells_which_binding_allows_it(admin, make):
    admin.made(make.bindings, make.binding("devs", "ClusterRole/view", "Group/dev"))
    admin.made(make.cluster_bindings, make.binding("carols", "ClusterRole/cluster-admin", "User/carol"))
    path = f"{AUTHORIZATION}/selfsubjectaccessreviews"
    alice = admin("alice,dev")
    assert status(alice.post(path, {"spec": on("get", "pods")})) == {
        "allowed": True,
        "reason": 'RBAC: allowed by RoleBinding "devs/default" of ClusterRole "view" to Group "dev"',
    }
    assert status(alice.post(path, {"spec": on("delete", "pods")})) == {"allowed": False}
    assert status(admin("carol").post(path, {"spec": {"nonResourceAttributes": {"verb": "get", "path": "/x"}}})) == {
        "allowed": True,
        "reason": 'RBAC: allowed by ClusterRoleBinding "carols" of ClusterRole "cluster-admin" to User "carol"',
    }
    assert status(admin.post(path, {"spec": on("get", "pods")})) == {"allowed": True}


def test_may_somebody_else(admin, make):
    admin.made(make.bindings, make.binding("robots", "ClusterRole/view", "ServiceAccount//robot"))
    robot = "system:serviceaccount:default:robot"
    path = f"{AUTHORIZATION}/subjectaccessreviews"
    allowed = status(admin.post(path, {"spec": {**on("get", "pods"), "user": robot}}))
    by = 'RoleBinding "robots/default" of ClusterRole "view" to ServiceAccount "robot/default"'
    assert allowed == {"allowed": True, "reason": f"RBAC: allowed by {by}"}
    masters = {**on("get", "pods", ""), "groups": ["system:masters"]}
    assert status(admin.post(path, {"spec": masters}))["allowed"] is True
    local = f"{AUTHORIZATION}/namespaces/default/localsubjectaccessreviews"
    assert status(admin.post(local, {"spec": {**on("get", "pods"), "user": robot}}))["allowed"] is True
    assert status(admin.post(local, {"spec": {**on("create", "pods"), "user": robot}}))["allowed"] is False
    assert admin("alice").post(path, {"spec": {**on("get", "pods"), "user": robot}}).status_code == 403


def test_what_may_i_lists_each_rule_once_and_tells_of_broken_bindings(admin, make):
    admin.made(make.roles, make.role("reader", make.rule("get", "configmaps", names="one")))
    for name in ("first", "second"):
        admin.made(make.bindings, make.binding(name, "Role/reader", "User/alice"))
    admin.made(make.bindings, make.binding("broken", "Role/nothing", "User/alice"))
    path = f"{AUTHORIZATION}/selfsubjectrulesreviews"
    answer = status(admin("alice").post(path, {"spec": {"namespace": "default"}}))
    mine = {"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["one"]}
    assert answer["resourceRules"].count(mine) == 1
    assert {"verbs": ["get"], "nonResourceURLs": ["/healthz", "/livez", "/readyz", "/version", "/version/"]} in (
        answer["nonResourceRules"]
    )
    assert answer["incomplete"] is False
    assert answer["evaluationError"] == 'role.rbac.authorization.k8s.io "nothing" not found'
    elsewhere = status(admin("alice").post(path, {"spec": {"namespace": "kube-system"}}))
    assert mine not in elsewhere["resourceRules"]


@pytest.mark.parametrize(
    ("token", "audiences", "known"),
    [
        ("alice", [], True),
        ("alice", [AUDIENCE, "other"], True),
        ("alice", ["other"], False),
        ("nobody", [], False),
        ("\u00e9,dev", [], True),
    ],
)
def test_whose_is_a_token(admin, token, audiences, known):
    spec = {"token": token, "audiences": audiences}
    answer = status(admin.post(f"{AUTHENTICATION}/tokenreviews", {"spec": spec}))
    if known:
        name, *groups = token.split(",")
        user = {"username": name, "groups": [*groups, "system:authenticated"]}
        assert answer == {"authenticated": True, "user": user, "audiences": [AUDIENCE]}
    else:
        assert answer == {"authenticated": False, "user": {}}


def test_only_who_may_review_tokens_learns_whose_they_are(admin, make):
    asked = {"spec": {"token": "bob"}}
    assert admin("alice").post(f"{AUTHENTICATION}/tokenreviews", asked).status_code == 403
    admin.made(make.cluster_bindings, make.binding("proxy", "ClusterRole/system:auth-delegator", "User/alice"))
    assert admin("alice").post(f"{AUTHENTICATION}/tokenreviews", asked).status_code == 201
