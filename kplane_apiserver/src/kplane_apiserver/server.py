"""The API server, assembled: usable below uvicorn, below any other ASGI server, and inside a test."""

import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Self

from kplane_apiserver.authorization.questions import AlwaysAllow
from kplane_apiserver.clusters.garbage import Garbage
from kplane_apiserver.clusters.lifecycle import Lifecycle, Owner
from kplane_apiserver.clusters.namespaces import Namespaces
from kplane_apiserver.clusters.registry import NAMESPACE_KEY, Clusters
from kplane_apiserver.definitions.catalog import Catalog
from kplane_apiserver.front.access import gate_for
from kplane_apiserver.front.asgi import Application
from kplane_apiserver.front.handlers import Handlers
from kplane_apiserver.kinds import builtin_kinds
from kplane_apiserver.requests.crosscluster import CrossCluster
from kplane_apiserver.requests.health import Health
from kplane_apiserver.requests.metrics import Metrics, RequestMetrics
from kplane_apiserver.requests.watches import Watches
from kplane_apiserver.services import DEFINITION_KEY, Services
from kplane_apiserver.settings import Settings
from kplane_apiserver.storing.stores import BuildStore, StoreSet
from kplane_apiserver.upkeep import contents, fleets, garbage_collector
from kplane_apiserver.upkeep.caches_unused import UnusedCaches
from kplane_core.engine.factory import Connection
from kplane_core.multicluster.keylayout import KeyLayout
from kplane_core.plugins.checks import HealthCheck

if TYPE_CHECKING:
    from kplane_apiserver.authorization.rbac.service import Rbac


class ApiServer:
    """A multicluster Kubernetes-style API server over one storage connection.

    `start` it, or let the ASGI lifespan of `app` do so; then serve `app`.

    Args:
        connection: the connected backend; it stays the caller's to close.
        build_store: makes the store of one resource; by default the connection's own.
        settings: how to behave.
        health_checks: what the health paths check beyond the server's own.
    """

    def __init__(
        self,
        connection: Connection,
        build_store: BuildStore | None = None,
        settings: Settings | None = None,
        *,
        health_checks: Iterable[HealthCheck] = (),
    ) -> None:
        self.settings = settings or Settings()
        stores = StoreSet(build_store or connection.store, self.settings)
        self._definitions = stores.serve(builtin_kinds()[DEFINITION_KEY])
        self.services = _services(self.settings, stores, self._definitions.layout)
        self.watches = Watches(self.settings)
        catalog, admins = self.services.catalog, self.settings.cross_cluster_readers
        self._unused = UnusedCaches(stores, self.services.garbage, catalog.defined)
        catalog.on_undefined = self._unused.undefined
        requests = RequestMetrics(by_cluster=self.settings.metrics_by_cluster, known=self.services.clusters.known)
        health = Health(connection, lambda: self.watches.draining, stores, health_checks)
        self.app = Application(
            Handlers(self.services, self.watches, health, Metrics(requests, self.watches, stores, connection)),
            CrossCluster(catalog, stores, self.watches, admins, authenticated=self.settings.authenticator is not None),
            self.services.clusters,
            requests,
            gate_for(self.settings, self.services.authorizer),
            self.settings,
            start=self.start,
            stop=self.aclose,
        )
        """The ASGI application."""
        self._started = False

    async def start(self) -> None:
        """Learn what is stored, bootstrap the root cluster, and begin to follow changes; idempotent.

        Raises:
            KplaneError: the storage backend does not answer.
        """
        if self._started:
            return
        self._started = True
        services = self.services
        await services.catalog.start(self._definitions.store)
        await services.namespaces.start()
        if services.rbac is not None:
            await services.rbac.policies.start()
        await services.clusters.start()
        await contents.find_unfinished(services)
        services.lifecycle.start(functools.partial(fleets.finish, services))
        services.garbage.start(
            functools.partial(garbage_collector.process, services), functools.partial(garbage_collector.scan, services)
        )

    async def ensure_cluster(self, cluster: str) -> None:
        """Return when a virtual cluster can be used; make it if it does not exist, in either mode of creation.

        Raises:
            ApiError: 409 while it is being deleted.
        """
        await self.services.clusters.ensure(cluster)

    async def __aenter__(self) -> Self:
        """Start the server."""
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Close the server; the connection stays open."""
        await self.aclose()

    async def drain(self) -> None:
        """End open watches cleanly and take no new ones; return after at most the drain time-out."""
        await self.watches.drain()

    async def aclose(self) -> None:
        """Drain, and release everything but the connection; idempotent."""
        await self.watches.drain()
        self.app.deadlines.close()
        services = self.services
        await services.garbage.aclose()
        await services.lifecycle.aclose()
        await services.clusters.aclose()
        await services.namespaces.aclose()
        if services.rbac is not None:
            await services.rbac.policies.aclose()
        await services.catalog.aclose()
        await self._unused.aclose()
        await services.stores.aclose()
        self._started = False


def _services(settings: Settings, stores: StoreSet, definitions: KeyLayout) -> Services:
    lifecycle = Lifecycle()
    namespaces = Namespaces(
        stores.serve(builtin_kinds()[NAMESPACE_KEY]),
        lambda cluster, name: lifecycle.enqueue(Owner("namespace", cluster, name)),
    )
    rbac = _rbac(stores, settings)
    return Services(
        settings=settings,
        stores=stores,
        catalog=Catalog(definitions, root_cluster=settings.root_cluster),
        clusters=Clusters(
            stores,
            namespaces,
            settings,
            lambda cluster: lifecycle.enqueue(Owner("cluster", cluster, cluster)),
            lifecycle.enqueue,
            None if rbac is None else rbac.bootstrap,
        ),
        namespaces=namespaces,
        lifecycle=lifecycle,
        garbage=Garbage(),
        authorizer=AlwaysAllow() if rbac is None else rbac.authorizer,
        rbac=rbac,
    )


def _rbac(stores: StoreSet, settings: Settings) -> "Rbac | None":
    if settings.authorization_mode != "RBAC":
        return None
    # Only here: a server that lets everybody do everything must not start later for it.
    from kplane_apiserver.authorization.rbac.service import Rbac  # noqa: PLC0415

    return Rbac(stores, settings)
