"""A store with a stopwatch around it."""

import functools
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import Histogram, start_http_server

from kplane_core.errors import KplaneError

if TYPE_CHECKING:
    from kplane_core.storage.interface import Store

#: The operations that ask the database; `watch` counts how long it takes to open one.
TIMED: Final = ("create", "delete", "get", "get_list", "guaranteed_update", "watch")

SECONDS: Final = Histogram(
    "kplane_store_seconds",
    "How long an operation of a store took.",
    ("resource", "operation", "outcome"),
    buckets=(0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0),
)


class TimedStore:
    """A `Store` that does what another store does and measures it.

    Args:
        store: the other one.
        resource: the value of the label, for example `deployments.apps`.
    """

    def __init__(self, store: "Store", resource: str) -> None:
        self._store = store
        for operation in TIMED:
            setattr(self, operation, _timed(getattr(store, operation), resource, operation))

    def __getattr__(self, name: str) -> Any:
        """Return everything that is not measured from the store itself."""
        return getattr(self._store, name)


def _timed(method: Callable[..., Awaitable[Any]], resource: str, operation: str) -> Callable[..., Awaitable[Any]]:
    # Looking a series up costs as much as observing it: the one of successes is looked up once.
    ok = SECONDS.labels(resource, operation, "ok")

    @functools.wraps(method)
    async def timed(*args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter()
        try:
            result = await method(*args, **kwargs)
        except KplaneError as error:
            SECONDS.labels(resource, operation, type(error).__name__).observe(time.perf_counter() - began)
            raise
        ok.observe(time.perf_counter() - began)
        return result

    return timed


@functools.cache
def export(port: int) -> None:
    """Serve the numbers on a port of this machine, from now until the process ends."""
    start_http_server(port, addr="127.0.0.1")
