"""Validation of metadata: names, labels, annotations and finalizers, faults worded as upstream words them."""

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from kplane_apiserver.apierrors import field_invalid, field_required, field_too_long, invalid
from kplane_apiserver.kinds import Kind
from kplane_core.errors import KplaneError, StatusCause
from kplane_core.multicluster.keylayout import validate_cluster_id

ANNOTATIONS_LIMIT = 256 * 1024
"""Bytes that the annotations of one object may have together."""

_LABEL_LENGTH = 63
_SUBDOMAIN_LENGTH = 253
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_QUALIFIED = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"

_DNS_LABEL = re.compile(_LABEL).fullmatch
_DNS_SUBDOMAIN = re.compile(_SUBDOMAIN).fullmatch
_DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?").fullmatch
_QUALIFIED_NAME = re.compile(_QUALIFIED).fullmatch

_SUBDOMAIN_WORDS = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL_WORDS = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    "with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_1035_WORDS = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)
_QUALIFIED_WORDS = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_VALUE_WORDS = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


def subdomain_fault(name: str) -> str:
    """Return what is wrong with a DNS subdomain; empty when nothing is."""
    if len(name) > _SUBDOMAIN_LENGTH:
        return f"must be no more than {_SUBDOMAIN_LENGTH} characters"
    return "" if _DNS_SUBDOMAIN(name) else _SUBDOMAIN_WORDS


def dns_label_fault(name: str) -> str:
    """Return what is wrong with a DNS label; empty when nothing is."""
    if len(name) > _LABEL_LENGTH:
        return f"must be no more than {_LABEL_LENGTH} characters"
    return "" if _DNS_LABEL(name) else _LABEL_WORDS


def dns_1035_label_fault(name: str) -> str:
    """Return what is wrong with a DNS-1035 label; empty when nothing is."""
    if len(name) > _LABEL_LENGTH:
        return f"must be no more than {_LABEL_LENGTH} characters"
    return "" if _DNS_1035(name) else _1035_WORDS


def path_segment_fault(name: str) -> str:
    """Return what is wrong with a segment of a path; empty when nothing is."""
    if name in {".", ".."}:
        return f"may not be '{name}'"
    found = next((char for char in "/%" if char in name), "")
    return f"may not contain '{found}'" if found else ""


def _cluster_id(name: str) -> str:
    try:
        validate_cluster_id(name)
    except KplaneError as error:
        return str(error)
    return ""


# As upstream's strategies choose; every other kind, and every custom one, has a DNS subdomain for a name.
_NAME_RULES = MappingProxyType(
    {
        "namespaces": dns_label_fault,
        "services": dns_1035_label_fault,
        "roles.rbac.authorization.k8s.io": path_segment_fault,
        "rolebindings.rbac.authorization.k8s.io": path_segment_fault,
        "clusterroles.rbac.authorization.k8s.io": path_segment_fault,
        "clusterrolebindings.rbac.authorization.k8s.io": path_segment_fault,
        "clusters.kplane.dev": _cluster_id,
    }
)


def validate_metadata(kind: Kind, document: Mapping[str, Any]) -> None:
    """Return when an object's metadata is well formed.

    Raises:
        InvalidError: 422 with one cause per fault.
    """
    metadata: Mapping[str, Any] = document["metadata"]
    causes = [*_name_faults(kind, metadata), *_label_faults(metadata), *_annotation_faults(metadata)]
    if metadata.get("finalizers"):
        causes.extend(_finalizer_faults(metadata["finalizers"]))
    if metadata.get("ownerReferences"):
        causes.extend(_owner_faults(metadata["ownerReferences"]))
    if causes:
        raise invalid(causes, kind=kind.kind, name=_text(metadata.get("name")), group=kind.group)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _name_faults(kind: Kind, metadata: Mapping[str, Any]) -> Iterator[StatusCause]:
    name = metadata.get("name", "")
    if not isinstance(name, str):
        yield field_invalid("metadata.name", name, "must be a string")
    elif not name:
        yield field_required("metadata.name", "name or generateName is required")
    elif fault := _NAME_RULES.get(kind.group_resource, subdomain_fault)(name):
        yield field_invalid("metadata.name", name, fault)


def _label_faults(metadata: Mapping[str, Any]) -> Iterator[StatusCause]:
    labels = metadata.get("labels")
    if not labels:
        return
    if not isinstance(labels, dict):
        yield field_invalid("metadata.labels", labels, "must be a map of strings")
        return
    for key, value in labels.items():
        if fault := qualified_name_fault(key):
            yield field_invalid("metadata.labels", key, fault)
        if not isinstance(value, str):
            yield field_invalid("metadata.labels", value, "must be a string")
        elif fault := label_value_fault(value):
            yield field_invalid("metadata.labels", value, fault)


def _annotation_faults(metadata: Mapping[str, Any]) -> Iterator[StatusCause]:
    annotations = metadata.get("annotations")
    if not annotations:
        return
    if not isinstance(annotations, dict):
        yield field_invalid("metadata.annotations", annotations, "must be a map of strings")
        return
    size = 0
    for key, value in annotations.items():
        if fault := qualified_name_fault(key.lower()):
            yield field_invalid("metadata.annotations", key, fault)
        if not isinstance(value, str):
            yield field_invalid("metadata.annotations", value, f"the value of {key!r} must be a string")
            continue
        size += len(key.encode()) + len(value.encode())
    if size > ANNOTATIONS_LIMIT:
        yield field_too_long("metadata.annotations", ANNOTATIONS_LIMIT)


def _finalizer_faults(finalizers: object) -> Iterator[StatusCause]:
    if not isinstance(finalizers, list):
        yield field_invalid("metadata.finalizers", finalizers, "must be a list of strings")
        return
    for finalizer in finalizers:
        if not isinstance(finalizer, str):
            yield field_invalid("metadata.finalizers", finalizer, "must be a string")
        elif fault := qualified_name_fault(finalizer):
            yield field_invalid("metadata.finalizers", finalizer, fault)


def _owner_faults(references: object) -> Iterator[StatusCause]:
    field = "metadata.ownerReferences"
    if not isinstance(references, list) or not all(isinstance(one, dict) for one in references):
        yield field_invalid(field, references, "must be a list of objects")
        return
    controller = ""
    for one in references:
        version = one.get("apiVersion")
        if not isinstance(version, str) or not version or version.endswith("/"):
            yield field_invalid(f"{field}.apiVersion", version or "", "version must not be empty")
        for part in ("kind", "name", "uid"):
            if not isinstance(one.get(part), str) or not one[part]:
                yield field_invalid(f"{field}.{part}", one.get(part) or "", "must not be empty")
        if (version, one.get("kind")) == ("v1", "Event"):
            yield field_invalid(field, one, "/v1, Kind=Event is disallowed from being an owner")
        if one.get("controller") is True:
            name = _text(one.get("name"))
            if controller:
                words = 'Only one reference can have Controller set to true. Found "true" in references for '
                yield field_invalid(field, references, f"{words}{controller} and {name}")
            controller = controller or name


def qualified_name_fault(key: str) -> str:
    """Return what is wrong with the key of a label or annotation; empty when nothing is."""
    prefix, slash, name = key.rpartition("/")
    if slash and not prefix:
        return "prefix part must be non-empty"
    if slash and (fault := subdomain_fault(prefix)):
        return f"prefix part {fault}"
    if not name:
        return "name part must be non-empty"
    if len(name) > _LABEL_LENGTH:
        return f"name part must be no more than {_LABEL_LENGTH} characters"
    return "" if _QUALIFIED_NAME(name) else _QUALIFIED_WORDS


def label_value_fault(value: str) -> str:
    """Return what is wrong with the value of a label; empty when nothing is."""
    if len(value) > _LABEL_LENGTH:
        return f"must be no more than {_LABEL_LENGTH} characters"
    return "" if not value or _QUALIFIED_NAME(value) else _VALUE_WORDS
