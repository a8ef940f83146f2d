"""Value transformers: what happens to an object's bytes between the codec and the database.

A transformer's error counts as corrupt data, with one exception: TransformUnavailable says that the transformer could
not look at the data at all, which must never let anybody treat the data as lost.
"""

from typing import Protocol

from kplane_core.errors import KplaneError

_ENCRYPTED_PREFIX = b"k8s:enc:"


class TransformError(KplaneError):
    """The stored bytes are not what this transformer wrote: they cannot be read with it."""


class TransformUnavailable(KplaneError):
    """The transformer cannot work now, for example because a key service is down. Says nothing about the data."""


class Transformer(Protocol):
    """Bytes to bytes and back, bound to the key that they are stored under."""

    def from_storage(self, data: bytes, key: str) -> tuple[bytes, bool]:
        """Return the plaintext, and whether it should be rewritten although it did not change (stale).

        Args:
            data: the stored bytes.
            key: the full storage key, as authenticated data.

        Raises:
            TransformError: the bytes cannot be read.
            TransformUnavailable: the transformer cannot work now.
        """
        ...

    def to_storage(self, data: bytes, key: str) -> bytes:
        """Return the bytes to store.

        Args:
            data: the plaintext.
            key: the full storage key, as authenticated data.

        Raises:
            TransformUnavailable: the transformer cannot work now.
        """
        ...


class IdentityTransformer:
    """Stores plaintext; refuses to read what an encrypting transformer wrote."""

    def from_storage(self, data: bytes, key: str) -> tuple[bytes, bool]:  # noqa: ARG002 - the protocol's shape
        """Return the data as it is, never stale.

        Raises:
            TransformError: it is encrypted.
        """
        if data.startswith(_ENCRYPTED_PREFIX):
            raise TransformError("identity transformer tried to read encrypted data")
        return data, False

    def to_storage(self, data: bytes, key: str) -> bytes:  # noqa: ARG002 - the protocol's shape
        """Return the data as it is."""
        return data


IDENTITY = IdentityTransformer()
