"""Writing the roles and bindings that a cluster begins with."""

import asyncio

from kplane_apiserver.authorization.rbac.defaults import Default, defaults
from kplane_apiserver.authorization.rbac.policies import Policies
from kplane_apiserver.settings import Settings, timestamp
from kplane_core.chance import new_uid
from kplane_core.errors import KeyExists


class RoleBootstrap:
    """Gives clusters their first roles and bindings.

    Args:
        policies: where they are stored, and told.
        settings: the root cluster's name, and the time.
    """

    def __init__(self, policies: Policies, settings: Settings) -> None:
        self._policies = policies
        self._settings = settings

    async def __call__(self, cluster: str) -> None:
        """Write what a cluster does not have yet.

        Raises:
            KplaneError: something cannot be stored.
        """
        now = timestamp(self._settings.now())
        wanted = defaults(root=cluster == self._settings.root_cluster)
        absent = [one for one in wanted if not self._policies.has(one.plural, cluster, one.name)]
        # Together, because a database far away takes its time for each.
        await asyncio.gather(*(self._write(cluster, one, now) for one in absent))

    async def _write(self, cluster: str, one: Default, now: str) -> None:
        served = self._policies.served(one.plural)
        metadata = {**one.document["metadata"], "uid": new_uid(), "creationTimestamp": now}
        try:
            stored = await served.store.create(served.key(cluster, "", one.name), {**one.written, "metadata": metadata})
        except KeyExists:
            return  # a user's own of that name, or another process was faster
        self._policies.observe(one.plural, stored)
