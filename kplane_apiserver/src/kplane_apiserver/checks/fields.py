"""Which fields of a resource its field selectors may use, and their values when absent."""

from collections.abc import Collection, Mapping
from functools import cache
from types import MappingProxyType

from kplane_apiserver.kinds import EVENTS, Kind
from kplane_core.errors import BadRequest
from kplane_core.storage.selection import AttributeFunc, Attributes, FieldSelector

_REFERENCE_FIELDS = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_EVENT_FIELDS = {
    **{f"involvedObject.{name}": "" for name in _REFERENCE_FIELDS},
    "reason": "",
    "reportingComponent": "",
    "source.component": "",
    "type": "",
}

# As upstream's registries offer them; the second text is the value of a field that an object leaves out.
_SELECTABLE: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "pods": {
            "spec.nodeName": "",
            "spec.restartPolicy": "",
            "spec.schedulerName": "",
            "spec.serviceAccountName": "",
            "spec.hostNetwork": "false",
            "status.phase": "",
            "status.podIP": "",
            "status.nominatedNodeName": "",
        },
        "events": _EVENT_FIELDS,
        "secrets": {"type": ""},
        "namespaces": {"status.phase": ""},
        "nodes": {"spec.unschedulable": "false"},
        "replicationcontrollers": {"status.replicas": "0"},
        "services": {"spec.clusterIP": "", "spec.type": ""},
        "replicasets.apps": {"status.replicas": "0"},
        "jobs.batch": {"status.successful": "0"},
        "certificatesigningrequests.certificates.k8s.io": {"spec.signerName": ""},
    }
)

# Clients ask for an event's source by the short name of the field that holds it.
_ALIASES: Mapping[str, Mapping[str, str]] = MappingProxyType({"events": {"source": "source.component"}})

# What a resource's selectors may name beyond the name and namespace where its objects are stored as another resource's,
# and what each field is called there.
_STORED_NAMES: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "events.events.k8s.io": {
            **{f"regarding.{name}": f"involvedObject.{name}" for name in _REFERENCE_FIELDS},
            "reason": "reason",
            "reportingController": "reportingComponent",
            "source": "source.component",
            "type": "type",
        }
    }
)


def selectable_fields(kind: Kind) -> Mapping[str, str]:
    """Return the selectable fields of a kind beyond name and namespace, with the value each has when absent.

    They are named as in the objects of `kind`, which is one whose objects are stored as its own.
    """
    if kind.custom is None:
        return _SELECTABLE.get(kind.group_resource, {})
    return {path.lstrip("."): "" for path in kind.custom.selectable_fields}


def attributes_for(kind: Kind, attributes: AttributeFunc) -> AttributeFunc:
    """Return how selectors see the objects of a kind, from how they see objects by their paths alone."""
    return _with_event_source(attributes) if kind.custom is None and kind.storage_resource == EVENTS else attributes


@cache
def _with_event_source(attributes: AttributeFunc) -> AttributeFunc:
    """Return the same for Events: one without a source comes from its reporter."""

    def extract(raw: bytes) -> Attributes:
        found = attributes(raw)
        if found.fields["source.component"]:
            return found
        return found._replace(fields={**found.fields, "source.component": found.fields["reportingComponent"]})

    return extract


def check_field_selector(kind: Kind, selector: FieldSelector) -> FieldSelector:
    """Return the selector with each field by the name that it has in stored objects.

    Raises:
        BadRequest: it uses a field that the kind does not offer; the message lists those that it does.
    """
    if not selector.terms:
        return selector
    known = ("metadata.name", "metadata.namespace") if kind.namespaced else ("metadata.name",)
    names = _STORED_NAMES.get(kind.group_resource)
    own: Collection[str] = selectable_fields(kind) if names is None else names
    offered = {*known, *own}
    aliases = _ALIASES.get(kind.group_resource, {}) if names is None else names
    terms = []
    for term in selector.terms:
        if term.field not in offered and term.field not in aliases:
            listed = ", ".join(f'"{name}"' for name in (*known, *own))
            raise BadRequest(f'"{term.field}" is not a known field selector: only {listed}')
        terms.append(term._replace(field=aliases.get(term.field, term.field)))
    return FieldSelector(tuple(terms))
