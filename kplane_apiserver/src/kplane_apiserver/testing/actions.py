"""What can be done to a cluster under test; everything here runs on the server's event loop."""

import contextlib
from collections.abc import Iterable
from typing import Any

import attrs

from kplane_apiserver.clusters.registry import CLUSTER_KEY
from kplane_apiserver.kinds import builtin_kinds
from kplane_apiserver.server import ApiServer
from kplane_apiserver.testing import states
from kplane_apiserver.testing.calls import Answer, call
from kplane_apiserver.testing.clock import Clock
from kplane_apiserver.testing.intercept import Controls, Interceptor, end_watches
from kplane_apiserver.testing.manifests import Document, check_object
from kplane_core.engine.factory import Connection, EngineConnection
from kplane_core.engine.interface import Compacted
from kplane_core.errors import Expired, UsageError

_MAKING = frozenset({"create", "patch"})
_MUCH = 100


@attrs.frozen(eq=False)
class Parts:
    """What a server under test consists of.

    Attributes:
        api: the server.
        connection: its storage.
        interceptor: what stands before it.
        clock: its clock.
        actions: what is done to its clusters, by name.
    """

    api: ApiServer
    connection: Connection
    interceptor: Interceptor
    clock: Clock
    actions: "dict[str, Actions]" = attrs.field(factory=dict)

    async def open(self, cluster: str, manifests: Iterable[Document]) -> "Actions":
        """Return what can be done to a cluster, which is made if it does not exist and filled with the manifests."""
        await self.api.ensure_cluster(cluster)
        actions = self.actions[cluster] = Actions(self, cluster)
        await actions.create(manifests)
        actions.born = await self._revision()
        self.interceptor.controls[cluster] = actions.controls
        return actions

    async def compact(self) -> int:
        """Forget the history of the whole storage, in the database and in the caches; return up to which revision.

        Raises:
            UsageError: the storage cannot be compacted from here.
        """
        connection = self.connection
        if not isinstance(connection, EngineConnection):
            raise UsageError("this storage backend cannot be compacted by a test; use the memory backend in such tests")
        for actions in self.actions.values():
            await actions.remember()
        revision = await connection.engine.revision()
        with contextlib.suppress(Compacted):  # nothing was written since the last time
            await connection.compact(revision)
        for _, cache in self.api.services.stores.caches():
            cache.cacher.forget_history(revision)
        return revision

    async def _revision(self) -> int:
        # Any store tells: there is one revision for the whole storage.
        served = self.api.services.stores.serve(builtin_kinds()[CLUSTER_KEY])
        return await served.plain.get_current_resource_version()


class Actions:
    """What can be done to one cluster.

    Args:
        parts: the server's.
        cluster: its name.

    Attributes:
        controls: what is in force for it.
        born: the revision at which it was handed to the test.
    """

    def __init__(self, parts: Parts, cluster: str) -> None:
        self._parts = parts
        self.cluster = cluster
        self.controls = Controls()
        self.born = 0
        self._created = 0
        self._initial: states.Snapshot | None = None

    async def request(
        self, method: str, path: str, document: Any = None, content_type: str = "application/json"
    ) -> Answer:
        """Send one request past the spy and the faults."""
        prefix = f"/clusters/{self.cluster}/control-plane"
        return await call(self._parts.api.app, method, prefix + path, document, content_type)

    async def create(self, documents: Iterable[Document]) -> list[Document]:
        """Create objects and return them as stored.

        Raises:
            UsageError: an object is of a kind that the cluster does not serve, or is refused.
        """
        return [await self._create(document) for document in documents]

    async def _create(self, document: Document) -> Document:
        check_object(document, "create")
        self._created += 1
        kinds = self._parts.api.services.catalog.kinds(self.cluster)
        api_version, wanted = document["apiVersion"], document["kind"]
        kind = next((kind for kind in kinds if (kind.api_version, kind.kind) == (api_version, wanted)), None)
        if kind is None:
            raise UsageError(
                f"cluster {self.cluster!r} serves no {wanted} of {api_version}; "
                "create its CustomResourceDefinition first"
            )
        base = f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.version}"
        namespace = document["metadata"].get("namespace", "default")
        place = f"/namespaces/{namespace}/{kind.plural}" if kind.namespaced else f"/{kind.plural}"
        answer = await self.request("POST", base + place, document)
        created: Document = answer.json()
        if answer.status >= 400:  # noqa: PLR2004 (HTTP)
            name = document["metadata"].get("name", document["metadata"].get("generateName"))
            raise UsageError(f"the server refuses {wanted} {name!r}: {created.get('message', answer.status)}")
        return created

    async def compact(self) -> int:
        """Forget the history of the whole storage; see `Parts.compact`."""
        return await self._parts.compact()

    async def end_watches(self, resource: str, *, expired: bool) -> int:
        """End the cluster's open watches; see `end_watches`."""
        return await end_watches(self.controls, resource, expired=expired)

    async def advance(self, seconds: float) -> None:
        """Turn the server's clock forward; see `Clock.turn`."""
        self._parts.clock.turn(self._parts.connection, seconds)

    async def remember(self) -> None:
        """Keep the state in which the test got the cluster, if it can still be had."""
        if self._initial is None:
            self._initial = await states.take(self._parts.api.services, self.cluster, self.born)

    async def snapshot(self) -> states.Snapshot:
        """Return the cluster's objects as they are."""
        return await states.take(self._parts.api.services, self.cluster)

    async def reset(self, snapshot: states.Snapshot | None) -> None:
        """Give the cluster the objects of a snapshot again, by default those that the test got it with.

        Faults, and the requests so far, are forgotten.

        Raises:
            UsageError: the first state is no longer in the storage's history.
        """
        services = self._parts.api.services
        if snapshot is None:
            try:
                await self.remember()
            except Expired as error:
                raise UsageError(
                    f"the first state of cluster {self.cluster!r} is no longer in the history; "
                    "take a snapshot() at the beginning and give it to reset()"
                ) from error
            snapshot = self._initial
            assert snapshot is not None
        self.controls.faults.clear()
        await states.put_back(services, self.cluster, snapshot)
        self.controls.requests.clear()

    async def close(self) -> None:
        """End the cluster's watches and delete it in the background.

        One that holds next to nothing is kept until the server ends: that costs ten kilobytes, and to look for its
        objects in every kind would cost more time than all the rest of a small test.
        """
        await end_watches(self.controls, "*", expired=False)
        self._parts.actions.pop(self.cluster, None)
        self._parts.interceptor.controls.pop(self.cluster, None)
        root = self._parts.api.settings.root_cluster
        if self.cluster != root and self._holds_much():
            path = f"/clusters/{root}/control-plane/apis/kplane.dev/v1/clusters/{self.cluster}"
            await call(self._parts.api.app, "DELETE", path)

    def _holds_much(self) -> bool:
        written = self._created + sum(entry.verb in _MAKING for entry in self.controls.requests)
        kinds = self._parts.api.services.catalog.kinds(self.cluster)
        return written > _MUCH or any(kind.custom is not None for kind in kinds)
