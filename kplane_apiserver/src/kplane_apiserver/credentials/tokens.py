"""Tokens in Kubernetes' static format: how a file of them is read, and how one is found without telling anything of it.

A line is `token,user,uid`, `token,user,uid,"group1,group2"` or, with the one cluster that the token is good for,
`token,user,uid,"groups",cluster`.
"""

import contextlib
import csv
import hashlib
import hmac
import io
import logging
import secrets
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import attrs

from kplane_apiserver.credentials.authentication import bearer_token
from kplane_apiserver.identity import User, authenticated
from kplane_core.errors import UsageError

_log = logging.getLogger(__name__)

_FEWEST, _MOST = 3, 5

# Nobody outside can tell a token's digest, so how long a look into a dictionary of digests takes tells him nothing.
_KEY = secrets.token_bytes(32)
_DIGEST_SIZE = 16


@attrs.frozen
class TokenLine:
    """One line of a token file.

    Attributes:
        token: the secret.
        user: whose it is.
        uid: tells users of one name apart; may be empty.
        groups: the groups that the user belongs to.
        cluster: the one cluster that it is good for; empty for every one.
        start: the first of the file's lines that it takes up, from 0.
        end: the line behind the last one.
    """

    token: str = attrs.field(repr=False)
    user: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    cluster: str = ""
    start: int = 0
    end: int = 0


class _Grant(NamedTuple):
    digest: bytes
    user: User
    cluster: str


class Tokens:
    """Tokens and the users that they stand for.

    Args:
        lines: the tokens.
    """

    def __init__(self, lines: Iterable[TokenLine] = ()) -> None:
        self._grants: dict[bytes, _Grant] = {}
        self.add(lines)

    def add(self, lines: Iterable[TokenLine], groups: Sequence[str] = ()) -> None:
        """Take in more tokens; one that is known already stands for its first user.

        Args:
            lines: the tokens.
            groups: groups that all their users belong to besides.
        """
        for line in lines:
            digest = _digest(line.token.encode())
            user = authenticated(line.user, line.uid, (*line.groups, *groups))
            self._grants.setdefault(digest, _Grant(digest, user, line.cluster))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self._grants)} tokens)"

    def user_of(self, token: bytes, cluster: str, /) -> User | None:
        """Return the user whose token it is; None when it is unknown, or not good for the cluster."""
        digest = _digest(token)
        grant = self._grants.get(digest)
        if grant is None or not hmac.compare_digest(digest, grant.digest):
            return None
        return grant.user if not grant.cluster or grant.cluster == cluster else None


class AdminTokens:
    """Tokens whose users may read across clusters.

    Args:
        tokens: pairs of a token and its user.
    """

    def __init__(self, tokens: Iterable[tuple[str, str]] = ()) -> None:
        self._tokens = Tokens(TokenLine(token, user) for token, user in tokens)

    def __repr__(self) -> str:
        return f"AdminTokens({self._tokens!r})"

    def user_of(self, authorization: bytes) -> str | None:
        """Return the user whose token an Authorization header carries; None when it carries none that is known.

        Args:
            authorization: the header's value; empty when absent.
        """
        user = self._tokens.user_of(bearer_token(authorization), "")
        return user.name if user is not None else None


def load_admin_tokens(path: Path) -> AdminTokens:
    """Return the tokens of a file of administrators.

    Raises:
        UsageError: as `load_tokens` does.
    """
    lines = load_tokens(path, "--admin-token-file")
    return AdminTokens((line.token, line.user) for line in lines if not line.cluster)


def load_tokens(path: Path, flag: str, *, may_be_empty: bool = False) -> list[TokenLine]:
    """Return the lines of a token file.

    Args:
        path: the file.
        flag: what named it, for messages.
        may_be_empty: whether it may have no line.

    Raises:
        UsageError: it cannot be read or is no such file; the message tells the line and never what stands in it.
    """
    try:
        _check_mode(path, flag, stat.S_IMODE(path.stat().st_mode))
        raw = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{flag} {path}: {error.strerror or 'cannot be read'}") from error
    lines = parse_tokens(raw, f"{flag} {path}")
    if not lines and not may_be_empty:
        raise UsageError(f"{flag} {path}: has no line token,user,uid")
    return lines


def parse_tokens(raw: bytes, where: str) -> list[TokenLine]:
    """Return the lines of a token file's content; lines without content are left out.

    Args:
        raw: the content.
        where: names the file, for messages.

    Raises:
        UsageError: it is no such file.
    """
    lines: list[TokenLine] | None = None
    with contextlib.suppress(UnicodeDecodeError, csv.Error):  # their context would hold a part of the file
        lines = _parse(io.StringIO(raw.decode(), newline="").readlines(), where)
    if lines is None:
        raise UsageError(f"{where}: is not a text file with comma-separated values")
    return lines


def _parse(texts: Sequence[str], where: str) -> list[TokenLine]:
    found: dict[str, TokenLine] = {}
    clusters: set[str] = set()
    reader = csv.reader(texts, strict=True)
    start = 0
    for row in reader:
        begun, start = start, reader.line_num
        if not row or not any(map(str.strip, row)):
            continue
        token, user, uid, groups, cluster = _columns(row, where, begun + 1)
        if token in found:
            raise UsageError(f"{where}: line {begun + 1} has a token that stands in the file already")
        if cluster and cluster not in clusters:
            _check_cluster(cluster, where, begun + 1)
            clusters.add(cluster)
        found[token] = TokenLine(token, user, uid, _groups(groups), cluster, begun, start)
    return list(found.values())


def _columns(row: Sequence[str], where: str, number: int) -> Iterable[str]:
    """Return the five columns of a line; what it leaves out is empty."""
    if len(row) < _FEWEST:
        raise UsageError(f"{where}: line {number} has {len(row)} columns, not at least token,user,uid")
    if len(row) > _MOST:
        most = 'token,user,uid,"groups",cluster'
        raise UsageError(f"{where}: line {number} has {len(row)} columns, at most {most}: quote the groups")
    token, user, *others = map(str.strip, row)
    if not token or not user:
        raise UsageError(f"{where}: line {number} has an empty {'user' if token else 'token'}")
    return (token, user, *others, *("",) * (_MOST - len(row)))


def _groups(text: str) -> tuple[str, ...]:
    return tuple(group for group in map(str.strip, text.split(",")) if group)


def _check_cluster(text: str, where: str, number: int) -> None:
    # Only a line with a cluster needs it.
    from kplane_core.multicluster.keylayout import InvalidClusterId, validate_cluster_id  # noqa: PLC0415

    try:
        validate_cluster_id(text)
    except InvalidClusterId:
        hint = 'groups are quoted: "group1,group2"'
        raise UsageError(f"{where}: line {number} has a fifth column that names no cluster; {hint}") from None


def _check_mode(path: Path, flag: str, mode: int) -> None:
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        _log.warning("%s %s: others than its owner can reach it (mode %03o); use mode 600", flag, path, mode)


def _digest(token: bytes) -> bytes:
    return hashlib.blake2b(token, digest_size=_DIGEST_SIZE, key=_KEY).digest()
