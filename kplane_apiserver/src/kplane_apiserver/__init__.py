"""A multicluster Kubernetes-style API server on any kplane storage backend."""
