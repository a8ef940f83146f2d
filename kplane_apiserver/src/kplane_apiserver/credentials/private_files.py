"""Files with secrets: for their owner only, replaced as a whole or not at all, changed by one process at a time."""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path


def write_private(path: Path, content: bytes) -> None:
    """Replace a file, or make it; only its owner can reach it.

    Raises:
        OSError: it cannot be written; what was there stays.
    """
    target = Path(os.path.realpath(path))  # a link keeps pointing at its file
    # mkstemp makes the file for its owner only, in the same folder, so that the rename is atomic.
    descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        Path(temporary).replace(target)
    except OSError:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes that use this out of a folder while the context is open.

    Raises:
        OSError: there is no such folder.
    """
    if sys.platform == "win32":  # has no locks on folders
        yield
        return
    import fcntl  # noqa: PLC0415 - absent on Windows

    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)  # which unlocks
