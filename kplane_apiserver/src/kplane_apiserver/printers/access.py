"""Rows of access rules, and of the kinds whose columns are plain fields."""

from collections.abc import Callable
from typing import Any

from kplane_apiserver.printers.columns import (
    AGE,
    CREATED_AT,
    NAME,
    Cell,
    Cells,
    Column,
    Printer,
    age_of,
    condition,
    count,
    created,
    dig,
    items,
    mapping,
    name_of,
    number,
    text,
    texts,
    whole,
    wide,
)

_UNSET = "<unset>"
_NONE = "<none>"

Value = Callable[[dict[str, Any]], Cell]


def _name_and_age(document: dict[str, Any], now: float) -> Cells:
    return [name_of(document), age_of(document, now)]


NAME_AND_AGE = Printer((NAME, AGE), _name_and_age, metadata_only=True)
"""What every kind without columns of its own gets."""


def _created_at(document: dict[str, Any], _now: float) -> Cells:
    return [name_of(document), created(document)]


NAME_AND_CREATED = Printer((NAME, CREATED_AT), _created_at, metadata_only=True)


def fields(*between: tuple[Column, Value]) -> Printer:
    """Return a printer whose row is the name, plain values, and the age."""
    values = [value for _, value in between]

    def cells(document: dict[str, Any], now: float) -> Cells:
        return [name_of(document), *(value(document) for value in values), age_of(document, now)]

    return Printer((NAME, *(column for column, _ in between), AGE), cells)


def shown(name: str, *path: str, default: str = "") -> tuple[Column, Value]:
    """Return a text column that shows the field at a path."""
    return Column(name), lambda document: text(document, *path, default=default)


CLUSTER = fields(shown("Phase", "status", "phase"))
FLEET = fields(
    (number("Members", "How many members there are to be."), lambda fleet: whole(fleet, "status", "replicas")),
    (number("Ready", "How many of them can be used."), lambda fleet: whole(fleet, "status", "readyReplicas")),
)


def flag(name: str, *path: str, default: bool = False) -> tuple[Column, Value]:
    """Return a column that shows the boolean at a path."""

    def value(document: dict[str, Any]) -> Cell:
        found = dig(document, *path)
        return found if isinstance(found, bool) else default

    return Column(name, type="boolean"), value


def counted(name: str, *path: str) -> tuple[Column, Value]:
    """Return a column that counts the entries at a path."""
    return number(name), lambda document: count(document, *path)


def _binding(binding: dict[str, Any], now: float) -> Cells:
    reference = mapping(binding, "roleRef")
    subjects: dict[str, list[str]] = {"User": [], "Group": [], "ServiceAccount": []}
    for subject in items(binding, "subjects"):
        name, namespace = text(subject, "name"), text(subject, "namespace")
        is_account = subject.get("kind") == "ServiceAccount"
        subjects.setdefault(text(subject, "kind"), []).append(f"{namespace}/{name}" if is_account else name)
    return [
        name_of(binding),
        f"{text(reference, 'kind')}/{text(reference, 'name')}",
        age_of(binding, now),
        *(", ".join(subjects[kind]) for kind in ("User", "Group", "ServiceAccount")),
    ]


ROLE_BINDING = Printer(
    (
        NAME,
        Column("Role", description="The role that it grants."),
        AGE,
        wide("Users"),
        wide("Groups"),
        wide("ServiceAccounts"),
    ),
    _binding,
)

LEASE = fields(shown("Holder", "spec", "holderIdentity"))

STORAGE_CLASS = fields(
    shown("Provisioner", "provisioner"),
    shown("ReclaimPolicy", "reclaimPolicy", default="Delete"),
    shown("VolumeBindingMode", "volumeBindingMode", default=_UNSET),
    flag("AllowVolumeExpansion", "allowVolumeExpansion"),
)


def _default_marked(document: dict[str, Any]) -> str:
    marks = mapping(document, "metadata", "annotations")
    is_default = marks.get("storageclass.kubernetes.io/is-default-class") == "true"
    return name_of(document) + (" (default)" if is_default else "")


def _storage_class(document: dict[str, Any], now: float) -> Cells:
    cells = STORAGE_CLASS.cells(document, now)
    cells[0] = _default_marked(document)
    return cells


MARKED_STORAGE_CLASS = Printer(STORAGE_CLASS.columns, _storage_class)

PRIORITY_CLASS = fields(
    (number("Value"), lambda document: whole(document, "value")),
    flag("Global-Default", "globalDefault"),
)

RUNTIME_CLASS = fields(shown("Handler", "handler"))

VOLUME_ATTACHMENT = fields(
    shown("Attacher", "spec", "attacher"),
    shown("PV", "spec", "source", "persistentVolumeName"),
    shown("Node", "spec", "nodeName"),
    flag("Attached", "status", "attached"),
)

VOLUME_ATTRIBUTES_CLASS = fields(shown("DriverName", "driverName"))

CSI_NODE = fields(counted("Drivers", "spec", "drivers"))

CSI_DRIVER = fields(
    flag("AttachRequired", "spec", "attachRequired", default=True),
    flag("PodInfoOnMount", "spec", "podInfoOnMount"),
    flag("StorageCapacity", "spec", "storageCapacity"),
    (
        Column("TokenRequests"),
        lambda document: ",".join(text(ask, "audience") for ask in items(document, "spec", "tokenRequests")) or _UNSET,
    ),
    flag("RequiresRepublish", "spec", "requiresRepublish"),
    (Column("Modes"), lambda document: ",".join(texts(document, "spec", "volumeLifecycleModes")) or "Persistent"),
)

WEBHOOK_CONFIGURATION = fields(counted("Webhooks", "webhooks"))

ADMISSION_POLICY = fields(
    counted("Validations", "spec", "validations"),
    (
        Column("ParamKind"),
        lambda document: (
            "/".join(
                part
                for part in (
                    text(document, "spec", "paramKind", "apiVersion"),
                    text(document, "spec", "paramKind", "kind"),
                )
                if part
            )
            or _UNSET
        ),
    ),
)

ADMISSION_BINDING = fields(
    shown("PolicyName", "spec", "policyName"),
    (
        Column("ParamRef"),
        lambda document: (
            "/".join(
                part
                for part in (
                    text(document, "spec", "paramRef", "namespace"),
                    text(document, "spec", "paramRef", "name"),
                )
                if part
            )
            or _UNSET
        ),
    ),
)


def _service_of(document: dict[str, Any]) -> str:
    service = mapping(document, "spec", "service")
    return f"{text(service, 'namespace')}/{text(service, 'name')}" if service else "Local"


def _availability(document: dict[str, Any]) -> str:
    available = condition(document, "Available")
    status, reason = text(available, "status", default="Unknown"), text(available, "reason")
    return status if status == "True" or not reason else f"{status} ({reason})"


API_SERVICE = fields((Column("Service"), _service_of), (Column("Available"), _availability))

FLOW_SCHEMA = fields(
    shown("PriorityLevel", "spec", "priorityLevelConfiguration", "name"),
    (number("MatchingPrecedence"), lambda document: whole(document, "spec", "matchingPrecedence")),
    shown("DistinguisherMethod", "spec", "distinguisherMethod", "type", default=_NONE),
)

PRIORITY_LEVEL = fields(
    shown("Type", "spec", "type"),
    shown("NominalConcurrencyShares", "spec", "limited", "nominalConcurrencyShares", default=_NONE),
)
