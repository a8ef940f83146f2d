"""Nobody gives others more than he has."""

import pytest

MANAGE = ("create,get,update,patch,delete", "roles,rolebindings,clusterroles,clusterrolebindings")
GROUP = "rbac.authorization.k8s.io"


@pytest.fixture
def alice(admin, make):
    """A user who may write roles and bindings everywhere, and read ConfigMaps in the namespace default."""
    admin.made(make.cluster_roles, make.role("rbac-writer", make.rule(*MANAGE, groups=GROUP)))
    admin.made(make.cluster_bindings, make.binding("rbac-writer", "ClusterRole/rbac-writer", "User/alice"))
    admin.made(make.roles, make.role("reader", make.rule("get,list", "configmaps")))
    admin.made(make.bindings, make.binding("reader", "Role/reader", "User/alice"))
    return admin("alice,dev")


def test_a_role_allows_only_what_its_author_may_do(alice, make):
    alice.made(make.roles, make.role("same", make.rule("get", "configmaps")))
    alice.made(make.roles, make.role("narrower", make.rule("get", "configmaps", names="one")))
    refused = alice.post(make.roles, make.role("more", make.rule("get,delete", "configmaps,secrets")))
    assert refused.status_code == 403
    assert refused.json()["message"] == (
        'roles.rbac.authorization.k8s.io "more" is forbidden: user "alice" (groups=["dev" "system:authenticated"]) is '
        "attempting to grant RBAC permissions not currently held:\n"
        '{APIGroups:[""], Resources:["configmaps"], Verbs:["delete"]}\n'
        '{APIGroups:[""], Resources:["secrets"], Verbs:["get" "delete"]}'
    )
    # What holds in one namespace holds neither in another nor in the whole cluster.
    elsewhere = make.roles.replace("default", "kube-system")
    assert alice.post(elsewhere, make.role("same", make.rule("get", "configmaps"))).status_code == 403
    assert alice.post(make.cluster_roles, make.role("same", make.rule("get", "configmaps"))).status_code == 403


@pytest.mark.parametrize(
    ("verbs", "resources", "names", "paths"),
    [
        ("*", "configmaps", "", ""),
        ("get", "*", "", ""),
        ("get", "configmaps/status", "", ""),
        ("get", "*/status", "", ""),
        ("get", "", "", "/metrics"),
        ("get", "", "", "*"),
    ],
)
def test_a_star_or_a_path_is_more_than_what_it_stands_for(alice, make, verbs, resources, names, paths):
    document = make.role("more", make.rule(verbs, resources, names=names, paths=paths))
    assert alice.post(make.cluster_roles, document).status_code == 403


@pytest.mark.parametrize("how", ["put", "merge", "json", "apply", "dry-run"])
def test_an_existing_role_cannot_be_widened(alice, make, how):
    path = f"{make.roles}/mine"
    alice.made(make.roles, make.role("mine", make.rule("get", "configmaps")))
    wide = [make.rule("get", "secrets")]
    head = {"apiVersion": f"{GROUP}/v1", "kind": "Role"}
    manifest = {**head, **make.role("mine", *wide)}
    match how:
        case "put":
            answer = alice.put(path, manifest)
        case "merge":
            answer = alice.patch(path, {"rules": wide})
        case "json":
            change = [{"op": "replace", "path": "/rules/0/resources/0", "value": "secrets"}]
            answer = alice.patch(path, change, "json-patch+json")
        case "apply":
            answer = alice.patch(path, manifest, "apply-patch+yaml", fieldManager="m", force="true")
        case _:
            answer = alice.patch(path, {"rules": wide}, dryRun="All")
    assert answer.status_code == 403
    assert "not currently held" in answer.json()["message"]
    assert alice.get(path).json()["rules"] == [make.rule("get", "configmaps")]


def test_an_apply_that_creates_a_role_is_checked(alice, make):
    manifest = {"apiVersion": f"{GROUP}/v1", "kind": "Role", **make.role("new", make.rule("get", "secrets"))}
    answer = alice.patch(f"{make.roles}/new", manifest, "apply-patch+yaml", fieldManager="m")
    assert answer.status_code == 403
    assert "not currently held" in answer.json()["message"]


def test_a_role_with_more_than_one_has_may_still_lose_its_finalizers(admin, alice, make):
    document = make.role("wide", make.rule("get", "secrets"))
    document["metadata"]["finalizers"] = ["example.com/hold"]
    admin.made(make.roles, document)
    path = f"{make.roles}/wide"
    assert alice.patch(path, {"metadata": {"labels": {"a": "b"}}}).status_code == 403
    assert alice.patch(path, {"metadata": {"finalizers": None}}).status_code == 200


def test_a_binding_gives_only_what_its_author_may_do(admin, alice, make):
    alice.made(make.bindings, make.binding("bobs", "Role/reader", "User/bob"))
    refused = alice.post(make.bindings, make.binding("more", "ClusterRole/view", "User/bob"))
    assert refused.status_code == 403
    assert 'rolebindings.rbac.authorization.k8s.io "more" is forbidden: user "alice"' in refused.json()["message"]
    absent = alice.post(make.bindings, make.binding("absent", "Role/nothing", "User/bob"))
    assert absent.status_code == 404
    assert absent.json()["message"] == 'roles.rbac.authorization.k8s.io "nothing" not found'
    admin.made(make.bindings, make.binding("wide", "ClusterRole/view", "User/bob"))
    added = {"subjects": make.binding("wide", "ClusterRole/view", "User/alice")["subjects"]}
    assert alice.patch(f"{make.bindings}/wide", added).status_code == 403


def test_the_verbs_escalate_and_bind_lift_the_checks(admin, alice, make):
    admin.made(make.roles, make.role("lifted", make.rule("escalate", "roles", GROUP)))
    admin.made(make.cluster_roles, make.role("binder", make.rule("bind", "clusterroles", GROUP, names="view")))
    admin.made(make.bindings, make.binding("lifted", "Role/lifted", "User/alice"))
    admin.made(make.bindings, make.binding("binder", "ClusterRole/binder", "User/alice"))
    alice.made(make.roles, make.role("more", make.rule("get", "secrets")))
    assert alice.post(make.cluster_roles, make.role("more", make.rule("get", "secrets"))).status_code == 403
    alice.made(make.bindings, make.binding("viewers", "ClusterRole/view", "User/bob"))
    assert alice.post(make.bindings, make.binding("editors", "ClusterRole/edit", "User/bob")).status_code == 403
    assert alice.post(make.cluster_bindings, make.binding("all", "ClusterRole/view", "User/bob")).status_code == 403


def test_gathering_roles_takes_everything(admin, alice, make):
    gathering = {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}
    refused = alice.post(make.cluster_roles, make.role("all", aggregationRule=gathering))
    assert refused.status_code == 403
    words = "must have cluster-admin privileges to use the aggregationRule"
    assert refused.json()["message"] == f'clusterroles.{GROUP} "all" is forbidden: {words}'
    admin.made(make.cluster_roles, make.role("all", aggregationRule=gathering))
    assert alice.put(f"{make.cluster_roles}/all", make.role("all")).status_code == 403
    admin.made(make.cluster_bindings, make.binding("chief", "ClusterRole/cluster-admin", "User/carol"))
    admin("carol").made(make.cluster_roles, make.role("too", aggregationRule=gathering))


def test_a_role_of_too_many_combinations_is_refused_without_comparing_them(alice, make):
    many = ",".join(f"r{number}" for number in range(300))
    refused = alice.post(make.roles, make.role("vast", make.rule(many, many, many)))
    assert refused.status_code == 403
    assert "too many to compare" in refused.json()["message"]


def test_broken_bindings_are_told_along(admin, alice, make):
    admin.made(make.bindings, make.binding("broken", "Role/nothing", "User/alice"))
    refused = alice.post(make.roles, make.role("more", make.rule("get", "secrets")))
    told = f'; resolution errors: [role.{GROUP} "nothing" not found]'
    assert refused.json()["message"].endswith(told)


def test_without_rbac_nothing_is_checked(cluster, make):
    answer = cluster.post(make.cluster_bindings, make.binding("all", "ClusterRole/nothing", "User/bob"))
    assert answer.status_code == 201
