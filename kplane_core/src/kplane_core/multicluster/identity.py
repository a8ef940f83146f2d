"""An object together with the cluster it belongs to, for consumers that watch many clusters.

The identity lives only in the key. The envelope is made at the output edge when a consumer asks for it; nothing of it
is ever stored or sent to a client.
"""

from collections.abc import Mapping
from typing import Any

import attrs

from kplane_core.multicluster.keylayout import KeyLayout
from kplane_core.storage.interface import StoredObject


@attrs.frozen
class ObjectWithClusterIdentity:
    """An object, its cluster and the key that told it; answers the usual questions about its metadata.

    Attributes:
        cluster: the cluster's id.
        storage_key: the key, without the store's path prefix.
        object: the object itself.
    """

    cluster: str
    storage_key: str
    object: StoredObject
    _decoded: dict[str, Any] = attrs.field(factory=dict, eq=False, repr=False, init=False)

    @property
    def document(self) -> Mapping[str, Any]:
        """The decoded object; decoded once, so do not change it."""
        if not self._decoded:
            self._decoded.update(self.object.decode())
        return self._decoded

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The object's metadata."""
        found: Mapping[str, Any] = self.document.get("metadata", {})
        return found

    @property
    def name(self) -> str:
        """The object's name."""
        return str(self.metadata.get("name", ""))

    @property
    def namespace(self) -> str:
        """The object's namespace; empty for a cluster-scoped one."""
        return str(self.metadata.get("namespace", ""))

    @property
    def uid(self) -> str:
        """The object's uid."""
        return str(self.metadata.get("uid", ""))

    @property
    def resource_version(self) -> str:
        """The object's resourceVersion."""
        return str(self.object.revision)

    @property
    def generation(self) -> int:
        """The object's generation; 0 when it has none."""
        return int(self.metadata.get("generation", 0))

    @property
    def labels(self) -> Mapping[str, str]:
        """The object's labels."""
        return self.metadata.get("labels") or {}

    @property
    def annotations(self) -> Mapping[str, str]:
        """The object's annotations."""
        return self.metadata.get("annotations") or {}

    @property
    def finalizers(self) -> tuple[str, ...]:
        """The object's finalizers."""
        return tuple(self.metadata.get("finalizers") or ())

    @property
    def owner_references(self) -> tuple[Mapping[str, Any], ...]:
        """The object's owner references."""
        return tuple(self.metadata.get("ownerReferences") or ())

    @property
    def creation_timestamp(self) -> str:
        """When the object was created, RFC 3339; empty when unknown."""
        return str(self.metadata.get("creationTimestamp") or "")

    @property
    def deletion_timestamp(self) -> str:
        """When the object's deletion was asked for, RFC 3339; empty when it was not."""
        return str(self.metadata.get("deletionTimestamp") or "")


def with_cluster_identity(layout: KeyLayout, found: StoredObject) -> ObjectWithClusterIdentity:
    """Return the envelope of a stored object.

    Raises:
        InvalidKey: the object's key is not one of this layout.
    """
    return ObjectWithClusterIdentity(layout.cluster_from_key(found.key), found.key, found)


def unwrap_cluster_identity(value: StoredObject | ObjectWithClusterIdentity) -> StoredObject:
    """Return the plain object, whether or not it comes in an envelope."""
    return value.object if isinstance(value, ObjectWithClusterIdentity) else value
