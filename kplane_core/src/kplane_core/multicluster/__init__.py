"""Clusters as a part of the key: layout, identity, the cluster-aware store, the informer."""

from kplane_core.multicluster.decorator import (
    ClusterEvent,
    ClusterStore,
    ClusterWatch,
    DecoratorConfig,
    storage_with_cluster_identity,
)
from kplane_core.multicluster.identity import (
    ObjectWithClusterIdentity,
    unwrap_cluster_identity,
    with_cluster_identity,
)
from kplane_core.multicluster.informer import Handler, MulticlusterInformer, Registration
from kplane_core.multicluster.keylayout import InvalidClusterId, KeyLayout, ObjectPath, validate_cluster_id

__all__ = [
    "ClusterEvent",
    "ClusterStore",
    "ClusterWatch",
    "DecoratorConfig",
    "Handler",
    "InvalidClusterId",
    "KeyLayout",
    "MulticlusterInformer",
    "ObjectPath",
    "ObjectWithClusterIdentity",
    "Registration",
    "storage_with_cluster_identity",
    "unwrap_cluster_identity",
    "validate_cluster_id",
    "with_cluster_identity",
]
