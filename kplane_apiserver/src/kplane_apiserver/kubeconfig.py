"""Write a kubeconfig with one context per virtual cluster, and leave everybody else's entries alone."""

import contextlib
import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from kplane_core.errors import UsageError

USER = "kplane"


def context_name(cluster: str) -> str:
    """Return the name of a cluster's context, as kplane's other tools name it."""
    return f"kplane-{cluster}"


def cluster_url(base_url: str, cluster: str) -> str:
    """Return the address of one virtual cluster below a server's address."""
    return f"{base_url}/clusters/{cluster}/control-plane"


def write_kubeconfig(path: Path, base_url: str, clusters: Iterable[str]) -> None:
    """Put a context `kplane-<cluster>` per cluster into the kubeconfig file.

    Entries of other names stay as they are, and so does a current context that is set. The file is replaced as a
    whole or not at all, readable by its owner only.

    Args:
        path: the file; made if absent.
        base_url: where the server listens, for example `http://127.0.0.1:8080`.
        clusters: the virtual clusters, the first one becoming the current context of a file that has none.

    Raises:
        UsageError: the file is no kubeconfig, or cannot be read or written.
    """
    document = _read(path)
    names = list(clusters)
    for cluster in names:
        name = context_name(cluster)
        _put(document, "clusters", {"name": name, "cluster": {"server": cluster_url(base_url, cluster)}})
        _put(document, "contexts", {"name": name, "context": {"cluster": name, "user": USER, "namespace": "default"}})
    _put(document, "users", {"name": USER, "user": {}})
    if names and not document.get("current-context"):
        document["current-context"] = context_name(names[0])
    _replace(path, yaml.safe_dump(document, sort_keys=False))


def _read(path: Path) -> dict[str, Any]:
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        document = None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the kubeconfig {path}: {_reason(error)}") from error
    except yaml.YAMLError as error:
        raise UsageError(f"{path} is not YAML, so it is left alone; name another file with --kubeconfig") from error
    if document is None:
        document = {"apiVersion": "v1", "kind": "Config"}
    if not isinstance(document, dict) or document.get("kind") != "Config" or not _lists_are_lists(document):
        raise UsageError(f"{path} is not a kubeconfig, so it is left alone; name another file with --kubeconfig")
    return document


def _lists_are_lists(document: Mapping[str, Any]) -> bool:
    """Whether every section to be merged holds named entries (or nothing)."""
    sections = (document.get(section) or [] for section in ("clusters", "contexts", "users"))
    return all(isinstance(entries, list) and all(isinstance(entry, dict) for entry in entries) for entries in sections)


def _put(document: dict[str, Any], section: str, entry: dict[str, Any]) -> None:
    """Replace the section's entry of that name, or append it."""
    entries: list[dict[str, Any]] = document.get(section) or []
    document[section] = entries
    for position, other in enumerate(entries):
        if other.get("name") == entry["name"]:
            entries[position] = entry
            return
    entries.append(entry)


def _replace(path: Path, text: str) -> None:
    target = Path(os.path.realpath(path))  # a link keeps pointing at its file
    try:
        # mkstemp makes the file for its owner only, in the same folder, so that the rename is atomic.
        descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    except OSError as error:
        raise UsageError(f"cannot write the kubeconfig {path}: {_reason(error)}") from error
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        Path(temporary).replace(target)
    except OSError as error:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise UsageError(f"cannot write the kubeconfig {path}: {_reason(error)}") from error


def _reason(error: OSError | UnicodeDecodeError) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else "it is not UTF-8 text"
