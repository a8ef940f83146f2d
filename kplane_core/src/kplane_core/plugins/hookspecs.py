"""The hooks that kplane calls, in the order of a process's life.

An implementation is a plain function marked with `hookimpl`; it may take any subset of the arguments named here.
"""

from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    # Only for annotations: knowing the hooks must not import what they carry.
    from kplane_core.engine.factory import Connection
    from kplane_core.plugins.backends import Backend, Backends
    from kplane_core.plugins.checks import HealthChecks
    from kplane_core.plugins.flags import Flags
    from kplane_core.storage.interface import Store
    from kplane_core.storage.resource import Resource

PROJECT = "kplane"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


class KplaneSpecs:
    """The hooks."""

    @hookspec
    def kplane_register_backends(self, registry: "Backends") -> None:
        """Describe this plugin's storage backends; import no driver here.

        Called once, right after the plugin was imported. A raised error makes the plugin broken; what it had
        registered before is dropped.

        Args:
            registry: takes `Backend` values through `register`.
        """

    @hookspec
    def kplane_add_flags(self, flags: "Flags") -> None:
        """Contribute options beyond those of the backends themselves.

        Called once for each loaded plugin, after every backend in use has added its own options.

        Args:
            flags: takes attrs classes through `add`; it records this plugin as their owner.
        """

    @hookspec(firstresult=True)
    def kplane_build_store(self, backend: "Backend", connection: "Connection", resource: "Resource") -> "Store":
        """Build the store of one resource. The core implements it; a plugin may only wrap it.

        Called when a resource is first touched, never per operation.

        Args:
            backend: the selected backend.
            connection: its open connection; it holds the options.
            resource: what the store is for.

        Returns:
            The store; a wrapper returns the inner store or one around it.
        """
        raise NotImplementedError

    @hookspec
    def kplane_add_health_checks(self, checks: "HealthChecks") -> None:
        """Contribute checks that the server runs behind /readyz and /livez.

        Called once, before the server listens.

        Args:
            checks: takes async functions through `add`.
        """


class CorePlugin:
    """The core's own implementations, registered like any plugin's."""

    @hookimpl(trylast=True)
    def kplane_build_store(self, connection: "Connection", resource: "Resource") -> "Store":
        """Ask the connection for the store."""
        return connection.store(resource)


def hook_names() -> tuple[str, ...]:
    """Return the names of all hooks, in the order of the life cycle."""
    return tuple(name for name in vars(KplaneSpecs) if name.startswith(f"{PROJECT}_"))


def is_marked(function: object) -> bool:
    """Tell whether `hookimpl` marks a function."""
    return hasattr(function, f"{PROJECT}_impl")
