"""Which virtual clusters exist, and how one comes into being.

A cluster exists when the root cluster holds a `kplane.dev/v1 Cluster` of its name. Its bootstrap objects are written
before that, so a Cluster that can be seen is complete; a crash in between leaves objects that the next touch completes.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import msgspec

from kplane_apiserver.apierrors import forbidden
from kplane_apiserver.clusters.admission import prepare_create
from kplane_apiserver.clusters.lifecycle import Owner
from kplane_apiserver.clusters.namespaces import BOOTSTRAPPED, Namespaces, terminating
from kplane_apiserver.clusters.ttl import Expiries, end_of
from kplane_apiserver.kinds import Kind, KindKey, builtin_kinds
from kplane_apiserver.settings import Settings, timestamp
from kplane_apiserver.storing.follow import Follower
from kplane_apiserver.storing.stores import Served, StoreSet
from kplane_core.errors import ApiError, KeyExists, Status, Subject, already_exists, conflict
from kplane_core.storage.interface import GetOptions, StoredObject

CLUSTER_KEY: KindKey = ("kplane.dev", "v1", "clusters")
NAMESPACE_KEY: KindKey = ("", "v1", "namespaces")
SERVICE_ACCOUNT_KEY: KindKey = ("", "v1", "serviceaccounts")
CONTENT_FINALIZER = "kplane.dev/content"
"""Holds a Cluster that is being deleted until its last object is gone."""

_MAYBE_ABSENT = GetOptions(ignore_not_found=True)


class _Status(msgspec.Struct):
    phase: str = ""


class _Probe(msgspec.Struct):
    status: _Status | None = None


_PROBE = msgspec.json.Decoder(_Probe)


def pending(stored: StoredObject) -> bool:
    """Whether a Cluster is being filled and cannot be used yet."""
    if b'"Pending"' not in stored.raw:
        return False
    status = _PROBE.decode(stored.raw).status
    return status is not None and status.phase == "Pending"


def subject_of(cluster: str) -> Subject:
    """Return what an error about a cluster is about."""
    return Subject("clusters", "kplane.dev", cluster)


class Clusters:
    """The registry of virtual clusters.

    Args:
        stores: where objects are.
        namespaces: told of the namespaces of a new cluster.
        settings: how clusters come into being.
        on_deleting: called with a cluster whose content has to go.
        on_expired: called with what has ended.
        also: writes what else a cluster has from the start.
    """

    def __init__(
        self,
        stores: StoreSet,
        namespaces: Namespaces,
        settings: Settings,
        on_deleting: Callable[[str], None],
        on_expired: Callable[[Owner], None],
        also: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        kinds = builtin_kinds()
        self._stores = stores
        self._served = stores.serve(kinds[CLUSTER_KEY])
        self._namespaces = namespaces
        self._settings = settings
        self._on_deleting = on_deleting
        self._also = also
        self.expiries: Expiries[Owner] = Expiries(settings.now, on_expired)
        """What ends by itself, clusters and fleets."""
        self.known: set[str] = set()
        """The clusters that can be used; membership is all that a request has to ask."""
        self._deleting: set[str] = set()
        self._making: dict[str, asyncio.Task[None]] = {}
        self._follower = Follower(
            self._served.store, self._served.prefix(settings.root_cluster), reset=self._reset, apply=self._apply
        )

    async def start(self) -> None:
        """Bootstrap the root cluster, learn all clusters and follow them from then on."""
        await self.bootstrap(self._settings.root_cluster)
        await self._follower.start()
        self.expiries.start()

    async def aclose(self) -> None:
        """Stop following and give up what is being made; idempotent."""
        await self.expiries.aclose()
        await self._follower.aclose()
        making = list(self._making.values())
        for task in making:
            task.cancel()
        if making:
            await asyncio.wait(making)  # what they fail with is told to those who wait for the cluster

    def observe(self, stored: StoredObject, *, deleted: bool = False) -> None:
        """Take this process's own write of a Cluster."""
        self._follower.observe(stored, deleted=deleted)

    async def touch(self, cluster: str) -> None:
        """Return when the cluster, which is not among the known ones, can be used.

        Raises:
            ApiError: 404 when it does not exist and is not made by touching it, 409 while it is being deleted.
        """
        task = self._making.get(cluster)
        if task is None:
            make = self._settings.cluster_creation == "auto"
            task = self._own(cluster, self._find_or_make(cluster, make=make))
        # A client that goes away must not take the others' cluster with it.
        await asyncio.shield(task)

    async def ensure(self, cluster: str) -> None:
        """Return when the cluster can be used; make it if it does not exist, also where touching would not.

        Raises:
            ApiError: 409 while it is being deleted.
        """
        if cluster not in self.known:
            await self._own(cluster, self._find_or_make(cluster, make=True))

    async def make_with(self, cluster: str, work: Coroutine[Any, Any, None]) -> None:
        """Return when `work` has made a cluster; those who touch it meanwhile wait for it.

        Raises:
            ApiError: 409; the cluster exists, or is being made.
        """
        if cluster in self.known or cluster in self._making:
            work.close()
            raise already_exists(subject_of(cluster))
        await asyncio.shield(self._own(cluster, work))

    async def bootstrap(self, cluster: str) -> None:
        """Write what every cluster has from the start, as far as it is not there yet."""
        kinds = builtin_kinds()
        for name in BOOTSTRAPPED:
            stored = await self._create(kinds[NAMESPACE_KEY], cluster, "", name)
            if stored is not None:
                self._namespaces.observe(stored)
            await self.ensure_account(cluster, name)
        if self._also is not None:
            await self._also(cluster)

    async def ensure_account(self, cluster: str, namespace: str) -> None:
        """Write the service account `default` of a namespace unless it is there."""
        await self._create(builtin_kinds()[SERVICE_ACCOUNT_KEY], cluster, namespace, "default")

    def check_new(self, cluster: str) -> None:
        """Return when a Cluster of this name may be created.

        Raises:
            ApiError: 403; it is the name of the root cluster.
        """
        if cluster == self._settings.root_cluster:
            raise forbidden(subject_of(cluster), "the root cluster always exists and is no Cluster object")

    async def _find_or_make(self, cluster: str, *, make: bool) -> None:
        root = self._settings.root_cluster
        stored = await self._served.store.get(self._served.key(root, "", cluster), _MAYBE_ABSENT)
        if stored.exists:
            if terminating(stored):
                raise conflict(subject_of(cluster), "the cluster is being deleted; wait until that is done")
            if pending(stored):
                raise conflict(subject_of(cluster), "the cluster is being filled; wait until its phase is Ready")
            self.known.add(cluster)
            return
        if not make:
            raise _unknown(cluster)
        await self.bootstrap(cluster)
        made = await self._create(self._served.kind, root, "", cluster)
        if made is not None:
            self.observe(made)
        self.known.add(cluster)

    async def _create(self, kind: Kind, cluster: str, namespace: str, name: str) -> StoredObject | None:
        served: Served = self._stores.serve(kind)
        document: dict[str, Any] = {
            "apiVersion": kind.storage_api_version,
            "kind": kind.kind,
            "metadata": {"name": name},
        }
        prepare_create(kind, document, namespace, timestamp(self._settings.now()))
        try:
            return await served.store.create(served.key(cluster, namespace, name), document)
        except KeyExists:
            return None

    def _own(self, cluster: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=f"kplane-make-cluster-{cluster}")
        self._making[cluster] = task
        task.add_done_callback(lambda done: self._made(cluster, done))
        return task

    def _made(self, cluster: str, task: asyncio.Task[None]) -> None:
        self._making.pop(cluster, None)
        if not task.cancelled():
            task.exception()  # every waiter was told; a task whose waiters all went away is not worth a warning

    def _reset(self) -> None:
        self.known.clear()
        self.known.add(self._settings.root_cluster)
        self._deleting.clear()
        self.expiries.keep(lambda owner: owner.what == "fleet")

    def _apply(self, stored: StoredObject, deleted: bool) -> None:  # noqa: FBT001 (Follower's callback)
        cluster = self._served.layout.relative(stored.key).name
        self._deleting.discard(cluster)
        self.expiries.put(
            Owner("expired", cluster, cluster), None if deleted or terminating(stored) else end_of(stored)
        )
        if deleted:
            self.known.discard(cluster)
        elif terminating(stored):
            self.known.discard(cluster)
            self._deleting.add(cluster)
            self._on_deleting(cluster)
        elif pending(stored):
            self.known.discard(cluster)
        else:
            self.known.add(cluster)


def _unknown(cluster: str) -> ApiError:
    message = (
        f'clusters.kplane.dev "{cluster}" not found: create it with a kplane.dev/v1 Cluster of this name in the root '
        "cluster, or start the server with --cluster-creation=auto"
    )
    return ApiError(Status(404, "NotFound", message, name=cluster, group="kplane.dev", kind="clusters"))
