"""TLS for the server: a certificate and its key, judged before anybody connects, and what clients must be told.

Everything about certificates comes from the optional package `cryptography`; `require_cryptography` asks for it.
"""

from __future__ import annotations

import itertools
import ssl
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import attrs

from kplane_core.errors import UsageError

try:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
    from cryptography.x509 import Certificate
except ModuleNotFoundError:
    AVAILABLE = False
else:
    AVAILABLE = True

CERTIFICATE_FLAG = "--tls-cert-file"
KEY_FLAG = "--tls-private-key-file"


@attrs.frozen
class Tls:
    """What the server listens with, and what its clients need.

    Attributes:
        context: for the server's end of connections.
        authority: the certificate that clients trust, in PEM; empty for one that their system knows.
        names: the host names and addresses that the certificate is for.
    """

    context: ssl.SSLContext
    authority: str
    names: tuple[str, ...]

    def server_name(self, host: str) -> str:
        """Return the name that a client must ask for when it connects to `host`; empty if that is the name itself."""
        if host in self.names:
            return ""
        return next((name for name in self.names if "*" not in name), "")


def require_cryptography() -> None:
    """Return if the package `cryptography` is installed.

    Raises:
        UsageError: it is not.
    """
    if not AVAILABLE:
        raise UsageError(
            "TLS needs the package cryptography: pip install 'kplane-apiserver[tls]'; "
            "or speak plain HTTP on this machine with --tls=off"
        )


def load_tls(certificate: Path, key: Path, now: datetime) -> Tls:
    """Return TLS with a certificate and its key, both in PEM.

    Args:
        certificate: the file with the server's certificate first, then those that lead to its authority.
        key: the file with its private key, unencrypted.
        now: the time.

    Raises:
        UsageError: a file cannot be used; the message says why in one line, and shows nothing of it.
    """
    chain = read_chain(certificate)
    _check_key(key, chain[0], certificate)
    _check_dates(chain, certificate, now)
    _check_chain(chain, certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(certificate, key)
    except ssl.SSLError as error:
        raise UsageError(f"{CERTIFICATE_FLAG} {certificate}: {error.reason or 'cannot be used'}") from None
    return Tls(context, _authority(chain), names_of(chain[0]))


def read_chain(path: Path) -> list[Certificate]:
    """Return the certificates of a file, at least one.

    Raises:
        UsageError: it cannot be read, or has none.
    """
    try:
        return x509.load_pem_x509_certificates(_read(path, CERTIFICATE_FLAG))
    except ValueError:
        raise UsageError(f"{CERTIFICATE_FLAG} {path}: has no certificate in PEM") from None


def names_of(certificate: Certificate) -> tuple[str, ...]:
    """Return the host names and addresses that a certificate is for."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return ()
    addresses = (str(address) for address in found.get_values_for_type(x509.IPAddress))
    return (*found.get_values_for_type(x509.DNSName), *addresses)


def same_key(one: PublicKeyTypes, other: PublicKeyTypes) -> bool:
    """Return whether two public keys are the same."""
    shape = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return one.public_bytes(*shape) == other.public_bytes(*shape)


def issued_by(certificate: Certificate, issuer: Certificate) -> bool:
    """Return whether a certificate bears the signature of the one named as its issuer."""
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _read(path: Path, flag: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{flag} {path}: {error.strerror or 'cannot be read'}") from error


def _check_key(path: Path, certificate: Certificate, certificate_path: Path) -> None:
    try:
        key = load_pem_private_key(_read(path, KEY_FLAG), password=None)
    except TypeError:
        raise UsageError(f"{KEY_FLAG} {path}: is encrypted; give the key without a passphrase, in mode 600") from None
    except (ValueError, UnsupportedAlgorithm):
        raise UsageError(f"{KEY_FLAG} {path}: has no private key in PEM that can be used") from None
    if not same_key(key.public_key(), certificate.public_key()):
        raise UsageError(f"{KEY_FLAG} {path}: is not the key of the first certificate in {certificate_path}")


def _check_dates(chain: Sequence[Certificate], path: Path, now: datetime) -> None:
    for number, certificate in enumerate(chain, start=1):
        which = f"{CERTIFICATE_FLAG} {path}: certificate {number}"
        if now > certificate.not_valid_after_utc:
            raise UsageError(f"{which} expired at {certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC")
        if now < certificate.not_valid_before_utc:
            raise UsageError(f"{which} is not valid before {certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC")


def _check_chain(chain: Sequence[Certificate], path: Path) -> None:
    for number, (certificate, issuer) in enumerate(itertools.pairwise(chain), start=1):
        if not issued_by(certificate, issuer):
            raise UsageError(
                f"{CERTIFICATE_FLAG} {path}: certificate {number + 1} did not issue certificate {number}; "
                "put the server's certificate first and each issuer behind what it issued"
            )


def _authority(chain: Sequence[Certificate]) -> str:
    """Return the certificate at the chain's end if it vouches for itself: then no client's system knows it."""
    last = chain[-1]
    return last.public_bytes(Encoding.PEM).decode() if issued_by(last, last) else ""
