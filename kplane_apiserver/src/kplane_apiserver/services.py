"""What the handlers share: one value, made once by the server."""

from typing import TYPE_CHECKING, Any

import attrs

from kplane_apiserver.authorization.questions import Authorizer
from kplane_apiserver.authorization.rbac import RBAC_GROUP
from kplane_apiserver.clusters.fleets_spec import check_fleet
from kplane_apiserver.clusters.garbage import Garbage, metadata_of
from kplane_apiserver.clusters.lifecycle import Lifecycle, Owner
from kplane_apiserver.clusters.namespaces import Namespaces, terminating
from kplane_apiserver.clusters.registry import CLUSTER_KEY, NAMESPACE_KEY, SERVICE_ACCOUNT_KEY, Clusters
from kplane_apiserver.clusters.ttl import check_ttl
from kplane_apiserver.definitions.catalog import Catalog
from kplane_apiserver.kinds import KindKey
from kplane_apiserver.settings import Settings, timestamp
from kplane_apiserver.storing.stores import Served, StoreSet
from kplane_core.storage.interface import StoredObject

if TYPE_CHECKING:
    from kplane_apiserver.authorization.rbac.service import Rbac

FLEET_KEY: KindKey = ("kplane.dev", "v1", "fleets")
DEFINITION_KEY: KindKey = ("apiextensions.k8s.io", "v1", "customresourcedefinitions")


@attrs.frozen(eq=False)
class Services:
    """The parts of a running server.

    Attributes:
        settings: how it behaves.
        stores: where objects are.
        catalog: which kinds each cluster serves.
        clusters: which clusters exist.
        namespaces: which namespaces exist.
        lifecycle: removes what belongs to something that is being deleted.
        garbage: collects objects whose owners are gone.
        authorizer: decides who may do what.
        rbac: the roles by which it decides; None where it needs none.
    """

    settings: Settings
    stores: StoreSet
    catalog: Catalog
    clusters: Clusters
    namespaces: Namespaces
    lifecycle: Lifecycle
    garbage: Garbage
    authorizer: Authorizer
    rbac: "Rbac | None" = None

    def now(self) -> str:
        """Return the time as a Kubernetes timestamp."""
        return timestamp(self.settings.now())

    def present(self, served: Served, cluster: str) -> Served:
        """Return a kind as a cluster defines it now, for those who remembered it; itself when it is defined no more."""
        if served.kind.custom is None:
            return served
        kind = self.catalog.lookup(cluster, *served.kind.key)
        return served if kind is None or kind is served.kind else self.stores.serve(kind)

    def wrote(self, served: Served, cluster: str, stored: StoredObject) -> None:
        """Let the server's own pictures know of a write before it is answered."""
        if not served.kind.namespaced:
            self._observe(served.kind.key, cluster, stored, deleted=False)
        if self.rbac is not None and served.kind.group == RBAC_GROUP:
            self.rbac.policies.observe(served.kind.plural, stored)
        if served.kind.custom is not None:
            self.catalog.wrote(cluster, served.kind, stored.revision)
        self.garbage.wrote(served, cluster, stored)

    def removed(self, served: Served, cluster: str, namespace: str, stored: StoredObject) -> None:
        """Let the server's own pictures know of a deletion; `stored` carries its revision."""
        if not served.kind.namespaced:
            self._observe(served.kind.key, cluster, stored, deleted=True)
        if self.rbac is not None and served.kind.group == RBAC_GROUP:
            self.rbac.policies.observe(served.kind.plural, stored, deleted=True)
        self.lifecycle.content_left(cluster, namespace)
        self.garbage.removed(cluster, stored)
        if served.kind.key == SERVICE_ACCOUNT_KEY and stored.key.endswith("/default"):
            self.lifecycle.enqueue(Owner("account", cluster, namespace))

    async def admit(self, served: Served, cluster: str, namespace: str, name: str) -> None:
        """Return once an object may be created and what it needs is there.

        Raises:
            ApiError: it may not be created.
        """
        if namespace:
            if not self.namespaces.accepts(cluster, namespace):
                await self.namespaces.check(cluster, namespace, served.subject(name))
        else:
            self.check_new(served, name)
            if served.kind.key == CLUSTER_KEY:
                await self.clusters.bootstrap(name)

    def check_new(self, served: Served, name: str) -> None:
        """Return when an object of no namespace may have this name.

        Raises:
            ApiError: 403.
        """
        if served.kind.key == CLUSTER_KEY:
            self.clusters.check_new(name)

    def complete(
        self, served: Served, cluster: str, document: dict[str, Any], old: dict[str, Any] | None
    ) -> dict[str, Any]:
        """Return an object that was prepared for storage with what only the server can fill in.

        Raises:
            KplaneError: the object is not valid.
        """
        if served.kind.key == CLUSTER_KEY:
            check_ttl(served.kind, document)
        if served.kind.key == FLEET_KEY:
            check_fleet(served.kind, document)
        if served.kind.key != DEFINITION_KEY:
            return document
        return self.catalog.prepare(cluster, document, old, self.now())

    def _observe(self, key: KindKey, cluster: str, stored: StoredObject, *, deleted: bool) -> None:
        if key == NAMESPACE_KEY:
            self.namespaces.observe(stored, deleted=deleted)
            if not deleted and not terminating(stored):
                self.lifecycle.enqueue(Owner("account", cluster, stored.key.rpartition("/")[2]))
        elif key == CLUSTER_KEY:
            self.clusters.observe(stored, deleted=deleted)
            if deleted:
                self._tell_fleets(cluster, stored)
        elif key == FLEET_KEY:
            self.lifecycle.enqueue(Owner("fleet", cluster, stored.key.rpartition("/")[2]))
        elif key == DEFINITION_KEY:
            self.catalog.observe(cluster, stored, deleted=deleted)
            if not deleted and terminating(stored):
                name = stored.key.rpartition("/")[2]
                self.lifecycle.enqueue(Owner("definition", cluster, name))

    def _tell_fleets(self, root: str, member: StoredObject) -> None:
        for reference in metadata_of(member.raw).owner_references or ():
            if reference.kind == "Fleet":
                self.lifecycle.enqueue(Owner("fleet", root, reference.name))
