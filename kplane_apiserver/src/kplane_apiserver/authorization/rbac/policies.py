"""The policies of all clusters, kept current from storage."""

from collections.abc import Callable, Mapping

import attrs

from kplane_apiserver.authorization.rbac import RBAC_GROUP
from kplane_apiserver.authorization.rbac.index import Base, Policy
from kplane_apiserver.authorization.rbac.reading import read_binding, read_role
from kplane_apiserver.kinds import builtin_kinds
from kplane_apiserver.storing.follow import Follower
from kplane_apiserver.storing.stores import Served, StoreSet
from kplane_core.errors import InvalidKey
from kplane_core.storage.interface import StoredObject

PLURALS = ("clusterroles", "roles", "clusterrolebindings", "rolebindings")
"""The kinds that are followed; what is bound before who is bound."""


@attrs.frozen(eq=False)
class _Followed:
    served: Served
    follower: Follower


class Policies:
    """The policy of every cluster.

    Args:
        stores: where roles and bindings are.
        base: what clusters begin with.
        root_base: what the root cluster begins with.
        root_cluster: its name.
    """

    def __init__(self, stores: StoreSet, base: Base, root_base: Base, root_cluster: str) -> None:
        self._base = base
        self._root_base = root_base
        self._root_cluster = root_cluster
        self._clusters: dict[str, Policy] = {}
        kinds = builtin_kinds()
        served = {plural: stores.serve(kinds[RBAC_GROUP, "v1", plural]) for plural in PLURALS}
        self._followed: Mapping[str, _Followed] = {
            plural: _Followed(one, self._follower(plural, one)) for plural, one in served.items()
        }

    def of(self, cluster: str) -> Policy:
        """Return a cluster's policy; of one that has nothing of its own, that of a new one."""
        return self._clusters.get(cluster) or self._base_of(cluster).policy

    def served(self, plural: str) -> Served:
        """Return one of the four kinds."""
        return self._followed[plural].served

    def has(self, plural: str, cluster: str, name: str) -> bool:
        """Whether a cluster has an object of the base that is called so, stored and unchanged."""
        policy = self._clusters.get(cluster)
        return policy is not None and policy.keeps(plural, name)

    async def start(self) -> None:
        """Learn what all clusters have, and follow it from then on.

        Raises:
            KplaneError: a store cannot be listed.
        """
        for followed in self._followed.values():
            await followed.follower.start()

    async def aclose(self) -> None:
        """Stop following; idempotent."""
        for followed in self._followed.values():
            await followed.follower.aclose()

    def observe(self, plural: str, stored: StoredObject, *, deleted: bool = False) -> None:
        """Take this process's own write of a role or binding, so that the next request is judged by it."""
        followed = self._followed.get(plural)
        if followed is not None:
            followed.follower.observe(stored, deleted=deleted)

    def _base_of(self, cluster: str) -> Base:
        return self._root_base if cluster == self._root_cluster else self._base

    def _follower(self, plural: str, served: Served) -> Follower:
        def reset() -> None:
            for policy in self._clusters.values():
                policy.forget(plural)
            self._clusters = {cluster: policy for cluster, policy in self._clusters.items() if not policy.empty}

        # Not through the cache: it would keep the bytes of every cluster's roles, of which nothing is needed here.
        prefix = served.layout.kind_root_prefix()
        return Follower(served.plain, prefix, reset=reset, apply=self._apply(plural, served))

    def _apply(self, plural: str, served: Served) -> Callable[[StoredObject, bool], None]:
        def apply(stored: StoredObject, deleted: bool) -> None:  # noqa: FBT001 (Follower's callback)
            try:
                place = served.layout.relative(stored.key)
            except InvalidKey:
                return  # no request can name it either
            policy = self._clusters.get(place.cluster)
            if policy is None:
                if deleted:
                    return
                policy = self._clusters[place.cluster] = Policy(self._base_of(place.cluster))
            _put(policy, plural, place.namespace, place.name, None if deleted else stored.raw)
            if deleted and policy.empty:
                del self._clusters[place.cluster]

        return apply


def _put(policy: Policy, plural: str, namespace: str, name: str, raw: bytes | None) -> None:
    match plural:
        case "clusterroles":
            policy.put_cluster_role(name, None if raw is None else read_role(raw, "ClusterRole", name))
        case "roles":
            policy.put_role(namespace, name, None if raw is None else read_role(raw, "Role", name))
        case _:
            policy.put_binding(namespace, name, None if raw is None else read_binding(raw, namespace, name))
