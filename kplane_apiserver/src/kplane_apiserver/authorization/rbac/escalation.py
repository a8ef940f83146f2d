"""Nobody gives others more than they have: what is checked before a role or binding is written.

As upstream has it: a role may allow only what its author may do himself, and a binding may give only such roles; unless
the author has the verb `escalate` on roles, or `bind` on the role that he binds.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kplane_apiserver.apierrors import forbidden
from kplane_apiserver.authorization.questions import Attributes
from kplane_apiserver.authorization.rbac import RBAC_GROUP
from kplane_apiserver.authorization.rbac.authorizer import RbacAuthorizer, faults_of, listed
from kplane_apiserver.authorization.rbac.policies import Policies
from kplane_apiserver.authorization.rbac.reading import ROLE_PLURALS, binding_of, quoted, role_of, rules_of
from kplane_apiserver.authorization.rbac.rules import EVERY, Rule, path_question, resource_question
from kplane_apiserver.identity import MASTERS
from kplane_apiserver.kinds import Kind
from kplane_apiserver.wire.http import Request
from kplane_core.errors import DecodeError, Subject, not_found

Document = dict[str, Any]
Change = Callable[[Document], Document]

_MOST_COMBINATIONS = 20_000
"""So many combinations of a role are compared, at most; who may do everything need not compare any."""

_EVERYTHING = (
    Rule(verbs=(EVERY,), groups=(EVERY,), resources=(EVERY,)),
    Rule(verbs=(EVERY,), paths=(EVERY,)),
)
# The fields that change when an object is on its way out; the last three are the server's own.
_ON_THE_WAY_OUT = frozenset({"ownerReferences", "finalizers", "selfLink", "managedFields", "resourceVersion"})


class Escalation:
    """Checks writes of roles and bindings.

    Args:
        policies: the roles and bindings that there are.
        authorizer: knows what the author may do.
    """

    def __init__(self, policies: Policies, authorizer: RbacAuthorizer) -> None:
        self._policies = policies
        self._authorizer = authorizer

    def guarded(self, request: Request, kind: Kind, change: Change) -> Change:
        """Return a change that is also checked."""

        def checked(old: Document) -> Document:
            new = change(old)
            self.check(request, kind, new, old)
            return new

        return checked

    def check(self, request: Request, kind: Kind, new: Document, old: Document | None) -> None:
        """Return when the user may write a role or binding.

        Args:
            request: whose user it is.
            kind: one of the four kinds.
            new: its new state, as the client wants it.
            old: its old state; None when it is new.

        Raises:
            ApiError: 403 when it gives more than the user has; 404 when a binding's role does not exist.
        """
        if MASTERS in request.user.groups or (old is not None and _as_before(new, old)):
            return
        try:
            if kind.plural in ROLE_PLURALS.values():
                self._check_role(request, kind, new, old)
            else:
                self._check_binding(request, kind, new)
        except DecodeError:
            return  # the validation that comes next refuses it

    def _check_role(self, request: Request, kind: Kind, new: Document, old: Document | None) -> None:
        if self._may(request, "escalate", kind.plural, request.route.name):
            return
        self._confirm(request, kind, new, rules_of(new))
        aggregates = [role_of(one) for one in (new, old) if one is not None and kind.plural == "clusterroles"]
        if any(role.selectors for role in aggregates) and next(self._missing(request, _EVERYTHING), None):
            detail = "must have cluster-admin privileges to use the aggregationRule"
            raise forbidden(_subject(request, kind, new), detail)

    def _check_binding(self, request: Request, kind: Kind, new: Document) -> None:
        route = request.route
        ref = binding_of(new, route.namespace, "").ref
        plural = ROLE_PLURALS.get(ref.kind)
        if plural is None or ref.group not in ("", RBAC_GROUP):
            return  # the validation that comes next refuses it
        if self._may(request, "bind", plural, ref.name):
            return
        rules = self._policies.of(route.cluster).role_rules(ref, route.namespace)
        if rules is None:
            raise not_found(Subject(plural, RBAC_GROUP, ref.name))
        self._confirm(request, kind, new, rules.rules)

    def _may(self, request: Request, verb: str, plural: str, name: str) -> bool:
        route = request.route
        asked = Attributes(request.user, route.cluster, verb, RBAC_GROUP, "*", plural, "", route.namespace, name)
        return self._authorizer.authorize(asked).allowed

    def _confirm(self, request: Request, kind: Kind, new: Document, rules: tuple[Rule, ...]) -> None:
        if not next(self._missing(request, _EVERYTHING), None):
            return
        missing = list(self._missing(request, rules))
        if missing:
            raise forbidden(_subject(request, kind, new), self._words(request, missing))

    def _missing(self, request: Request, rules: tuple[Rule, ...]) -> Iterator[Rule]:
        """Yield each combination of the rules that the user does not hold.

        Raises:
            ApiError: 403; there are too many to compare.
        """
        user, route = request.user, request.route
        for number, one in enumerate(_combinations(rules)):
            if number >= _MOST_COMBINATIONS:
                subject = Subject(route.resource, route.group, route.name)
                detail = (
                    f"the role has more than {_MOST_COMBINATIONS} combinations of verbs, groups, resources and names, "
                    "too many to compare with the permissions that you hold: divide it into several roles"
                )
                raise forbidden(subject, detail)
            verb = (one.verbs or ("",))[0]
            if one.paths:
                asked = path_question(verb, one.paths[0])
            else:
                group, resource = (one.groups or ("",))[0], (one.resources or ("",))[0]
                asked = resource_question(verb, group, resource, one.names[0] if one.names else None)
            if not self._authorizer.holds(user, route.cluster, route.namespace, asked):
                yield one

    def _words(self, request: Request, missing: list[Rule]) -> str:
        user, route = request.user, request.route
        lines = "\n".join(sorted({_compact(rule) for rule in _joined(missing)}))
        who = f"user {quoted(user.name)} (groups={_listed(user.groups)})"
        words = f"{who} is attempting to grant RBAC permissions not currently held:\n{lines}"
        faults = faults_of(self._policies.of(route.cluster), user, route.namespace)
        return f"{words}; resolution errors: [{listed(faults)}]" if faults else words


def _subject(request: Request, kind: Kind, document: Mapping[str, Any]) -> Subject:
    name = document["metadata"].get("name")
    return Subject(kind.plural, kind.group, name if name and isinstance(name, str) else request.route.name)


def _as_before(new: Document, old: Document) -> bool:
    """Whether only what the garbage collector changes differs: what is on its way out may always go."""
    return _lasting(new) == _lasting(old)


def _lasting(document: Document) -> Document:
    metadata = document.get("metadata")
    kept = {key: value for key, value in (metadata or {}).items() if key not in _ON_THE_WAY_OUT and value}
    return {**{key: value for key, value in document.items() if value}, "metadata": kept}


def _combinations(rules: tuple[Rule, ...]) -> Iterator[Rule]:
    """Yield each combination of one verb with one resource, and maybe one name, or with one path."""
    for rule in rules:
        verbs = dict.fromkeys(rule.verbs or ())
        for group in dict.fromkeys(rule.groups or ()):
            for resource in dict.fromkeys(rule.resources or ()):
                for verb in verbs:
                    for name in dict.fromkeys(rule.names or ()) or (None,):
                        yield Rule((verb,), (group,), (resource,), None if name is None else (name,))
        for path in dict.fromkeys(rule.paths or ()):
            for verb in verbs:
                yield Rule(verbs=(verb,), paths=(path,))


def _joined(rules: list[Rule]) -> Iterator[Rule]:
    """Yield the combinations with the verbs of one resource together, as upstream lists them."""
    verbs: dict[tuple[object, object], list[str]] = {}
    for rule in rules:
        if rule.names or rule.paths:
            yield rule
        else:
            verbs.setdefault((rule.groups, rule.resources), []).extend(rule.verbs or ())
    seen = set()
    for rule in rules:
        place = (rule.groups, rule.resources)
        if not rule.names and not rule.paths and place not in seen:
            seen.add(place)
            yield Rule(tuple(dict.fromkeys(verbs[place])), rule.groups, rule.resources)


def _compact(rule: Rule) -> str:
    parts = (
        ("APIGroups", rule.groups),
        ("Resources", rule.resources),
        ("NonResourceURLs", rule.paths),
        ("ResourceNames", rule.names),
        ("Verbs", rule.verbs),
    )
    return "{" + ", ".join(f"{name}:{_listed(values)}" for name, values in parts if values) + "}"


def _listed(texts: tuple[str, ...]) -> str:
    return f"[{' '.join(map(quoted, texts))}]"
