"""The one place where an engine's errors become the storage contract's."""

from collections.abc import Iterator
from contextlib import contextmanager

from kplane_core.engine.interface import Compacted, EngineUnreachable, FutureRevision
from kplane_core.errors import Expired, TooLargeResourceVersion, Unreachable


@contextmanager
def translated(key: str) -> Iterator[None]:
    """Turn an engine's errors into storage errors that name `key`.

    Raises:
        Unreachable: the database cannot be reached.
        Expired: the asked revision was compacted.
        TooLargeResourceVersion: the asked revision does not exist yet.
    """
    try:
        yield
    except EngineUnreachable as error:
        raise Unreachable(key, str(error)) from error
    except Compacted as error:
        raise Expired(Expired.LIST) from error
    except FutureRevision as error:
        raise TooLargeResourceVersion(error.revision, error.current) from error
