"""The tokens of administrators: read from a file once, compared in constant time, and never shown."""

import csv
import hashlib
import hmac
import logging
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from kplane_core.errors import UsageError

_log = logging.getLogger(__name__)

_COLUMNS = 3
_BEARER = b"bearer "


class _Admin(NamedTuple):
    digest: bytes
    user: str


class AdminTokens:
    """Tokens and the users that they stand for.

    Args:
        tokens: pairs of a token and its user.
    """

    def __init__(self, tokens: Iterable[tuple[str, str]]) -> None:
        self._admins = tuple(_Admin(_digest(token.encode()), user) for token, user in tokens)

    def __repr__(self) -> str:
        return f"AdminTokens({len(self._admins)} tokens)"

    def user_of(self, authorization: bytes) -> str | None:
        """Return the user whose token an Authorization header carries; None when it carries none that is known.

        It takes the same time whichever token it is, and whether it is one at all.

        Args:
            authorization: the header's value; empty when absent.
        """
        if authorization[: len(_BEARER)].lower() != _BEARER:
            return None
        digest = _digest(authorization[len(_BEARER) :].strip())
        found = None
        for admin in self._admins:
            if hmac.compare_digest(digest, admin.digest):
                found = admin.user
        return found


def load_admin_tokens(path: Path) -> AdminTokens:
    """Return the tokens of a file in Kubernetes' format: lines of `token,user,uid` or `token,user,uid,"groups"`.

    Raises:
        UsageError: it cannot be read or is no such file; the message tells the line and never what stands in it.
    """
    try:
        with path.open(encoding="utf-8", newline="") as lines:
            _check_mode(path, stat.S_IMODE(path.stat().st_mode))
            tokens = _parse(path, csv.reader(lines))
    except OSError as error:
        raise UsageError(f"--admin-token-file {path}: {error.strerror or 'cannot be read'}") from error
    except (UnicodeDecodeError, csv.Error):
        tokens = None
    if tokens is None:  # not within the handler: the error's context would hold a part of the file
        raise UsageError(f"--admin-token-file {path}: is not a text file with comma-separated values")
    if not tokens:
        raise UsageError(f"--admin-token-file {path}: has no line token,user,uid")
    return AdminTokens(tokens)


def _parse(path: Path, rows: Iterable[list[str]]) -> list[tuple[str, str]]:
    tokens: dict[str, str] = {}
    for number, row in enumerate(rows, start=1):
        if not any(column.strip() for column in row):
            continue
        where = f"--admin-token-file {path}: line {number}"
        if len(row) < _COLUMNS:
            raise UsageError(f"{where} has {len(row)} columns, not at least token,user,uid")
        token, user = row[0].strip(), row[1].strip()
        if not token or not user:
            raise UsageError(f"{where} has an empty {'user' if token else 'token'}")
        if token in tokens:
            raise UsageError(f"{where} has a token that stands in the file already")
        tokens[token] = user
    return list(tokens.items())


def _check_mode(path: Path, mode: int) -> None:
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        _log.warning("--admin-token-file %s: others than its owner can reach it (mode %03o); use mode 600", path, mode)


def _digest(token: bytes) -> bytes:
    """Return a digest: of equal length for all tokens, so that a comparison tells nothing of theirs."""
    return hashlib.sha256(token).digest()
