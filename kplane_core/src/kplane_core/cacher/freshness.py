"""Waiting until the cache has seen a revision, and asking the database to say how far it is."""

import asyncio
import contextlib
import heapq
import itertools
import logging
from collections.abc import Awaitable, Callable

from kplane_core.errors import KplaneError, TooLargeResourceVersion

_log = logging.getLogger(__name__)
_ASK_AGAIN = 0.1
"""Seconds after which progress is asked for again while somebody waits (upstream's interval)."""


class Freshness:
    """How far the cache is, and who waits for it to be further.

    Attributes:
        revision: everything up to here is in the cache.

    Args:
        request_progress: asks the database to send a progress mark.
        timeout: seconds after which waiting fails.
    """

    def __init__(self, request_progress: Callable[[], Awaitable[None]], *, timeout: float = 3.0) -> None:
        self.revision = 0
        self._request_progress = request_progress
        self._timeout = timeout
        self._waiters: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = itertools.count()
        self._asking = asyncio.Event()
        self._answered = asyncio.Event()

    def advance(self, revision: int) -> None:
        """Note that everything up to `revision` is in the cache."""
        self.revision = revision
        while self._waiters and self._waiters[0][0] <= revision:
            waiter = heapq.heappop(self._waiters)[2]
            if not waiter.done():
                waiter.set_result(None)

    def progressed(self) -> None:
        """Note that the database said how far it is."""
        self._answered.set()

    async def wait(self, revision: int) -> None:
        """Return when everything up to `revision` is in the cache.

        Raises:
            TooLargeResourceVersion: it did not get there in time.
        """
        if revision <= self.revision:
            return
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        heapq.heappush(self._waiters, (revision, next(self._order), waiter))
        self._asking.set()
        handle = loop.call_later(self._timeout, _fail, waiter, self, revision)
        try:
            await waiter
        finally:
            handle.cancel()

    async def ask_for_progress(self) -> None:
        """Ask for progress while somebody waits; runs until cancelled.

        A question goes out at once when a reader comes, but never before the last one was answered, and for the same
        readers only every tenth of a second.
        """
        while True:
            await self._asking.wait()
            self._asking.clear()
            self._drop_gone()
            if not self._waiters:
                continue
            self._answered.clear()
            await self._ask()
            await _wait_a_little(self._answered)
            self._drop_gone()
            if self._waiters:
                await _wait_a_little(self._asking)
                self._asking.set()

    async def _ask(self) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                await self._request_progress()
        except (KplaneError, TimeoutError) as error:
            # Those who wait get 504 and the watch itself reports the outage, so this is no more than a hint.
            _log.debug("asking for the watch's progress failed: %r", error)
        except Exception:  # noqa: BLE001 - logged with its traceback, and the asking goes on
            # A fault in a backend must not end the asking: every later reader would wait in vain.
            _log.exception("asking for the watch's progress failed unexpectedly")

    def _drop_gone(self) -> None:
        while self._waiters and self._waiters[0][2].done():
            heapq.heappop(self._waiters)


async def _wait_a_little(event: asyncio.Event) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_ASK_AGAIN):
            await event.wait()


def _fail(waiter: asyncio.Future[None], freshness: Freshness, revision: int) -> None:
    if not waiter.done():
        waiter.set_exception(TooLargeResourceVersion(revision, freshness.revision, 1))
