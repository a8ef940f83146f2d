"""Whether the file is whole: SQLite's own check, now and then, while others read and write."""

import asyncio
import logging
import sqlite3
from pathlib import Path
from typing import Final

from kplane_core.engine.interface import EngineUnreachable
from kplane_sqlite.reading import Readers
from kplane_sqlite.schema import DatabaseDamaged

_log = logging.getLogger(__name__)

_INTERVAL: Final = 3600.0  # seconds; the check reads the whole file


class Integrity:
    """Checks a database once it is open and every hour from then on.

    Args:
        readers: read it.
        path: for the messages.
    """

    def __init__(self, readers: Readers, path: Path) -> None:
        self._readers = readers
        self._path = path
        self._task: asyncio.Task[None] | None = None
        self._damage: DatabaseDamaged | None = None

    def start(self) -> None:
        """Start checking, until `aclose`."""
        if self._task is None:
            self._task = asyncio.create_task(self._keep_checking(), name="kplane-sqlite-integrity")

    async def check(self) -> None:
        """Check now.

        Raises:
            DatabaseDamaged: something is lost; the message begins with what SQLite found first.
        """
        try:
            found = await self._readers.apart(_quick_check)
        except DatabaseDamaged as error:
            self._damage = error
        else:
            damaged = f"{self._path}: the database is damaged: {found}; restore a backup"
            self._damage = None if found == "ok" else DatabaseDamaged(damaged)
        self.raise_damage()

    def raise_damage(self) -> None:
        """Raise what the last check found, if anything; costs nothing.

        Raises:
            DatabaseDamaged: see `check`.
        """
        if self._damage is not None:
            raise self._damage

    async def _keep_checking(self) -> None:
        while True:
            try:
                await self.check()
            except EngineUnreachable as error:
                _log.warning("the integrity check failed: %s", error)
            await asyncio.sleep(_INTERVAL)

    async def aclose(self) -> None:
        """Stop checking."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None


def _quick_check(connection: sqlite3.Connection) -> str:
    return str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
