"""`kplane cluster`: what the `kplane` command learns of it. The work is imported only when it runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from kplane_core.plugins.commands import Command, Parsed
from kplane_core.plugins.flags import choice, csv, duration, filled_text, option, path

if TYPE_CHECKING:
    from kplane_core.plugins.flags import Flags

WORDS: Final = (
    "create NAME | list | delete NAME... | snapshot NAME [FILE] | restore NAME FILE | fork SOURCE NAME | "
    "kubeconfig NAME..."
)


@attrs.frozen
class ClusterOptions:
    """Which server `kplane cluster` talks to, and what new clusters get.

    Attributes:
        server: the server's address; empty takes it from the kubeconfig.
        kubeconfig: the file that names the server, and that `kubeconfig` writes to.
        ttl: seconds after which a new cluster is deleted; 0 for never.
        label: labels of a new cluster, or those that listed ones must have; `name=value` each.
        output: how clusters are printed.
        wait: `delete` returns when the clusters are gone.
    """

    server: str = option(
        "", parse=filled_text, help="address of the server (default: from the kubeconfig)", metavar="URL"
    )
    kubeconfig: Path = option(
        Path("kplane.kubeconfig"),
        parse=path,
        help="file that kplane serve wrote; kubeconfig writes to it",
        metavar="FILE",
    )
    ttl: float = option(0.0, parse=duration, help="delete the new cluster after this long; 0 for never")
    label: tuple[str, ...] = option(
        (),
        parse=csv,
        help="label of the new cluster, or of those to list: name=value; repeatable",
        metavar="NAME=VALUE",
    )
    output: str = option("table", parse=choice("table", "json", "name"), help="how to print clusters", short="-o")
    wait: bool = option(default=True, help="return from delete when the clusters are gone with all they held")


def _configure(flags: "Flags") -> None:
    flags.add("", ClusterOptions, title="cluster", env="KPLANE_CLUSTER_", toml="cluster")


def _run(parsed: Parsed) -> int:
    from kplane_apiserver.commands.clusters_cli import run  # noqa: PLC0415 - not needed by --help

    return run(parsed.options(ClusterOptions), parsed.words)


command: Final = Command(
    name="cluster",
    summary="create, list, delete, snapshot, restore and fork clusters of a running server",
    configure=_configure,
    run=_run,
    words=WORDS,
)
