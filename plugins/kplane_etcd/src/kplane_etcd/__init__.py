"""The etcd storage backend of kplane."""

__all__: list[str] = []
