"""The one place where an engine's errors become the storage contract's."""

from types import TracebackType

from kplane_core.engine.interface import Compacted, EngineUnreachable, FutureRevision
from kplane_core.errors import Expired, TooLargeResourceVersion, Unreachable


class translated:  # noqa: N801 (read as a word: `with translated(key)`; a class, since every call to an engine enters it)
    """Turn an engine's errors into storage errors that name `key`.

    Raises:
        Unreachable: the database cannot be reached.
        Expired: the asked revision was compacted.
        TooLargeResourceVersion: the asked revision does not exist yet.
    """

    __slots__ = ("_key",)

    def __init__(self, key: str) -> None:
        self._key = key

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        if error is None:
            return
        if isinstance(error, EngineUnreachable):
            raise Unreachable(self._key, str(error)) from error
        if isinstance(error, Compacted):
            raise Expired(Expired.LIST) from error
        if isinstance(error, FutureRevision):
            raise TooLargeResourceVersion(error.revision, error.current) from error
