"""Manifests in files: what a test's cluster is filled with."""

import os
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from kplane_core.errors import UsageError

Document = dict[str, Any]

_SUFFIXES = (".json", ".yaml", ".yml")
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def load_manifests(paths: Iterable[str | os.PathLike[str]]) -> list[Document]:
    """Return the documents of files and of all YAML and JSON files in folders, in the order of the names.

    Raises:
        UsageError: there is no such file, or it holds something else than Kubernetes objects.
    """
    documents: list[Document] = []
    for path in map(Path, paths):
        files = sorted(file for file in path.rglob("*") if file.suffix in _SUFFIXES) if path.is_dir() else [path]
        if not files:
            raise UsageError(f"the folder {path} holds no {', '.join(_SUFFIXES)} file")
        for file in files:
            try:
                changed = file.stat().st_mtime_ns
            except OSError as error:
                raise UsageError(
                    f"cannot read the manifest {file}: {(error.strerror or str(error)).lower()}"
                ) from error
            documents += _load(file, changed)
    return documents


@lru_cache(maxsize=256)
def _load(file: Path, _changed: int) -> tuple[Document, ...]:
    """Parse a file once, however many tests ask for it."""
    try:
        documents = [found for found in yaml.load_all(file.read_bytes(), _Loader) if found is not None]
    except yaml.YAMLError as error:
        raise UsageError(f"{file} is not YAML: {str(error).splitlines()[0]}") from error
    flat = [item for found in documents for item in _items(found)]
    for document in flat:
        check_object(document, str(file))
    return tuple(flat)


def _items(found: Any) -> list[Any]:
    if isinstance(found, dict) and found.get("kind") == "List" and isinstance(found.get("items"), list):
        return list(found["items"])
    return [found]


def check_object(document: Any, where: str) -> None:
    """Return if this can be a Kubernetes object.

    Raises:
        UsageError: it says neither what it is nor what it is called.
    """
    if not isinstance(document, dict):
        raise UsageError(f"{where}: an object is a mapping, not {type(document).__name__}")
    metadata = document.get("metadata") or {}
    missing = [field for field in ("apiVersion", "kind") if not document.get(field)]
    if not metadata.get("name") and not metadata.get("generateName"):
        missing.append("metadata.name")
    if missing:
        raise UsageError(f"{where}: an object needs {' and '.join(missing)}")
