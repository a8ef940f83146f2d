"""Real manifests, of those who write them for real clusters, are stored and read back as they are."""

import os
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(os.environ.get("KPLANE_MANIFESTS", ROOT.parent / "shared" / "data" / "manifests"))
FILES = sorted(FOLDER.rglob("*.yaml"))
DEFINITIONS = {"argo-rollouts": ["install.yaml"], "kopf": ["crd.yaml", "peering.yaml"]}


def without_nulls(value):
    if isinstance(value, dict):
        return {key: without_nulls(found) for key, found in value.items() if found is not None and found != {}}
    return [without_nulls(found) for found in value] if isinstance(value, list) else value


def lost(sent, stored, path=""):
    """Return the paths at which the stored object says something else than was sent."""
    if isinstance(sent, dict) and isinstance(stored, dict):
        return [found for key, value in sent.items() for found in lost(value, stored.get(key), f"{path}.{key}")]
    if isinstance(sent, list) and isinstance(stored, list) and len(sent) == len(stored):
        return [found for n, pair in enumerate(zip(sent, stored, strict=True)) for found in lost(*pair, f"{path}[{n}]")]
    return [] if sent == stored else [path]


def documents(path):
    with path.open("rb") as file:
        return [document for document in yaml.load_all(file, yaml.CSafeLoader) if document]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_real_manifest(kplane_cluster, path):
    """create, read back equal"""
    needed = [file for file in DEFINITIONS.get(path.parent.name, []) if file != path.name]
    if path.name not in {"install.yaml", "crd.yaml", "peering.yaml"}:
        kplane_cluster.load(*(path.parent / file for file in needed))
    given = documents(path)
    namespaces = {document["metadata"].get("namespace", "default") for document in given} - {"default"}
    for name in sorted(namespaces):
        kplane_cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    for sent, stored in zip(given, kplane_cluster.create(*given), strict=True):
        sent.pop("status", None)
        assert lost(without_nulls(sent), without_nulls(stored)) == [], sent["metadata"]["name"]


def test_there_are_manifests():
    """A folder that moved must not make the tests above pass by having nothing to read."""
    if "KPLANE_MANIFESTS" not in os.environ and not FOLDER.exists():
        pytest.skip("no real manifests: set KPLANE_MANIFESTS to a folder that holds them")
    assert len(FILES) > 10
