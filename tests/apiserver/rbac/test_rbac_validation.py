"""Roles and bindings are well formed, in every mode of authorization, and their faults are told in upstream's words."""

import pytest

GROUP = "rbac.authorization.k8s.io"
REF = {"apiGroup": GROUP, "kind": "ClusterRole", "name": "view"}


def faults(answer):
    assert answer.status_code == 422, answer.text
    return [(cause["field"], cause["message"]) for cause in answer.json()["details"]["causes"]]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({"apiGroups": [""], "resources": ["a"]}, [("verbs", "Required value: verbs must contain at least one value")]),
        (
            {"verbs": ["get"]},
            [
                ("apiGroups", "Required value: resource rules must supply at least one api group"),
                ("resources", "Required value: resource rules must supply at least one resource"),
            ],
        ),
        (
            {"verbs": ["get"], "apiGroups": [""], "resources": ["a", "b"], "resourceNames": ["n"]},
            [("resourceNames", "Required value: resource names cannot apply to multiple resources")],
        ),
        (
            {"verbs": ["get"], "apiGroups": [""], "resources": ["a"], "nonResourceURLs": ["/a"]},
            [
                (
                    "nonResourceURLs",
                    'Invalid value: ["/a"]: rules cannot apply to both regular resources and non-resource URLs',
                )
            ],
        ),
    ],
)
def test_a_rule_says_what_it_is_about(cluster, make, rule, expected):
    found = faults(cluster.post(make.cluster_roles, {"metadata": {"name": "a"}, "rules": [rule]}))
    assert found == [(f"rules[0].{field}", words) for field, words in expected]


def test_a_role_in_a_namespace_is_about_no_paths(cluster, make):
    found = faults(cluster.post(make.roles, make.role("a", make.rule("get", paths="/a"))))
    words = 'Invalid value: ["/a"]: namespaced rules cannot apply to non-resource URLs'
    assert found == [("rules[0].nonResourceURLs", words)]


@pytest.mark.parametrize(
    ("aggregation", "field"),
    [
        ({}, "aggregationRule.clusterRoleSelectors"),
        (
            {"clusterRoleSelectors": [{"matchExpressions": [{"key": "a", "operator": "Near"}]}]},
            "aggregationRule.clusterRoleSelectors[0].matchExpressions[0].operator",
        ),
        (
            {"clusterRoleSelectors": [{"matchExpressions": [{"key": "a", "operator": "In"}]}]},
            "aggregationRule.clusterRoleSelectors[0].matchExpressions[0].values",
        ),
        (
            {"clusterRoleSelectors": [{"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}]},
            "aggregationRule.clusterRoleSelectors[0].matchExpressions[0].values",
        ),
    ],
)
def test_an_aggregation_selects_by_what_there_is(cluster, make, aggregation, field):
    answer = cluster.post(make.cluster_roles, make.role("a", aggregationRule=aggregation))
    assert [found for found, _ in faults(answer)] == [field]


@pytest.mark.parametrize("rules", ["all", [1], [{"verbs": "get"}], [{"verbs": [1]}]])
def test_rules_of_the_wrong_type_are_400(cluster, make, rules):
    answer = cluster.post(make.roles, {"metadata": {"name": "a"}, "rules": rules})
    assert answer.status_code == 400
    assert answer.json()["message"].startswith('Role in version "v1" cannot be handled as a Role: ')


def test_a_binding_is_completed_with_the_groups_that_upstream_fills_in(cluster, make):
    subjects = [{"kind": "User", "name": "a"}, {"kind": "ServiceAccount", "name": "b"}]
    document = {"metadata": {"name": "a"}, "roleRef": {"kind": "ClusterRole", "name": "view"}, "subjects": subjects}
    made = cluster.post(make.bindings, document).json()
    assert made["roleRef"] == REF
    assert made["subjects"] == [{**subjects[0], "apiGroup": GROUP}, subjects[1]]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"roleRef": {**REF, "apiGroup": "other"}},
            ("roleRef.apiGroup", f'Unsupported value: "other": supported values: "{GROUP}"'),
        ),
        (
            {"roleRef": {**REF, "kind": "Role"}},
            ("roleRef.kind", 'Unsupported value: "Role": supported values: "ClusterRole"'),
        ),
        ({"roleRef": {**REF, "name": ""}}, ("roleRef.name", "Required value")),
        ({"roleRef": {**REF, "name": "a/b"}}, ("roleRef.name", "Invalid value: \"a/b\": may not contain '/'")),
        (
            {"subjects": [{"kind": "Cat", "name": "a"}]},
            (
                "subjects[0].kind",
                'Unsupported value: "Cat": supported values: "ServiceAccount", "User", "Group"',
            ),
        ),
        ({"subjects": [{"kind": "ServiceAccount", "name": "a"}]}, ("subjects[0].namespace", "Required value")),
        (
            {"subjects": [{"kind": "ServiceAccount", "name": "a", "namespace": "b", "apiGroup": GROUP}]},
            ("subjects[0].apiGroup", f'Unsupported value: "{GROUP}": supported values: ""'),
        ),
        (
            {"subjects": [{"kind": "Group", "name": "a", "apiGroup": "b"}]},
            ("subjects[0].apiGroup", f'Unsupported value: "b": supported values: "{GROUP}"'),
        ),
    ],
)
def test_a_binding_refers_to_a_role_and_names_subjects(cluster, make, changes, expected):
    document = {"metadata": {"name": "a"}, "roleRef": REF, "subjects": [], **changes}
    assert faults(cluster.post(make.cluster_bindings, document)) == [expected]


def test_a_binding_keeps_its_role(cluster, make):
    assert cluster.post(make.bindings, make.binding("a", "ClusterRole/view", "User/a")).status_code == 201
    answer = cluster.patch(f"{make.bindings}/a", {"roleRef": {"name": "edit"}})
    shown = f'rbac.RoleRef{{APIGroup:"{GROUP}", Kind:"ClusterRole", Name:"edit"}}'
    assert faults(answer) == [("roleRef", f"Invalid value: {shown}: cannot change roleRef")]
    assert cluster.patch(f"{make.bindings}/a", {"subjects": []}).status_code == 200
