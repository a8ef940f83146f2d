"""The work of `kplane token`: changes to a file of tokens, which a running server sees, and what is printed."""

# ruff: noqa: T201 - what a command prints is its work

import contextlib
import csv
import hashlib
import io
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from kplane_apiserver.commands.clusters_client import Client
from kplane_apiserver.commands.tokens_command import WORDS, TokenOptions
from kplane_apiserver.credentials.kubeconfig import (
    Context,
    Credentials,
    add_contexts,
    as_yaml,
    cluster_url,
    context_name,
    empty_kubeconfig,
    put_contexts,
    user_name,
)
from kplane_apiserver.credentials.private_files import locked, write_private
from kplane_apiserver.credentials.tokens import TokenLine, load_tokens, parse_tokens
from kplane_core.errors import UsageError
from kplane_core.multicluster.keylayout import InvalidClusterId, validate_cluster_id

Words = tuple[str, ...]

_FLAG = "--token-auth-file"
_PREFIX = "kplane_"  # secret scanners know a token by it, and it begins with no dash
_TOKEN_BYTES = 32
_ID_LENGTH = 4
_EVERY_CLUSTER = "<all>"
_NO_GROUPS = "<none>"


def run(options: TokenOptions, words: Words) -> int:
    """Do what the words say.

    Raises:
        UsageError: they say nothing known, or the file cannot be used.
    """
    verb, *rest = words or ("",)
    work = _VERBS.get(verb)
    if work is None:
        asked = f"no such verb {verb!r}" if verb else "a verb is needed"
        raise UsageError(f"kplane token: {asked}; there are {', '.join(_VERBS)}; see kplane token --help")
    if rest and verb != "delete":
        raise UsageError(f"usage: kplane token {WORDS}; what is made or listed is told by flags")
    return work(options, tuple(rest))


def identity_of(line: TokenLine) -> str:
    """Return what a token is called: the beginning of a digest, which tells nothing of the token."""
    return hashlib.sha256(line.token.encode()).hexdigest()[:_ID_LENGTH]


# --- create -----------------------------------------------------------------------------------------------------------


def _create(options: TokenOptions, _words: Words) -> int:
    _check_new(options)
    line = TokenLine(
        _PREFIX + secrets.token_urlsafe(_TOKEN_BYTES), options.user, options.uid, options.group, options.cluster
    )
    # A server that cannot be found is complained of before there is a token that nobody has seen.
    context = _context(options, line) if options.add_context or options.output == "kubeconfig" else None
    with _changing(options.token_auth_file) as content:
        parse_tokens(content, f"{_FLAG} {options.token_auth_file}")
        end = b"\n" if content and not content.endswith((b"\n", b"\r")) else b""
        write_private(options.token_auth_file, content + end + _csv(line))
    if context is not None and options.add_context:
        add_contexts(options.kubeconfig, [context])
    if context is not None and options.output == "kubeconfig":
        document = empty_kubeconfig()
        put_contexts(document, [context])
        print(as_yaml(document), end="")
    else:
        print(line.token)
    return 0


def _check_new(options: TokenOptions) -> None:
    if not options.user:
        raise UsageError("kplane token create: whose token? Give --user NAME")
    if bool(options.cluster) == options.all_clusters:
        raise UsageError("kplane token create: good for what? Give either --cluster NAME or --all-clusters")
    if options.cluster:
        try:
            validate_cluster_id(options.cluster)
        except InvalidClusterId as error:
            raise UsageError(f"--cluster: {error.causes[0].message}") from error
    if wrong := next((group for group in options.group if "," in group), None):
        raise UsageError(f"--group {wrong}: a group of a token file has no comma in its name")


def _csv(line: TokenLine) -> bytes:
    text = io.StringIO()
    row = [line.token, line.user, line.uid, ",".join(line.groups), line.cluster]
    while not row[-1] and len(row) > len(("token", "user", "uid")):
        row.pop()
    csv.writer(text, lineterminator="\n").writerow(row)
    return text.getvalue().encode()


def _context(options: TokenOptions, line: TokenLine) -> Context:
    client = Client.find(options.server, options.kubeconfig)
    credentials = Credentials(line.token, client.credentials.trust)
    name, server = f"kplane-{line.user}", client.url
    if line.cluster:
        name, server = f"{context_name(line.cluster)}-{line.user}", cluster_url(client.url, line.cluster)
    return Context(name, server, user_name(client.url, credentials, name), credentials)


# --- list and delete --------------------------------------------------------------------------------------------------


def _list(options: TokenOptions, _words: Words) -> int:
    _check_there(options.token_auth_file)
    lines = [line for line in load_tokens(options.token_auth_file, _FLAG, may_be_empty=True) if _meant(options, line)]
    if not lines:
        chosen = options.user or options.cluster or options.all_clusters
        print(f"{options.token_auth_file} has no such token" if chosen else f"no tokens in {options.token_auth_file}")
        return 0
    rows = [("ID", "USER", "GROUPS", "CLUSTER"), *map(_row, lines)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    print("\n".join("   ".join(map(str.ljust, row, widths)).rstrip() for row in rows))
    return 0


def _row(line: TokenLine) -> tuple[str, str, str, str]:
    return identity_of(line), line.user, ",".join(line.groups) or _NO_GROUPS, line.cluster or _EVERY_CLUSTER


def _meant(options: TokenOptions, line: TokenLine) -> bool:
    """Whether a line is one of those that the flags name."""
    cluster = options.cluster or (options.all_clusters and "")
    return (not options.user or line.user == options.user) and (cluster is False or line.cluster == cluster)


def _delete(options: TokenOptions, words: Words) -> int:
    if not words and not options.user and not options.cluster and not options.all_clusters:
        raise UsageError("kplane token delete: which? Give an ID that kplane token list shows, --user or --cluster")
    path = options.token_auth_file
    _check_there(path)
    with _changing(path) as content:
        lines = parse_tokens(content, f"{_FLAG} {path}")
        gone = _chosen(options, words, lines)
        texts = io.StringIO(content.decode(), newline="").readlines()
        for line in reversed(gone):
            del texts[line.start : line.end]
        if texts and not texts[-1].endswith(("\n", "\r")):
            texts.append("\n")  # or the server would wait for the rest of the line
        write_private(path, "".join(texts).encode())
    for line in gone:
        print(f"token {identity_of(line)} of {line.user} deleted")
    return 0


def _chosen(options: TokenOptions, words: Words, lines: Sequence[TokenLine]) -> list[TokenLine]:
    """Return the lines that are meant, in the order of the file.

    Raises:
        UsageError: an ID is that of no token or of several, or the flags name none.
    """
    meant = [line for line in lines if _meant(options, line)]
    for word in words:
        count = sum(identity_of(line) == word for line in meant)
        if count != 1:
            known = (
                "is that of several tokens: narrow it down with --user or --cluster" if count else "is no token's ID"
            )
            raise UsageError(f"kplane token delete {word}: {known}; kplane token list shows them")
    chosen = [line for line in meant if not words or identity_of(line) in words]
    if not chosen:
        raise UsageError(f"kplane token delete: {options.token_auth_file} has no such token")
    return chosen


def _check_there(path: Path) -> None:
    if not path.exists():
        raise UsageError(f"{_FLAG} {path}: there is no such file; kplane token create makes it")


@contextlib.contextmanager
def _changing(path: Path) -> Iterator[bytes]:
    """Give the content of a file, empty if it is absent, while nobody else changes it."""
    try:
        with locked(path.resolve().parent):
            yield path.read_bytes() if path.exists() else b""
    except OSError as error:
        raise UsageError(f"{_FLAG} {path}: {error.strerror or error}") from error


_VERBS: Mapping[str, Callable[[TokenOptions, Words], int]] = MappingProxyType(
    {"create": _create, "list": _list, "delete": _delete}
)
