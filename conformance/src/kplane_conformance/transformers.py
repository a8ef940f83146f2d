"""The value transformer that the suite puts below every store, so that it can be broken at will."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kplane_core.storage.transformers import TransformError

BASE_PREFIX = b"test!"

Reader = Callable[[bytes], tuple[bytes, bool]]
"""Turns stored bytes into plain ones and says whether they are stale."""
Writer = Callable[[bytes], bytes]


class TransformFailed(TransformError):
    """The suite's transformer was told to fail."""


class SwitchableTransformer:
    """Prepends a prefix on write, demands and strips it on read, and can be switched while stores use it.

    Attributes:
        reads: values read so far.
        writes: values written so far.
    """

    def __init__(self, prefix: bytes = BASE_PREFIX) -> None:
        self.prefix = prefix
        self.reads = 0
        self.writes = 0
        self._read: Reader = self.strip
        self._write: Writer = self.prepend

    def from_storage(self, data: bytes, key: str) -> tuple[bytes, bool]:
        """Return the plain value and whether it should be rewritten."""
        del key
        self.reads += 1
        return self._read(data)

    def to_storage(self, data: bytes, key: str) -> bytes:
        """Return what is stored."""
        del key
        self.writes += 1
        return self._write(data)

    def strip(self, data: bytes) -> tuple[bytes, bool]:
        """Read as usual: the value must carry the base prefix."""
        if not data.startswith(self.prefix):
            raise TransformFailed(f"the stored value does not begin with {self.prefix!r}")
        return data[len(self.prefix) :], False

    def prepend(self, data: bytes) -> bytes:
        """Write as usual: with the base prefix."""
        return self.prefix + data

    @contextmanager
    def swapped(self, *, read: Reader | None = None, write: Writer | None = None) -> Iterator[None]:
        """Use other functions for reading or writing; what is not given stays as it is."""
        before = self._read, self._write
        self._read, self._write = read or self._read, write or self._write
        try:
            yield
        finally:
            self._read, self._write = before

    def set(self, *, read: Reader | None = None, write: Writer | None = None) -> None:
        """Use these functions from now on; what is not given goes back to the usual one."""
        self._read, self._write = read or self.strip, write or self.prepend


def fail(data: bytes) -> tuple[bytes, bool]:
    """Read nothing: the transformer fails."""
    del data
    raise TransformFailed("the suite made this read fail")


def garble(data: bytes) -> tuple[bytes, bool]:
    """Read something that is no JSON: the decoder fails."""
    del data
    return b"\x00 no object", False
