"""What protects `kplane serve`: which flags go together, how a mistake is answered, and what comes of good ones."""

import socket
from contextlib import closing
from pathlib import Path

import pytest

from kplane_apiserver.commands import security
from kplane_apiserver.commands.options import ServeOptions
from kplane_apiserver.identity import CROSS_CLUSTER_READERS, MASTERS
from kplane_apiserver.settings import wall_clock
from kplane_apiserver.wire.listening import listen
from kplane_core.errors import ApiError, UsageError

FILE = Path("tokens.csv")


@pytest.fixture
def tokens(tmp_path):
    path = tmp_path / "tokens.csv"
    path.write_text("hush,alice,1\nhush1,bob,2,dev,c1\n", encoding="utf-8")
    path.chmod(0o600)
    return path


@pytest.fixture
def secure(tmp_path):
    """Make what protects a server with some options that listens on a free port."""

    def make(**options):
        given = ServeOptions(**{"cert_dir": tmp_path / "certs", **options})
        security.check(given)
        with closing(listen("127.0.0.1", 0)) as listener:
            return security.secure(given, listener, wall_clock)

    return make


# --- what goes together -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"tls_cert_file": FILE}, r"--tls-cert-file: needs --tls-private-key-file FILE too"),
        ({"tls_private_key_file": FILE}, r"--tls-private-key-file: needs --tls-cert-file FILE too"),
        (
            {"tls_cert_file": FILE, "tls_private_key_file": FILE, "tls": "off"},
            r"--tls=off: contradicts --tls-cert-file",
        ),
        ({"tls_cert_file": FILE, "tls_private_key_file": FILE, "tls_san": ("a",)}, "--tls-san: names go into"),
        ({"tls_san": ("a",)}, "--tls-san: names go into the certificate that is made with --token-auth-file"),
        ({"token_auth_file": FILE, "tls": "off", "tls_san": ("a",)}, "--tls-san"),
        ({"authorization_mode": "RBAC"}, r"--authorization-mode RBAC: roles need users: give --token-auth-file FILE"),
        ({"authorization_mode": "RBAC", "admin_token_file": FILE}, "roles need users"),
        ({"allow_cross_cluster_reads": True}, "--allow-cross-cluster-reads: needs --admin-token-file FILE"),
    ],
)
def test_what_does_not_go_together_is_refused_in_a_line_that_says_what_to_do(options, complaint):
    with pytest.raises(UsageError, match=complaint) as caught:
        security.check(ServeOptions(**options))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"token_auth_file": FILE},
        {"token_auth_file": FILE, "tls": "off"},
        {"token_auth_file": FILE, "authorization_mode": "RBAC", "tls_san": ("a",)},
        {"anonymous_auth": True, "authorization_mode": "RBAC"},
        {"tls_cert_file": FILE, "tls_private_key_file": FILE},
        {"allow_cross_cluster_reads": True, "admin_token_file": FILE},
        {"allow_cross_cluster_reads": True, "token_auth_file": FILE},
    ],
)
def test_what_goes_together_is_let_pass(options):
    security.check(ServeOptions(**options))


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({}, "whoever reaches it may do everything"),
        ({"admin_token_file": FILE}, "whoever reaches it may do everything"),
        ({"tls_cert_file": FILE, "tls_private_key_file": FILE}, "whoever reaches it may do everything"),
        ({"token_auth_file": FILE, "tls": "off"}, "tokens would cross the network in the clear"),
        ({"token_auth_file": FILE, "anonymous_auth": True}, "with --anonymous-auth whoever reaches it"),
        ({"token_auth_file": FILE}, ""),
        ({"token_auth_file": FILE, "authorization_mode": "RBAC"}, ""),
        ({"token_auth_file": FILE, "anonymous_auth": True, "authorization_mode": "RBAC"}, ""),
        ({"anonymous_auth": True, "authorization_mode": "RBAC"}, ""),
        ({"insecure_allow_remote": True}, ""),
        ({"insecure_allow_remote": True, "token_auth_file": FILE, "tls": "off"}, ""),
    ],
)
def test_others_reach_only_a_server_that_knows_its_users_and_speaks_tls(options, wrong):
    found = security.exposed(ServeOptions(**options))
    assert (found == "") is (wrong == "")
    assert wrong in found
    assert not found or "--insecure-allow-remote" in found
    address = "0.0.0.0"
    if found:
        with pytest.raises(UsageError, match=r"--bind-address 0\.0\.0\.0: other machines could reach it, and "):
            listen(address, 0, exposed=found)
    else:
        with closing(listen(address, 0, exposed=found)) as listener:
            assert isinstance(listener, socket.socket)


# --- what comes of it -------------------------------------------------------------------------------------------------


def test_without_authentication_there_is_neither_token_nor_tls(secure, tmp_path):
    found = secure()
    assert found.authenticator is None
    assert found.tls is None
    assert found.url.startswith("http://127.0.0.1:")
    assert found.credentials.token == ""
    assert not (tmp_path / "certs").exists()


def test_users_come_with_tls_and_an_administrator_of_this_start(secure, tokens):
    found, again = secure(token_auth_file=tokens), secure(token_auth_file=tokens)
    assert found.url.startswith("https://127.0.0.1:")
    assert found.credentials.trust["certificate-authority-data"]
    token = found.credentials.token.encode()
    admin = found.authenticator.user_of(token, "c1")
    assert (admin.name, admin.groups) == ("kplane-admin", (MASTERS, "system:authenticated"))
    assert again.authenticator.user_of(token, "c1") is None
    assert found.authenticator.user_of(b"hush", "c2").name == "alice"
    assert found.authenticator.user_of(b"hush1", "c2") is None
    assert "hush" not in repr(found)
    assert found.credentials.token not in repr(found)


def test_plain_http_with_tokens_can_be_asked_for(secure, tokens, tmp_path):
    found = secure(token_auth_file=tokens, tls="off")
    assert found.tls is None
    assert found.url.startswith("http://")
    assert found.credentials.token
    assert not (tmp_path / "certs").exists()


def test_an_administrator_of_the_other_file_is_a_user_who_may_read_across_clusters(secure, tokens, tmp_path):
    admins = tmp_path / "admins.csv"
    admins.write_text('hush,alice,1,"dev"\n', encoding="utf-8")
    admins.chmod(0o600)
    found = secure(token_auth_file=tokens, admin_token_file=admins, allow_cross_cluster_reads=True)
    assert found.authenticator.user_of(b"hush", "*").groups == ("dev", CROSS_CLUSTER_READERS, "system:authenticated")
    assert found.readers is not None
    assert secure(token_auth_file=tokens, admin_token_file=admins).readers is None


def test_a_given_certificate_is_served_and_named(secure, tokens, tmp_path):
    made = tmp_path / "certs"
    secure(token_auth_file=tokens, tls_san=("kplane.example",))
    found = secure(tls_cert_file=made / "server.crt", tls_private_key_file=made / "server.key")
    assert found.url.startswith("https://")
    assert found.authenticator is None
    assert set(found.credentials.trust) == {"certificate-authority-data"}
    assert "kplane.example" in found.tls.names


def test_without_the_library_for_certificates_it_says_what_to_install(secure, tokens, monkeypatch):
    monkeypatch.setattr("kplane_apiserver.credentials.tls.AVAILABLE", False)
    with pytest.raises(UsageError, match=r"pip install 'kplane-apiserver\[tls\]'; or speak plain HTTP .* --tls=off"):
        secure(token_auth_file=tokens)


@pytest.mark.parametrize("options", [{}, {"insecure_allow_remote": True}])
def test_host_names_are_checked_where_only_this_machine_can_be_meant(secure, options):
    browsers = secure(**options).browsers
    browsers.check(b"localhost:8080", b"", b"")
    if options:
        browsers.check(b"kplane.example", b"", b"")
    else:
        with pytest.raises(ApiError):
            browsers.check(b"kplane.example", b"", b"")
    with pytest.raises(ApiError):
        browsers.check(b"localhost:8080", b"http://evil.example", b"")


@pytest.mark.parametrize(
    "name", ["kplane.example", "a", "*.kplane.example", "10.0.0.1", "::1", "xn--bcher-kva.example"]
)
def test_a_name_for_the_certificate_can_be_one(name):
    parser = {field.name: field for field in ServeOptions.__attrs_attrs__}["tls_san"].metadata["kplane_option"].parser
    assert parser(name.upper()) == (name,)


@pytest.mark.parametrize("name", ["a b", "-a", "a..b", "a/b", "http://a", "*", "a.*.b", "ä", "x" * 64, "1.2.3.4.5:6"])
def test_a_name_for_the_certificate_that_is_none_is_refused(name):
    parser = {field.name: field for field in ServeOptions.__attrs_attrs__}["tls_san"].metadata["kplane_option"].parser
    with pytest.raises(ValueError, match="neither a host name nor an address"):
        parser(name)
