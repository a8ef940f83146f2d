"""Who may do what is decided by the cluster's own roles and bindings, from the moment they are written."""

PODS = "/api/v1/namespaces/default/pods"
MAPS = "/api/v1/namespaces/default/configmaps"


def message(answer):
    assert answer.status_code == 403, answer.text
    return answer.json()["message"]


def test_a_user_without_roles_may_discover_and_nothing_else(admin):
    alice = admin("alice")
    for path in ("/api", "/apis", "/apis/apps/v1", "/version", "/healthz", "/openapi/v3"):
        assert alice.get(path).status_code == 200, path
    assert alice.get("/metrics").status_code == 403
    assert alice.get("/snapshot").status_code == 403
    expected = 'pods is forbidden: User "alice" cannot list resource "pods" in API group "" in the namespace "default"'
    assert message(alice.get(PODS)) == expected
    assert message(alice.get("/api/v1/nodes")).endswith('in API group "" at the cluster scope')


def test_a_binding_holds_from_its_answer_on_and_until_its_deletion_is_answered(admin, make):
    alice = admin("alice")
    admin.made(make.roles, make.role("reader", make.rule("get,list,watch", "configmaps")))
    assert alice.get(MAPS).status_code == 403
    admin.made(make.bindings, make.binding("alices", "Role/reader", "User/alice"))
    assert alice.get(MAPS).status_code == 200
    assert alice.get("/api/v1/namespaces/kube-system/configmaps").status_code == 403
    assert alice.post(MAPS, {"metadata": {"name": "a"}}).status_code == 403
    assert admin.patch(f"{make.roles}/reader", {"rules": [make.rule("create", "configmaps")]}).status_code == 200
    assert alice.get(MAPS).status_code == 403
    assert alice.post(MAPS, {"metadata": {"name": "a"}}).status_code == 201
    assert admin.delete(f"{make.bindings}/alices").status_code == 200
    assert alice.post(MAPS, {"metadata": {"name": "b"}}).status_code == 403


def test_a_further_binding_of_the_same_user_holds_at_once(admin, make):
    alice = admin("alice")
    admin.made(make.bindings, make.binding("first", "ClusterRole/view", "User/alice"))
    assert alice.get(MAPS).status_code == 200
    admin.made(make.bindings, make.binding("second", "ClusterRole/edit", "User/alice"))
    assert alice.post(MAPS, {"metadata": {"name": "a"}}).status_code == 201
    changed = {"subjects": make.binding("second", "ClusterRole/edit", "User/bob")["subjects"]}
    assert admin.patch(f"{make.bindings}/second", changed).status_code == 200
    assert alice.post(MAPS, {"metadata": {"name": "b"}}).status_code == 403
    assert admin("bob").post(MAPS, {"metadata": {"name": "b"}}).status_code == 201


def test_a_role_binding_gives_a_cluster_role_in_its_namespace_only(admin, make):
    admin.made(make.bindings, make.binding("devs", "ClusterRole/edit", "Group/dev"))
    bob = admin("bob,dev")
    assert bob.post(MAPS, {"metadata": {"name": "a"}}).status_code == 201
    assert bob.get("/api/v1/namespaces/default").status_code == 200
    assert bob.get("/api/v1/namespaces").status_code == 403
    assert bob.get("/api/v1/configmaps").status_code == 403
    assert bob.get(make.roles).status_code == 403
    assert admin("carol").get(MAPS).status_code == 403


def test_a_service_account_is_its_user_name(admin, make):
    admin.made(make.bindings, make.binding("robots", "ClusterRole/view", "ServiceAccount//robot"))
    assert admin("system:serviceaccount:default:robot").get(MAPS).status_code == 200
    assert admin("system:serviceaccount:other:robot").get(MAPS).status_code == 403
    assert admin("robot").get(MAPS).status_code == 403


def test_roles_of_one_cluster_say_nothing_in_another(admin, strict, make):
    admin.made(make.cluster_bindings, make.binding("all", "ClusterRole/cluster-admin", "User/alice"))
    assert admin("alice").get("/api/v1/secrets").status_code == 200
    other = type(admin)(strict.cluster(), "admin")
    assert other.get("/api/v1/namespaces").status_code == 200
    assert other("alice").get("/api/v1/secrets").status_code == 403


def test_names_allow_what_upstream_lets_them_allow(admin, make):
    rule = make.rule("get,list,watch,create,delete,deletecollection", "configmaps", names="one")
    admin.made(make.roles, make.role("named", rule))
    admin.made(make.bindings, make.binding("named", "Role/named", "User/alice"))
    alice = admin("alice")
    for name in ("one", "two"):
        admin.made(MAPS, {"metadata": {"name": name}})
    assert alice.get(f"{MAPS}/one").status_code == 200
    assert alice.get(f"{MAPS}/two").status_code == 403
    assert alice.get(MAPS).status_code == 403
    assert alice.get(MAPS, fieldSelector="metadata.name=one").status_code == 200
    assert alice.get(MAPS, fieldSelector="metadata.name=two").status_code == 403
    # Upstream knows no name of an object that is being created.
    assert alice.post(MAPS, {"metadata": {"name": "one"}}).status_code == 403
    assert alice.delete(MAPS).status_code == 403
    assert alice.delete(f"{MAPS}/one").status_code == 200


def test_a_missing_role_is_told_in_the_refusal(admin, make):
    admin.made(make.cluster_bindings, make.binding("broken", "ClusterRole/nothing", "User/alice"))
    admin.made(make.bindings, make.binding("broken", "Role/nothing", "User/alice"))
    told = message(admin("alice").get(MAPS))
    assert told.endswith(
        ': RBAC: [clusterrole.rbac.authorization.k8s.io "nothing" not found, '
        'role.rbac.authorization.k8s.io "nothing" not found]'
    )


def test_edit_and_view_gather_roles_by_their_label(admin, make):
    admin.made(make.cluster_bindings, make.binding("alices", "ClusterRole/edit", "User/alice"))
    alice = admin("alice")
    assert alice.get("/api/v1/nodes").status_code == 403
    label = {"rbac.authorization.k8s.io/aggregate-to-view": "true"}
    admin.made(make.cluster_roles, make.role("nodes", make.rule("list", "nodes"), labels=label))
    assert alice.get("/api/v1/nodes").status_code == 200  # edit gathers view, which gathers this
    assert admin.delete(f"{make.cluster_roles}/nodes").status_code == 200
    assert alice.get("/api/v1/nodes").status_code == 403


def test_a_role_that_would_take_long_to_gather_allows_nothing_and_says_so(admin, make):
    """One cluster's roles are not compared while the requests of all others wait."""
    selectors = [{"matchLabels": {f"l{number}": "x"}} for number in range(20_000)]
    gathering = {"clusterRoleSelectors": [*selectors, {"matchLabels": {"nodes": "x"}}]}
    admin.made(make.cluster_roles, make.role("nodes", make.rule("list", "nodes"), labels={"nodes": "x"}))
    admin.made(make.cluster_roles, make.role("many", aggregationRule=gathering))
    admin.made(make.cluster_bindings, make.binding("many", "ClusterRole/many", "User/alice"))
    for _ in range(2):
        told = message(admin("alice").get("/api/v1/nodes"))
        assert told.endswith('RBAC: clusterrole.rbac.authorization.k8s.io "many" selects among too many roles')
    fewer = {"aggregationRule": {"clusterRoleSelectors": gathering["clusterRoleSelectors"][-9_000:]}}
    assert admin.patch(f"{make.cluster_roles}/many", fewer).status_code == 200
    assert admin("alice").get("/api/v1/nodes").status_code == 200


def test_an_apply_that_creates_needs_create(admin, make):
    admin.made(make.roles, make.role("patcher", make.rule("patch", "configmaps")))
    admin.made(make.bindings, make.binding("patcher", "Role/patcher", "User/alice"))
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}}
    apply = {"kind": "apply-patch+yaml", "fieldManager": "m"}
    assert admin("alice").patch(f"{MAPS}/a", manifest, **apply).status_code == 403
    assert admin.patch(f"{MAPS}/a", manifest, **apply).status_code == 201
    assert admin("alice").patch(f"{MAPS}/a", {**manifest, "data": {"k": "w"}}, **apply, force="true").status_code == 200


def test_an_editor_may_act_as_a_service_account_of_his_namespace_and_as_nobody_else(admin, make):
    admin.made(make.bindings, make.binding("bobs", "ClusterRole/edit", "User/bob"))
    admin.made(make.bindings, make.binding("robots", "ClusterRole/view", "ServiceAccount//robot"))
    bob = admin("bob")

    def acting(user, *groups):
        headers = [("impersonate-user", user), *(("impersonate-group", group) for group in groups)]
        return bob.cluster.request("GET", MAPS, headers=[*bob.headers.items(), *headers]).status_code

    assert acting("system:serviceaccount:default:robot") == 200
    assert acting("system:serviceaccount:kube-system:robot") == 403
    assert acting("alice") == 403
    assert acting("system:serviceaccount:default:robot", "system:masters") == 403


def test_only_some_may_make_clusters_and_only_in_the_root_cluster(strict, admin, make):
    root = type(admin)(strict.cluster("root"), "admin")
    clusters = "/apis/kplane.dev/v1/clusters"
    assert root("alice").get(clusters).status_code == 403
    root.made(make.cluster_bindings, make.binding("viewers", "ClusterRole/kplane:cluster-viewer", "User/alice"))
    root.made(make.cluster_bindings, make.binding("managers", "ClusterRole/kplane:cluster-manager", "User/bob"))
    assert root("alice").get(clusters).status_code == 200
    assert root("alice").post(clusters, {"metadata": {"name": "made-by-alice"}}).status_code == 403
    assert root("bob").post(clusters, {"metadata": {"name": "made-by-bob"}}).status_code == 201
    assert admin.get(f"{make.cluster_roles}/kplane:cluster-manager").status_code == 404


def test_whoever_makes_a_cluster_by_a_fork_or_a_restore_may_also_create_one(strict, admin, make):
    root, source = type(admin)(strict.cluster("root"), "admin"), admin.cluster.name
    carol, clusters = root(f"carol-{source}"), "/apis/kplane.dev/v1/clusters"
    snapshot = root.get(f"{clusters}/{source}/snapshot").json()
    only_these = make.rule("create", "clusters/fork,clusters/restore", "kplane.dev")
    root.made(make.cluster_roles, make.role(f"forker-{source}", only_these))
    root.made(
        make.cluster_bindings, make.binding(f"forker-{source}", f"ClusterRole/forker-{source}", f"User/carol-{source}")
    )
    fork, restore = f"{clusters}/{source}/fork", f"{clusters}/{source}-r/restore"
    refused = 'cannot create resource "clusters" in API group "kplane.dev" at the cluster scope'
    assert refused in message(carol.post(fork, {"metadata": {"name": f"{source}-f"}}))
    assert refused in message(carol.post(restore, snapshot))
    also = make.rule("create", "clusters", "kplane.dev")
    changed = {"rules": [only_these, also]}
    assert root.patch(f"{make.cluster_roles}/forker-{source}", changed).status_code == 200
    assert carol.post(fork, {"metadata": {"name": f"{source}-f"}}).status_code == 201
    assert carol.post(restore, snapshot).status_code == 201
