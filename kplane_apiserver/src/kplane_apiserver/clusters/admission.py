"""What the server itself decides about an object before it is stored.

Pure functions of the new object, the old one and the time. They change the new object in place, which belongs to the
request that decoded it.
"""

import base64
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from kplane_apiserver.apierrors import field_forbidden, field_invalid, invalid, json_type
from kplane_apiserver.authorization.rbac.validation import check_binding, check_role
from kplane_apiserver.checks.payloads import check_config_map, check_secret
from kplane_apiserver.checks.validation import validate_metadata
from kplane_apiserver.kinds import Kind
from kplane_core.chance import new_uid
from kplane_core.errors import BadRequest, Subject, conflict

Document = dict[str, Any]

NAMESPACE_FINALIZER = "kubernetes"
NAMESPACE_LABEL = "kubernetes.io/metadata.name"
MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"

# Fields that the server owns: a client's value never counts.
_SERVER_OWNED = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")
_DROPPED_WHEN_EMPTY = ("labels", "annotations", "finalizers", "ownerReferences")
_OUTSIDE_SPEC = frozenset({"apiVersion", "kind", "metadata", "status"})

# Builtin kinds whose objects carry no generation although they have a status subresource, and those that carry one
# although they have none; as upstream's strategies have it.
_STATUS_WITHOUT_GENERATION = frozenset(
    {
        "namespaces",
        "nodes",
        "persistentvolumes",
        "persistentvolumeclaims",
        "services",
        "resourcequotas",
        "certificatesigningrequests.certificates.k8s.io",
        "horizontalpodautoscalers.autoscaling",
    }
)
_GENERATION_WITHOUT_STATUS = frozenset(
    {
        "networkpolicies.networking.k8s.io",
        "priorityclasses.scheduling.k8s.io",
        "mutatingwebhookconfigurations.admissionregistration.k8s.io",
        "validatingwebhookconfigurations.admissionregistration.k8s.io",
        "validatingadmissionpolicybindings.admissionregistration.k8s.io",
    }
)
_STATUS_KEPT_ON_CREATE = frozenset({"nodes"})
_FIRST_PHASE = MappingProxyType(
    {
        "pods": "Pending",
        "persistentvolumes": "Pending",
        "persistentvolumeclaims": "Pending",
        "namespaces": "Active",
        "clusters.kplane.dev": "Ready",
    }
)
_TERMINATING = frozenset({"namespaces", "clusters.kplane.dev"})


def prepare_create(kind: Kind, document: Document, namespace: str, now: str) -> None:
    """Make a client's new object ready to be stored.

    Args:
        kind: what it is.
        document: the object; its metadata has a name already.
        namespace: the namespace from the URL; empty for a cluster-scoped kind.
        now: the time, as a Kubernetes timestamp.

    Raises:
        InvalidError: 422; the metadata is malformed.
    """
    metadata = document["metadata"]
    for field in (*_SERVER_OWNED, "managedFields", "selfLink", "resourceVersion"):
        metadata.pop(field, None)
    if namespace:
        metadata["namespace"] = namespace
    else:
        metadata.pop("namespace", None)
    metadata["uid"] = new_uid()
    metadata["creationTimestamp"] = now
    if has_generation(kind):
        metadata["generation"] = 1
    _drop_empty(metadata)
    if "status" in kind.subresources and kind.group_resource not in _STATUS_KEPT_ON_CREATE:
        document.pop("status", None)
    if phase := _FIRST_PHASE.get(kind.group_resource):
        document["status"] = {"phase": phase}
    validate_metadata(kind, document)
    _apply_defaults(kind, document, None)


def prepare_update(kind: Kind, document: Document, old: Document) -> None:
    """Make a client's new state of an object ready to be stored over the old one.

    Args:
        kind: what it is.
        document: the new state; its name and namespace are those of the old one.
        old: the stored state.

    Raises:
        ApiError: 409; the uid is that of another object.
        InvalidError: 422; the metadata is malformed or a finalizer was added during deletion.
    """
    metadata, old_metadata = document["metadata"], old["metadata"]
    check_uid(kind, metadata, old_metadata)
    for field in ("managedFields", "selfLink", *_SERVER_OWNED):
        metadata.pop(field, None)
    for field in _SERVER_OWNED:
        if field in old_metadata:
            metadata[field] = old_metadata[field]
    _drop_empty(metadata)
    validate_metadata(kind, document)
    _check_finalizers(kind, metadata, old_metadata)
    if "status" in kind.subresources:
        _keep(document, old, "status")
    _apply_defaults(kind, document, old)
    if has_generation(kind) and _spec_differs(kind, document, old):
        metadata["generation"] = int(old_metadata.get("generation") or 0) + 1


def prepare_status(kind: Kind, document: Document, old: Document) -> Document:
    """Return the old state with the new one's status.

    Raises:
        ApiError: 409; the uid is that of another object.
    """
    check_uid(kind, document["metadata"], old["metadata"])
    result = dict(old)
    if "status" in document:
        result["status"] = document["status"]
    else:
        result.pop("status", None)
    return result


def prepare_finalize(document: Document, old: Document) -> Document:
    """Return a namespace's old state with the new one's `spec.finalizers`."""
    result = dict(old)
    finalizers = (document.get("spec") or {}).get("finalizers")
    result["spec"] = {**(old.get("spec") or {}), "finalizers": finalizers or []}
    return result


def prepare_deletion(kind: Kind, document: Document, now: str) -> None:
    """Mark an object as being deleted: finalizers hold it until they are gone."""
    metadata = document["metadata"]
    metadata["deletionTimestamp"] = now
    metadata["deletionGracePeriodSeconds"] = 0
    if has_generation(kind):
        metadata["generation"] = int(metadata.get("generation") or 0) + 1
    if kind.group_resource in _TERMINATING:
        document["status"] = {**(document.get("status") or {}), "phase": "Terminating"}


def has_finalizers(document: Mapping[str, Any]) -> bool:
    """Whether something holds the object although it is being deleted."""
    if document["metadata"].get("finalizers"):
        return True
    return document.get("kind") == "Namespace" and bool((document.get("spec") or {}).get("finalizers"))


def is_deleting(document: Mapping[str, Any]) -> bool:
    """Whether the object is being deleted."""
    return bool(document["metadata"].get("deletionTimestamp"))


def has_generation(kind: Kind) -> bool:
    """Whether objects of the kind count the changes of their spec."""
    if kind.custom is not None:
        return True
    if "status" in kind.subresources:
        return kind.group_resource not in _STATUS_WITHOUT_GENERATION
    return kind.group_resource in _GENERATION_WITHOUT_STATUS


def metadata_of(document: Document) -> Document:
    """Return the object's metadata, which is made if it is missing.

    Raises:
        BadRequest: it is not an object.
    """
    metadata = document.get("metadata")
    if metadata is None:
        metadata = document["metadata"] = {}
    if not isinstance(metadata, dict):
        raise BadRequest(f"metadata must be an object, not {json_type(metadata)}")
    return metadata


def check_uid(kind: Kind, metadata: Document, old_metadata: Document) -> None:
    """Return when the new metadata does not name another object's uid.

    Raises:
        ApiError: 409.
    """
    uid, old_uid = metadata.get("uid"), old_metadata.get("uid")
    if uid and uid != old_uid:
        subject = Subject(kind.plural, kind.group, old_metadata.get("name", ""))
        raise conflict(subject, f"Precondition failed: UID in precondition: {uid}, UID in object meta: {old_uid}")


def without_nulls(value: Any) -> Any:
    """Return JSON with the members that are null left out, as a typed decode has it; lists keep their nulls."""
    if isinstance(value, dict):
        return {key: without_nulls(member) for key, member in value.items() if member is not None}
    if isinstance(value, list):
        return [without_nulls(member) for member in value]
    return value


def _drop_empty(metadata: Document) -> None:
    for field in _DROPPED_WHEN_EMPTY:
        if field in metadata and not metadata[field]:
            del metadata[field]


def _keep(document: Document, old: Document, field: str) -> None:
    if field in old:
        document[field] = old[field]
    else:
        document.pop(field, None)


def _spec_differs(kind: Kind, document: Document, old: Document) -> bool:
    keys = (document.keys() | old.keys()) - _OUTSIDE_SPEC
    if "status" not in kind.subresources:
        keys.add("status")  # without an endpoint of its own it is a field like any other
    return any(document.get(key) != old.get(key) for key in keys)


def _check_finalizers(kind: Kind, metadata: Document, old_metadata: Document) -> None:
    if not old_metadata.get("deletionTimestamp"):
        return
    added = sorted(set(metadata.get("finalizers") or ()) - set(old_metadata.get("finalizers") or ()))
    if added:
        detail = "no new finalizers can be added if the object is being deleted, found new finalizers "
        cause = field_forbidden("metadata.finalizers", detail + ", ".join(f'"{name}"' for name in added))
        raise invalid([cause], kind=kind.kind, name=metadata["name"], group=kind.group)


# --- defaults of single kinds -----------------------------------------------------------------------------------------


def _default_namespace(_kind: Kind, document: Document, old: Document | None) -> None:
    metadata = document["metadata"]
    labels = metadata.get("labels")
    metadata["labels"] = {**(labels if isinstance(labels, dict) else {}), NAMESPACE_LABEL: metadata["name"]}
    if old is not None:
        _keep(document, old, "spec")  # its only field changes through /finalize alone
        return
    finalizers = (document.get("spec") or {}).get("finalizers") or []
    if NAMESPACE_FINALIZER not in finalizers:
        finalizers = [*finalizers, NAMESPACE_FINALIZER]
    document["spec"] = {"finalizers": finalizers}


def _default_secret(kind: Kind, document: Document, old: Document | None) -> None:
    plain = document.pop("stringData", None)
    if plain:
        if not isinstance(plain, dict) or not all(isinstance(value, str) for value in plain.values()):
            cause = field_invalid("stringData", "***", "must be a map of strings")
            raise invalid([cause], kind=kind.kind, name=document["metadata"]["name"])
        encoded = {key: base64.b64encode(value.encode()).decode() for key, value in plain.items()}
        document["data"] = {**(document.get("data") or {}), **encoded}
    if not document.get("type"):
        document["type"] = (old or {}).get("type") or "Opaque"
    check_secret(kind, document, old)


_DEFAULTS: Mapping[str, Callable[[Kind, Document, Document | None], None]] = MappingProxyType(
    {
        "namespaces": _default_namespace,
        "secrets": _default_secret,
        "configmaps": check_config_map,
        "roles.rbac.authorization.k8s.io": check_role,
        "clusterroles.rbac.authorization.k8s.io": check_role,
        "rolebindings.rbac.authorization.k8s.io": check_binding,
        "clusterrolebindings.rbac.authorization.k8s.io": check_binding,
    }
)


def _apply_defaults(kind: Kind, document: Document, old: Document | None) -> None:
    default = _DEFAULTS.get(kind.group_resource)
    if default is not None:
        default(kind, document, old)
