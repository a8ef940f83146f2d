"""Which namespaces exist, in every cluster: asked before each create in one, so answered from memory."""

from collections.abc import Callable

import msgspec

from kplane_apiserver.apierrors import forbidden
from kplane_apiserver.storing.follow import Follower
from kplane_apiserver.storing.stores import Served
from kplane_core.errors import Subject, not_found
from kplane_core.storage.interface import GetOptions, StoredObject

IMMORTAL = frozenset({"default", "kube-system", "kube-public"})
"""Namespaces that cannot be deleted."""

BOOTSTRAPPED = ("default", "kube-node-lease", "kube-public", "kube-system")
"""Namespaces that every cluster has from the start."""

_MAYBE_ABSENT = GetOptions(ignore_not_found=True)


class _Metadata(msgspec.Struct):
    deletionTimestamp: str | None = None  # noqa: N815 (the field's name in the object)


class _Probe(msgspec.Struct):
    metadata: _Metadata


_PROBE = msgspec.json.Decoder(_Probe)


def terminating(stored: StoredObject) -> bool:
    """Whether the object is being deleted."""
    return _PROBE.decode(stored.raw).metadata.deletionTimestamp is not None


class Namespaces:
    """The namespaces of all clusters.

    Args:
        served: the store of namespaces.
        on_terminating: called with a cluster and a namespace whose content has to go.
    """

    def __init__(self, served: Served, on_terminating: Callable[[str, str], None]) -> None:
        self._served = served
        self._on_terminating = on_terminating
        self._active: set[str] = set()
        self._follower = Follower(served.store, served.layout.kind_root_prefix(), reset=self._reset, apply=self._apply)

    async def start(self) -> None:
        """Learn all namespaces and follow them from then on."""
        await self._follower.start()

    async def aclose(self) -> None:
        """Stop following; idempotent."""
        await self._follower.aclose()

    def observe(self, stored: StoredObject, *, deleted: bool = False) -> None:
        """Take this process's own write of a namespace."""
        self._follower.observe(stored, deleted=deleted)

    def accepts(self, cluster: str, namespace: str) -> bool:
        """Whether objects may be created in the namespace, as far as memory tells: a False needs `check`."""
        return self._served.key(cluster, "", namespace) in self._active

    async def check(self, cluster: str, namespace: str, subject: Subject) -> None:
        """Return when objects may be created in the namespace; asks the store.

        Args:
            cluster: the cluster.
            namespace: the namespace.
            subject: the object to be created, for the words of the refusal.

        Raises:
            ApiError: 404 when it does not exist, 403 when it is being deleted.
        """
        stored = await self._served.store.get(self._served.key(cluster, "", namespace), _MAYBE_ABSENT)
        if not stored.exists:
            raise not_found(Subject("namespaces", "", namespace))
        if terminating(stored):
            raise forbidden(
                subject, f"unable to create new content in namespace {namespace} because it is being terminated"
            )

    def _reset(self) -> None:
        self._active.clear()

    def _apply(self, stored: StoredObject, deleted: bool) -> None:  # noqa: FBT001 (Follower's callback)
        self._active.discard(stored.key)
        if deleted:
            return
        if not terminating(stored):
            self._active.add(stored.key)
            return
        path = self._served.layout.relative(stored.key)
        self._on_terminating(path.cluster, path.name)
