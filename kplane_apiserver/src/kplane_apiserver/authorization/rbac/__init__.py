"""RBAC: who may do what in a virtual cluster, by that cluster's own roles and bindings."""

RBAC_GROUP = "rbac.authorization.k8s.io"
"""The API group of roles and bindings."""
