"""Clusters as a part of the key: layout, identity, ids."""

from kplane_core.multicluster.identity import (
    ObjectWithClusterIdentity,
    unwrap_cluster_identity,
    with_cluster_identity,
)
from kplane_core.multicluster.keylayout import InvalidClusterId, KeyLayout, ObjectPath, validate_cluster_id

__all__ = [
    "InvalidClusterId",
    "KeyLayout",
    "ObjectPath",
    "ObjectWithClusterIdentity",
    "unwrap_cluster_identity",
    "validate_cluster_id",
    "with_cluster_identity",
]
