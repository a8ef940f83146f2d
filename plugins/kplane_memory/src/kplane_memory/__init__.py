"""The embedded storage backend of kplane: an in-process, multi-version engine."""

__all__: list[str] = []
