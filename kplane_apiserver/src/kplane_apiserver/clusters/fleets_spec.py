"""What a Fleet asks for: how its spec is read and checked, and which names its members have."""

from typing import Any

import msgspec

from kplane_apiserver.apierrors import field_invalid, invalid
from kplane_apiserver.clusters.ttl import LONGEST, check_ttl
from kplane_apiserver.kinds import Kind
from kplane_core.errors import KplaneError, StatusCause
from kplane_core.multicluster.keylayout import validate_cluster_id

Document = dict[str, Any]

FLEET_LABEL = "kplane.dev/fleet"
"""The label of a member: the name of its fleet."""
MOST = 10_000
"""Members that a fleet may have: four digits number them."""


class MemberMetadata(msgspec.Struct, frozen=True):
    """Labels and annotations of each member."""

    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)


class MemberSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The spec of each member."""

    ttl_seconds: int | None = None


class Template(msgspec.Struct, frozen=True):
    """What each member begins with.

    Attributes:
        metadata: its labels and annotations.
        spec: its spec.
        source: the cluster that it is a fork of; empty for none.
        objects: objects that it begins with, beside those of the source.
    """

    metadata: MemberMetadata = MemberMetadata()
    spec: MemberSpec = MemberSpec()
    source: str = msgspec.field(default="", name="from")
    objects: list[dict[str, Any]] = msgspec.field(default_factory=list)


class FleetSpec(msgspec.Struct, frozen=True, rename="camel"):
    """What a Fleet asks for.

    Attributes:
        replicas: how many members; None for as many as there are names.
        name_prefix: how the members' names begin that `names` does not give; empty for the fleet's name and a dash.
        names: names of members.
        ttl_seconds: seconds from its creation after which the fleet is deleted with its members.
        template: what each member begins with.
    """

    replicas: int | None = None
    name_prefix: str = ""
    names: list[str] = msgspec.field(default_factory=list)
    ttl_seconds: int | None = None
    template: Template = Template()


def spec_of(document: Document) -> FleetSpec:
    """Return a Fleet's spec.

    Raises:
        msgspec.ValidationError: a field has the wrong type.
    """
    return msgspec.convert(document.get("spec") or {}, FleetSpec)


def member_names(fleet: str, spec: FleetSpec) -> list[str]:
    """Return the names of a fleet's members: those that are given, and then numbered ones."""
    count = len(spec.names) if spec.replicas is None else spec.replicas
    prefix = spec.name_prefix or f"{fleet}-"
    names = list(dict.fromkeys(spec.names))[:count]
    return names + [f"{prefix}{number:04d}" for number in range(count - len(names))]


def check_fleet(kind: Kind, document: Document) -> None:
    """Return when a Fleet may be stored.

    Raises:
        InvalidError: 422 with a cause per fault.
    """
    check_ttl(kind, document)
    name = document["metadata"]["name"]
    try:
        spec = spec_of(document)
    except msgspec.ValidationError as error:
        raise invalid([_fault_of(error)], kind=kind.kind, name=name, group=kind.group) from None
    causes: list[StatusCause] = []
    if spec.replicas is not None and not 0 <= spec.replicas <= MOST:
        causes.append(field_invalid("spec.replicas", spec.replicas, f"must be between 0 and {MOST}"))
    if len(set(spec.names)) != len(spec.names) or len(spec.names) > MOST:
        causes.append(field_invalid("spec.names", spec.names[:10], f"must be at most {MOST} different names"))
    ttl = spec.template.spec.ttl_seconds
    if ttl is not None and not 0 < ttl <= LONGEST:
        causes.append(field_invalid("spec.template.spec.ttlSeconds", ttl, f"must be between 1 and {LONGEST}"))
    if not causes:
        causes.extend(_name_faults(name, spec))
    if causes:
        raise invalid(causes, kind=kind.kind, name=name, group=kind.group)


def _name_faults(fleet: str, spec: FleetSpec) -> list[StatusCause]:
    # The last name is the longest one, and numbers differ in nothing else.
    names = member_names(fleet, spec)
    faults: list[StatusCause] = []
    for name in [*spec.names, *names[-1:]]:
        try:
            validate_cluster_id(name)
        except KplaneError as error:
            field = "spec.names" if name in spec.names else "spec.namePrefix"
            faults.append(field_invalid(field, name, str(error)))
    return faults


def _fault_of(error: msgspec.ValidationError) -> StatusCause:
    words, _, path = str(error).partition(" - at `$")
    return StatusCause("FieldValueInvalid", f"Invalid value: {words}", f"spec{path.rstrip('`')}")
