"""The builtin kinds: generated, complete where upstream's names are known, and quick to load."""

import subprocess
import sys

from kplane_apiserver.kinds import DATA, Kind, builtin_kinds

CRUD = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
COMMON_RESOURCES = """
    configmaps endpoints events limitranges namespaces nodes persistentvolumeclaims
    persistentvolumes pods podtemplates replicationcontrollers resourcequotas secrets
    serviceaccounts services apiservices controllerrevisions daemonsets deployments replicasets
    statefulsets horizontalpodautoscalers cronjobs jobs certificatesigningrequests leases
    endpointslices ingressclasses ingresses networkpolicies runtimeclasses poddisruptionbudgets
    clusterrolebindings clusterroles rolebindings roles priorityclasses csidrivers csinodes
    csistoragecapacities storageclasses volumeattachments customresourcedefinitions
    mutatingwebhookconfigurations flowschemas validatingadmissionpolicies
    validatingwebhookconfigurations prioritylevelconfigurations
"""


def one(group: str, plural: str, version: str = "v1") -> Kind:
    return builtin_kinds()[group, version, plural]


def groups() -> list[str]:
    return list(dict.fromkeys(kind.group for kind in builtin_kinds().values()))


def test_a_namespaced_kind_with_subresources_carries_every_fact() -> None:
    deployment = one("apps", "deployments")
    assert deployment.kind == "Deployment"
    assert deployment.list_kind == "DeploymentList"
    assert deployment.singular == "deployment"
    assert deployment.namespaced
    assert deployment.verbs == CRUD
    assert deployment.subresources == {"status", "scale"}
    assert deployment.short_names == ("deploy",)
    assert deployment.categories == ("all",)
    assert deployment.api_version == deployment.storage_api_version == "apps/v1"
    assert deployment.group_resource == "deployments.apps"
    assert deployment.custom is None


def test_a_core_kind_has_a_bare_api_version_and_resource() -> None:
    pod = one("", "pods")
    assert (pod.api_version, pod.group_resource, pod.key) == ("v1", "pods", ("", "v1", "pods"))


def test_namespaces_are_cluster_scoped_cannot_be_deleted_together_and_finalize() -> None:
    namespaces = one("", "namespaces")
    assert not namespaces.namespaced
    assert "deletecollection" not in namespaces.verbs
    assert "finalize" in namespaces.subresources


def test_endpoints_keeps_its_name_in_every_form() -> None:
    endpoints = one("", "endpoints")
    assert (endpoints.kind, endpoints.plural, endpoints.singular) == ("Endpoints", "endpoints", "endpoints")
    assert endpoints.list_kind == "EndpointsList"


def test_reviews_can_only_be_created() -> None:
    reviews = {kind.plural for kind in builtin_kinds().values() if kind.create_only}
    assert reviews == {
        "localsubjectaccessreviews",
        "selfsubjectaccessreviews",
        "selfsubjectreviews",
        "selfsubjectrulesreviews",
        "subjectaccessreviews",
        "tokenreviews",
    }


def test_the_newest_version_of_a_group_is_preferred_and_stored() -> None:
    newer, older = one("autoscaling", "horizontalpodautoscalers", "v2"), one("autoscaling", "horizontalpodautoscalers")
    assert newer.preferred
    assert not older.preferred
    assert older.storage_api_version == newer.api_version == "autoscaling/v2"


def test_every_group_has_one_preferred_version() -> None:
    for group in groups():
        versions = {kind.version for kind in builtin_kinds().values() if kind.group == group and kind.preferred}
        assert len(versions) == 1, group


def test_only_versions_that_are_on_by_default_are_served() -> None:
    assert {kind.version for kind in builtin_kinds().values()} == {"v1", "v2"}


def test_the_core_group_comes_first_and_kplane_last() -> None:
    assert groups()[:3] == ["", "apiregistration.k8s.io", "apps"]
    assert groups()[-1] == "kplane.dev"


def test_clusters_and_fleets_are_served_in_the_root_cluster_only() -> None:
    cluster = one("kplane.dev", "clusters")
    assert cluster.root_only
    assert not cluster.namespaced
    assert "deletecollection" not in cluster.verbs
    assert [kind.plural for kind in builtin_kinds().values() if kind.root_only] == ["clusters", "fleets"]


def test_names_on_command_lines_are_unambiguous_except_for_events() -> None:
    """`ev` names both event resources upstream too; kubectl takes the first group."""
    owners: dict[str, set[str]] = {}
    for kind in builtin_kinds().values():
        for name in (*kind.short_names, kind.singular, kind.plural):
            owners.setdefault(name, set()).add(kind.group_resource)
    shared = {name for name, resources in owners.items() if len(resources) > 1}
    assert shared == {"ev", "event", "events"}


def test_the_upstream_resources_that_tools_ask_for_are_all_there() -> None:
    assert set(COMMON_RESOURCES.split()) <= {kind.plural for kind in builtin_kinds().values()}


def test_the_licence_notice_lies_beside_the_data() -> None:
    notice = (DATA / "NOTICE").read_text()
    for path in DATA.iterdir():
        if path.name != "NOTICE":
            assert path.name in notice


def test_the_table_loads_within_15_ms() -> None:
    """Start-up pays for it, so it is measured in a process of its own, the best of three."""
    script = (
        "import time; from kplane_apiserver import kinds; start = time.perf_counter(); kinds.builtin_kinds();"
        "print(time.perf_counter() - start)"
    )
    runs = [subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True) for _ in "123"]
    assert min(float(run.stdout) for run in runs) < 0.015
