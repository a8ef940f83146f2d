"""Who a request is from, in Kubernetes' terms."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

ANONYMOUS_NAME = "system:anonymous"
UNAUTHENTICATED = "system:unauthenticated"
AUTHENTICATED = "system:authenticated"
MASTERS = "system:masters"
"""The group whose members may do everything, whatever the roles say."""
CROSS_CLUSTER_READERS = "kplane:cross-cluster-readers"
"""The group whose members may list and watch over all clusters, beside the masters."""

CROSS_CLUSTER_GROUPS = frozenset({CROSS_CLUSTER_READERS, MASTERS})

_NOTHING: Mapping[str, tuple[str, ...]] = MappingProxyType({})


class User(msgspec.Struct, frozen=True):
    """Who a request is from.

    Attributes:
        name: the user's name.
        uid: tells users of one name apart; may be empty.
        groups: the groups that the user belongs to, `system:authenticated` among them for whoever gave a credential.
        extra: what else the authenticator knows.
    """

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = _NOTHING

    def to_dict(self) -> dict[str, Any]:
        """Return the user as `authentication.k8s.io/v1 UserInfo`, without what is empty."""
        document: dict[str, Any] = {"username": self.name}
        if self.uid:
            document["uid"] = self.uid
        if self.groups:
            document["groups"] = list(self.groups)
        if self.extra:
            document["extra"] = {key: list(values) for key, values in self.extra.items()}
        return document


def authenticated(name: str, uid: str = "", groups: Iterable[str] = ()) -> User:
    """Return a user who gave a credential, with the group that says so; each group stands there once."""
    return User(name, uid, tuple(dict.fromkeys((*groups, AUTHENTICATED))))


def reads_across_clusters(user: User) -> bool:
    """Return whether a user is in one of the groups whose members may list and watch over all clusters."""
    return not CROSS_CLUSTER_GROUPS.isdisjoint(user.groups)


ANONYMOUS = User(ANONYMOUS_NAME, groups=(UNAUTHENTICATED,))
"""Who gave no credential."""
