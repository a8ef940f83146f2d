"""Whether the cache can serve: pending, ready or stopped; and since when."""

import asyncio
import math
from collections.abc import Callable
from enum import Enum

from kplane_core.errors import KplaneError, StorageNotReady, TooManyRequests

_MAX_RETRY_AFTER = 30


class Phase(Enum):
    """The phases of a cache."""

    PENDING = "pending"
    READY = "ready"
    STOPPED = "stopped"


class Readiness:
    """The phase of a cache, and those who wait for it.

    Attributes:
        generation: counts how often the cache became ready.
        error: what made the cache pending, if something did.

    Args:
        clock: seconds that never go backwards.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._phase = Phase.PENDING
        self._since = clock()
        self._waiters: set[asyncio.Future[None]] = set()
        self.generation = 0
        self.error: KplaneError | None = None

    @property
    def ready(self) -> bool:
        """Whether the cache can serve."""
        return self._phase is Phase.READY

    @property
    def stopped(self) -> bool:
        """Whether the cache is closed for good."""
        return self._phase is Phase.STOPPED

    def set_ready(self) -> None:
        """Note that the cache can serve; a stopped cache stays stopped."""
        if self._phase is Phase.PENDING:
            self.generation += 1
            self.error = None
            self._change(Phase.READY)

    def set_pending(self, error: KplaneError | None) -> None:
        """Note that the cache cannot serve, and why."""
        if self._phase is not Phase.STOPPED:
            self.error = error or self.error
            if self._phase is not Phase.PENDING:
                self._change(Phase.PENDING)
            elif error is not None:
                self._wake()

    def stop(self) -> None:
        """Note that the cache is closed for good."""
        if self._phase is not Phase.STOPPED:
            self._change(Phase.STOPPED)

    async def wait(self, timeout: float) -> None:  # noqa: ASYNC109 - the timeout belongs to the promise
        """Return when the cache is ready, or after `timeout` seconds, or when it failed to start meanwhile.

        Args:
            timeout: seconds.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        error = self.error
        while self._phase is Phase.PENDING and self.error is error and loop.time() < deadline:
            waiter = loop.create_future()
            self._waiters.add(waiter)
            handle = loop.call_at(deadline, _release, waiter)
            try:
                await waiter
            finally:
                handle.cancel()
                self._waiters.discard(waiter)

    def check(self) -> None:
        """Return when the cache can serve.

        Raises:
            StorageNotReady: it cannot.
        """
        if not self.ready:
            raise StorageNotReady(self._reason())

    def too_many_requests(self) -> TooManyRequests:
        """Return the 429 for a request that this cache cannot serve now; asks for more patience the longer it lasts."""
        seconds = self._clock() - self._since
        retry_after = int(min(max(math.exp(min(0.06 * seconds, 10.0)), 1), _MAX_RETRY_AFTER))
        return TooManyRequests(self._reason(), retry_after)

    def _reason(self) -> str:
        if self.stopped:
            return "apiserver cacher is stopped"
        return "storage is (re)initializing" + (f": {self.error}" if self.error else "")

    def _change(self, phase: Phase) -> None:
        self._phase = phase
        self._since = self._clock()
        self._wake()

    def _wake(self) -> None:
        for waiter in self._waiters:
            _release(waiter)


def _release(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
