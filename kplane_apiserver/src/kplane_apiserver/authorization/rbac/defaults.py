"""The ClusterRoles and ClusterRoleBindings that every cluster begins with, under upstream's names.

`admin`, `edit` and `view` gather what other roles add to them by label, so that a cluster's own kinds can be added.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any

import attrs
import msgspec

from kplane_apiserver.authorization.rbac import RBAC_GROUP
from kplane_apiserver.authorization.rbac.index import BOOTSTRAP_LABEL, BOOTSTRAP_VALUE, Base
from kplane_apiserver.authorization.rbac.reading import binding_of, role_of

Document = dict[str, Any]

_READ = ("get", "list", "watch")
_CHANGE = ("create", "delete", "deletecollection", "patch", "update")
_ALL = tuple(sorted((*_READ, *_CHANGE)))
_AUTHENTICATED, _UNAUTHENTICATED = "system:authenticated", "system:unauthenticated"
_AGGREGATE = f"{RBAC_GROUP}/aggregate-to-"
_HEALTH = ("/healthz", "/livez", "/readyz", "/version", "/version/")
_API = ("/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*")

_VIEW = {
    "": "bindings configmaps endpoints events limitranges namespaces namespaces/status persistentvolumeclaims "
    "persistentvolumeclaims/status pods pods/log pods/status replicationcontrollers replicationcontrollers/scale "
    "replicationcontrollers/status resourcequotas resourcequotas/status serviceaccounts services services/status",
    "apps": "controllerrevisions daemonsets daemonsets/status deployments deployments/scale deployments/status "
    "replicasets replicasets/scale replicasets/status statefulsets statefulsets/scale statefulsets/status",
    "autoscaling": "horizontalpodautoscalers horizontalpodautoscalers/status",
    "batch": "cronjobs cronjobs/status jobs jobs/status",
    "discovery.k8s.io": "endpointslices",
    "events.k8s.io": "events",
    "networking.k8s.io": "ingresses ingresses/status networkpolicies",
    "policy": "poddisruptionbudgets poddisruptionbudgets/status",
    "resource.k8s.io": "resourceclaims resourceclaims/status resourceclaimtemplates",
}
_EDIT = {
    "": "configmaps events persistentvolumeclaims pods pods/attach pods/exec pods/portforward pods/proxy "
    "replicationcontrollers replicationcontrollers/scale secrets serviceaccounts services services/proxy",
    "apps": "daemonsets deployments deployments/rollback deployments/scale replicasets replicasets/scale statefulsets "
    "statefulsets/scale",
    "autoscaling": "horizontalpodautoscalers",
    "batch": "cronjobs jobs",
    "networking.k8s.io": "ingresses networkpolicies",
    "policy": "poddisruptionbudgets",
    "resource.k8s.io": "resourceclaims resourceclaimtemplates",
}


@attrs.frozen
class Default:
    """One object that every cluster begins with.

    Attributes:
        plural: its kind, as a resource.
        name: its name.
        document: what it says, without what tells one cluster's from another's.
        written: the same, with its long parts as JSON already; to be stored.
    """

    plural: str
    name: str
    document: Document
    written: Document


@cache
def defaults(*, root: bool) -> tuple[Default, ...]:
    """Return what a cluster begins with; the root cluster has roles for the kinds about clusters too."""
    documents = [*_cluster_roles(), *(_root_roles() if root else ()), *_bindings()]
    return tuple(_default(one) for one in documents)


@cache
def base(*, root: bool) -> Base:
    """Return the same as an index has it."""
    roles, bindings = {}, {}
    for one in defaults(root=root):
        if one.plural == "clusterroles":
            roles[one.name] = role_of(one.document)
        else:
            bindings[one.name] = binding_of(one.document, "", one.name)
    return Base(roles, bindings)


def _default(document: Document) -> Default:
    plural = document["kind"].lower() + "s"
    encoder = msgspec.json.Encoder(order="sorted")  # as the store's own, so that equal objects have equal bytes
    long = {key: value for key, value in document.items() if key not in ("apiVersion", "kind", "metadata")}
    written = {**document, **{key: msgspec.Raw(encoder.encode(value)) for key, value in long.items()}}
    return Default(plural, document["metadata"]["name"], document, written)


def _cluster_roles() -> Iterator[Document]:
    everything = [_rule(("*",), "*", "*"), {"nonResourceURLs": ["*"], "verbs": ["*"]}]
    yield _cluster_role("cluster-admin", everything)
    yield _gathering("admin")
    yield _gathering("edit", "admin")
    yield _gathering("view", "edit")
    yield _cluster_role("system:aggregate-to-admin", _admin_rules(), "admin")
    yield _cluster_role("system:aggregate-to-edit", _edit_rules(), "edit")
    yield _cluster_role("system:aggregate-to-view", [_rule(_READ, group, _VIEW[group]) for group in _VIEW], "view")
    yield _cluster_role("system:discovery", [_paths(*_API, *_HEALTH)])
    yield _cluster_role("system:public-info-viewer", [_paths(*_HEALTH)])
    reviews = "selfsubjectaccessreviews selfsubjectrulesreviews"
    basic = [
        _rule(("create",), "authorization.k8s.io", reviews),
        _rule(("create",), "authentication.k8s.io", "selfsubjectreviews"),
    ]
    yield _cluster_role("system:basic-user", basic)
    delegator = [
        _rule(("create",), "authentication.k8s.io", "tokenreviews"),
        _rule(("create",), "authorization.k8s.io", "subjectaccessreviews"),
    ]
    yield _cluster_role("system:auth-delegator", delegator)


def _admin_rules() -> list[Document]:
    return [
        _rule(("create",), "authorization.k8s.io", "localsubjectaccessreviews"),
        _rule(_ALL, RBAC_GROUP, "rolebindings roles"),
    ]


def _edit_rules() -> list[Document]:
    return [
        _rule(_READ, "", "pods/attach pods/exec pods/portforward pods/proxy secrets services/proxy"),
        _rule(("impersonate",), "", "serviceaccounts"),
        _rule(("create",), "", "pods/eviction serviceaccounts/token"),
        *(_rule(_CHANGE, group, _EDIT[group]) for group in _EDIT),
        _rule(_ALL, "coordination.k8s.io", "leases"),
    ]


def _root_roles() -> Iterator[Document]:
    # Not part of edit or view: who may change Clusters, or take their snapshots, has everything in them.
    yield _cluster_role("kplane:cluster-manager", [_rule(("*",), "kplane.dev", "*")])
    yield _cluster_role(
        "kplane:cluster-viewer", [_rule(_READ, "kplane.dev", "clusters clusters/status fleets fleets/status")]
    )


def _bindings() -> Iterator[Document]:
    yield _binding("cluster-admin", "system:masters")
    yield _binding("system:basic-user", _AUTHENTICATED)
    yield _binding("system:discovery", _AUTHENTICATED)
    yield _binding("system:public-info-viewer", _AUTHENTICATED, _UNAUTHENTICATED)


def _cluster_role(name: str, rules: list[Document], aggregate_to: str = "") -> Document:
    return {**_head("ClusterRole", name, aggregate_to), "rules": rules}


def _gathering(name: str, aggregate_to: str = "") -> Document:
    rule = {"clusterRoleSelectors": [{"matchLabels": {_AGGREGATE + name: "true"}}]}
    return {**_head("ClusterRole", name, aggregate_to), "aggregationRule": rule}


def _binding(role: str, *groups: str) -> Document:
    return {
        **_head("ClusterRoleBinding", role),
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": RBAC_GROUP, "kind": "Group", "name": group} for group in groups],
    }


def _head(kind: str, name: str, aggregate_to: str = "") -> Document:
    labels = {BOOTSTRAP_LABEL: BOOTSTRAP_VALUE}
    if aggregate_to:
        labels[_AGGREGATE + aggregate_to] = "true"
    annotations = {"rbac.authorization.kubernetes.io/autoupdate": "true"}
    metadata = {"annotations": annotations, "labels": labels, "name": name}
    return {"apiVersion": f"{RBAC_GROUP}/v1", "kind": kind, "metadata": metadata}


def _rule(verbs: tuple[str, ...], group: str, resources: str) -> Document:
    return {"apiGroups": [group], "resources": resources.split(), "verbs": list(verbs)}


def _paths(*paths: str) -> Document:
    return {"nonResourceURLs": list(paths), "verbs": ["get"]}
