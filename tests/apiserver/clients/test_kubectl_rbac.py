"""A real kubectl over TLS, on a server where the roles of each cluster decide who may do what."""

import pytest

TOKENS = """alice-token,alice,u1,dev
bob-token,bob,u2
"""
ROLE = """
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: default}
rules:
- {apiGroups: [""], resources: [configmaps], verbs: [get, list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: readers, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: Group, name: dev}
"""

pytestmark = pytest.mark.kubectl


class Users:
    """The same kubectl in the hands of several users; the administrator's without a name."""

    def __init__(self, kubectl, kubeconfig):
        self.kubectl = kubectl
        self.known = ("--kubeconfig", str(kubeconfig), "--context", "kplane-c1")

    def __call__(self, *arguments, user="", **given):
        token = ("--token", f"{user}-token") if user else ()
        return self.kubectl(*self.known, *token, *arguments, **given)


@pytest.fixture
def users(serve, kubectl, tmp_path):
    tokens = tmp_path / "tokens.csv"
    tokens.write_text(TOKENS, encoding="utf-8")
    tokens.chmod(0o600)
    server = serve("--token-auth-file", str(tokens), "--authorization-mode", "RBAC", "--cluster", "c1")
    return Users(kubectl.on(server.cluster_url("c1")), server.kubeconfig)


def rows(table):
    """Return the last column of a table by the first."""
    return {line.split()[0]: line.split()[-1] for line in table.splitlines()[1:]}


def test_kubectl_auth_asks_who_one_is_and_what_one_may(users):
    assert rows(users("auth", "whoami", user="alice"))["Username"] == "alice"
    assert users("auth", "can-i", "*", "*") == "yes\n"
    assert users("auth", "can-i", "list", "configmaps", user="alice", ok=False) == ""
    assert "created" in users("apply", "-f", "-", stdin=ROLE)
    assert users("auth", "can-i", "list", "configmaps", user="alice") == "yes\n"
    assert users("auth", "can-i", "list", "configmaps", "--as", "carol", "--as-group", "dev") == "yes\n"
    listed = rows(users("auth", "can-i", "--list", user="alice"))
    assert listed["configmaps"] == "list]"
    assert listed["selfsubjectaccessreviews.authorization.k8s.io"] == "[create]"
    assert "configmaps" not in rows(users("auth", "can-i", "--list", user="bob"))
    assert rows(users("auth", "can-i", "--list"))["*.*"] == "[*]"


def test_kubectl_is_refused_in_words_that_say_what_is_missing(users):
    refused = users("get", "secrets", user="alice", ok=False)
    assert (
        'Error from server (Forbidden): secrets is forbidden: User "alice" cannot list resource "secrets" in API '
        'group "" in the namespace "default"'
    ) in refused
    assert "You must be logged in to the server (Unauthorized)" in users("get", "pods", user="nobody", ok=False)


def test_kubectl_creates_reconciles_and_describes_roles(users):
    users("create", "role", "writer", "--verb", "create", "--resource", "configmaps")
    users("create", "rolebinding", "alices", "--role", "writer", "--user", "alice")
    users("create", "clusterrolebinding", "viewers", "--clusterrole", "view", "--serviceaccount", "default:robot")
    assert "created" in users("create", "configmap", "made-by-alice", user="alice")
    assert users("auth", "can-i", "get", "pods", "-A", "--as", "system:serviceaccount:default:robot") == "yes\n"
    told = users("auth", "reconcile", "-f", "-", stdin=ROLE.replace("[get, list]", "[get, list, watch]"))
    assert "role.rbac.authorization.k8s.io/reader reconciled" in told
    assert "rolebinding.rbac.authorization.k8s.io/readers reconciled" in told
    assert "configmaps" in users("describe", "role", "reader")
    assert {"admin", "cluster-admin", "edit", "view"} <= rows(users("get", "clusterroles")).keys()


def test_kubectl_cannot_give_more_than_its_user_has(users):
    users("create", "rolebinding", "admins", "--clusterrole", "admin", "--user", "alice")
    users("create", "role", "fine", "--verb", "get", "--resource", "pods", user="alice")
    refused = users("create", "role", "more", "--verb", "get", "--resource", "nodes", user="alice", ok=False)
    assert 'user "alice" (groups=["dev" "system:authenticated"]) is attempting to grant RBAC permissions' in refused
    assert '{APIGroups:[""], Resources:["nodes"], Verbs:["get"]}' in refused
    users("create", "rolebinding", "bobs", "--clusterrole", "view", "--user", "bob", user="alice")
    assert users("get", "configmaps", "-o", "name", user="bob") == ""
    chief = ("create", "rolebinding", "chief", "--clusterrole", "cluster-admin", "--user", "bob")
    assert "attempting to grant RBAC permissions not currently held" in users(*chief, user="alice", ok=False)
