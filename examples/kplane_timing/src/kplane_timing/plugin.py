"""The extension, as kplane finds it: one hook, which wraps what the core and other extensions build."""

import os
from collections.abc import Generator
from typing import TYPE_CHECKING, Final

from kplane_core.plugins.hookspecs import hookimpl

if TYPE_CHECKING:
    from kplane_core.storage.interface import Store
    from kplane_core.storage.resource import Resource

PORT: Final = "KPLANE_TIMING_PORT"


@hookimpl(wrapper=True)
def kplane_build_store(resource: "Resource") -> Generator[None, "Store", "Store"]:
    """Return the store with a stopwatch around it; called once per resource, never per operation."""
    store = yield
    # Imported here: an extension is loaded with every command, and most of them build no store.
    from kplane_timing.timed import TimedStore, export  # noqa: PLC0415

    if port := os.environ.get(PORT):
        export(int(port))
    return TimedStore(store, resource.group_resource)
