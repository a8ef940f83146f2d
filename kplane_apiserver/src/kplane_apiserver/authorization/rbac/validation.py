"""What roles and bindings must look like, faults worded as upstream words them; and their defaults."""

from collections.abc import Iterator
from typing import Any

from kplane_apiserver.apierrors import (
    cannot_be_handled,
    field_forbidden,
    field_invalid,
    field_not_supported,
    field_required,
    invalid,
)
from kplane_apiserver.authorization.rbac import RBAC_GROUP
from kplane_apiserver.checks.validation import path_segment_fault, subdomain_fault
from kplane_apiserver.kinds import Kind
from kplane_core.errors import BadRequest, DecodeError, StatusCause

Document = dict[str, Any]

_SUBJECT_KINDS = ("ServiceAccount", "User", "Group")
_SELECTOR_OPERATORS = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})


def check_role(kind: Kind, document: Document, _old: Document | None) -> None:
    """Return when a Role or ClusterRole is well formed.

    Raises:
        BadRequest: a field has the wrong type.
        InvalidError: 422 with one cause per fault.
    """
    # Only here: most servers never see a role.
    from kplane_apiserver.authorization.rbac.reading import role_of, rules_of  # noqa: PLC0415

    try:
        rules_of(document)
        role_of(document)
    except DecodeError as error:
        _check_operators(kind, document)
        raise _badly_typed(kind, error) from None
    causes: list[StatusCause] = []
    for place, rule in enumerate(document.get("rules") or ()):
        causes.extend(_rule_faults(rule, f"rules[{place}]", namespaced=kind.namespaced))
    if not kind.namespaced and document.get("aggregationRule") is not None:
        causes.extend(_aggregation_faults(document["aggregationRule"]))
    _refuse(kind, document, causes)


def check_binding(kind: Kind, document: Document, old: Document | None) -> None:
    """Complete a RoleBinding or ClusterRoleBinding, and return when it is well formed.

    Raises:
        BadRequest: a field has the wrong type.
        InvalidError: 422 with one cause per fault.
    """
    from kplane_apiserver.authorization.rbac.reading import binding_of  # noqa: PLC0415 (as above)

    document.setdefault("roleRef", {})
    try:
        binding_of(document, "", "")
    except DecodeError as error:
        raise _badly_typed(kind, error) from None
    ref, subjects = document["roleRef"], document.get("subjects") or ()
    ref["apiGroup"] = ref.get("apiGroup") or RBAC_GROUP
    for subject in subjects:
        if not subject.get("apiGroup") and subject.get("kind") in ("User", "Group"):
            subject["apiGroup"] = RBAC_GROUP
    causes = list(_ref_faults(ref, ("Role", "ClusterRole") if kind.namespaced else ("ClusterRole",)))
    for place, subject in enumerate(subjects):
        causes.extend(_subject_faults(subject, f"subjects[{place}]", namespaced=kind.namespaced))
    if old is not None and _identity(old.get("roleRef") or {}) != _identity(ref):
        shown = "rbac.RoleRef{{APIGroup:{}, Kind:{}, Name:{}}}".format(*(f'"{one}"' for one in _identity(ref)))
        causes.append(StatusCause("FieldValueInvalid", f"Invalid value: {shown}: cannot change roleRef", "roleRef"))
    _refuse(kind, document, causes)


def _rule_faults(rule: Document, field: str, *, namespaced: bool) -> Iterator[StatusCause]:
    if not rule.get("verbs"):
        yield field_required(f"{field}.verbs", "verbs must contain at least one value")
    if paths := rule.get("nonResourceURLs"):
        if namespaced:
            yield field_invalid(f"{field}.nonResourceURLs", paths, "namespaced rules cannot apply to non-resource URLs")
        if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
            detail = "rules cannot apply to both regular resources and non-resource URLs"
            yield field_invalid(f"{field}.nonResourceURLs", paths, detail)
        return
    if not rule.get("apiGroups"):
        yield field_required(f"{field}.apiGroups", "resource rules must supply at least one api group")
    if not rule.get("resources"):
        yield field_required(f"{field}.resources", "resource rules must supply at least one resource")
    if rule.get("resourceNames") and len(rule.get("resources") or ()) > 1:
        yield field_required(f"{field}.resourceNames", "resource names cannot apply to multiple resources")


def _aggregation_faults(aggregation: Document) -> Iterator[StatusCause]:
    field = "aggregationRule.clusterRoleSelectors"
    selectors = aggregation.get("clusterRoleSelectors") or ()
    if not selectors:
        yield field_required(field, "at least one clusterRoleSelector required if aggregationRule is non-nil")
    for place, selector in enumerate(selectors):
        for number, one in enumerate(selector.get("matchExpressions") or ()):
            yield from _expression_faults(one, f"{field}[{place}].matchExpressions[{number}]")


def _expression_faults(one: Document, field: str) -> Iterator[StatusCause]:
    operator, values = one.get("operator"), one.get("values")
    if operator in ("In", "NotIn") and not values:
        yield field_required(f"{field}.values", "must be specified when `operator` is 'In' or 'NotIn'")
    elif operator in ("Exists", "DoesNotExist") and values:
        detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
        yield field_forbidden(f"{field}.values", detail)


def _check_operators(kind: Kind, document: Document) -> None:
    """Refuse operators that do not exist, if that is what is wrong with a role."""
    aggregation = document.get("aggregationRule")
    selectors = aggregation.get("clusterRoleSelectors") if isinstance(aggregation, dict) else None
    causes = []
    for place, selector in enumerate(selectors if isinstance(selectors, list) else ()):
        expressions = selector.get("matchExpressions") if isinstance(selector, dict) else None
        for number, one in enumerate(expressions if isinstance(expressions, list) else ()):
            operator = one.get("operator") if isinstance(one, dict) else ""
            if isinstance(operator, str) and operator and operator not in _SELECTOR_OPERATORS:
                field = f"aggregationRule.clusterRoleSelectors[{place}].matchExpressions[{number}].operator"
                causes.append(field_invalid(field, operator, "not a valid selector operator"))
    _refuse(kind, document, causes)


def _ref_faults(ref: Document, kinds: tuple[str, ...]) -> Iterator[StatusCause]:
    if ref["apiGroup"] != RBAC_GROUP:
        yield field_not_supported("roleRef.apiGroup", ref["apiGroup"], (RBAC_GROUP,))
    if ref.get("kind") not in kinds:
        yield field_not_supported("roleRef.kind", ref.get("kind") or "", kinds)
    name = ref.get("name") or ""
    if not name:
        yield field_required("roleRef.name")
    elif fault := path_segment_fault(name):
        yield field_invalid("roleRef.name", name, fault)


def _subject_faults(subject: Document, field: str, *, namespaced: bool) -> Iterator[StatusCause]:
    name, group = subject.get("name") or "", subject.get("apiGroup") or ""
    if not name:
        yield field_required(f"{field}.name")
    match subject.get("kind"):
        case "ServiceAccount":
            if name and (fault := subdomain_fault(name)):
                yield field_invalid(f"{field}.name", name, fault)
            if group:
                yield field_not_supported(f"{field}.apiGroup", group, ("",))
            if not namespaced and not subject.get("namespace"):
                yield field_required(f"{field}.namespace")
        case "User" | "Group" as what:
            if not name:
                yield field_invalid(f"{field}.name", name, f"{what.lower()} name cannot be empty")
            if group != RBAC_GROUP:
                yield field_not_supported(f"{field}.apiGroup", group, (RBAC_GROUP,))
        case other:
            yield field_not_supported(f"{field}.kind", other or "", _SUBJECT_KINDS)


def _identity(ref: Document) -> tuple[str, str, str]:
    return ref.get("apiGroup") or RBAC_GROUP, ref.get("kind") or "", ref.get("name") or ""


def _badly_typed(kind: Kind, error: DecodeError) -> BadRequest:
    return cannot_be_handled(kind.kind, kind.version, str(error))


def _refuse(kind: Kind, document: Document, causes: list[StatusCause]) -> None:
    if causes:
        raise invalid(causes, kind=kind.kind, name=document["metadata"].get("name", ""), group=kind.group)
