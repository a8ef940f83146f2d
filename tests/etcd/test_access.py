"""Who we are and whom we trust: TLS both ways, names in certificates, users, tokens that expire."""

import asyncio
import datetime as dt
import ipaddress
from pathlib import Path

import attrs
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kplane_core.engine.interface import Written
from kplane_core.errors import Unreachable, UsageError
from kplane_etcd.plugin import EtcdOptions, connect
from kplane_etcd.servers import EtcdServer

PEM = serialization.Encoding.PEM


@attrs.frozen
class Pair:
    """A certificate and its key, as files."""

    cert: Path
    key: Path


class Authority:
    """Makes certificates that it vouches for."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._builder(self._name, self._key).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(certificate.sign(self._key, hashes.SHA256()).public_bytes(PEM))

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(hours=1))
            .not_valid_after(now + dt.timedelta(hours=1))
        )

    def pair(self, name: str, *alternatives: str) -> Pair:
        """Make a certificate for a name, with alternative names or addresses."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), key)
        names = [
            x509.IPAddress(ipaddress.ip_address(one)) if one[0].isdigit() else x509.DNSName(one) for one in alternatives
        ]
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        certificate = builder.add_extension(usage, critical=False).sign(self._key, hashes.SHA256())
        pair = Pair(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        pair.cert.write_bytes(certificate.public_bytes(PEM))
        pair.key.write_bytes(
            key.private_bytes(PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption())
        )
        return pair


@pytest.fixture(scope="module")
def authority(tmp_path_factory) -> Authority:
    return Authority(tmp_path_factory.mktemp("pki"), "authority")


@pytest.fixture(scope="module")
def secure(binary, authority):
    """An etcd that shows a certificate for 127.0.0.1 and asks for one."""
    server = _secure(binary, authority, authority.pair("server", "127.0.0.1", "etcd.example"))
    yield server
    server.remove()


@pytest.fixture(scope="module")
def misnamed(binary, authority):
    """An etcd whose certificate does not name the address it listens at."""
    server = _secure(binary, authority, authority.pair("misnamed", "etcd.example"))
    yield server
    server.remove()


def _secure(binary, authority: Authority, pair: Pair) -> EtcdServer:
    tls = [
        f"--cert-file={pair.cert}", f"--key-file={pair.key}", f"--trusted-ca-file={authority.file}",
        "--client-cert-auth",
    ]  # fmt: skip
    server = EtcdServer(binary, tls=tls)
    asyncio.run(server.start())
    return server


def options(server: EtcdServer, **more) -> EtcdOptions:
    """Return options for a server, with short times."""
    return EtcdOptions(**{"servers": (server.url,), "dial_timeout": 3.0, "compaction_interval": 0.0, **more})


async def works(given: EtcdOptions) -> None:
    """Connect, write, read, watch."""
    connection = await connect(given)
    try:
        engine = connection.engine
        watch = await engine.watch("/access/", "/access0", after=await engine.revision())
        record = (await engine.read("/access/a")).record
        written = await engine.write("/access/a", b"1", expect=record.mod_revision if record else 0)
        assert isinstance(written, Written)
        assert [event.revision for event in await watch.batch()] == [written.revision]
        await watch.aclose()
        await connection.check_ready()
    finally:
        await connection.aclose()


def refused(given: EtcdOptions) -> str:
    """Return why connecting is refused."""

    async def scenario() -> str:
        with pytest.raises(Unreachable) as caught:
            await connect(given)
        return str(caught.value)

    return asyncio.run(scenario())


def test_both_sides_show_certificates(secure, authority) -> None:
    client = authority.pair("client")
    asyncio.run(works(options(secure, cafile=authority.file, certfile=client.cert, keyfile=client.key)))


def test_without_a_client_certificate_nobody_gets_in(secure, authority) -> None:
    assert secure.url in refused(options(secure, cafile=authority.file, dial_timeout=0.6))


def test_a_server_that_a_stranger_vouches_for_is_not_trusted(secure, authority, tmp_path) -> None:
    client, stranger = authority.pair("client"), Authority(tmp_path, "stranger")
    why = refused(options(secure, cafile=stranger.file, certfile=client.cert, keyfile=client.key, dial_timeout=0.6))
    assert "certificate" in why.lower()


def test_a_certificate_without_the_servers_name_is_refused_unless_the_name_is_given(misnamed, authority) -> None:
    """R45: the error speaks of the name, the option cures it, and nothing is let through in silence."""
    client = authority.pair("client")
    files = {"cafile": authority.file, "certfile": client.cert, "keyfile": client.key}
    why = refused(options(misnamed, **files, dial_timeout=0.6))
    assert "127.0.0.1" in why
    assert "name" in why.lower()
    asyncio.run(works(options(misnamed, **files, server_name="etcd.example")))


def test_a_file_that_is_no_certificate_is_named(secure) -> None:
    async def scenario() -> None:
        with pytest.raises(UsageError, match="no PEM file"):
            await connect(options(secure, cafile=Path(__file__).with_name("conftest.py")))

    asyncio.run(scenario())


@pytest.fixture(scope="module")
def guarded(binary):
    """An etcd with users, whose tokens live for a second."""
    server = EtcdServer(binary, flags=["--auth-token-ttl=1"])
    asyncio.run(server.start())
    server.control("user", "add", "root:)<@/%")
    server.control("user", "add", "reader:pass")
    server.control("role", "add", "root")
    server.control("role", "add", "reader")
    server.control("role", "grant-permission", "reader", "read", "--prefix=true", "/registry")
    server.control("user", "grant-role", "root", "root")
    server.control("user", "grant-role", "reader", "reader")
    server.control("auth", "enable")
    yield server
    server.remove()


@pytest.fixture
def password(tmp_path):
    """A function that writes a password file."""

    def written(text: str) -> Path:
        file = tmp_path / "password"
        file.write_text(text)
        return file

    return written


def test_a_user_gets_in_with_his_password_and_stays_in_when_tokens_expire(guarded, password) -> None:
    async def scenario() -> None:
        connection = await connect(options(guarded, username="root", password_file=password(")<@/%\n")))
        try:
            engine = connection.engine
            watch = await engine.watch("/access/", "/access0", after=await engine.revision())
            first = await engine.write("/access/b", b"1", expect=0)
            await asyncio.sleep(2.2)
            second = await engine.write("/access/b", b"2", expect=first.revision)
            assert isinstance(second, Written)
            seen: list[int] = []
            while len(seen) < 2:
                seen += [event.revision for event in await watch.batch()]
            assert seen == [first.revision, second.revision]
            again = await engine.watch("/access/", "/access0", after=first.revision)
            assert [event.revision for event in await again.batch()] == [second.revision]
        finally:
            await connection.aclose()

    asyncio.run(scenario())


def test_without_a_user_the_flags_are_named(guarded) -> None:
    assert "--etcd-username" in refused(options(guarded))


def test_a_wrong_password_is_refused_and_not_shown(guarded, password) -> None:
    why = refused(options(guarded, username="root", password_file=password("hunter2")))
    assert "no user with this name and password" in why
    assert "hunter2" not in why


def test_what_a_user_may_not_do_is_refused(guarded, password) -> None:
    async def scenario() -> None:
        connection = await connect(options(guarded, username="reader", password_file=password("pass")))
        try:
            assert (await connection.engine.read("/registry/none")).record is None
            with pytest.raises(Exception, match="permission denied"):
                await connection.engine.write("/registry/none", b"1", expect=0)
            with pytest.raises(Exception, match="permission denied"):
                await connection.engine.watch("/elsewhere/", "/elsewhere0", after=1)
        finally:
            await connection.aclose()

    asyncio.run(scenario())
