"""The `sqlite` storage backend, as kplane finds it; the engine itself is imported when it is connected."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from kplane_core.plugins.backends import Backend, Backends
from kplane_core.plugins.capabilities import Capability, Support, Supported
from kplane_core.plugins.checks import HealthChecks
from kplane_core.plugins.flags import choice, duration, option, path
from kplane_core.plugins.hookspecs import hookimpl

if TYPE_CHECKING:
    from kplane_core.engine.factory import Connection

_NOT_NEGATIVE = attrs.validators.ge(0)


@attrs.frozen
class SqliteOptions:
    """The options of the sqlite backend.

    Attributes:
        path: the database file; made when there is none.
        synchronous: when SQLite waits for the disk.
        compact_interval: seconds; history older than one to two intervals is dropped. 0 leaves it to others.
        busy_timeout: seconds to wait while another process writes.
    """

    path: Path = option(Path("kplane.db"), parse=path, metavar="FILE", help="the database file; made if there is none")
    synchronous: str = option(
        "full",
        parse=choice("full", "normal", "off"),
        help="full: an acknowledged write survives a power cut; normal: it survives a crash of kplane; off: for tests",
    )
    compact_interval: float = option(
        300.0,
        parse=duration,
        validator=_NOT_NEGATIVE,
        help="drop history older than this at least; 0 leaves it to others",
    )
    busy_timeout: float = option(
        5.0, parse=duration, validator=_NOT_NEGATIVE, help="time to wait while another process writes"
    )


CAPABILITIES: Final[dict[Capability, Support]] = {
    Capability.TTL: Supported("by the wall clock of the machine, so that it goes on while nothing runs"),
    Capability.COMPACTION: Supported(),
    Capability.PROGRESS_NOTIFY: Supported(),
    Capability.CONSISTENT_LIST: Supported(),
    Capability.EXACT_RV_LIST: Supported(),
    Capability.CONTINUE_TOKEN: Supported(),
    Capability.HISTORY_WINDOW: Supported("one to two times --sqlite-compact-interval"),
    Capability.INITIAL_EVENTS: Supported(),
    Capability.PERSISTENCE: Supported("of every acknowledged write, unless --sqlite-synchronous says less"),
    Capability.MULTI_WRITER: Supported("processes of one machine, on a local file system"),
}


async def connect(options: SqliteOptions) -> "Connection":
    """Return a connection to the file.

    Raises:
        UsageError: the path cannot be used.
        Unreachable: SQLite refuses.
    """
    # Describing the backend, as --help does, must not load the engine.
    from kplane_sqlite.connecting import connect_sqlite  # noqa: PLC0415

    return await connect_sqlite(options)


@hookimpl
def kplane_register_backends(registry: Backends) -> None:
    """Register the `sqlite` backend."""
    registry.register(
        Backend(
            name="sqlite",
            summary="one durable file, for one or several processes of one machine",
            options=SqliteOptions,
            capabilities=CAPABILITIES,
            connect=connect,
        )
    )


@hookimpl
def kplane_add_health_checks(checks: HealthChecks) -> None:
    """Contribute the integrity of the open files."""
    checks.add("sqlite-integrity", _check_integrity)


async def _check_integrity() -> None:
    from kplane_sqlite.connecting import check_integrity  # noqa: PLC0415 - as above

    check_integrity()
