"""The sweeper: deletes the records whose time to live is over, each exactly once for all processes."""

import asyncio
import logging
from typing import Final

from kplane_core.chance import CHANCE
from kplane_core.errors import KplaneError
from kplane_spanner import schema
from kplane_spanner.database import Database
from kplane_spanner.horizon import ServerClock
from kplane_spanner.messages import KeySet, add_range, at
from kplane_spanner.revisions import SHARDS, parse_timestamp
from kplane_spanner.writing import Writer

_log = logging.getLogger(__name__)

_COLUMNS: Final = ("expire_at", "key")
_AT_ONCE: Final = 500
_MANY: Final = 100  # after so many, there may be more: look again at once
_AHEAD: Final = 1_000_000


class Sweeper:
    """Looks for records that are due, from time to time and when somebody met one.

    Every process has one. Which of them deletes a record is decided by the transaction that does it; the others find
    nothing. The deletion is an ordinary one, with a commit timestamp, so everybody sees it at the same revision.

    Args:
        database: where.
        writer: deletes.
        clock: about what time it is there.
        interval: seconds between looks.
    """

    def __init__(self, database: Database, writer: Writer, clock: ServerClock, interval: float) -> None:
        self._database = database
        self._writer = writer
        self._clock = clock
        self._interval = interval
        self._met = asyncio.Event()
        self._failed = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the task, which `aclose` ends."""
        self._task = asyncio.create_task(self._run(), name="kplane-spanner-sweeper")

    def met(self) -> None:
        """Sweep soon: somebody read a record that is due."""
        self._met.set()

    async def sweep(self) -> int:
        """Delete the records that are due, and return how many of them this process deleted."""
        return await self._writer.expire(await self._due())

    async def _due(self) -> list[str]:
        """Return the keys that may be due, the first of each shard first."""
        keys = KeySet()
        soon = at(self._clock.estimate() + _AHEAD)
        for shard in range(SHARDS):
            add_range(keys, (shard,), (shard, soon))
        answer = await self._database.read(schema.RECORDS, _COLUMNS, keys, index=schema.EXPIRY_INDEX, limit=_AT_ONCE)
        self._clock.observe(answer.read_micros)
        found = []
        for expire_at, key in answer.rows:
            if key is not None and expire_at is not None and parse_timestamp(expire_at) <= answer.read_micros:
                found.append(key)
        return found

    async def _run(self) -> None:
        while True:
            # Processes that start together need not look together.
            interval = self._interval * CHANCE.uniform(0.75, 1.25)
            try:
                async with asyncio.timeout(interval):
                    await self._met.wait()
            except TimeoutError:
                pass  # the interval is over
            self._met.clear()
            self._failed = not await self._try_to_sweep()

    async def _try_to_sweep(self) -> bool:
        try:
            while await self.sweep() >= _MANY:
                continue
        except KplaneError as error:
            if not self._failed:  # one line for each time that the database goes away, not one for each look
                _log.warning("expired records cannot be deleted, which is tried again and again: %s", error)
        except Exception:  # noqa: BLE001 - whatever a driver raises, records must go on expiring
            _log.exception("the sweeper of expired records failed, and will try again")
        else:
            return True
        return False

    async def aclose(self) -> None:
        """End the task."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
