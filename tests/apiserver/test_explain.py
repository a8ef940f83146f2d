"""The documents hold the schemas that `kubectl explain` walks: whole, self-contained, and read only when asked for."""

import gzip
import json
import re
import subprocess
import sys

import pytest

from kplane_apiserver.kinds import DATA, builtin_kinds

REFERENCE = "#/components/schemas/"
GROUPS = sorted({(kind.group, kind.version) for kind in builtin_kinds().values() if not kind.root_only})


def document(cluster, group, version):
    path = f"/openapi/v3/apis/{group}/{version}" if group else f"/openapi/v3/api/{version}"
    answer = cluster.get(path)
    assert answer.status_code == 200
    return answer.json()


def schema_of(found, group, version, kind):
    """The schema that carries the kind's mark, as kubectl looks it up."""
    wanted = {"group": group, "version": version, "kind": kind}
    [schema] = [
        schema
        for schema in found["components"]["schemas"].values()
        if wanted in schema.get("x-kubernetes-group-version-kind", [])
    ]
    return schema


def resolve(found, schema):
    if "allOf" in schema and len(schema["allOf"]) == 1:
        schema = schema["allOf"][0]
    reference = schema.get("$ref")
    return found["components"]["schemas"][reference.removeprefix(REFERENCE)] if reference else schema


@pytest.mark.parametrize(("group", "version"), GROUPS)
def test_every_builtin_kind_has_its_schema_and_all_that_it_leads_to(cluster, group, version):
    found = document(cluster, group, version)
    text = json.dumps(found)
    referred = set(re.findall(re.escape(REFERENCE) + '([^"]+)"', text))
    assert referred <= found["components"]["schemas"].keys()
    for kind in builtin_kinds().values():
        if (kind.group, kind.version) == (group, version) and not kind.root_only:
            schema = schema_of(found, group, version, kind.kind)
            assert schema["type"] == "object"
            assert schema["description"] or group == "kplane.dev"


def test_types_are_plain_and_versions_are_not_pinned(cluster):
    for group, version in (("", "v1"), ("apps", "v1")):
        pending = list(document(cluster, group, version)["components"]["schemas"].values())
        while pending:
            node = pending.pop()
            if isinstance(node, dict):
                assert isinstance(node.get("type", ""), str | dict), node
                pending.extend(node.values())
            elif isinstance(node, list):
                pending.extend(node)
    pod = schema_of(document(cluster, "", "v1"), "", "v1", "Pod")
    assert "enum" not in pod["properties"]["kind"]


def test_a_path_of_fields_can_be_walked(cluster):
    found = document(cluster, "", "v1")
    node = schema_of(found, "", "v1", "Pod")
    for name in ("spec", "containers", "ports", "containerPort"):
        node = resolve(found, node["properties"][name])
        node = resolve(found, node["items"]) if node.get("type") == "array" else node
    assert node["type"] == "integer"
    assert "port to expose" in node["description"]


def test_a_custom_kind_has_the_metadata_of_all_objects(cluster):
    schema = {"type": "object", "properties": {"spec": {"type": "object", "description": "What it is to be."}}}
    definition = {
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }
    cluster.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    found = document(cluster, "example.com", "v1")
    thing = schema_of(found, "example.com", "v1", "Thing")
    assert thing["properties"]["spec"]["description"] == "What it is to be."
    metadata = resolve(found, thing["properties"]["metadata"])
    assert metadata["properties"]["ownerReferences"]["items"]["$ref"].endswith("v1.OwnerReference")


def test_a_document_that_the_client_has_is_not_sent_again(cluster):
    path = cluster.get("/openapi/v3").json()["paths"]["apis/apps/v1"]["serverRelativeURL"]
    first = cluster.get(path)
    assert first.headers["etag"].strip('"') in path
    again = cluster.request("GET", path, headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert cluster.get(path).content == first.content


def test_the_packed_schemas_are_small_and_reproducible():
    files = sorted((DATA / "openapi").glob("*.json.gz"))
    assert sum(path.stat().st_size for path in files) < 300_000
    for path in files:
        packed = path.read_bytes()
        assert gzip.compress(gzip.decompress(packed), 9, mtime=0)[4:8] == packed[4:8] == bytes(4), "no time in it"


def test_the_server_starts_without_reading_them():
    """Nobody pays for `explain` who does not ask for it."""
    code = (
        "import kplane_apiserver.server, kplane_apiserver.schemas.published as p, sys;"
        "assert p._package.cache_info().currsize == 0;"
        "assert not any(name.startswith(('cel_expr_python', 'google.protobuf')) for name in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
