"""CustomResourceDefinitions: how one is completed and judged when written, and which kinds it makes.

Nothing here does I/O or knows a cluster: `prepare_crd` is the admission of one definition, given the names that others
hold, and `kinds_of_crd` reads the kinds off a definition that was prepared. Which definitions a cluster has is the
catalog's affair.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import msgspec

from kplane_apiserver.apierrors import cannot_be_handled, field_invalid, field_not_supported, field_required, invalid
from kplane_apiserver.definitions.crd_names import (
    NO_NAMES,
    NamesInUse,
    Verdict,
    group_faults,
    judge_names,
    label_fault,
    name_faults,
)
from kplane_apiserver.definitions.structural import schema_faults
from kplane_apiserver.kinds import CustomKind, Kind, PrinterColumn, builtin_kinds
from kplane_apiserver.printers.jsonpath import JSONPathError, parse_jsonpath
from kplane_apiserver.schemas.definitions import conversion_faults, rule_faults
from kplane_apiserver.schemas.rules import RULES
from kplane_apiserver.schemas.selectable import selectable_faults
from kplane_apiserver.schemas.shape import check_shape
from kplane_core.errors import BadRequest, StatusCause

CRD_GROUP = "apiextensions.k8s.io"
CRD_KIND = "CustomResourceDefinition"
CRD_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")

_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_PROTECTED = re.compile(r"(?:.*\.)?(?:k8s|kubernetes)\.io")
_APPROVAL = "api-approved.kubernetes.io"
_VERSION = re.compile(r"v(\d+)(?:(alpha|beta)(\d+))?")
_STABILITY = {None: 2, "beta": 1, "alpha": 0}


class _Names(msgspec.Struct, rename="camel"):
    plural: str = ""
    singular: str = ""
    kind: str = ""
    list_kind: str = ""
    short_names: list[str] | None = None
    categories: list[str] | None = None


class _Validation(msgspec.Struct):
    openAPIV3Schema: dict[str, Any] | None = None  # noqa: N815 (the field's name in the object)


class _Scale(msgspec.Struct, rename="camel"):
    spec_replicas_path: str = ""
    status_replicas_path: str = ""
    label_selector_path: str = ""


class _Subresources(msgspec.Struct):
    status: dict[str, Any] | None = None
    scale: _Scale | None = None


class _Column(msgspec.Struct, rename="camel"):
    name: str = ""
    type: str = ""
    json_path: str = ""
    format: str = ""
    description: str = ""
    priority: int = 0


class _SelectableField(msgspec.Struct, rename="camel"):
    json_path: str = ""


class _Version(msgspec.Struct, rename="camel"):
    name: str = ""
    served: bool = False
    storage: bool = False
    schema: _Validation | None = None
    subresources: _Subresources | None = None
    additional_printer_columns: list[_Column] | None = None
    selectable_fields: list[_SelectableField] | None = None
    deprecated: bool = False
    deprecation_warning: str | None = None


class _Status(msgspec.Struct, rename="camel"):
    accepted_names: _Names | None = None
    stored_versions: list[str] | None = None
    conditions: list[dict[str, Any]] | None = None


class _Spec(msgspec.Struct, rename="camel"):
    names: _Names = msgspec.field(default_factory=_Names)
    group: str = ""
    scope: str = ""
    versions: list[_Version] | None = None
    preserve_unknown_fields: bool | None = None


def prepare_crd(
    new: dict[str, Any], old: dict[str, Any] | None, now: str, *, in_use: NamesInUse = NO_NAMES
) -> dict[str, Any]:
    """Return the definition as it is to be stored: defaults filled in, its status worked out anew.

    Args:
        new: what the client wants; left as it is. Its status is ignored.
        old: what is stored, or None on create.
        now: the time for conditions that change, in RFC 3339.
        in_use: the names that builtin kinds and the cluster's other definitions hold in the same group.

    Raises:
        BadRequest: a field has the wrong type.
        InvalidError: 422 with a cause for each fault.
    """
    spec = _with_defaults(_section(new, "spec"))
    parsed = _parse_spec(spec)
    name = _section(new, "metadata").get("name", "")
    causes = list(_faults(new, parsed, name))
    causes.extend(conversion_faults(spec, None if old is None else _section(old, "spec")))
    if old is not None:
        causes = _without_old_faults(causes, old)
        causes.extend(_update_faults(parsed, old))
    if causes:
        raise invalid(causes, kind=CRD_KIND, name=name, group=CRD_GROUP)
    before = _sane_status(_section(old or {}, "status"))
    verdict = judge_names(msgspec.to_builtins(parsed.names), before, in_use)
    return {**new, "spec": spec, "status": _status(parsed, before, verdict, now)}


def is_established(crd: dict[str, Any]) -> bool:
    """Return whether the definition's kinds are to be served."""
    return _condition(_section(crd, "status"), "Established").get("status") == "True"


def kinds_of_crd(crd: dict[str, Any]) -> tuple[Kind, ...]:
    """Return one kind per served version, the most preferred first; none while its names are not accepted.

    A definition that names a builtin resource, or no resource at all, makes no kinds, whatever its status says: clients
    can write that, and the objects would lie among those of others.

    Args:
        crd: a stored definition.

    Raises:
        BadRequest: a field has the wrong type (data that no prepared write made).
    """
    if not is_established(crd):
        return ()
    spec, status = _parse_spec(_section(crd, "spec")), _parse_status(_section(crd, "status"))
    if not _has_place_of_its_own(spec):
        return ()
    names = status.accepted_names or _Names()
    served = sorted((version for version in spec.versions or () if version.served), key=_by_priority)
    storage = next((version.name for version in spec.versions or () if version.storage), "")
    stored = tuple(status.stored_versions or ())
    order = tuple(version.name for version in served)
    return tuple(
        Kind(
            group=spec.group,
            version=version.name,
            kind=names.kind,
            plural=spec.names.plural,
            singular=names.singular,
            list_kind=names.list_kind,
            namespaced=spec.scope == "Namespaced",
            verbs=CRD_VERBS,
            subresources=_subresources(version),
            short_names=tuple(names.short_names or ()),
            categories=tuple(names.categories or ()),
            custom=_custom(version, order, stored, preserve=spec.preserve_unknown_fields is True),
            storage_version=storage,
            preferred=version.name == order[0],
        )
        for version in served
    )


def _has_place_of_its_own(spec: _Spec) -> bool:
    """Return whether the objects of a definition are stored where no builtin kind's are, in any version or cluster."""
    plural, group = spec.names.plural, spec.group
    return not (f"{plural}.{group}" in _builtin_resources() or label_fault(plural) or any(group_faults(group)))


@cache
def _builtin_resources() -> frozenset[str]:
    return frozenset(kind.group_resource for kind in builtin_kinds().values())


def claims_of_crd(crd: dict[str, Any]) -> tuple[str, NamesInUse]:
    """Return a stored definition's group, and the names in it that it was granted.

    Raises:
        BadRequest: a field has the wrong type.
    """
    granted = _parse_status(_section(crd, "status")).accepted_names or _Names()
    resources = {granted.plural, granted.singular, *(granted.short_names or ())} - {""}
    kinds = {granted.kind, granted.list_kind} - {""}
    return _parse_spec(_section(crd, "spec")).group, NamesInUse(frozenset(resources), frozenset(kinds))


def version_priority(version: str) -> tuple[int, int, int, str]:
    """Return a sort key that puts versions in Kubernetes' order: v2, v1, v2beta1, v1alpha1, then all others by name."""
    match = _VERSION.fullmatch(version)
    if match is None:
        return (1, 0, 0, version)
    return (0, -_STABILITY[match[2]], -int(match[1]) * 1000 - int(match[3] or 0), version)


def _by_priority(version: _Version) -> tuple[int, int, int, str]:
    return version_priority(version.name)


def _subresources(version: _Version) -> frozenset[str]:
    found = version.subresources
    if found is None:
        return frozenset()
    given = (("status", found.status), ("scale", found.scale))
    return frozenset(name for name, value in given if value is not None)


def _custom(version: _Version, served: tuple[str, ...], stored: tuple[str, ...], *, preserve: bool) -> CustomKind:
    subresources = version.subresources or _Subresources()
    return CustomKind(
        schema=version.schema.openAPIV3Schema if version.schema else None,
        printer_columns=tuple(
            PrinterColumn(*msgspec.structs.astuple(column)) for column in version.additional_printer_columns or ()
        ),
        status=subresources.status is not None,
        scale=msgspec.to_builtins(subresources.scale) if subresources.scale else None,
        served_versions=served,
        stored_versions=stored,
        preserve_unknown_fields=preserve,
        selectable_fields=tuple(field.json_path for field in version.selectable_fields or ()),
        deprecated=version.deprecated,
        deprecation_warning=version.deprecation_warning or "",
    )


# --- admission --------------------------------------------------------------------------------------------------------


def _section(document: dict[str, Any], name: str) -> dict[str, Any]:
    found = document.get(name)
    return found if isinstance(found, dict) else {}


def _parse_spec(spec: dict[str, Any]) -> _Spec:
    place = "spec"
    try:
        parsed = msgspec.convert(spec, _Spec)
        for position, version in enumerate(parsed.versions or ()):
            place = f"spec.versions[{position}].schema.openAPIV3Schema"
            check_shape((version.schema and version.schema.openAPIV3Schema) or {})
    except msgspec.ValidationError as error:
        detail = str(error).replace("`$", f"`{place}")
        raise cannot_be_handled(CRD_KIND, "v1", detail) from error
    return parsed


def _parse_status(status: dict[str, Any]) -> _Status:
    try:
        return msgspec.convert(status, _Status)
    except msgspec.ValidationError as error:
        detail = str(error).replace("`$.", "`status.")
        raise cannot_be_handled(CRD_KIND, "v1", detail) from error


def _sane_status(status: dict[str, Any]) -> dict[str, Any]:
    """Return the status so far, or none at all when somebody wrote nonsense into it."""
    try:
        _parse_status(status)
    except BadRequest:
        return {}
    return status


def _with_defaults(spec: dict[str, Any]) -> dict[str, Any]:
    names = dict(_section(spec, "names"))
    kind = names.get("kind")
    if isinstance(kind, str) and kind:
        if not names.get("singular"):
            names["singular"] = kind.lower()
        if not names.get("listKind"):
            names["listKind"] = f"{kind}List"
    conversion = _section(spec, "conversion") or {"strategy": "None"}
    filled = {**spec, "conversion": conversion}
    if names:
        filled["names"] = names
    return filled


def _faults(crd: dict[str, Any], spec: _Spec, name: str) -> Iterator[StatusCause]:
    if name != f"{spec.names.plural}.{spec.group}":
        yield field_invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group')
    if _PROTECTED.fullmatch(spec.group) and not _section(_section(crd, "metadata"), "annotations").get(_APPROVAL):
        words = f'protected groups must have approval annotation "{_APPROVAL}", see '
        place = f"metadata.annotations[{_APPROVAL}]"
        yield field_required(place, words + "https://github.com/kubernetes/enhancements/pull/1111")
    yield from name_faults(spec.group, msgspec.to_builtins(spec.names))
    if not spec.scope:
        yield field_required("spec.scope")
    elif spec.scope not in ("Cluster", "Namespaced"):
        yield field_not_supported("spec.scope", spec.scope, ("Cluster", "Namespaced"))
    if spec.preserve_unknown_fields:
        yield field_invalid(
            "spec.preserveUnknownFields",
            True,
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in "
            "spec.versions[*].schema instead. See "
            "https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/"
            "#field-pruning for details",
        )
    yield from _version_list_faults(spec.versions or ())
    for position, version in enumerate(spec.versions or ()):
        yield from _version_faults(version, f"spec.versions[{position}]")


def _version_list_faults(versions: Sequence[_Version]) -> Iterator[StatusCause]:
    named = [version.name for version in versions]
    if not named:
        yield field_required("spec.versions")
        return
    if len(set(named)) < len(named):
        yield field_invalid("spec.versions", named, "must contain unique version names")
    if sum(version.storage for version in versions) != 1:
        yield field_invalid("spec.versions", named, "must have exactly one version marked as storage version")


def _version_faults(version: _Version, path: str) -> Iterator[StatusCause]:
    if fault := label_fault(version.name):
        yield field_invalid(f"{path}.name", version.name, fault)
    schema = version.schema.openAPIV3Schema if version.schema else None
    if schema is None:
        yield field_required(f"{path}.schema.openAPIV3Schema", "schemas are required")
    else:
        yield from schema_faults(schema, f"{path}.schema.openAPIV3Schema")
        yield from rule_faults(schema, f"{path}.schema.openAPIV3Schema")
    for position, column in enumerate(version.additional_printer_columns or ()):
        yield from _column_faults(column, f"{path}.additionalPrinterColumns[{position}]")
    selectable = [field.json_path for field in version.selectable_fields or ()]
    yield from selectable_faults(selectable, schema or {}, f"{path}.selectableFields")
    scale = version.subresources.scale if version.subresources else None
    if scale is not None:
        yield from _scale_faults(scale, f"{path}.subresources.scale")


def _column_faults(column: _Column, path: str) -> Iterator[StatusCause]:
    if not column.name:
        yield field_required(f"{path}.name")
    if not column.type:
        listed = ",".join(_COLUMN_TYPES)
        yield field_required(f"{path}.type", f"must be one of {listed}")
    elif column.type not in _COLUMN_TYPES:
        yield field_not_supported(f"{path}.type", column.type, _COLUMN_TYPES)
    yield from _path_faults(column.json_path, f"{path}.jsonPath")


def _path_faults(text: str, path: str) -> Iterator[StatusCause]:
    if not text:
        yield field_required(path)
        return
    try:
        parse_jsonpath(text)
    except JSONPathError as error:
        yield field_invalid(path, text, str(error))


def _scale_faults(scale: _Scale, path: str) -> Iterator[StatusCause]:
    required = (
        ("specReplicasPath", scale.spec_replicas_path, ".spec."),
        ("statusReplicasPath", scale.status_replicas_path, ".status."),
    )
    for name, text, start in required:
        if not text:
            yield field_required(f"{path}.{name}")
        elif not text.startswith(start):
            yield field_invalid(f"{path}.{name}", text, f"should be a json path under {start[:-1]}")
        elif "[" in text:
            yield field_invalid(f"{path}.{name}", text, "should be a json path without array notation")
    if scale.label_selector_path and not scale.label_selector_path.startswith((".spec.", ".status.")):
        words = "should be a json path under either .spec or .status"
        yield field_invalid(f"{path}.labelSelectorPath", scale.label_selector_path, words)


def _without_old_faults(causes: list[StatusCause], old: dict[str, Any]) -> list[StatusCause]:
    """Forgive rules what they were stored with: to change something else in a definition must stay possible."""
    if not any(RULES in cause.field for cause in causes):
        return causes
    versions = _parse_spec(_section(old, "spec")).versions or ()
    known = {
        cause
        for position, version in enumerate(versions)
        if version.schema and version.schema.openAPIV3Schema
        for cause in rule_faults(version.schema.openAPIV3Schema, f"spec.versions[{position}].schema.openAPIV3Schema")
    }
    return [cause for cause in causes if cause not in known]


def _update_faults(spec: _Spec, old: dict[str, Any]) -> Iterator[StatusCause]:
    before = _section(old, "spec")
    if is_established(old):
        kind = _section(before, "names").get("kind")
        fixed = (("spec.scope", spec.scope, before.get("scope")), ("spec.names.kind", spec.names.kind, kind))
        for path, value, kept in fixed:
            if value != kept:
                yield field_invalid(path, value, "field is immutable")
    listed = {version.name for version in spec.versions or ()}
    for position, version in enumerate(_sane_status(_section(old, "status")).get("storedVersions") or ()):
        if version not in listed:
            yield field_invalid(
                f"status.storedVersions[{position}]",
                version,
                f"missing from spec.versions; {version} was previously a storage version, and must remain in "
                "spec.versions until a storage migration ensures no data remains persisted in "
                f"{version} and removes {version} from status.storedVersions",
            )


# --- status -----------------------------------------------------------------------------------------------------------


def _status(spec: _Spec, before: dict[str, Any], verdict: Verdict, now: str) -> dict[str, Any]:
    stored = list(before.get("storedVersions") or ())
    storage = next(version.name for version in spec.versions or () if version.storage)
    if storage not in stored:
        stored.append(storage)
    established = _condition(before, "Established")
    if established.get("status") != "True":
        established = _established(accepted=verdict.accepted)
    named = {"type": "NamesAccepted", "status": "True" if verdict.accepted else "False"}
    named |= {"reason": verdict.reason, "message": verdict.message}
    others = [
        entry for entry in before.get("conditions") or () if entry.get("type") not in ("NamesAccepted", "Established")
    ]
    fresh = [_timed(condition, before, now) for condition in (named, established)]
    return {**before, "acceptedNames": verdict.names, "conditions": fresh + others, "storedVersions": stored}


def _established(*, accepted: bool) -> dict[str, Any]:
    if accepted:
        reason, message, status = "InitialNamesAccepted", "the initial names have been accepted", "True"
    else:
        reason, message, status = "NotAccepted", "not all names are accepted", "False"
    return {"type": "Established", "status": status, "reason": reason, "message": message}


def _timed(condition: dict[str, Any], before: dict[str, Any], now: str) -> dict[str, Any]:
    """Return the condition with the time of its last change of status."""
    kept = _condition(before, condition["type"])
    since = kept.get("lastTransitionTime") if kept.get("status") == condition["status"] else None
    return {**condition, "lastTransitionTime": since or now}


def _condition(status: dict[str, Any], kind: str) -> dict[str, Any]:
    found = status.get("conditions")
    entries = found if isinstance(found, list) else []
    return next((dict(entry) for entry in entries if isinstance(entry, dict) and entry.get("type") == kind), {})
