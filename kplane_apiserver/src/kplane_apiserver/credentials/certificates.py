"""Certificates for development: an authority of one's own, and a server's certificate from it, kept in a folder.

Made with the optional package `cryptography`: who uses this asks `require_cryptography` first.
"""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import attrs

from kplane_apiserver.credentials.private_files import locked, write_private
from kplane_apiserver.credentials.tls import Tls, issued_by, load_tls, names_of, same_key
from kplane_core.errors import UsageError

with contextlib.suppress(ModuleNotFoundError):
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

CERT_DIR_FLAG = "--cert-dir"
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")

_AUTHORITY, _SERVER = "ca", "server"
_AUTHORITY_LIFE = timedelta(days=3650)
_SERVER_LIFE = timedelta(days=365)
_NEAR = timedelta(days=30)
_SKEW = timedelta(hours=1)  # a client's clock may be behind


@attrs.frozen
class _Pair:
    certificate: x509.Certificate
    key: EllipticCurvePrivateKey = attrs.field(repr=False)

    def lasts(self, now: datetime) -> bool:
        """Whether it is valid, and for a while yet."""
        return self.certificate.not_valid_before_utc <= now < self.certificate.not_valid_after_utc - _NEAR


def development_tls(folder: Path, names: Sequence[str], now: datetime) -> Tls:
    """Return TLS with a certificate from the folder's own authority; what is missing or about to expire is made anew.

    Args:
        folder: where they are kept; made if absent, for its owner only.
        names: the host names and addresses that clients may use, besides those of loopback.
        now: the time.

    Raises:
        UsageError: the folder cannot be used, or holds something else.
    """
    wanted = tuple(dict.fromkeys((*LOOPBACK_NAMES, *names)))
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        with locked(folder):
            authority = _kept(folder, _AUTHORITY)
            if authority is None or not authority.lasts(now):
                authority = _make_authority(now)
                _keep(folder, _AUTHORITY, authority)
            server = _kept(folder, _SERVER)
            if server is None or not _serves(server, authority, wanted, now):
                server = _make_server(authority, wanted, now)
                _keep(folder, _SERVER, server, authority)
    except OSError as error:
        raise UsageError(f"{CERT_DIR_FLAG} {folder}: {error.strerror or error}") from error
    return load_tls(folder / f"{_SERVER}.crt", folder / f"{_SERVER}.key", now)


def _serves(server: _Pair, authority: _Pair, wanted: Sequence[str], now: datetime) -> bool:
    certificate = server.certificate
    return (
        server.lasts(now)
        and issued_by(certificate, authority.certificate)
        and set(wanted) <= set(names_of(certificate))
    )


def _kept(folder: Path, name: str) -> _Pair | None:
    """Return what the folder holds under a name; None when it has none."""
    paths = folder / f"{name}.crt", folder / f"{name}.key"
    if not all(path.exists() for path in paths):
        return None
    foreign = UsageError(f"{CERT_DIR_FLAG} {folder}: {name}.crt and {name}.key are not kplane's; move them away")
    try:
        certificate = x509.load_pem_x509_certificates(paths[0].read_bytes())[0]
        key = load_pem_private_key(paths[1].read_bytes(), password=None)
    except (ValueError, TypeError):
        raise foreign from None
    if not isinstance(key, EllipticCurvePrivateKey):
        raise foreign
    if not same_key(key.public_key(), certificate.public_key()):
        raise UsageError(f"{CERT_DIR_FLAG} {folder}: {name}.key is not the key of {name}.crt; move both away")
    return _Pair(certificate, key)


def _keep(folder: Path, name: str, pair: _Pair, issuer: _Pair | None = None) -> None:
    certificates = [pair.certificate, *([issuer.certificate] if issuer is not None else [])]
    write_private(folder / f"{name}.key", pair.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    write_private(folder / f"{name}.crt", b"".join(one.public_bytes(Encoding.PEM) for one in certificates))


def _make_authority(now: datetime) -> _Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, "kplane development authority")])
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    builder = (
        _builder(name, name, key, now, _AUTHORITY_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(identifier, critical=False)
    )
    return _signed(builder, key, key)


def _make_server(authority: _Pair, names: Sequence[str], now: datetime) -> _Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, "kplane")])
    life = min(_SERVER_LIFE, authority.certificate.not_valid_after_utc - now)
    issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    builder = (
        _builder(name, authority.certificate.subject, key, now, life)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_general_name(one) for one in names]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(issuer_key, critical=False)
    )
    return _signed(builder, key, authority.key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: EllipticCurvePrivateKey, now: datetime, life: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + life)
    )


def _signed(builder: x509.CertificateBuilder, key: EllipticCurvePrivateKey, issuer: EllipticCurvePrivateKey) -> _Pair:
    return _Pair(builder.sign(issuer, SHA256()), key)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
