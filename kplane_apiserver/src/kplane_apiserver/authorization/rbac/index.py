"""The roles and bindings of one cluster, and what they give to whom.

What a decision needs of them is worked out when somebody first asks, for that subject only, and forgotten when a role
or binding of that scope changes. The roles that every cluster begins with are not kept again for each: a cluster only
knows which of them it still has as they were made.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from kplane_apiserver.authorization.questions import Decision
from kplane_apiserver.authorization.rbac import RBAC_GROUP
from kplane_apiserver.authorization.rbac.reading import ROLE_PLURALS, Binding, Role, RoleRef, Subject, quoted
from kplane_apiserver.authorization.rbac.rules import Question, Rule, RuleSet, Table, rule_set
from kplane_core.storage.selection import LabelSelector

_FEW = 8
"""So many roles are asked one by one; of more a subject gets a table of its own."""
_REMEMBERED = 4096
"""Of so many subjects a cluster remembers what they have, at most."""

_MOST_COMPARISONS = 200_000
"""So many times a role's selectors are compared with other roles, at most: everybody's requests wait meanwhile."""

BOOTSTRAP_LABEL, BOOTSTRAP_VALUE = "kubernetes.io/bootstrapping", "rbac-defaults"
"""The label of the roles and bindings that every cluster begins with."""

K = TypeVar("K")
Scope = str
"""A namespace, or the empty text for what holds in the whole cluster."""


class Grants:
    """What one subject has in one scope.

    Args:
        given: each role's rules, with the decision that names the binding.
        faults: what is wrong with bindings of this subject.
    """

    __slots__ = ("_merged", "_on_paths", "_on_resources", "faults", "given")

    def __init__(self, given: Sequence[tuple[RuleSet, Decision]], faults: Sequence[str]) -> None:
        self.given = given
        self.faults = faults
        self._on_resources = [one for one in given if one[0].on_resources]
        self._on_paths = [one for one in given if one[0].on_paths]
        self._merged: Table[Decision] | None = None

    def find(self, asked: Question) -> Decision | None:
        """Return the decision that allows what is asked; None when no rule does."""
        given = self._on_resources if asked.path is None else self._on_paths
        if len(given) <= _FEW:
            for rules, decision in given:
                if rules.table.find(asked) is not None:
                    return decision
            return None
        if self._merged is None:
            self._merged = Table([(rules.rules, decision) for rules, decision in self.given])
        return self._merged.find(asked)

    def rules(self) -> Iterator[Rule]:
        """Yield all rules."""
        for rules, _ in self.given:
            yield from rules.rules


class Policy:
    """The roles and bindings of one cluster.

    Args:
        base: the roles and bindings that every cluster begins with; None only for those themselves.
    """

    __slots__ = (
        "_aggregated",
        "_base",
        "_bindings",
        "_cluster_roles",
        "_faults",
        "_grants",
        "_kept",
        "_marked",
        "_roles",
        "_to",
    )

    def __init__(self, base: "Base | None" = None) -> None:
        self._base = base
        self._kept = 0  # which of the base's objects are stored here, unchanged: one bit each
        self._marked: set[tuple[str, str]] = set()  # those that are stored here and were changed, by plural and name
        self._cluster_roles: dict[str, Role] = {}
        self._roles: dict[tuple[Scope, str], Role] = {}
        self._bindings: dict[tuple[Scope, str], Binding] = {}
        self._to: dict[tuple[Scope, str], dict[str, tuple[Binding, Subject]]] = {}
        self._grants: dict[tuple[Scope, str], Grants] = {}
        self._aggregated: dict[str, RuleSet | None] = {}
        self._faults: dict[tuple[Scope, str], str] = {}  # of bindings that cannot be read

    @property
    def empty(self) -> bool:
        """Whether there is nothing to remember of the cluster."""
        return not (self._kept or self._cluster_roles or self._roles or self._bindings)

    def keeps(self, plural: str, name: str) -> bool:
        """Whether an object of the base is stored here as it was made."""
        return self._base is not None and bool(self._kept & self._base.bits.get((plural, name), 0))

    # --- learning -----------------------------------------------------------------------------------------------------

    def put_cluster_role(self, name: str, role: Role | None) -> None:
        """Take a ClusterRole as it is now; None when it is gone."""
        self._grants.clear()
        self._aggregated.clear()
        unchanged = role is not None and self._is_base_role(name, role)
        self._keep("clusterroles", name, unchanged=unchanged, labels=None if role is None else role.labels)
        _put(self._cluster_roles, name, None if unchanged else role)

    def put_role(self, namespace: str, name: str, role: Role | None) -> None:
        """Take a Role as it is now; None when it is gone."""
        _put(self._roles, (namespace, name), role)
        self._forget(namespace)

    def put_binding(self, namespace: Scope, name: str, binding: Binding | None) -> None:
        """Take a RoleBinding or ClusterRoleBinding as it is now; None when it is gone."""
        self._faults.pop((namespace, name), None)
        old = self._bindings.pop((namespace, name), None)
        if old is not None:
            for key in _keys(old):
                held = self._to[namespace, key]
                del held[name]
                if not held:
                    del self._to[namespace, key]
                self._grants.pop((namespace, key), None)
        if not namespace:
            unchanged = self._base is not None and binding is not None and self._base.bindings.get(name) == binding
            # What the base gives may hold no longer, in every scope.
            self._grants.clear()
            self._aggregated.clear()
            self._keep(
                "clusterrolebindings", name, unchanged=unchanged, labels=None if binding is None else binding.labels
            )
            if unchanged:
                return
        if binding is None:
            return
        self._bindings[namespace, name] = binding
        if binding.fault:
            self._faults[namespace, name] = binding.fault
        for key, subject in _keys(binding).items():
            self._to.setdefault((namespace, key), {})[name] = (binding, subject)
            self._grants.pop((namespace, key), None)

    def forget(self, plural: str) -> None:
        """Forget all objects of a kind; they are about to be told anew."""
        self._grants.clear()
        self._aggregated.clear()
        self._marked = {one for one in self._marked if one[0] != plural}
        if self._base is not None:
            self._kept &= ~self._base.bits_of(plural)
        match plural:
            case "clusterroles":
                self._cluster_roles.clear()
            case "roles":
                self._roles.clear()
            case _:
                wide = plural == "clusterrolebindings"
                self._bindings = {key: one for key, one in self._bindings.items() if wide == bool(key[0])}
                self._to = {key: held for key, held in self._to.items() if wide == bool(key[0])}
                self._faults = {key: fault for key, fault in self._faults.items() if wide == bool(key[0])}

    # --- asking -------------------------------------------------------------------------------------------------------

    def grants(self, scope: Scope, subject: str) -> Grants | None:
        """Return what a subject has in a scope; None when no binding there names it."""
        key = (scope, subject)
        found = self._grants.get(key)
        if found is None and (key in self._to or (not scope and self._base is not None and subject in self._base.to)):
            found = self._find_grants(scope, subject)
        return found

    def faults(self, scope: Scope) -> list[str]:
        """Return what is wrong with bindings of which nobody can tell whom they name."""
        return [fault for (where, _), fault in self._faults.items() if where == scope]

    def role_rules(self, ref: RoleRef, scope: Scope) -> RuleSet | None:
        """Return the rules of the role that a binding in `scope` refers to; None when it does not exist."""
        if ref.kind == "Role":
            role = self._roles.get((scope, ref.name))
            return None if role is None or role.fault else role.rules
        role = self._cluster_role(ref.name) if ref.kind == "ClusterRole" else None
        if role is None or role.fault:
            return None
        return role.rules if role.selectors is None else self._gather(ref.name, role)

    # --- within -------------------------------------------------------------------------------------------------------

    def _keep(self, plural: str, name: str, *, unchanged: bool, labels: Mapping[str, str] | None) -> None:
        """Note whether an object of the base is stored here, as it was made or changed."""
        self._marked.discard((plural, name))
        if self._base is None:
            return
        bit = self._base.bits.get((plural, name), 0)
        self._kept &= ~bit
        if unchanged:
            self._kept |= bit
        elif labels and labels.get(BOOTSTRAP_LABEL) == BOOTSTRAP_VALUE:
            self._marked.add((plural, name))

    @property
    def _untouched(self) -> bool:
        """Whether the base was never written here, so that it holds as it is: the cluster is older than roles are."""
        return not self._kept and not self._marked

    def _has(self, plural: str, name: str) -> bool:
        assert self._base is not None
        return self._untouched or bool(self._kept & self._base.bits[plural, name])

    def _is_base_role(self, name: str, role: Role) -> bool:
        base = self._base.cluster_roles.get(name) if self._base is not None else None
        return base is not None and base.same(role)

    def _forget(self, scope: Scope) -> None:
        for key in [key for key in self._grants if key[0] == scope]:
            del self._grants[key]

    def _cluster_role(self, name: str) -> Role | None:
        role = self._cluster_roles.get(name)
        if role is None and self._base is not None:
            role = self._base.cluster_roles.get(name)
            if role is not None and not self._has("clusterroles", name):
                return None
        return role

    def _all_cluster_roles(self) -> Iterator[tuple[str, Role]]:
        yield from self._cluster_roles.items()
        for name, role in self._base.cluster_roles.items() if self._base is not None else ():
            if name not in self._cluster_roles and self._has("clusterroles", name):
                yield name, role

    def _gather(self, name: str, role: Role) -> RuleSet | None:
        """Return what a role aggregates: the rules of those that it selects, and of those that these select.

        None when there are too many selectors and roles to compare.
        """
        if name in self._aggregated:
            return self._aggregated[name]
        left = dict(sorted(self._all_cluster_roles()))
        waiting, tried, rules = deque(role.selectors or ()), set[LabelSelector](), dict[Rule, None]()
        compared = 0
        while waiting:
            selector = waiting.popleft()
            if selector in tried:
                continue
            tried.add(selector)
            compared += len(left)
            if compared > _MOST_COMPARISONS:
                self._aggregated[name] = None
                return None
            for other in [other for other, one in left.items() if selector.matches(one.labels or {})]:
                one = left.pop(other)
                rules.update(dict.fromkeys(one.rules.rules))
                waiting.extend(one.selectors or ())
        found = self._aggregated[name] = rule_set(tuple(rules))
        return found

    def _find_grants(self, scope: Scope, subject: str) -> Grants | None:
        own = self._to.get((scope, subject))
        base = self._base
        if base is None or scope:
            if own is None:
                return None
            held: Mapping[str, tuple[Binding, Subject]] = own
        else:
            given = base.to.get(subject)
            if given is None and own is None:
                return None
            if own is None and given is not None and self._as_base():
                return self._remember(scope, subject, base.policy.grants(scope, subject))
            held = {name: one for name, one in (given or {}).items() if self._has_base_binding(name)}
            held.update(own or {})
        return self._remember(scope, subject, self._resolve(scope, held))

    def _remember(self, scope: Scope, subject: str, found: Grants | None) -> Grants | None:
        if found is not None:
            if len(self._grants) >= _REMEMBERED:
                self._grants.clear()
            self._grants[scope, subject] = found
        return found

    def _has_base_binding(self, name: str) -> bool:
        return ("", name) not in self._bindings and self._has("clusterrolebindings", name)

    def _as_base(self) -> bool:
        """Whether all that the base's bindings give is as in the base."""
        base = self._base
        assert base is not None
        return (self._untouched or self._kept == base.all_bits) and not (
            self._cluster_roles.keys() & base.cluster_roles.keys()
            or any(("", name) in self._bindings for name in base.bindings)
        )

    def _resolve(self, scope: Scope, held: Mapping[str, tuple[Binding, Subject]]) -> Grants:
        given: list[tuple[RuleSet, Decision]] = []
        faults: list[str] = []
        for _, (binding, subject) in sorted(held.items()):
            rules = self.role_rules(binding.ref, scope)
            if rules is None:
                faults.append(self._fault(binding.ref, scope))
            else:
                reason = f"RBAC: allowed by {binding.describe(subject)}"
                given.append((rules, Decision(allowed=True, reason=reason)))
        return Grants(given, faults)

    def _fault(self, ref: RoleRef, scope: Scope) -> str:
        if ref.kind not in ROLE_PLURALS:
            return f"unsupported role reference kind: {quoted(ref.kind)}"
        role = self._roles.get((scope, ref.name)) if ref.kind == "Role" else self._cluster_role(ref.name)
        named = f"{ref.kind.lower()}.{RBAC_GROUP} {quoted(ref.name)}"
        return f"{named} not found" if role is None else role.fault or f"{named} selects among too many roles"


class Base:
    """The roles and bindings that clusters begin with, in a form that all of them share.

    Args:
        cluster_roles: the ClusterRoles by name.
        bindings: the ClusterRoleBindings by name.

    Attributes:
        bits: a bit for each object, by plural and name.
        all_bits: all of them.
        to: the bindings by subject.
        policy: a cluster that has nothing else.
    """

    def __init__(self, cluster_roles: Mapping[str, Role], bindings: Mapping[str, Binding]) -> None:
        self.cluster_roles = cluster_roles
        self.bindings = bindings
        names = [*(("clusterroles", name) for name in cluster_roles), *(("clusterrolebindings", n) for n in bindings)]
        self.bits = {one: 1 << place for place, one in enumerate(names)}
        self.all_bits = (1 << len(names)) - 1
        self.policy = Policy()
        self.to: dict[str, dict[str, tuple[Binding, Subject]]] = {}
        for name, role in cluster_roles.items():
            self.policy.put_cluster_role(name, role)
        for name, binding in bindings.items():
            self.policy.put_binding("", name, binding)
            for key, subject in _keys(binding).items():
                self.to.setdefault(key, {})[name] = (binding, subject)

    def bits_of(self, plural: str) -> int:
        """Return the bits of all objects of a kind."""
        return sum(bit for (kind, _), bit in self.bits.items() if kind == plural)


def _keys(binding: Binding) -> dict[str, Subject]:
    """Return a binding's subjects by what stands for them; of several alike the first."""
    found: dict[str, Subject] = {}
    for subject in binding.subjects:
        key = subject.key(binding.namespace)
        if key:
            found.setdefault(key, subject)
    return found


def _put(index: dict[K, Role], key: K, role: Role | None) -> None:
    if role is None:
        index.pop(key, None)
    else:
        index[key] = role
