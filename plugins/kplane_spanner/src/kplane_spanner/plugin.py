"""The `spanner` storage backend, as kplane finds it; the driver is imported when it is connected."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from kplane_core.plugins.backends import Backend, Backends
from kplane_core.plugins.capabilities import Capability, Support, Supported
from kplane_core.plugins.flags import duration, file, filled_text, integer_between, option, text
from kplane_core.plugins.hookspecs import hookimpl

if TYPE_CHECKING:
    from kplane_core.engine.factory import Connection

_LONGEST_RETENTION: Final = 7 * 24 * 3600.0
_SHORTEST_RETENTION: Final = 75.0  # what the watch cache needs


def _name(pattern: str) -> object:
    return attrs.validators.matches_re(pattern)


@attrs.frozen
class SpannerOptions:
    """The options of the spanner backend.

    Attributes:
        project: the Google Cloud project.
        instance: the Spanner instance.
        database: the database in it; made when it does not exist.
        credentials_file: a service account's key or another credentials file; by default the environment tells.
        emulator_host: host and port of an emulator in place of the cloud.
        create_instance: make the instance, on an emulator.
        skip_schema: make and change nothing in the schema, only check it.
        watch_poll_interval: seconds between looks at what other processes wrote.
        history_retention: seconds for which watches can resume and the past can be read.
        sweep_interval: seconds between looks for records whose time to live is over.
        progress_interval: seconds between unasked progress marks on watches that want them.
        min_sessions: made at the start.
        max_sessions: at most so many sessions, and therefore calls at once.
        max_transactions: at most so many read-write transactions at once.
        timeout: seconds that one call to Spanner may take.
        schema_patience: seconds for which half-made tables may be the work of another process.
    """

    project: str = option(required=True, parse=filled_text, help="Google Cloud project")
    instance: str = option(required=True, parse=filled_text, help="Spanner instance")
    database: str = option(
        required=True,
        parse=filled_text,
        validator=_name(r"[a-z][a-z0-9_-]*[a-z0-9]"),
        help="database in the instance; made if missing",
    )
    credentials_file: Path | None = option(
        None, parse=file, help="credentials; by default those of the environment (gcloud, service account)"
    )
    emulator_host: str = option(
        "", parse=text, metavar="HOST:PORT", help="use an emulator; SPANNER_EMULATOR_HOST does the same"
    )
    create_instance: bool = option(False, help="make the instance if missing; on an emulator only")
    skip_schema: bool = option(
        False, help="do not create database or tables (see `kplane spanner ddl`), only check them"
    )
    watch_poll_interval: float = option(
        0.05,
        parse=duration,
        validator=[attrs.validators.ge(0.005), attrs.validators.le(60.0)],
        help="time between looks at the writes of other processes",
    )
    history_retention: float = option(
        3600.0,
        parse=duration,
        validator=[attrs.validators.ge(_SHORTEST_RETENTION), attrs.validators.le(_LONGEST_RETENTION)],
        help="how long watches can resume and the past can be read; 7d at most",
    )
    sweep_interval: float = option(
        1.0,
        parse=duration,
        validator=[attrs.validators.ge(0.05), attrs.validators.le(3600.0)],
        help="time between looks for records whose time to live is over",
    )
    progress_interval: float = option(
        2.0,
        parse=duration,
        validator=attrs.validators.ge(0.0),
        help="time between progress marks on idle watches; 0 sends them only on request",
    )
    min_sessions: int = option(4, parse=integer_between(0, 10_000), help="sessions made at the start")
    max_sessions: int = option(
        100,
        parse=integer_between(4, 10_000),
        help="sessions, and therefore calls at once, at most",
    )
    max_transactions: int = option(
        64, parse=integer_between(1, 10_000), help="read-write transactions at once; one on an emulator"
    )
    timeout: float = option(
        10.0,
        parse=duration,
        validator=[attrs.validators.ge(0.1), attrs.validators.le(600.0)],
        help="deadline of one call to Spanner",
    )
    schema_patience: float = option(
        5.0,
        parse=duration,
        validator=[attrs.validators.ge(0.0), attrs.validators.le(30.0)],
        help="how long half-made tables may be the work of another process",
    )


CAPABILITIES: Final[dict[Capability, Support]] = {
    Capability.TTL: Supported("swept by whichever process is first, about --spanner-sweep-interval late"),
    Capability.COMPACTION: Supported(),
    Capability.PROGRESS_NOTIFY: Supported(),
    Capability.CONSISTENT_LIST: Supported(),
    Capability.EXACT_RV_LIST: Supported("for --spanner-history-retention"),
    Capability.CONTINUE_TOKEN: Supported("for --spanner-history-retention"),
    Capability.HISTORY_WINDOW: Supported("for --spanner-history-retention"),
    Capability.INITIAL_EVENTS: Supported(),
    Capability.PERSISTENCE: Supported(),
    Capability.MULTI_WRITER: Supported(),
}


async def connect(options: SpannerOptions) -> "Connection":
    """Connect to the database, making it if it does not exist, and return the one connection of a process.

    Raises:
        UsageError: an option is wrong, or the database holds something else than kplane's tables.
        Unreachable: Spanner gave no answer, or refused.
    """
    # Describing the backend, as --help does, must not load Google's client.
    from kplane_core.engine.factory import EngineConnection  # noqa: PLC0415
    from kplane_spanner.engine import open_engine  # noqa: PLC0415

    connection = EngineConnection(await open_engine(options))
    await connection.start()
    return connection


@hookimpl
def kplane_register_backends(registry: Backends) -> None:
    """Register the `spanner` backend."""
    registry.register(
        Backend(
            name="spanner",
            summary="Google Cloud Spanner: one database for many processes, gap-free watches across them",
            options=SpannerOptions,
            capabilities=CAPABILITIES,
            connect=connect,
        )
    )
