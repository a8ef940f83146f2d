"""What the conformance suite needs to try the sqlite backend; production code never loads it."""

import asyncio
import shutil
import sqlite3
import tempfile
import time
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from kplane_core.engine.factory import EngineConnection
from kplane_sqlite.backup import back_up, put_back
from kplane_sqlite.engine import SqliteEngine
from kplane_sqlite.opening import Settings

if TYPE_CHECKING:
    from kplane_core.engine.factory import Connection


class TurnableClock:
    """The wall clock, which can also be turned forward."""

    def __init__(self) -> None:
        self._ahead = 0.0
        self._engines: weakref.WeakSet[SqliteEngine] = weakref.WeakSet()

    def __call__(self) -> float:
        """Return the seconds since the epoch."""
        return time.time() + self._ahead

    def drives(self, engine: SqliteEngine) -> None:
        """Name an engine that cannot notice that the clock was turned."""
        self._engines.add(engine)

    def advance(self, seconds: float) -> None:
        """Turn the clock forward and let what is due expire."""
        self._ahead += seconds
        for engine in self._engines:
            if not engine.closed:
                engine.clock_was_turned()


class SqliteHarness:
    """One file, which every `connect` opens again, as another process would.

    Attributes:
        name: the backend's name.
        silence: seconds without an event after which there is none.
        clock: the time that TTLs are measured by.
        without: which hooks there are not, and why.
    """

    name = "sqlite"
    silence = 0.1
    without: Mapping[str, str] = {"fault": "there is no network between a process and its file"}

    def __init__(self) -> None:
        self.clock = TurnableClock()
        self._folder: Path | None = None

    @property
    def server_version(self) -> str:
        """The version of SQLite, for the certificate."""
        return f"SQLite {sqlite3.sqlite_version}"

    @property
    def path(self) -> Path:
        """The database file."""
        assert self._folder is not None
        return self._folder / "kplane.db"

    async def start(self) -> None:
        """Make a folder for the file."""
        self._folder = Path(tempfile.mkdtemp(prefix="kplane-sqlite-"))

    async def stop(self) -> None:
        """Remove the folder."""
        if self._folder is not None:
            await asyncio.to_thread(shutil.rmtree, self._folder)
        self._folder = None

    async def restart(self) -> None:
        """Do nothing: when every connection is closed, nothing runs that could go on."""

    async def connect(self) -> "Connection":
        """Return a new connection to the file."""
        # Short marks keep the cases about progress short.
        engine = await SqliteEngine.open(Settings(self.path), progress_interval=0.5, clock=self.clock)
        self.clock.drives(engine)
        connection = EngineConnection(engine)
        await connection.start()
        return connection

    async def backup(self) -> Path:
        """Save the database while it is in use."""
        assert self._folder is not None
        target = self._folder / f"backup-{time.monotonic_ns()}.db"
        await asyncio.to_thread(back_up, self.path, target)
        return target

    async def restore(self, backup: Path) -> None:
        """Put a backup in the place of the file."""
        await asyncio.to_thread(put_back, backup, self.path)

    def shared_task(self, task: "asyncio.Task[object]") -> bool:
        """Return whether a task belongs to a connection rather than to a case."""
        name = task.get_name()
        return name in {"kplane-compaction", "kplane-probe"} or name.startswith("kplane-sqlite-")


def harness() -> SqliteHarness:
    """Return a new harness; the suite finds this function through the entry point."""
    return SqliteHarness()
