"""Roles and bindings as they are stored, read into values; equal content of all clusters is one value."""

from collections.abc import Mapping
from typing import Any

import msgspec

from kplane_apiserver.authorization.rbac import RBAC_GROUP
from kplane_apiserver.authorization.rbac.rules import Rule, RuleSet, rule_set
from kplane_core.errors import DecodeError
from kplane_core.storage.selection import LabelRequirement, LabelSelector

ROLE_PLURALS: Mapping[str, str] = {"Role": "roles", "ClusterRole": "clusterroles"}
"""What a binding can refer to, each with its plural."""

_OPERATORS = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!"}
_NO_RULES = rule_set(())


class RoleRef(msgspec.Struct, frozen=True, rename={"group": "apiGroup"}):
    """Which role a binding gives.

    Attributes:
        kind: `Role` or `ClusterRole`.
        name: its name.
        group: its API group; empty means that of RBAC.
    """

    kind: str = ""
    name: str = ""
    group: str = ""


class Subject(msgspec.Struct, frozen=True):
    """Whom a binding gives its role to.

    Attributes:
        kind: `User`, `Group` or `ServiceAccount`.
        name: its name.
        namespace: of a service account; empty means that of the binding.
    """

    kind: str = ""
    name: str = ""
    namespace: str = ""

    def key(self, namespace: str) -> str:
        """Return what stands for it in an index, for a binding in `namespace`; empty when nobody can be it."""
        match self.kind:
            case "User":
                return user_key(self.name)
            case "Group":
                return group_key(self.name)
            case "ServiceAccount" if self.namespace or namespace:
                return user_key(f"system:serviceaccount:{self.namespace or namespace}:{self.name}")
            case _:
                return ""

    def describe(self, namespace: str) -> str:
        """Return it as upstream names it in a reason."""
        if self.kind == "ServiceAccount":
            return f"{self.kind} {quoted(f'{self.name}/{self.namespace or namespace}')}"
        return f"{self.kind} {quoted(self.name)}"


class Role(msgspec.Struct, frozen=True, eq=False):
    """A role of either kind.

    Attributes:
        rules: what it allows, apart from what it aggregates.
        labels: by which others aggregate it.
        selectors: of a role that aggregates others, which; None for every other role.
        fault: why it cannot be used; empty when it can.
    """

    rules: RuleSet
    labels: Mapping[str, str] | None = None
    selectors: tuple[LabelSelector, ...] | None = None
    fault: str = ""

    def same(self, other: "Role") -> bool:
        """Whether both say the same."""
        return (
            self.rules is other.rules
            and self.labels == other.labels
            and self.selectors == other.selectors
            and self.fault == other.fault
        )


class Binding(msgspec.Struct, frozen=True):
    """A binding of either kind.

    Attributes:
        name: its name.
        namespace: its namespace; empty for a ClusterRoleBinding.
        ref: the role that it gives.
        subjects: whom it gives it to.
        labels: its labels.
        fault: why it cannot be used; empty when it can.
    """

    name: str
    namespace: str
    ref: RoleRef
    subjects: tuple[Subject, ...]
    labels: Mapping[str, str] | None = None
    fault: str = ""

    def describe(self, subject: Subject) -> str:
        """Return how it gives its role to a subject, in upstream's words."""
        name = f"{self.name}/{self.namespace}" if self.namespace else self.name
        kind = "RoleBinding" if self.namespace else "ClusterRoleBinding"
        given = f"{self.ref.kind} {quoted(self.ref.name)}"
        return f"{kind} {quoted(name)} of {given} to {subject.describe(self.namespace)}"


def user_key(name: str) -> str:
    """Return what stands for a user in an index of subjects."""
    return "u" + name


def group_key(name: str) -> str:
    """Return what stands for a group in an index of subjects."""
    return "g" + name


def quoted(text: str) -> str:
    """Return a text in quotes, as Go's %q writes it."""
    return msgspec.json.encode(text).decode()


class _Metadata(msgspec.Struct):
    labels: dict[str, str] | None = None


class _Requirement(msgspec.Struct):
    key: str
    operator: str
    values: list[str] | None = None


class _Selector(msgspec.Struct, rename="camel"):
    match_labels: dict[str, str] | None = None
    match_expressions: list[_Requirement] | None = None


class _Aggregation(msgspec.Struct, rename="camel"):
    cluster_role_selectors: list[_Selector] | None = None


class _Role(msgspec.Struct, rename="camel"):
    metadata: _Metadata
    rules: tuple[Rule, ...] | None = None
    aggregation_rule: _Aggregation | None = None


class _Binding(msgspec.Struct, rename="camel"):
    metadata: _Metadata
    role_ref: RoleRef
    subjects: tuple[Subject, ...] | None = None


_ROLE = msgspec.json.Decoder(_Role)
_BINDING = msgspec.json.Decoder(_Binding)
_BROKEN = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, DecodeError)


def read_role(raw: bytes, kind: str, name: str) -> Role:
    """Return a stored role; one that cannot be read allows nothing and has a fault.

    Args:
        raw: its JSON.
        kind: `Role` or `ClusterRole`.
        name: its name.
    """
    try:
        found = _ROLE.decode(raw)
        return _role(found, aggregates=kind == "ClusterRole")
    except _BROKEN:
        return Role(_NO_RULES, fault=f'{kind.lower()}.{RBAC_GROUP} "{name}" cannot be read')


def role_of(document: Mapping[str, Any], *, aggregates: bool = True) -> Role:
    """Return a role that lies before us as a document.

    Raises:
        DecodeError: it is no role.
    """
    try:
        return _role(msgspec.convert(document, _Role), aggregates=aggregates)
    except _BROKEN as error:
        raise DecodeError(f"the role cannot be read: {error}") from error


def rules_of(document: Mapping[str, Any]) -> tuple[Rule, ...]:
    """Return the rules that stand in a role, whether or not they count.

    Raises:
        DecodeError: they are no rules.
    """
    try:
        return msgspec.convert(document.get("rules"), tuple[Rule, ...] | None) or ()
    except _BROKEN as error:
        raise DecodeError(f"the rules cannot be read: {error}") from error


def read_binding(raw: bytes, namespace: str, name: str) -> Binding:
    """Return a stored binding; one that cannot be read gives nothing and has a fault."""
    try:
        found = _BINDING.decode(raw)
    except _BROKEN:
        kind = "rolebinding" if namespace else "clusterrolebinding"
        return Binding(name, namespace, RoleRef(), (), fault=f'{kind}.{RBAC_GROUP} "{name}" cannot be read')
    return _binding(found, namespace, name)


def binding_of(document: Mapping[str, Any], namespace: str, name: str) -> Binding:
    """Return a binding that lies before us as a document.

    Raises:
        DecodeError: it is no binding.
    """
    try:
        return _binding(msgspec.convert(document, _Binding), namespace, name)
    except _BROKEN as error:
        raise DecodeError(f"the binding cannot be read: {error}") from error


def _binding(found: _Binding, namespace: str, name: str) -> Binding:
    return Binding(name, namespace, found.role_ref, found.subjects or (), found.metadata.labels)


def _role(found: _Role, *, aggregates: bool) -> Role:
    selectors = None
    if found.aggregation_rule is not None and aggregates:
        selectors = tuple(_selector(one) for one in found.aggregation_rule.cluster_role_selectors or ())
    # What an aggregating role itself says is only what was once gathered, so it does not count.
    rules = _NO_RULES if selectors is not None else rule_set(found.rules or ())
    return Role(rules, found.metadata.labels or None, selectors)


def _selector(found: _Selector) -> LabelSelector:
    terms = [LabelRequirement(key, "=", frozenset((value,))) for key, value in (found.match_labels or {}).items()]
    for one in found.match_expressions or ():
        operator = _OPERATORS.get(one.operator)
        if operator is None:
            raise DecodeError(f"{quoted(one.operator)} is not a valid label selector operator")
        terms.append(LabelRequirement(one.key, operator, frozenset(one.values or ())))
    return LabelSelector(tuple(terms))
