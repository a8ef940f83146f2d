"""Discovery answers in the plain and the aggregated form, per cluster, and costs little for many clusters."""

import json
import tracemalloc
from typing import Any

import pytest

from kplane_apiserver.definitions.catalog import Catalog
from kplane_apiserver.definitions.crds import prepare_crd
from kplane_apiserver.kinds import builtin_kinds
from kplane_apiserver.requests.discovery import aggregated_version, respond
from kplane_apiserver.wire.http import Response
from kplane_core.multicluster.keylayout import KeyLayout
from kplane_core.storage.codec import encode_object
from kplane_core.storage.interface import StoredObject

LAYOUT = KeyLayout("/apiextensions.k8s.io/customresourcedefinitions", namespaced=False)
AGGREGATED = (
    b"application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,"
    b"application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
)
OLD_AGGREGATED = b"application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"


def crd(plural: str, group: str, *versions: str, **names: Any) -> dict[str, Any]:
    scale = {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}
    return {
        "metadata": {
            "name": f"{plural}.{group}",
            "annotations": {"api-approved.kubernetes.io": "https://example.com/1"},
        },
        "spec": {
            "group": group,
            "scope": "Cluster",
            "names": {"plural": plural, "kind": plural.title()} | names,
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": position == 0,
                    "schema": {"openAPIV3Schema": {"type": "object"}},
                    "subresources": {"status": {}, "scale": scale},
                }
                for position, version in enumerate(versions)
            ],
        },
    }


def install(catalog: Catalog, cluster: str, document: dict[str, Any]) -> None:
    prepared = prepare_crd(document, None, "now")
    key = LAYOUT.key(cluster, "", document["metadata"]["name"])
    catalog._apply(StoredObject(key, 1, encode_object(prepared)), False)


@pytest.fixture
def catalog() -> Catalog:
    found = Catalog(LAYOUT)
    install(found, "c1", crd("things", "example.com", "v1alpha1", "v1", shortNames=["th"], categories=["all"]))
    install(found, "c1", crd("gadgets", "example.com", "v1"))
    return found


def ask(catalog: Catalog, cluster: str, path: str, accept: bytes = b"", known: bytes = b"") -> Response:
    found = respond(catalog, cluster, tuple(path.strip("/").split("/")), accept, known)
    assert found is not None, path
    return found


def body(catalog: Catalog, cluster: str, path: str, accept: bytes = b"") -> dict[str, Any]:
    document: dict[str, Any] = json.loads(ask(catalog, cluster, path, accept).body)
    return document


# --- plain ------------------------------------------------------------------------------------------------------------


def test_the_core_group_is_listed_apart(catalog: Catalog) -> None:
    assert body(catalog, "c1", "/api")["versions"] == ["v1"]
    core = body(catalog, "c1", "/api/v1")
    assert (core["kind"], core["groupVersion"]) == ("APIResourceList", "v1")
    pods = next(entry for entry in core["resources"] if entry["name"] == "pods")
    assert pods == {
        "name": "pods",
        "singularName": "pod",
        "namespaced": True,
        "kind": "Pod",
        "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
        "shortNames": ["po"],
        "categories": ["all"],
    }
    finalize = next(entry for entry in core["resources"] if entry["name"] == "namespaces/finalize")
    assert finalize["verbs"] == ["update"]


def test_groups_are_listed_with_their_versions_the_preferred_one_first(catalog: Catalog) -> None:
    groups = {entry["name"]: entry for entry in body(catalog, "c1", "/apis")["groups"]}
    assert "" not in groups
    assert groups["autoscaling"]["preferredVersion"] == {"groupVersion": "autoscaling/v2", "version": "v2"}
    assert [entry["version"] for entry in groups["example.com"]["versions"]] == ["v1", "v1alpha1"]
    assert groups["example.com"]["preferredVersion"]["version"] == "v1"
    one = body(catalog, "c1", "/apis/apps")
    assert (one["kind"], one["name"]) == ("APIGroup", "apps")


def test_subresources_stand_behind_their_resource(catalog: Catalog) -> None:
    resources = body(catalog, "c1", "/apis/example.com/v1")["resources"]
    assert [entry["name"] for entry in resources] == [
        "gadgets", "gadgets/scale", "gadgets/status", "things", "things/scale", "things/status",
    ]  # fmt: skip
    scale = resources[1]
    assert (scale["kind"], scale["group"], scale["version"]) == ("Scale", "autoscaling", "v1")
    assert resources[3]["shortNames"] == ["th"]
    assert resources[3]["namespaced"] is False


def test_a_version_lists_only_what_it_serves(catalog: Catalog) -> None:
    assert [entry["name"] for entry in body(catalog, "c1", "/apis/example.com/v1alpha1")["resources"]] == [
        "things", "things/scale", "things/status",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "path", ["/apis/none.example.com", "/apis/apps/v9", "/api/v9", "/apis//v1", "/version", "/apis/apps/v1/deployments"]
)
def test_what_is_not_served_has_no_answer(catalog: Catalog, path: str) -> None:
    assert respond(catalog, "c1", tuple(path.removeprefix("/").split("/"))) is None


def test_every_builtin_kind_can_be_found_in_both_forms(catalog: Catalog) -> None:
    plain, aggregated = set(), set()
    groups = body(catalog, "root", "/apis")["groups"]
    listed = [f"/apis/{version['groupVersion']}" for group in groups for version in group["versions"]]
    for name in ["/api/v1", *listed]:
        document = body(catalog, "root", name)
        names = {entry["name"] for entry in document["resources"]}
        plain |= {(document["groupVersion"], name) for name in names if "/" not in name}
    for path in ("/api", "/apis"):
        for group in body(catalog, "root", path, AGGREGATED)["items"]:
            name = group["metadata"].get("name", "")
            for version in group["versions"]:
                group_version = f"{name}/{version['version']}" if name else version["version"]
                aggregated |= {(group_version, entry["resource"]) for entry in version["resources"]}
    assert plain == aggregated == {(kind.api_version, kind.plural) for kind in builtin_kinds().values()}


# --- aggregated -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("accept", "version"),
    [
        (AGGREGATED, "v2"),
        (OLD_AGGREGATED, "v2beta1"),
        (b"application/json", ""),
        (b"", ""),
        (b"*/*", ""),
        (b"application/json," + AGGREGATED, ""),
        (AGGREGATED.replace(b"json", b"vnd.kubernetes.protobuf", 1), "v2beta1"),
        (b"application/json;g=other;v=v2;as=APIGroupDiscoveryList,application/json", ""),
        (b"application/json;g=apidiscovery.k8s.io;v=v9;as=APIGroupDiscoveryList,application/json", ""),
        (b"application/json; g=apidiscovery.k8s.io; v=v2; as=APIGroupDiscoveryList", "v2"),
    ],
)  # fmt: skip
def test_the_first_form_that_the_server_has_is_taken(accept: bytes, version: str) -> None:
    assert aggregated_version(accept) == version


@pytest.mark.parametrize(("accept", "version"), [(AGGREGATED, "v2"), (OLD_AGGREGATED, "v2beta1")])
def test_the_aggregated_answer_names_its_form_in_the_content_type(
    catalog: Catalog, accept: bytes, version: str
) -> None:
    answer = ask(catalog, "c1", "/apis", accept)
    expected = f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
    assert answer.content_type == expected.encode()
    assert json.loads(answer.body)["apiVersion"] == f"apidiscovery.k8s.io/{version}"


def test_the_aggregated_form_has_everything_in_one_answer(catalog: Catalog) -> None:
    core = body(catalog, "c1", "/api", AGGREGATED)
    assert core["kind"] == "APIGroupDiscoveryList"
    assert len(core["items"]) == 1
    assert "name" not in core["items"][0]["metadata"]
    groups = {entry["metadata"]["name"]: entry for entry in body(catalog, "c1", "/apis", AGGREGATED)["items"]}
    thing = groups["example.com"]["versions"][0]["resources"][1]
    assert thing["resource"] == "things"
    assert thing["responseKind"] == {"group": "example.com", "version": "v1", "kind": "Things"}
    assert thing["scope"] == "Cluster"
    assert [entry["subresource"] for entry in thing["subresources"]] == ["scale", "status"]
    assert thing["subresources"][0]["responseKind"]["kind"] == "Scale"
    assert groups["example.com"]["versions"][0]["freshness"] == "Current"


def test_a_client_that_has_the_answer_gets_304_until_something_changes(catalog: Catalog) -> None:
    first = ask(catalog, "c1", "/apis", AGGREGATED)
    etag = dict(first.headers)[b"etag"]
    again = ask(catalog, "c1", "/apis", AGGREGATED, etag)
    assert (again.status, again.body) == (304, b"")
    assert ask(catalog, "c1", "/apis", AGGREGATED, b'"other", W/' + etag).status == 304
    assert ask(catalog, "c1", "/apis", OLD_AGGREGATED, etag).status == 200
    assert ask(catalog, "c1", "/api", AGGREGATED, etag).status == 200
    install(catalog, "c1", crd("others", "other.com", "v1"))
    assert ask(catalog, "c1", "/apis", AGGREGATED, etag).status == 200


def test_the_etag_is_the_same_in_another_process(catalog: Catalog) -> None:
    other = Catalog(LAYOUT)
    install(other, "x", crd("gadgets", "example.com", "v1"))
    install(other, "x", crd("things", "example.com", "v1alpha1", "v1", shortNames=["th"], categories=["all"]))
    tags = [
        dict(ask(found, name, "/apis", AGGREGATED).headers)[b"etag"] for found, name in ((catalog, "c1"), (other, "x"))
    ]
    assert tags[0] == tags[1]


# --- clusters ---------------------------------------------------------------------------------------------------------


def test_a_cluster_sees_its_own_groups_alone(catalog: Catalog) -> None:
    assert respond(catalog, "c10", ("apis", "example.com", "v1")) is None
    assert "example.com" not in ask(catalog, "c10", "/apis", AGGREGATED).body.decode()
    assert "example.com" not in ask(catalog, "c10", "/apis").body.decode()


def test_only_the_root_cluster_shows_the_kinds_about_clusters(catalog: Catalog) -> None:
    assert body(catalog, "root", "/apis/kplane.dev/v1")["resources"][0]["name"] == "clusters"
    assert respond(catalog, "c1", ("apis", "kplane.dev")) is None
    assert "kplane.dev" not in ask(catalog, "c1", "/apis", AGGREGATED).body.decode()


def test_a_group_with_builtin_and_own_kinds_shows_both(catalog: Catalog) -> None:
    install(catalog, "c1", crd("gateways", "networking.k8s.io", "v1", "v1beta1"))
    group = body(catalog, "c1", "/apis/networking.k8s.io")
    assert [entry["version"] for entry in group["versions"]] == ["v1", "v1beta1"]
    names = {entry["name"] for entry in body(catalog, "c1", "/apis/networking.k8s.io/v1")["resources"]}
    assert {"ingresses", "gateways"} <= names
    listed = [entry["metadata"]["name"] for entry in body(catalog, "c1", "/apis", AGGREGATED)["items"]]
    assert listed.count("networking.k8s.io") == 1
    assert "gateways" not in ask(catalog, "c10", "/apis", AGGREGATED).body.decode()


def test_a_thousand_different_clusters_do_not_hold_a_thousand_answers() -> None:
    catalog = Catalog(LAYOUT)
    ask(catalog, "warm", "/apis", AGGREGATED)
    for number in range(1000):
        install(catalog, f"c{number}", crd("things", f"g{number}.example.com", "v1"))
    tracemalloc.start()
    size = sum(len(ask(catalog, f"c{number}", "/apis", AGGREGATED).body) for number in range(1000))
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert held < size / 4
