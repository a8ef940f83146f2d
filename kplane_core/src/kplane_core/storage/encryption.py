"""Ciphers for data at rest, with the layouts that Kubernetes' own API server writes.

A database written by a kube-apiserver with an `aescbc`, `aesgcm` or `secretbox` provider reads here with the same keys,
and the other way round. The libraries come with the extra `kplane-core[encryption]` and are imported when the first
cipher is built; ciphers are built once, not per record.
"""

import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import attrs

from kplane_core.errors import KplaneError, UsageError
from kplane_core.storage.transformers import Transformer, TransformError, TransformUnavailable

AES_KEY_SIZES = (16, 24, 32)
SECRETBOX_KEY_SIZES = (32,)

_AES_BLOCK = 16
_GCM_NONCE = 12
_GCM_TAG = 16
_SECRETBOX_NONCE = 24
_SECRETBOX_TAG = 16


# --- a chain of transformers, told apart by prefixes -----------------------------------------------------


class PrefixChain:
    """Transformers that mark what they wrote with a prefix: the first one writes, all of them read.

    Data that another entry than the first could read is stale: the next update writes it anew.

    Args:
        entries: prefix and transformer of each, in order. A prefix may occur twice (during key rotation), and an empty
            one matches everything.
        missing: what to say of data that no prefix matches.
    """

    __slots__ = ("_entries", "_missing", "_write_prefix", "_writer")

    def __init__(
        self, entries: Sequence[tuple[bytes, Transformer]], *, missing: str = "no matching prefix found"
    ) -> None:
        if not entries:
            raise ValueError("a prefix chain needs at least one entry, because its first one writes")
        self._entries = tuple(entries)
        self._write_prefix, self._writer = self._entries[0]
        self._missing = missing

    def __repr__(self) -> str:
        return f"PrefixChain({[prefix.decode(errors='replace') for prefix, _ in self._entries]})"

    def from_storage(self, data: bytes, key: str) -> tuple[bytes, bool]:
        """Return the plaintext as the first entry that can read it does, stale unless that is the first of all.

        Raises:
            TransformError: no prefix matches, or no matching entry can read the data.
            TransformUnavailable: none could, and at least one of them could not look at it.
        """
        failures: list[TransformError | TransformUnavailable] = []
        for index, (prefix, transformer) in enumerate(self._entries):
            if not data.startswith(prefix):
                continue
            try:
                plaintext, stale = transformer.from_storage(data[len(prefix) :], key)
            except (TransformError, TransformUnavailable) as error:
                # An entry without prefix is asked about data that may well be another one's.
                if prefix or isinstance(error, TransformUnavailable):
                    failures.append(error)
                continue
            return plaintext, stale or index != 0
        raise self._refusal(failures) from (failures[0] if failures else None)

    def _refusal(self, failures: list[TransformError | TransformUnavailable]) -> KplaneError:
        if not failures:
            return TransformError(self._missing)
        text = str(failures[0]) if len(failures) == 1 else "[" + ", ".join(map(str, failures)) + "]"
        if any(isinstance(failure, TransformUnavailable) for failure in failures):
            return TransformUnavailable(text)
        return TransformError(text)

    def to_storage(self, data: bytes, key: str) -> bytes:
        """Return what the first entry writes, behind its prefix.

        Raises:
            TransformUnavailable: it cannot work now.
        """
        return self._write_prefix + self._writer.to_storage(data, key)


# --- ciphers ---------------------------------------------------------------------------------------------


class AesCbc:
    """AES-CBC with PKCS#7 padding: a random IV of 16 bytes, then the ciphertext.

    It does not authenticate: whoever can write to the database can alter values, and move them to other keys.

    Args:
        secret: 16, 24 or 32 bytes.
    """

    __slots__ = ("_cipher",)

    def __init__(self, secret: bytes) -> None:
        _check_size("aescbc", secret, AES_KEY_SIZES)
        ciphers = _library("cryptography.hazmat.primitives.ciphers", "aescbc")
        aes = ciphers.algorithms.AES(secret)
        self._cipher: Callable[[bytes], Any] = lambda iv: ciphers.Cipher(aes, ciphers.modes.CBC(iv))

    def from_storage(self, data: bytes, key: str) -> tuple[bytes, bool]:  # noqa: ARG002 - the protocol's shape
        """Return the plaintext, never stale.

        Raises:
            TransformError: the length or the padding is not what this cipher writes.
        """
        if len(data) < 2 * _AES_BLOCK or len(data) % _AES_BLOCK:
            raise TransformError(f"aescbc: stored data of {len(data)} bytes is not an IV and whole blocks")
        decryptor = self._cipher(data[:_AES_BLOCK]).decryptor()
        padded: bytes = decryptor.update(data[_AES_BLOCK:]) + decryptor.finalize()
        padding = padded[-1]
        if not 0 < padding <= _AES_BLOCK or padded[-padding:] != bytes([padding]) * padding:
            raise TransformError("aescbc: invalid padding: the data was altered, or written with another key")
        return padded[:-padding], False

    def to_storage(self, data: bytes, key: str) -> bytes:  # noqa: ARG002 - the protocol's shape
        """Return the IV and the ciphertext."""
        iv = os.urandom(_AES_BLOCK)
        padding = _AES_BLOCK - len(data) % _AES_BLOCK
        encryptor = self._cipher(iv).encryptor()
        sealed: bytes = iv + encryptor.update(data + bytes([padding]) * padding) + encryptor.finalize()
        return sealed


class AesGcm:
    """AES-GCM bound to the storage key: a random nonce of 12 bytes, the ciphertext, a tag of 16 bytes.

    Altered values, and values moved to another storage key, cannot be read. The nonce is random, so a secret should be
    replaced before it has written some 200,000 values: the danger is a nonce that comes twice.

    Args:
        secret: 16, 24 or 32 bytes.
    """

    __slots__ = ("_cipher", "_invalid")

    def __init__(self, secret: bytes) -> None:
        _check_size("aesgcm", secret, AES_KEY_SIZES)
        self._cipher = _library("cryptography.hazmat.primitives.ciphers.aead", "aesgcm").AESGCM(secret)
        self._invalid: type[Exception] = _library("cryptography.exceptions", "aesgcm").InvalidTag

    def from_storage(self, data: bytes, key: str) -> tuple[bytes, bool]:
        """Return the plaintext, never stale.

        Raises:
            TransformError: it was not written with this secret to this storage key.
        """
        if len(data) < _GCM_NONCE + _GCM_TAG:
            raise TransformError(f"aesgcm: stored data of {len(data)} bytes is shorter than a nonce and a tag")
        try:
            return self._cipher.decrypt(data[:_GCM_NONCE], data[_GCM_NONCE:], key.encode()), False
        except self._invalid:
            pass
        raise TransformError("aesgcm: authentication failed: the data was altered, moved, or written with another key")

    def to_storage(self, data: bytes, key: str) -> bytes:
        """Return nonce, ciphertext and tag; the storage key is authenticated with them."""
        nonce = os.urandom(_GCM_NONCE)
        sealed: bytes = self._cipher.encrypt(nonce, data, key.encode())
        return nonce + sealed


class Secretbox:
    """XSalsa20 and Poly1305: a random nonce of 24 bytes, then the box.

    Altered values cannot be read; a value moved to another storage key can.

    Args:
        secret: 32 bytes.
    """

    __slots__ = ("_box", "_invalid")

    def __init__(self, secret: bytes) -> None:
        _check_size("secretbox", secret, SECRETBOX_KEY_SIZES)
        self._box = _library("nacl.secret", "secretbox").SecretBox(secret)
        self._invalid: type[Exception] = _library("nacl.exceptions", "secretbox").CryptoError

    def from_storage(self, data: bytes, key: str) -> tuple[bytes, bool]:  # noqa: ARG002 - the protocol's shape
        """Return the plaintext, never stale.

        Raises:
            TransformError: it was altered, or written with another secret.
        """
        if len(data) < _SECRETBOX_NONCE + _SECRETBOX_TAG:
            raise TransformError(f"secretbox: stored data of {len(data)} bytes is shorter than a nonce and a tag")
        try:
            return self._box.decrypt(data), False
        except self._invalid:
            pass
        raise TransformError("secretbox: authentication failed: the data was altered, or written with another key")

    def to_storage(self, data: bytes, key: str) -> bytes:  # noqa: ARG002 - the protocol's shape
        """Return nonce and box."""
        return bytes(self._box.encrypt(data))


# --- providers of a configuration ------------------------------------------------------------------------


class Cipher(Protocol):
    """Builds a transformer from a secret."""

    def __call__(self, secret: bytes) -> Transformer:
        """Return the transformer; raises UsageError for a secret of the wrong size or a missing library."""
        ...


@attrs.frozen
class EncryptionKey:
    """A named secret; neither `repr` nor `str` shows it.

    Attributes:
        name: stands in the prefix of every value that it wrote.
        secret: the raw bytes.
    """

    name: str
    secret: bytes = attrs.field(repr=False)


@attrs.frozen
class CipherKind:
    """A provider that encrypts with keys.

    Attributes:
        cipher: builds one transformer per key.
        key_sizes: bytes that a secret may have.
    """

    cipher: Cipher
    key_sizes: tuple[int, ...]


CIPHERS: Mapping[str, CipherKind] = {
    "aescbc": CipherKind(AesCbc, AES_KEY_SIZES),
    "aesgcm": CipherKind(AesGcm, AES_KEY_SIZES),
    "secretbox": CipherKind(Secretbox, SECRETBOX_KEY_SIZES),
}


def keyed_entry(provider: str, keys: Sequence[EncryptionKey]) -> tuple[bytes, PrefixChain]:
    """Return the outer prefix of a provider and the chain of its keys; the first key writes.

    Args:
        provider: a name in CIPHERS.
        keys: at least one.

    Raises:
        UsageError: a secret has the wrong size, or the library is missing.
    """
    build = CIPHERS[provider].cipher
    chain = [(f"{key.name}:".encode(), build(key.secret)) for key in keys]
    return f"k8s:enc:{provider}:v1:".encode(), PrefixChain(chain, missing=f"no matching {provider} key found")


def _check_size(provider: str, secret: bytes, sizes: tuple[int, ...]) -> None:
    if len(secret) not in sizes:
        wanted = ", ".join(map(str, sizes))
        raise UsageError(f"{provider}: a secret has {wanted} bytes, not {len(secret)}")


def _library(module: str, provider: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        name = {"cryptography": "cryptography", "nacl": "PyNaCl"}[module.partition(".")[0]]
        raise UsageError(
            f"encryption provider {provider!r} needs {name}, which is not installed: "
            "pip install 'kplane-core[encryption]'"
        ) from error
