"""The `memory` storage backend, as kplane finds it; the engine itself is imported when it is connected."""

from typing import TYPE_CHECKING, Final

import attrs

from kplane_core.plugins.backends import Backend, Backends
from kplane_core.plugins.capabilities import Capability, Support, Supported, Unsupported
from kplane_core.plugins.flags import duration, option, positive_int, size
from kplane_core.plugins.hookspecs import hookimpl

if TYPE_CHECKING:
    from kplane_core.engine.factory import Connection

_NOT_NEGATIVE = attrs.validators.ge(0)


@attrs.frozen
class MemoryOptions:
    """The options of the memory backend.

    Attributes:
        history_limit: how many changes are kept for watches and for reads of the past.
        history_bytes: bound on the bytes of superseded versions.
        compaction_interval: seconds; history older than one to two intervals is dropped. 0 leaves it to the limits.
        progress_interval: seconds between unasked progress marks on watches that want them; 0 for none.
    """

    history_limit: int = option(
        100_000,
        parse=positive_int,
        validator=attrs.validators.ge(1),
        help="changes kept for watches and for reads of the past",
    )
    history_bytes: int = option(
        256 << 20,
        parse=size,
        validator=_NOT_NEGATIVE,
        help="bytes that superseded versions may take",
    )
    compaction_interval: float = option(
        300.0,
        parse=duration,
        validator=_NOT_NEGATIVE,
        help="drop history older than this at least; 0 leaves it to the limits",
    )
    progress_interval: float = option(
        2.0,
        parse=duration,
        validator=_NOT_NEGATIVE,
        help="time between progress marks on idle watches; 0 sends them only on request",
    )


CAPABILITIES: Final[dict[Capability, Support]] = {
    Capability.TTL: Supported(),
    Capability.COMPACTION: Supported(),
    Capability.PROGRESS_NOTIFY: Supported(),
    Capability.CONSISTENT_LIST: Supported(),
    Capability.EXACT_RV_LIST: Supported(),
    Capability.CONTINUE_TOKEN: Supported(),
    Capability.HISTORY_WINDOW: Supported("bounded by --memory-history-limit and --memory-history-bytes"),
    Capability.INITIAL_EVENTS: Supported(),
    Capability.PERSISTENCE: Unsupported("everything lives in the memory of one process and ends with it"),
    Capability.MULTI_WRITER: Unsupported("another process cannot reach this process's memory"),
}


async def connect(options: MemoryOptions) -> "Connection":
    """Return a connection to a new, empty engine."""
    # Describing the backend, as --help does, must not load the engine.
    from kplane_core.engine.factory import CompactionPolicy, EngineConnection  # noqa: PLC0415
    from kplane_memory.engine import MemoryEngine  # noqa: PLC0415

    engine = MemoryEngine(
        history_limit=options.history_limit,
        history_bytes=options.history_bytes,
        progress_interval=options.progress_interval,
    )
    connection = EngineConnection(engine, compaction=CompactionPolicy(interval=options.compaction_interval))
    await connection.start()
    return connection


@hookimpl
def kplane_register_backends(registry: Backends) -> None:
    """Register the `memory` backend."""
    registry.register(
        Backend(
            name="memory",
            summary="keeps everything in this process's memory; for tests, development and caches",
            options=MemoryOptions,
            capabilities=CAPABILITIES,
            connect=connect,
        )
    )
