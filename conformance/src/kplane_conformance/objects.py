"""Objects for the cases, and their comparison as whole objects with a readable difference."""

import difflib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from kplane_core.storage.interface import StoredObject
from kplane_core.storage.selection import attribute_func

pod_attributes = attribute_func({"spec.nodeName": ""})
"""How selectors see a pod: its labels, metadata.name, metadata.namespace and spec.nodeName."""


def pod(
    name: str,
    namespace: str = "test-ns",
    *,
    node: str = "",
    phase: str = "",
    uid: str = "",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    resource_version: str = "",
) -> dict[str, Any]:
    """Return a pod; everything that is not given is absent.

    Args:
        name: metadata.name.
        namespace: metadata.namespace; "" for none.
        node: spec.nodeName.
        phase: status.phase.
        uid: metadata.uid.
        labels: metadata.labels.
        annotations: metadata.annotations.
        resource_version: metadata.resourceVersion, for what a client sends.
    """
    metadata: dict[str, Any] = {"name": name}
    given = (
        ("namespace", namespace),
        ("uid", uid),
        ("resourceVersion", resource_version),
        ("labels", dict(labels or {})),
        ("annotations", dict(annotations or {})),
    )
    metadata |= {field: value for field, value in given if value}
    document: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
    if node:
        document["spec"] = {"nodeName": node}
    if phase:
        document["status"] = {"phase": phase}
    return document


def show(value: Any) -> str:
    """Return a stored object, or a list of them, as text that two of them can be compared by line by line."""
    if isinstance(value, StoredObject):
        if not value.exists:
            return f"(no object at {value.key})"
        document = json.dumps(value.decode(), indent=2, sort_keys=True)
        return f"key: {value.key}\nrevision: {value.revision}\n{document}"
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return f"{len(value)} items\n" + "\n".join(show(item) for item in value)
    return json.dumps(value, indent=2, sort_keys=True, default=repr)


def difference(got: Any, want: Any) -> str:
    """Return what `got` has (+) that `want` has not (-), or "" when they are the same."""
    lines = difflib.unified_diff(
        show(want).splitlines(), show(got).splitlines(), "promised", "what came", lineterm="", n=4
    )
    return "\n".join(lines)
