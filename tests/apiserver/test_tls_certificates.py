"""Certificates: what of given ones is refused and in which words, and those that the server makes for development."""

import stat
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from kplane_apiserver.credentials import certificates
from kplane_apiserver.credentials.certificates import development_tls
from kplane_apiserver.credentials.tls import load_tls
from kplane_core.errors import UsageError

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture
def made(tmp_path):
    """A folder with an authority and a server's certificate, made at NOW."""
    folder = tmp_path / "certs"
    development_tls(folder, ["kplane.example"], NOW)
    return folder


def load(folder, now=NOW, certificate="server.crt", key="server.key"):
    return load_tls(folder / certificate, folder / key, now)


def serials(folder):
    return {
        name: x509.load_pem_x509_certificate((folder / f"{name}.crt").read_bytes()).serial_number
        for name in ("ca", "server")
    }


# --- for development --------------------------------------------------------------------------------------------------


def test_it_is_for_loopback_and_the_names_that_were_asked_for(made):
    tls = load(made)
    assert tls.names == ("localhost", "kplane.example", "127.0.0.1", "::1")
    assert tls.authority == (made / "ca.crt").read_text()
    assert tls.server_name("127.0.0.1") == ""
    assert tls.server_name("10.0.0.1") == "localhost"


def test_only_its_owner_can_reach_what_is_kept(made):
    assert stat.S_IMODE(made.stat().st_mode) == 0o700
    assert sorted(file.name for file in made.iterdir()) == ["ca.crt", "ca.key", "server.crt", "server.key"]
    assert {stat.S_IMODE(file.stat().st_mode) for file in made.iterdir()} == {0o600}


def test_it_is_kept_until_it_is_about_to_expire(made):
    before = serials(made)
    development_tls(made, [], NOW + 300 * DAY)
    assert serials(made) == before, "fewer names than before are no reason for a new one"
    development_tls(made, [], NOW + 340 * DAY)
    after = serials(made)
    assert after["ca"] == before["ca"], "clients that trust it go on"
    assert after["server"] != before["server"]
    development_tls(made, [], NOW + 3640 * DAY)
    assert serials(made)["ca"] != before["ca"]


def test_a_name_more_makes_a_new_one_of_the_same_authority(made):
    before = serials(made)
    assert "10.0.0.1" in development_tls(made, ["10.0.0.1"], NOW).names
    after = serials(made)
    assert after["ca"] == before["ca"]
    assert after["server"] != before["server"]


def test_a_new_authority_makes_a_new_certificate(made):
    (made / "ca.crt").unlink()
    tls = development_tls(made, [], NOW)
    assert tls.authority == (made / "ca.crt").read_text()


@pytest.mark.parametrize("damaged", ["ca.crt", "ca.key", "server.crt", "server.key"])
def test_what_is_not_its_own_is_left_alone(made, damaged):
    (made / damaged).write_text("hush")
    with pytest.raises(UsageError, match=r"--cert-dir .*are not kplane's; move them away") as caught:
        development_tls(made, [], NOW)
    assert "hush" not in str(caught.value)
    assert (made / damaged).read_text() == "hush"


def test_a_key_of_another_certificate_is_named(made):
    (made / "ca.key").write_bytes((made / "server.key").read_bytes())
    with pytest.raises(UsageError, match=r"ca\.key is not the key of ca\.crt"):
        development_tls(made, [], NOW)


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"--cert-dir .*/no/such: No such file"):
        development_tls(tmp_path / "no" / "such", [], NOW)
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"--cert-dir .*/file: File exists"):
        development_tls(tmp_path / "file", [], NOW)


# --- given ------------------------------------------------------------------------------------------------------------


def test_a_file_that_is_missing_or_empty_is_named(made):
    (made / "empty").touch()
    with pytest.raises(UsageError, match=r"--tls-cert-file .*/none: No such file"):
        load(made, certificate="none")
    with pytest.raises(UsageError, match=r"--tls-private-key-file .*/none: No such file"):
        load(made, key="none")
    with pytest.raises(UsageError, match=r"--tls-cert-file .*/empty: has no certificate in PEM"):
        load(made, certificate="empty")
    with pytest.raises(UsageError, match=r"--tls-private-key-file .*/empty: has no private key in PEM"):
        load(made, key="empty")
    with pytest.raises(UsageError, match="has no certificate in PEM"):
        load(made, certificate="server.key")
    with pytest.raises(UsageError, match="has no private key in PEM"):
        load(made, key="server.crt")


def test_an_encrypted_key_is_refused(made):
    key = load_pem_private_key((made / "server.key").read_bytes(), None)
    locked = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"hush"))
    (made / "locked.key").write_bytes(locked)
    with pytest.raises(UsageError, match=r"--tls-private-key-file .*: is encrypted; give the key without a passphrase"):
        load(made, key="locked.key")


def test_a_key_of_another_pair_is_refused(made):
    with pytest.raises(UsageError, match=r"is not the key of the first certificate in .*server\.crt"):
        load(made, key="ca.key")


def test_a_certificate_is_valid_now(made):
    load(made, NOW + 364 * DAY)
    with pytest.raises(UsageError, match=r"certificate 1 expired at 2027-01-01 00:00 UTC"):
        load(made, NOW + 366 * DAY)
    with pytest.raises(UsageError, match=r"certificate 1 is not valid before 2025-12-31 23:00 UTC"):
        load(made, NOW - DAY)


def test_each_certificate_was_issued_by_the_next(made, tmp_path):
    development_tls(tmp_path / "other", [], NOW)
    leaf = x509.load_pem_x509_certificate((made / "server.crt").read_bytes()).public_bytes(Encoding.PEM)
    (made / "broken.crt").write_bytes(leaf + (tmp_path / "other" / "ca.crt").read_bytes())
    with pytest.raises(
        UsageError, match="certificate 2 did not issue certificate 1; put the server's certificate first"
    ):
        load(made, certificate="broken.crt")
    (made / "alone.crt").write_bytes(leaf)
    assert load(made, certificate="alone.crt").authority == "", "its authority is one that the clients' systems know"


def test_a_key_that_tls_holds_for_too_weak_is_refused_in_one_line(made, monkeypatch):
    weak = rsa.generate_private_key(65537, 1024)
    monkeypatch.setattr(certificates.ec, "generate_private_key", lambda _: weak)
    pair = certificates._make_server(certificates._make_authority(NOW), ["localhost"], NOW)
    (made / "weak.crt").write_bytes(pair.certificate.public_bytes(Encoding.PEM))
    (made / "weak.key").write_bytes(weak.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    with pytest.raises(UsageError, match=r"--tls-cert-file .*: EE_KEY_TOO_SMALL"):
        load(made, certificate="weak.crt", key="weak.key")
