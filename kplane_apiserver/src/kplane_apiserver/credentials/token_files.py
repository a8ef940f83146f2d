"""The tokens of a running server: those of its files, read again when they change, and those that it made itself."""

import logging
import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import attrs

from kplane_apiserver.credentials.tokens import TokenLine, Tokens, load_tokens
from kplane_apiserver.identity import User
from kplane_core.errors import UsageError

_log = logging.getLogger(__name__)

_CHECK_SECONDS = 1.0

_Signature = tuple[int, int, int, int]


@attrs.frozen
class TokenSource:
    """A file of tokens.

    Attributes:
        path: where it lies.
        flag: the flag that named it, for messages.
        groups: groups that all its users belong to besides those in the file.
        may_be_empty: whether it may have no line.
    """

    path: Path
    flag: str
    groups: tuple[str, ...] = ()
    may_be_empty: bool = False


@attrs.define
class _Read:
    """What was last read from a file."""

    source: TokenSource
    signature: _Signature | None
    lines: Sequence[TokenLine]
    _cut_off: _Signature | None = None
    _since: float = 0.0

    def renew(self, now: float) -> bool:
        """Read the file again if it changed; return whether its tokens are others now."""
        signature = _signature(self.source.path)
        if signature == self.signature or (signature == self._cut_off and now < self._since + _CHECK_SECONDS):
            return False
        try:
            lines = _load(self.source)
            cut_off = _is_cut_off(self.source.path)
        except (UsageError, OSError) as error:
            self.signature = signature  # so that it is complained of once
            _log.warning("%s; the tokens read before stay in use", error)
            return False
        if signature != _signature(self.source.path):
            return False  # it is being written
        # Without its end the last line may be the beginning of one, and without its cluster that is good for all.
        if cut_off and signature != self._cut_off:
            self._cut_off, self._since = signature, now
            return False
        self.signature, self.lines = signature, lines
        return True


class TokenFiles:
    """Knows the tokens of some files, and follows their changes.

    A new token is known at once; one that was taken away is good for a second more. A file that became bad or vanished
    changes nothing: its last good content counts. A change after which the last line has no end counts a second later.

    Args:
        sources: the files.
        fixed: tokens that stand in no file.
        clock: seconds that only grow.

    Raises:
        UsageError: a file is bad from the start.
    """

    def __init__(
        self,
        sources: Iterable[TokenSource],
        fixed: Iterable[TokenLine] = (),
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reads = [_Read(source, _signature(source.path), _load(source)) for source in sources]
        self._fixed = tuple(fixed)
        self._clock = clock
        self._next_check = clock() + _CHECK_SECONDS
        self._tokens = self._merged()

    def __repr__(self) -> str:
        return f"TokenFiles({self._tokens!r})"

    def user_of(self, token: bytes, cluster: str, /) -> User | None:
        """Return the user whose token it is; None when it is unknown, or not good for the cluster."""
        if self._clock() >= self._next_check:
            self._renew()
        user = self._tokens.user_of(token, cluster)
        # One look at the files costs less than the answer that an unknown token gets.
        if user is None and self._renew():
            user = self._tokens.user_of(token, cluster)
        return user

    def _renew(self) -> bool:
        """Read again what changed; return whether anything did."""
        now = self._clock()
        self._next_check = now + _CHECK_SECONDS
        changed = [read.renew(now) for read in self._reads]
        if any(changed):
            self._tokens = self._merged()
        return any(changed)

    def _merged(self) -> Tokens:
        tokens = Tokens(self._fixed)
        for read in self._reads:
            tokens.add(read.lines, read.source.groups)
        return tokens


def _load(source: TokenSource) -> Sequence[TokenLine]:
    return load_tokens(source.path, source.flag, may_be_empty=source.may_be_empty)


def _is_cut_off(path: Path) -> bool:
    """Return whether a file's last line has no end."""
    with path.open("rb") as file:
        if not file.seek(0, os.SEEK_END):
            return False
        file.seek(-1, os.SEEK_END)
        return file.read() not in (b"\n", b"\r")


def _signature(path: Path) -> _Signature | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
