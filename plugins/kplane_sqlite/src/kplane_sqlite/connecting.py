"""From options to a connection; and which connections are open, for the health check of the process."""

import weakref
from typing import TYPE_CHECKING, Final

from kplane_core.engine.factory import CompactionPolicy, EngineConnection
from kplane_core.engine.interface import EngineUnreachable
from kplane_core.errors import Unreachable
from kplane_sqlite.engine import SqliteEngine
from kplane_sqlite.opening import Settings

if TYPE_CHECKING:
    from kplane_core.engine.factory import Connection
    from kplane_sqlite.plugin import SqliteOptions

# A health check is contributed before there is a connection and gets none; a process has one, tests have several.
_OPEN: "Final[weakref.WeakSet[SqliteEngine]]" = weakref.WeakSet()


async def connect_sqlite(options: "SqliteOptions") -> "Connection":
    """Open the file and return a connection whose history is kept short.

    Raises:
        UsageError: the path cannot be used.
        Unreachable: SQLite refuses.
    """
    try:
        engine = await SqliteEngine.open(Settings(options.path, options.synchronous, options.busy_timeout))
    except EngineUnreachable as error:
        raise Unreachable("", str(error)) from error
    engine.integrity.start()
    _OPEN.add(engine)
    connection = EngineConnection(engine, compaction=CompactionPolicy(interval=options.compact_interval))
    await connection.start()
    return connection


def check_integrity() -> None:
    """Raise what the last check of an open file found, if anything.

    Raises:
        Unreachable: a file is damaged.
    """
    for engine in [one for one in _OPEN if not one.closed]:
        try:
            engine.integrity.raise_damage()
        except EngineUnreachable as error:
            raise Unreachable("", str(error)) from error
