"""The sessions of a process: a bounded pool from which each call takes one for itself.

Plain sessions only, on the emulator and elsewhere: emulators up to the newest mishandle multiplexed ones (old ones end
a session's other transaction, newer ones lose writes), and one kind of session is one kind of behaviour.
"""

import asyncio
from collections import deque
from typing import Final

import attrs

from kplane_core.engine.interface import EngineUnreachable
from kplane_core.errors import KplaneError
from kplane_spanner.calls import Calls, Metadata

_STALE_AFTER: Final = 50 * 60.0  # Spanner drops a session that was idle for an hour
_GOODBYE: Final = 2.0


@attrs.frozen(eq=False)
class Session:
    """A session, used by one call or transaction at a time."""

    name: str
    headers: Metadata


class SessionPool:
    """Keeps sessions for reuse; none is ever lost, whatever a transaction ends with.

    Attributes:
        open: sessions that exist, idle or in use.

    Args:
        calls: makes and deletes them.
        maximum: how many there may be; who wants one more waits.
    """

    def __init__(self, calls: Calls, maximum: int) -> None:
        self.open = 0
        self._calls = calls
        self._maximum = maximum
        self._idle: deque[tuple[float, Session]] = deque()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._closed = False

    async def fill(self, count: int) -> None:
        """Make so many sessions now, so that the first calls need not."""
        count = min(count, self._maximum - self.open)
        if count > 0:
            self.open += count
            made: list[str] = []
            try:
                made = await self._calls.create_sessions(count)
            finally:
                self.open -= count - len(made)
            for name in made:
                self.put(Session(name, self._calls.headers(name)))

    async def take(self) -> Session:
        """Return a session that nobody else uses; give it back with `put` or `discard`."""
        while True:
            self._check_open()
            if self._idle:
                since, session = self._idle.pop()
                if self._now() - since < _STALE_AFTER:
                    return session
                self.discard(session)
            elif self.open < self._maximum:
                return await self._make()
            else:
                await self._wait()

    def put(self, session: Session) -> None:
        """Give a session back."""
        if self._closed:
            self.discard(session)
            return
        self._idle.append((self._now(), session))
        self._wake()

    def discard(self, _session: Session) -> None:
        """Forget a session that the database does not know any more."""
        self.open -= 1
        self._wake()

    def discard_idle(self) -> None:
        """Forget all idle sessions: one of them was found to be unknown, so the database may be another one."""
        self.open -= len(self._idle)
        self._idle.clear()

    async def aclose(self) -> None:
        """Delete the idle sessions, as far as the database answers soon; nobody gets one any more."""
        self._closed = True
        while self._waiting:
            self._wake()
        idle = [session for _, session in self._idle]
        self.discard_idle()
        await asyncio.gather(*[self._delete(session) for session in idle])

    async def _delete(self, session: Session) -> None:
        try:
            await self._calls.delete_session(session.name, _GOODBYE)
        except KplaneError:
            return  # it expires by itself

    async def _make(self) -> Session:
        self.open += 1
        try:
            (name, *_) = await self._calls.create_sessions(1)
        except BaseException:
            self.open -= 1
            self._wake()
            raise
        return Session(name, self._calls.headers(name))

    async def _wait(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._wake()  # whoever is next gets what came for this one
            raise
        finally:
            if not waiter.done() or waiter.cancelled():
                self._waiting = deque(other for other in self._waiting if other is not waiter)

    def _wake(self) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _check_open(self) -> None:
        if self._closed:
            raise EngineUnreachable("this connection to Spanner is closed")

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
