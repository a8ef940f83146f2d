"""OpenAPI v3 says what kubectl asks of it: which patches a kind takes, and what a custom kind looks like."""

import json
from typing import Any

import pytest

from kplane_apiserver.definitions.catalog import Catalog
from kplane_apiserver.definitions.crds import prepare_crd
from kplane_apiserver.requests.openapi import respond
from kplane_apiserver.wire.http import Response
from kplane_core.multicluster.keylayout import KeyLayout
from kplane_core.storage.codec import encode_object
from kplane_core.storage.interface import StoredObject

LAYOUT = KeyLayout("/apiextensions.k8s.io/customresourcedefinitions", namespaced=False)
STRATEGIC = "application/strategic-merge-patch+json"


def install(catalog: Catalog, cluster: str, group: str = "example.com", plural: str = "things") -> None:
    schema = {
        "type": "object",
        "description": "A thing.",
        "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}},
    }
    document = {
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": "Thing"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }
    raw = encode_object(prepare_crd(document, None, "now"))
    catalog._apply(StoredObject(LAYOUT.key(cluster, "", document["metadata"]["name"]), 1, raw), False)


@pytest.fixture
def catalog() -> Catalog:
    found = Catalog(LAYOUT)
    install(found, "c1")
    return found


def ask(catalog: Catalog, cluster: str, path: str, **given: Any) -> Response:
    found = respond(catalog, cluster, tuple(path.strip("/").split("/")), **given)
    assert found is not None, path
    return found


def body(catalog: Catalog, cluster: str, path: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(ask(catalog, cluster, path).body)
    return document


def test_the_index_leads_to_every_document(catalog: Catalog) -> None:
    paths = body(catalog, "c1", "/openapi/v3")["paths"]
    assert {"api/v1", "apis/apps/v1", "apis/example.com/v1"} <= set(paths)
    for name, entry in paths.items():
        url, _, wanted = entry["serverRelativeURL"].partition("?hash=")
        assert url == f"/openapi/v3/{name}"
        answer = ask(catalog, "c1", url, query_hash=wanted)
        assert dict(answer.headers)[b"etag"] == f'"{wanted}"'.encode()
        assert b"immutable" in dict(answer.headers)[b"cache-control"]
        document = json.loads(answer.body)
        assert document["openapi"] == "3.0.0"
        assert document["paths"]


@pytest.mark.parametrize(
    ("group", "resource", "kind"),
    [
        ("", "namespaces/{namespace}/configmaps", "ConfigMap"),
        ("", "namespaces", "Namespace"),
        ("apps", "namespaces/{namespace}/deployments", "Deployment"),
        ("example.com", "namespaces/{namespace}/things", "Thing"),
    ],
)
def test_a_patch_names_its_kind_and_takes_field_validation(
    catalog: Catalog, group: str, resource: str, kind: str
) -> None:
    base = f"/apis/{group}/v1" if group else "/api/v1"
    patch = body(catalog, "c1", f"/openapi/v3{base}")["paths"][f"{base}/{resource}/{{name}}"]["patch"]
    assert patch["x-kubernetes-group-version-kind"] == {"group": group, "version": "v1", "kind": kind}
    assert "fieldValidation" in {entry["name"] for entry in patch["parameters"] if entry["in"] == "query"}
    assert {"application/apply-patch+yaml", "application/merge-patch+json"} <= set(patch["requestBody"]["content"])


def test_a_custom_kind_never_offers_a_strategic_merge_patch(catalog: Catalog) -> None:
    assert STRATEGIC not in ask(catalog, "c1", "/openapi/v3/apis/example.com/v1").body.decode()


def test_create_and_update_take_field_validation_too(catalog: Catalog) -> None:
    paths = body(catalog, "c1", "/openapi/v3/apis/apps/v1")["paths"]
    collection, item = (paths[f"/apis/apps/v1/namespaces/{{namespace}}/deployments{end}"] for end in ("", "/{name}"))
    for operation in (collection["post"], item["put"]):
        assert "fieldValidation" in {entry["name"] for entry in operation["parameters"]}
    assert "parameters" not in item["get"]


def test_a_kind_that_only_answers_questions_can_only_be_created(catalog: Catalog) -> None:
    paths = body(catalog, "c1", "/openapi/v3/apis/authorization.k8s.io/v1")["paths"]
    assert set(paths["/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"]) == {"post"}
    assert "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews/{name}" not in paths


def test_a_custom_kinds_schema_is_there_to_be_explained(catalog: Catalog) -> None:
    schemas = body(catalog, "c1", "/openapi/v3/apis/example.com/v1")["components"]["schemas"]
    thing = schemas["com.example.v1.Thing"]
    assert thing["x-kubernetes-group-version-kind"] == [{"group": "example.com", "version": "v1", "kind": "Thing"}]
    assert thing["properties"]["spec"]["properties"]["size"] == {"type": "integer"}
    reference = thing["properties"]["metadata"]["allOf"][0]["$ref"]
    assert reference.removeprefix("#/components/schemas/") in schemas
    kind = catalog.lookup("c1", "example.com", "v1", "things")
    assert kind is not None
    assert kind.custom is not None
    assert set((kind.custom.schema or {})["properties"]) == {"spec"}, "the definition's own schema stays as it is"


def test_a_cluster_sees_its_own_documents_alone(catalog: Catalog) -> None:
    assert respond(catalog, "c10", ("openapi", "v3", "apis", "example.com", "v1")) is None
    assert "apis/example.com/v1" not in body(catalog, "c10", "/openapi/v3")["paths"]
    assert "apis/kplane.dev/v1" in body(catalog, "root", "/openapi/v3")["paths"]
    assert "apis/kplane.dev/v1" not in body(catalog, "c1", "/openapi/v3")["paths"]


@pytest.mark.parametrize(
    "path", ["/openapi/v2", "/openapi", "/openapi/v3/apis/apps", "/openapi/v3/apis/apps/v9", "/openapi/v3/x"]
)
def test_what_is_not_served_has_no_answer(catalog: Catalog, path: str) -> None:
    assert respond(catalog, "c1", tuple(f"openapi/{path}".strip("/").split("/"))) is None


def test_a_known_document_is_not_sent_again_and_a_changed_one_is(catalog: Catalog) -> None:
    for path in ("/openapi/v3", "/openapi/v3/api/v1", "/openapi/v3/apis/example.com/v1"):
        etag = dict(ask(catalog, "c1", path).headers)[b"etag"]
        again = ask(catalog, "c1", path, if_none_match=etag)
        assert (again.status, again.body) == (304, b"")
    etag = dict(ask(catalog, "c1", "/openapi/v3").headers)[b"etag"]
    install(catalog, "c1", plural="others")
    assert ask(catalog, "c1", "/openapi/v3", if_none_match=etag).status == 200


def test_a_document_under_a_hash_that_it_no_longer_has_may_not_be_kept(catalog: Catalog) -> None:
    answer = ask(catalog, "c1", "/openapi/v3/apis/example.com/v1", query_hash="0" * 32)
    assert b"immutable" not in dict(answer.headers)[b"cache-control"]


def test_version_2_describes_nothing_as_protobuf_or_json(catalog: Catalog) -> None:
    as_json = ask(catalog, "c1", "/openapi/v2")
    assert json.loads(as_json.body) == {
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": "v1"},
        "paths": {},
    }
    accept = b"application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
    as_message = ask(catalog, "c1", "/openapi/v2", accept=accept)
    assert b"protobuf" in as_message.content_type
    # Tag, length and content of each field; the second one is a message itself.
    info = b"\x0a" + bytes([len(b"Kubernetes")]) + b"Kubernetes" + b"\x12" + bytes([len(b"v1")]) + b"v1"
    assert as_message.body == b"\x0a" + bytes([len(b"2.0")]) + b"2.0" + b"\x12" + bytes([len(info)]) + info
