"""Real manifests, of those who write them for real clusters, are stored and read back as they are.

Each file goes three ways: created, applied by kubectl and applied by the server. What comes back is what was sent, but
for what the server fills in, which `SERVER_FILLED` lists to the last field.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(os.environ.get("KPLANE_MANIFESTS", ROOT.parent / "shared" / "data" / "manifests"))
FILES = sorted(FOLDER.rglob("*.yaml"))
DEFINITIONS = {"argo-rollouts": ["install.yaml"], "kopf": ["crd.yaml", "peering.yaml"]}
WAYS = ("create", "apply", "apply --server-side")
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
LARGEST_ANNOTATION = 262_144
TOO_LONG = f"metadata.annotations: Too long: may not be more than {LARGEST_ANNOTATION} bytes"

# Where the server writes when the manifest says nothing: in every object, and by kind.
SERVER_FILLED = {
    "": (
        "metadata.uid",
        "metadata.resourceVersion",
        "metadata.creationTimestamp",
        "metadata.generation",
        "metadata.managedFields",
        "metadata.namespace",
    ),
    "CustomResourceDefinition": ("spec.conversion", "spec.names.listKind", "spec.names.singular", "status"),
    "Rollout": ("spec.template.spec.containers[0].ports[0].protocol",),  # a default of its own definition
    "Secret": ("type",),
}


def documents(path):
    with path.open("rb") as file:
        return [document for document in yaml.load_all(file, yaml.CSafeLoader) if document]


def identity(document):
    return document["kind"], document["metadata"].get("namespace", "default"), document["metadata"]["name"]


def without_nulls(value):
    """Return the value without members that are null: they say nothing, and upstream's types do not hold them."""
    if isinstance(value, dict):
        return {key: without_nulls(found) for key, found in value.items() if found is not None}
    return [without_nulls(found) for found in value] if isinstance(value, list) else value


def differences(sent, stored, path=""):
    """Return the paths at which two values differ."""
    if isinstance(sent, dict) and isinstance(stored, dict):
        names = [*sent, *(name for name in stored if name not in sent)]
        missing = object()
        pairs = [(f"{path}.{name}", sent.get(name, missing), stored.get(name, missing)) for name in names]
        return [found for place, one, other in pairs for found in differences(one, other, place)]
    if isinstance(sent, list) and isinstance(stored, list) and len(sent) == len(stored):
        pairs = enumerate(zip(sent, stored, strict=True))
        return [found for place, pair in pairs for found in differences(*pair, f"{path}[{place}]")]
    return [] if sent == stored else [path]


def unexpected(sent, stored):
    """Return where a stored object differs from what was sent and the server had no business to fill anything in."""
    annotations = stored["metadata"].get("annotations", {})
    if annotations.pop(LAST_APPLIED, None) and not annotations:
        del stored["metadata"]["annotations"]
    filled = {f".{path}" for path in (*SERVER_FILLED[""], *SERVER_FILLED.get(sent["kind"], ()))}
    sent = without_nulls({name: value for name, value in sent.items() if name != "status"})
    return [path for path in differences(sent, stored) if path not in filled]


class Kubectl:
    """A kubectl for one cluster, whose failures are for the test to judge."""

    def __init__(self, path, cluster, home):
        self.path, self.home = path, home
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("KPLANE", "KUBE"))}
        self.env = {**kept, "HOME": str(home), "KUBECONFIG": str(cluster.kubeconfig)}

    def __call__(self, *arguments):
        command = [self.path, *arguments]
        return subprocess.run(
            command, env=self.env, cwd=self.home, capture_output=True, text=True, timeout=120, check=False
        )


@pytest.fixture
def kubectl(program, kplane_cluster, tmp_path):
    return Kubectl(program("kubectl", kplane_cluster.kubeconfig).path, kplane_cluster, tmp_path)


def prepare(cluster, path, given):
    """Make what the manifest takes for granted: the definitions of its kinds, and its namespaces."""
    needed = [file for file in DEFINITIONS.get(path.parent.name, []) if file != path.name]
    if path.name not in {"install.yaml", "crd.yaml", "peering.yaml"}:
        cluster.load(*(path.parent / file for file in needed))
    made = {document["metadata"]["name"] for document in given if document["kind"] == "Namespace"}
    named = {document["metadata"].get("namespace", "default") for document in given} - {"default"} - made
    for name in sorted(named):
        cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})


def send(cluster, kubectl, way, path, given):
    """Send a file one way; return what is stored of it and who was refused as too large."""
    if way == "create":
        return cluster.create(*given), set()
    refused = {identity(document) for document in given if way == "apply" and too_large(document)}
    done = kubectl(*way.split(), "-f", str(path))
    if "ensure CRDs are installed first" in done.stderr:
        # A file that brings definitions and their objects takes two runs, with every Kubernetes.
        assert {"CustomResourceDefinition"} < {document["kind"] for document in given}
        done = kubectl(*way.split(), "-f", str(path))
    assert done.returncode == bool(refused), done.stderr
    assert done.stderr.count(TOO_LONG) == len(refused), done.stderr
    return stored_of(kubectl, path), refused


def stored_of(kubectl, path):
    read = kubectl("get", "-f", str(path), "-o", "json", "--ignore-not-found")
    assert read.returncode == 0, read.stderr
    found = json.loads(read.stdout or '{"items":[]}')
    return found["items"] if found.get("kind", "List") == "List" else [found]


def says_something(stored):
    """Whether somebody owns a field by having applied it.

    Who applies a name alone owns nothing; so its next server-side apply finds an object that nobody ever applied, and
    that is recorded, as upstream does.
    """
    return any(entry["manager"] != "before-first-apply" for entry in stored["metadata"].get("managedFields", []))


def too_large(document):
    """Whether kubectl's own copy of the object does not fit into an annotation, in any Kubernetes."""
    return len(json.dumps(document, separators=(",", ":"))) > LARGEST_ANNOTATION


@pytest.mark.kubectl
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_real_manifest(request, kplane_cluster, path, way):
    """create, apply, apply --server-side, read back equal"""
    kubectl = request.getfixturevalue("kubectl") if way != "create" else None
    given = documents(path)
    prepare(kplane_cluster, path, given)
    items, refused = send(kplane_cluster, kubectl, way, path, given)
    stored = {identity(item): item for item in items}
    expected = {identity(document): document for document in given if identity(document) not in refused}
    assert stored.keys() == expected.keys()
    for name, sent in expected.items():
        assert unexpected(sent, stored[name]) == [], name
    if way != "create":
        kubectl(*way.split(), "-f", str(path))
        for item in filter(says_something, stored_of(kubectl, path)):
            before = stored[identity(item)]["metadata"]["resourceVersion"]
            assert item["metadata"]["resourceVersion"] == before, "applying it again must change nothing"


def test_there_are_manifests():
    """A folder that moved must not make the tests above pass by having nothing to read."""
    if "KPLANE_MANIFESTS" not in os.environ and not FOLDER.exists():
        pytest.skip("no real manifests: set KPLANE_MANIFESTS to a folder that holds them")
    assert len(FILES) > 10
