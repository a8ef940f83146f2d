"""The SQLite storage backend of kplane: one durable file."""

__all__: list[str] = []
