"""Rows of configuration, cluster and storage kinds."""

from typing import Any

from kplane_apiserver.printers.ages import UNKNOWN, age, human_duration
from kplane_apiserver.printers.columns import (
    AGE,
    NAME,
    NONE,
    Cells,
    Column,
    Printer,
    age_of,
    condition,
    count,
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


def _config_map(config: dict[str, Any], now: float) -> Cells:
    return [name_of(config), count(config, "data") + count(config, "binaryData"), age_of(config, now)]


CONFIG_MAP = Printer((NAME, number("Data", "How many entries it has."), AGE), _config_map)


def _secret(secret: dict[str, Any], now: float) -> Cells:
    return [name_of(secret), text(secret, "type"), count(secret, "data"), age_of(secret, now)]


SECRET = Printer((NAME, Column("Type"), number("Data", "How many entries it has."), AGE), _secret)


def _service_account(account: dict[str, Any], now: float) -> Cells:
    return [name_of(account), count(account, "secrets"), age_of(account, now)]


SERVICE_ACCOUNT = Printer((NAME, number("Secrets", "How many secrets it lists."), AGE), _service_account)


def _namespace(namespace: dict[str, Any], now: float) -> Cells:
    return [name_of(namespace), text(namespace, "status", "phase"), age_of(namespace, now)]


NAMESPACE = Printer((NAME, Column("Status", description="Active or Terminating."), AGE), _namespace)


def _node(node: dict[str, Any], now: float) -> Cells:
    info = mapping(node, "status", "nodeInfo")
    return [
        name_of(node),
        _node_status(node),
        _node_roles(node),
        age_of(node, now),
        text(info, "kubeletVersion"),
        _node_address(node, "InternalIP"),
        _node_address(node, "ExternalIP"),
        text(info, "osImage", default=UNKNOWN),
        text(info, "kernelVersion", default=UNKNOWN),
        text(info, "containerRuntimeVersion", default=UNKNOWN),
    ]


def _node_status(node: dict[str, Any]) -> str:
    match condition(node, "Ready").get("status"):
        case "True":
            status = "Ready"
        case None:
            status = "Unknown"
        case _:
            status = "NotReady"
    return f"{status},SchedulingDisabled" if dig(node, "spec", "unschedulable") is True else status


def _node_roles(node: dict[str, Any]) -> str:
    prefix = "node-role.kubernetes.io/"
    labels = mapping(node, "metadata", "labels")
    roles = {label.removeprefix(prefix) for label in labels if label.startswith(prefix) and label != prefix}
    if role := text(labels, "kubernetes.io/role"):
        roles.add(role)
    return ",".join(sorted(roles)) or NONE


def _node_address(node: dict[str, Any], kind: str) -> str:
    addresses = (text(entry, "address") for entry in items(node, "status", "addresses") if entry.get("type") == kind)
    return next(addresses, NONE)


NODE = Printer(
    (
        NAME,
        Column("Status", description="Whether the node is ready and takes pods."),
        Column("Roles", description="The roles that the node's labels name."),
        AGE,
        Column("Version", description="The version of its kubelet."),
        wide("Internal-IP"),
        wide("External-IP"),
        wide("OS-Image"),
        wide("Kernel-Version"),
        wide("Container-Runtime"),
    ),
    _node,
)


def _event(event: dict[str, Any], now: float) -> Cells:
    first = dig(event, "firstTimestamp") or dig(event, "eventTime")
    last = dig(event, "series", "lastObservedTime") or dig(event, "lastTimestamp") or first
    involved = mapping(event, "involvedObject") or mapping(event, "regarding")
    source = mapping(event, "source")
    component = text(source, "component") or text(event, "reportingComponent") or text(event, "reportingController")
    host = text(source, "host") or text(event, "reportingInstance")
    times = whole(event, "series", "count") or whole(event, "count") or whole(event, "deprecatedCount") or 1
    return [
        age(last, now),
        text(event, "type"),
        text(event, "reason"),
        f"{text(involved, 'kind').lower()}/{text(involved, 'name')}",
        text(involved, "fieldPath"),
        ", ".join(part for part in (component, host) if part),
        (text(event, "message") or text(event, "note")).strip(),
        age(first, now),
        times,
        name_of(event),
    ]


EVENT = Printer(
    (
        Column("Last Seen", description="How long ago it happened last."),
        Column("Type"),
        Column("Reason"),
        Column("Object", description="What it happened to."),
        wide("Subobject"),
        wide("Source", "Who reported it."),
        Column("Message"),
        wide("First Seen", "How long ago it happened first."),
        Column("Count", type="integer", description="How often it happened.", priority=1),
        Column("Name", format="name", description=NAME.description, priority=1),
    ),
    _event,
)


def _access_modes(document: Any, *path: str) -> str:
    short = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
    modes = set(texts(document, *path))
    return ",".join(mark for mode, mark in short.items() if mode in modes)


def _volume(volume: dict[str, Any], now: float) -> Cells:
    claim = mapping(volume, "spec", "claimRef")
    phase = text(volume, "status", "phase")
    return [
        name_of(volume),
        text(volume, "spec", "capacity", "storage"),
        _access_modes(volume, "spec", "accessModes"),
        text(volume, "spec", "persistentVolumeReclaimPolicy"),
        "Terminating" if dig(volume, "metadata", "deletionTimestamp") else phase,
        f"{text(claim, 'namespace')}/{text(claim, 'name')}" if claim else "",
        text(volume, "spec", "storageClassName"),
        text(volume, "spec", "volumeAttributesClassName", default=_UNSET),
        text(volume, "status", "reason"),
        age_of(volume, now),
        text(volume, "spec", "volumeMode", default=_UNSET),
    ]


VOLUME = Printer(
    (
        NAME,
        Column("Capacity"),
        Column("Access Modes"),
        Column("Reclaim Policy"),
        Column("Status"),
        Column("Claim"),
        Column("StorageClass"),
        Column("VolumeAttributesClass"),
        Column("Reason"),
        AGE,
        wide("VolumeMode"),
    ),
    _volume,
)


def _claim(claim: dict[str, Any], now: float) -> Cells:
    bound = bool(text(claim, "spec", "volumeName"))
    phase = text(claim, "status", "phase")
    return [
        name_of(claim),
        "Terminating" if dig(claim, "metadata", "deletionTimestamp") else phase,
        text(claim, "spec", "volumeName"),
        text(claim, "status", "capacity", "storage") if bound else "",
        _access_modes(claim, "status", "accessModes") if bound else "",
        text(claim, "spec", "storageClassName"),
        text(claim, "spec", "volumeAttributesClassName", default=_UNSET),
        age_of(claim, now),
        text(claim, "spec", "volumeMode", default=_UNSET),
    ]


CLAIM = Printer(
    (
        NAME,
        Column("Status"),
        Column("Volume"),
        Column("Capacity"),
        Column("Access Modes"),
        Column("StorageClass"),
        Column("VolumeAttributesClass"),
        AGE,
        wide("VolumeMode"),
    ),
    _claim,
)


def _quota(quota: dict[str, Any], now: float) -> Cells:
    hard, used = mapping(quota, "status", "hard") or mapping(quota, "spec", "hard"), mapping(quota, "status", "used")
    shown = {name: f"{name}: {text(used, name, default='0')}/{text(hard, name)}" for name in sorted(hard)}
    requests = ", ".join(line for name, line in shown.items() if not name.startswith("limits."))
    limits = ", ".join(line for name, line in shown.items() if name.startswith("limits."))
    return [name_of(quota), requests, limits, age_of(quota, now)]


RESOURCE_QUOTA = Printer((NAME, Column("Request"), Column("Limit"), AGE), _quota)


def _signing_request(request: dict[str, Any], now: float) -> Cells:
    seconds = dig(request, "spec", "expirationSeconds")
    conditions = [text(entry, "type") for entry in items(request, "status", "conditions")]
    if text(request, "status", "certificate"):
        conditions.append("Issued")
    return [
        name_of(request),
        age_of(request, now),
        text(request, "spec", "signerName", default=NONE),
        text(request, "spec", "username"),
        human_duration(seconds) if isinstance(seconds, int) else NONE,
        ",".join(conditions) or "Pending",
    ]


SIGNING_REQUEST = Printer(
    (NAME, AGE, Column("SignerName"), Column("Requestor"), Column("RequestedDuration"), Column("Condition")),
    _signing_request,
)
