"""One connected engine -> stores, health, readiness, size; and the loop that keeps its history short."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

import attrs

from kplane_core.engine.interface import Compacted, Engine, EngineUnreachable
from kplane_core.engine.store import EngineStore
from kplane_core.errors import KplaneError, Unreachable
from kplane_core.storage.interface import Store
from kplane_core.storage.resource import Resource

_log = logging.getLogger(__name__)


class Connection(Protocol):
    """What a backend's `connect` returns: one database connection per process, shared by all stores."""

    def store(self, resource: Resource) -> Store:
        """Return a store for a resource; cheap, and does no I/O."""
        ...

    async def check_health(self) -> None:
        """Return when the database answers; raises Unreachable otherwise."""
        ...

    async def check_ready(self) -> None:
        """Return when the database can serve requests; raises Unreachable otherwise."""
        ...

    async def size(self) -> int:
        """Return the bytes that the database uses."""
        ...

    async def aclose(self) -> None:
        """Close every store's watches and the connection; idempotent."""
        ...


@attrs.frozen
class CompactionPolicy:
    """How history is kept short.

    Attributes:
        interval: seconds between compactions, each to the revision seen one interval earlier, so that history of one
            to two intervals is kept; 0 leaves compaction to others.
        poll: seconds between looks at what others compacted.
    """

    interval: float = 0.0
    poll: float = 15.0


class Probe:
    """Runs a check at most so often, and lets everybody else have its last answer.

    Args:
        check: raises when something is wrong.
        timeout: seconds that one check may take.
        fresh: seconds for which an answer is reused.
    """

    def __init__(self, check: Callable[[], Awaitable[None]], *, timeout: float = 2.0, fresh: float = 1.0) -> None:
        self._check = check
        self._timeout = timeout
        self._fresh = fresh
        self._answer: asyncio.Task[None] | None = None
        self._asked_at = 0.0
        self._closed = False

    async def __call__(self) -> None:
        """Return when the last check was good.

        Raises:
            Unreachable: it failed, took too long, or the server is shutting down.
        """
        if self._closed:
            raise self._shutting_down()
        now = asyncio.get_running_loop().time()
        if self._answer is None or (self._answer.done() and now - self._asked_at >= self._fresh):
            self._asked_at = now
            self._answer = asyncio.create_task(self._run(), name="kplane-probe")
        # One caller going away must not cancel the check of the others.
        try:
            await asyncio.shield(self._answer)
        except asyncio.CancelledError:
            if self._cut_off():
                raise self._shutting_down() from None
            raise

    def _cut_off(self) -> bool:
        """Whether a CancelledError comes from `aclose`, and not from somebody who cancels the calling task."""
        task = asyncio.current_task()
        return self._closed and (task is None or not task.cancelling())

    @staticmethod
    def _shutting_down() -> Unreachable:
        return Unreachable("", "the server is shutting down")

    async def _run(self) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                await self._check()
        except TimeoutError as error:
            raise Unreachable("", f"the storage backend gave no answer within {self._timeout:g} s") from error
        except EngineUnreachable as error:
            raise Unreachable("", str(error)) from error

    async def aclose(self) -> None:
        """Cancel a running check; whoever waits for it, or asks later, gets Unreachable."""
        self._closed = True
        if self._answer is not None and not self._answer.done():
            self._answer.cancel()
            # Its outcome is for those who asked; `wait` does not raise it here.
            await asyncio.wait([self._answer])


class EngineConnection:
    """A Connection over any engine; see `Connection`.

    Args:
        engine: a connected engine; closed with this connection.
        path_prefix: what precedes every store's keys.
        compaction: how history is kept short.
        timeout: seconds that a health or readiness check may take.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        path_prefix: str = "/registry",
        compaction: CompactionPolicy | None = None,
        timeout: float = 2.0,
    ) -> None:
        self.engine = engine
        self._path_prefix = path_prefix
        self._compaction = compaction or CompactionPolicy()
        self._compacted = 0
        self._probe = Probe(engine.check, timeout=timeout, fresh=timeout / 2)
        self._loop_task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the compaction loop, which `aclose` ends."""
        if self._loop_task is None:
            self._loop_task = asyncio.create_task(self._keep_history_short(), name="kplane-compaction")

    def store(self, resource: Resource) -> Store:
        """Return a store for a resource."""
        return EngineStore(
            self.engine, resource, path_prefix=self._path_prefix, compact_revision=lambda: self._compacted
        )

    async def check_health(self) -> None:
        """Return when the database answers; raises Unreachable otherwise."""
        await self._probe()

    async def check_ready(self) -> None:
        """Return when the database can serve requests; raises Unreachable otherwise."""
        await self._probe()

    async def size(self) -> int:
        """Return the bytes that the database uses."""
        return await self.engine.size()

    async def compact(self, revision: int) -> None:
        """Compact the database and let every store of this connection know.

        Raises:
            Compacted: `revision` is not above what is already compacted.
            FutureRevision: it is beyond the newest.
        """
        await self.engine.compact(revision)
        self._compacted = max(self._compacted, revision)

    async def observe_compaction(self) -> int:
        """Look up what was compacted, also by others, and return it."""
        self._compacted = max(self._compacted, await self.engine.compacted())
        return self._compacted

    async def _keep_history_short(self) -> None:
        loop = asyncio.get_running_loop()
        policy = self._compaction
        seen = 0
        due = loop.time() + policy.interval if policy.interval else None
        while True:
            pause = policy.poll if due is None else min(policy.poll, max(due - loop.time(), 0.0))
            await asyncio.sleep(pause)
            mine = due is not None and loop.time() >= due
            if mine:
                # Before anything can fail: a database that is away must not be asked without a pause.
                due = loop.time() + policy.interval
            try:
                await self.observe_compaction()
                if mine:
                    now = await self.engine.revision()
                    if seen > self._compacted:
                        await self.compact(seen)
                    seen = now
            except Compacted:
                continue  # somebody else was faster
            except Exception as error:  # noqa: BLE001 - whatever a driver raises, history must not grow for ever
                unexpected = not isinstance(error, KplaneError)
                _log.warning("compaction failed and will be tried again: %s", error, exc_info=unexpected)

    async def aclose(self) -> None:
        """Close everything; idempotent."""
        if self._loop_task is not None:
            self._loop_task.cancel()
            await asyncio.wait([self._loop_task])
            self._loop_task = None
        await self._probe.aclose()
        await self.engine.aclose()
