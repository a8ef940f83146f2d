"""What the conformance suite needs to try the spanner backend; production code never loads it.

It starts Google's emulator, or uses the one that $SPANNER_EMULATOR_HOST names, with a database of its own.
"""

import asyncio
import os
import time
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kplane_spanner.emulator import Emulator
from kplane_spanner.plugin import SpannerOptions, connect

if TYPE_CHECKING:
    from kplane_core.engine.factory import Connection


_FRESH_FOR: Final = 10.0


class SpannerHarness:
    """One database on an emulator; every `connect` is another process's connection to it.

    Attributes:
        name: the backend's name.
        silence: seconds without an event after which there is none: some polls, and the emulator's slowness.
        server_version: what runs.
        without: which hooks there are not, and why.
    """

    name = "spanner"
    silence = 0.15
    server_version = "Google Cloud Spanner emulator"
    without: Mapping[str, str] = {
        "restore": "the emulator has neither backups nor restores (501 Not Implemented), and does not tell when a "
        "database was created, by which a restored one is known",
        "clock": "the emulator's clock cannot be turned",
        "fault": "the emulator forgets everything when it is stopped",
    }

    def __init__(self) -> None:
        self._emulator: Emulator | None = None
        self._address = ""
        self._database = ""
        self._started = 0.0

    @property
    def worn(self) -> bool:
        """Whether it is time for another emulator.

        The emulator's clock runs ahead by about a microsecond with every call and never comes back, and every
        linearizable read waits until the real time has caught up: after a hundred thousand calls that is a tenth of a
        second.
        """
        return self._emulator is not None and time.monotonic() - self._started > _FRESH_FOR

    async def renew(self) -> None:
        """Start another emulator in place of the one that runs."""
        await self.stop()
        await self.start()

    async def start(self) -> None:
        """Start the emulator, unless one is named."""
        self._started = time.monotonic()
        self._database = f"kplane-{uuid.uuid4().hex[:12]}"
        self._address = os.environ.get("SPANNER_EMULATOR_HOST", "")
        if not self._address:
            self._emulator = Emulator()
            self._address = self._emulator.start()

    async def stop(self) -> None:
        """Stop the emulator, if it is ours."""
        if self._emulator is not None:
            self._emulator.stop()
        self._emulator = None

    async def restart(self) -> None:
        """Restart nothing: Spanner has no restart, and the emulator would forget everything.

        What is left of a restart is what the suite does itself: every connection is closed, and opened anew.
        """

    async def connect(self) -> "Connection":
        """Return a new connection to the database."""
        return await connect(
            SpannerOptions(
                project="kplane",
                instance="conformance",
                database=self._database,
                emulator_host=self._address,
                create_instance=True,
                sweep_interval=0.2,
                progress_interval=0.5,
            )
        )

    def shared_task(self, task: "asyncio.Task[object]") -> bool:
        """Return whether a task belongs to a connection: its loops, or the driver's."""
        name = task.get_name()
        return name.startswith("kplane-") and not name.startswith("kplane-spanner-replay")


def harness() -> SpannerHarness:
    """Return a new harness; the suite finds this function through the entry point."""
    return SpannerHarness()
