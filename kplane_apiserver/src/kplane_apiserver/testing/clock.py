"""The clock of a server under test: it runs as usual, and can be turned forward."""

from datetime import UTC, datetime, timedelta

from kplane_core.engine.factory import Connection
from kplane_core.errors import UsageError


class Clock:
    """The time of day as the server sees it: the real one, and what it was turned forward.

    All clusters of a server share it. Timestamps and times to live follow it; how long a watch stays open, or a
    request may take, does not.
    """

    def __init__(self) -> None:
        self._ahead = timedelta()

    def now(self) -> datetime:
        """Return the time of day in UTC."""
        return datetime.now(UTC) + self._ahead

    def turn(self, connection: Connection, seconds: float) -> None:
        """Turn the clock forward, and that of the storage with it; to be called on the server's event loop.

        Raises:
            ValueError: `seconds` is negative.
            UsageError: the storage has no clock that a test can turn.
        """
        turn = getattr(getattr(connection, "engine", None), "advance_clock", None)
        if turn is None:
            raise UsageError("the clock of this storage backend cannot be turned; use the memory backend in such tests")
        turn(seconds)
        self._ahead += timedelta(seconds=seconds)
