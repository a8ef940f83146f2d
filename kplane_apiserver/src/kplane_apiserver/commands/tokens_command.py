"""`kplane token`: what the `kplane` command learns of it. The work is imported only when it runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from kplane_core.plugins.commands import Command, Parsed
from kplane_core.plugins.flags import choice, csv, filled_text, option, path

if TYPE_CHECKING:
    from kplane_core.plugins.flags import Flags

WORDS: Final = "create | list | delete [ID...]"


@attrs.frozen
class TokenOptions:
    """Which file `kplane token` works on, and whose token it makes or removes.

    Attributes:
        token_auth_file: the file that `kplane serve` was given.
        user: whose token; of those to list or delete, only this user's.
        uid: tells users of one name apart.
        group: groups of the user.
        cluster: the cluster that the token is good for; of those to list or delete, only this one's.
        all_clusters: the token is good for every cluster.
        output: how a new token is printed.
        server: the server's address, for a kubeconfig; empty takes it from `kubeconfig`.
        kubeconfig: the file that names the server and its certificate authority.
        add_context: put a context for the new token into `kubeconfig` too.
    """

    token_auth_file: Path = option(
        Path("kplane.tokens.csv"),
        parse=path,
        help="file of tokens, made if absent; kplane serve gets the same flag and sees changes at once",
        metavar="FILE",
    )
    user: str = option("", parse=filled_text, help="whose token it is", metavar="NAME")
    uid: str = option("", parse=filled_text, help="tells users of one name apart")
    group: tuple[str, ...] = option((), parse=csv, help="group of the user; repeatable", metavar="NAME")
    cluster: str = option("", parse=filled_text, help="the one cluster that the token is good for", metavar="NAME")
    all_clusters: bool = option(default=False, help="make a token that is good for every cluster")
    output: str = option(
        "token",
        parse=choice("token", "kubeconfig"),
        help="print the new token, or a whole kubeconfig with it",
        short="-o",
    )
    server: str = option(
        "", parse=filled_text, help="address of the server (default: from the kubeconfig)", metavar="URL"
    )
    kubeconfig: Path = option(
        Path("kplane.kubeconfig"),
        parse=path,
        help="file that kplane serve wrote: names the server and what its certificate is checked with",
        metavar="FILE",
    )
    add_context: bool = option(default=False, help="put a context for the new token into the kubeconfig file too")


def _configure(flags: "Flags") -> None:
    flags.add("", TokenOptions, title="token", env="KPLANE_TOKEN_", toml="token")


def _run(parsed: Parsed) -> int:
    from kplane_apiserver.commands.tokens_cli import run  # noqa: PLC0415 - not needed by --help

    return run(parsed.options(TokenOptions), parsed.words)


command: Final = Command(
    name="token",
    summary="create, list and delete tokens of users, also while a server uses them",
    configure=_configure,
    run=_run,
    words=WORDS,
)
