"""`kplane serve`: what the `kplane` command learns of it. The server itself is imported only when it runs."""

from typing import TYPE_CHECKING

from kplane_core.plugins.commands import Command, Parsed

if TYPE_CHECKING:
    from kplane_core.plugins.flags import Flags


def configure(flags: "Flags") -> None:
    """Add the flags of `kplane serve`, its variables `KPLANE_SERVE_...` and its table `[serve]`."""
    from kplane_apiserver.commands.options import ServeOptions  # noqa: PLC0415 - not needed by `kplane --help`

    flags.add("", ServeOptions, title="server", env="KPLANE_SERVE_", toml="serve")


def run(parsed: Parsed) -> int:
    """Serve until the process is told to stop.

    Raises:
        UsageError: the address, the kubeconfig or the backend cannot be had.
    """
    from kplane_apiserver.commands.launch import launch  # noqa: PLC0415 - imports the whole server

    return launch(parsed)


command = Command(
    name="serve",
    summary="serve virtual clusters over the Kubernetes API",
    configure=configure,
    run=run,
    selects_backend=True,
)
