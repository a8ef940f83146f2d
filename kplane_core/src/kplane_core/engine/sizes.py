"""How large the stored objects of one store are, on average."""

from collections.abc import Sequence


class SizeEstimator:
    """Remembers the stored size of each key that was seen.

    Fed by lists, writes and watches of the store; keys that no longer exist are dropped when the average is asked for.
    """

    def __init__(self) -> None:
        self._sizes: dict[str, tuple[int, int]] = {}

    def seen(self, key: str, size: int, revision: int) -> None:
        """Note that `key` had `size` bytes at `revision`; older news than what is known is ignored."""
        known = self._sizes.get(key)
        if known is None or known[1] < revision:
            self._sizes[key] = (size, revision)

    def deleted(self, key: str, revision: int) -> None:
        """Note that `key` was deleted at `revision`; ignored if something newer is known."""
        known = self._sizes.get(key)
        if known is not None and known[1] < revision:
            del self._sizes[key]

    def average(self, live: Sequence[str]) -> int:
        """Return the average size in bytes of the known keys among `live`, rounded down; 0 when none is known."""
        alive = set(live)
        self._sizes = {key: value for key, value in self._sizes.items() if key in alive}
        if not self._sizes:
            return 0
        return sum(size for size, _ in self._sizes.values()) // len(self._sizes)
