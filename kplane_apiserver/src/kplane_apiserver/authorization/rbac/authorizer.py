"""Decides by the roles and bindings of the cluster in which something would happen."""

from collections.abc import Iterator

from kplane_apiserver.authorization.questions import Attributes, Decision, Rules
from kplane_apiserver.authorization.rbac.index import Grants, Policy
from kplane_apiserver.authorization.rbac.policies import Policies
from kplane_apiserver.authorization.rbac.reading import group_key, user_key
from kplane_apiserver.authorization.rbac.rules import Question, as_documents, question_of
from kplane_apiserver.identity import MASTERS, User

_MAY_ALL = Decision(allowed=True)
_NO = Decision(allowed=False)


class RbacAuthorizer:
    """Allows what a role allows that is bound to the user, and everything to `system:masters`.

    Args:
        policies: the roles and bindings of all clusters.
    """

    def __init__(self, policies: Policies) -> None:
        self._policies = policies

    def authorize(self, attributes: Attributes) -> Decision:
        """Return whether it may happen, and which binding allows it or what is wrong with those that might."""
        if MASTERS in attributes.user.groups:
            return _MAY_ALL
        asked = question_of(attributes)
        # As upstream has it, what is no resource is allowed for the whole cluster or not at all.
        namespace = attributes.namespace if asked.path is None else ""
        policy, user = self._policies.of(attributes.cluster), attributes.user
        for grants in _grants(policy, user, namespace):
            found = grants.find(asked)
            if found is not None:
                return found
        return _refusal(policy, user, namespace)

    def rules_for(self, user: User, cluster: str, namespace: str) -> Rules:
        """Return what the user may do in a namespace, for SelfSubjectRulesReview."""
        policy = self._policies.of(cluster)
        rules = [rule for grants in _grants(policy, user, namespace) for rule in grants.rules()]
        resources, paths = as_documents(rules)
        return Rules(resources, paths, error=" ".join(faults_of(policy, user, namespace)))

    def holds(self, user: User, cluster: str, namespace: str, asked: Question) -> bool:
        """Whether one of the user's roles allows a combination of a verb and something else."""
        grants = _grants(self._policies.of(cluster), user, namespace)
        return any(some.find(asked) is not None for some in grants)


def faults_of(policy: Policy, user: User, namespace: str) -> list[str]:
    """Return what is wrong with the bindings that may be the user's, each fault once."""
    faults = [fault for grants in _grants(policy, user, namespace) for fault in grants.faults]
    for scope in _scopes(namespace):
        faults.extend(policy.faults(scope))
    return list(dict.fromkeys(faults))


def listed(faults: list[str]) -> str:
    """Return faults as upstream's aggregated errors read."""
    return faults[0] if len(faults) == 1 else f"[{', '.join(faults)}]"


def _refusal(policy: Policy, user: User, namespace: str) -> Decision:
    faults = faults_of(policy, user, namespace)
    return Decision(allowed=False, reason=f"RBAC: {listed(faults)}") if faults else _NO


def _grants(policy: Policy, user: User, namespace: str) -> Iterator[Grants]:
    subjects = (user_key(user.name), *map(group_key, user.groups))
    for scope in _scopes(namespace):
        for subject in subjects:
            grants = policy.grants(scope, subject)
            if grants is not None:
                yield grants


def _scopes(namespace: str) -> tuple[str, ...]:
    return ("", namespace) if namespace else ("",)
