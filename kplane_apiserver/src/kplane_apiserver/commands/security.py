"""What protects a server: from the options of `kplane serve` to its users, its certificate and its open doors.

What does not go together is refused before anything listens, in one line that says what to do.
"""

import secrets
import socket
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

import attrs

from kplane_apiserver.commands.options import ALWAYS_ALLOW, OFF, RBAC, ServeOptions
from kplane_apiserver.credentials.browsers import Browsers
from kplane_apiserver.credentials.kubeconfig import Credentials, trust_in
from kplane_apiserver.credentials.token_files import TokenFiles, TokenSource
from kplane_apiserver.credentials.tokens import AdminTokens, TokenLine, load_admin_tokens
from kplane_apiserver.identity import CROSS_CLUSTER_READERS, MASTERS
from kplane_apiserver.wire.listening import UNPROTECTED, base_url, host_of, is_loopback
from kplane_core.errors import UsageError

if TYPE_CHECKING:
    from kplane_apiserver.credentials.tls import Tls

ADMIN = "kplane-admin"
"""The user whose token stands in the kubeconfig that the server writes."""

_TOKEN_BYTES = 32
_NO_TOKEN = "unused"  # noqa: S105 - what a server reads that asks for none
_EVERY_ADDRESS = ("0.0.0.0", "::")  # noqa: S104 - compared with, not listened on
_ACCEPT = "or accept that with --insecure-allow-remote"


@attrs.frozen
class Security:
    """What protects a server.

    Attributes:
        url: where clients reach it.
        authenticator: knows the users; None lets everybody do everything.
        readers: who may read across clusters; None forbids it.
        browsers: refuses web pages that send no credential.
        tls: its certificate; None speaks plain HTTP.
        credentials: of the administrator, for the kubeconfig that the server writes.
    """

    url: str
    authenticator: TokenFiles | None
    readers: AdminTokens | None
    browsers: Browsers
    tls: "Tls | None"
    credentials: Credentials


def check(options: ServeOptions) -> None:
    """Return if the options go together.

    Raises:
        UsageError: they do not.
    """
    certificate, key = options.tls_cert_file, options.tls_private_key_file
    if (certificate is None) != (key is None):
        given, missing = "--tls-cert-file", "--tls-private-key-file"
        if certificate is None:
            given, missing = missing, given
        raise UsageError(f"{given}: needs {missing} FILE too: a certificate and its key go together")
    if certificate is not None and options.tls == OFF:
        raise UsageError("--tls=off: contradicts --tls-cert-file; leave out one of them")
    if options.tls_san and (certificate is not None or not options.speaks_tls):
        raise UsageError("--tls-san: names go into the certificate that is made with --token-auth-file and no other")
    if options.authorization_mode == RBAC and not options.authenticates:
        raise UsageError(
            "--authorization-mode RBAC: roles need users: give --token-auth-file FILE, "
            "which kplane token create makes, or --anonymous-auth"
        )
    if options.allow_cross_cluster_reads and options.admin_token_file is None and not options.authenticates:
        raise UsageError(
            "--allow-cross-cluster-reads: needs --admin-token-file FILE with the tokens of those who may, "
            "or --token-auth-file FILE"
        )


def exposed(options: ServeOptions) -> str:
    """Return what is wrong with listening where other machines could connect; empty for nothing."""
    if options.insecure_allow_remote:
        return ""
    if not options.authenticates:
        return UNPROTECTED
    if options.anonymous_auth and options.authorization_mode == ALWAYS_ALLOW:
        return (
            "with --anonymous-auth whoever reaches it may do everything: "
            f"add --authorization-mode=RBAC, listen on 127.0.0.1, {_ACCEPT}"
        )
    if not options.speaks_tls:
        return f"tokens would cross the network in the clear: leave out --tls=off, listen on 127.0.0.1, {_ACCEPT}"
    return ""


def secure(options: ServeOptions, listener: socket.socket, now: Callable[[], datetime]) -> Security:
    """Return what protects the server.

    Args:
        options: those that `check` let pass.
        listener: where it listens.
        now: the time.

    Raises:
        UsageError: a file cannot be used.
    """
    token = secrets.token_urlsafe(_TOKEN_BYTES) if options.authenticates else ""
    authenticator = _authenticator(options, token)
    tls = _tls(options, now()) if options.speaks_tls else None
    trust = {} if tls is None else trust_in(tls.authority, tls.server_name(host_of(listener)))
    return Security(
        url=base_url(listener, "http" if tls is None else "https"),
        authenticator=authenticator,
        readers=_readers(options),
        browsers=_browsers(options, listener),
        tls=tls,
        # Over TLS, kubectl asks its user for a name and a password when it has no credential at all.
        credentials=Credentials(token or ("" if tls is None else _NO_TOKEN), trust),
    )


def _authenticator(options: ServeOptions, admin_token: str) -> TokenFiles | None:
    if not options.authenticates:
        return None
    sources = []
    # Who stands in both files may do what both allow him.
    if options.admin_token_file is not None:
        sources.append(TokenSource(options.admin_token_file, "--admin-token-file", (CROSS_CLUSTER_READERS,)))
    if options.token_auth_file is not None:
        sources.append(TokenSource(options.token_auth_file, "--token-auth-file", may_be_empty=True))
    return TokenFiles(sources, [TokenLine(admin_token, ADMIN, groups=(MASTERS,))])


def _readers(options: ServeOptions) -> AdminTokens | None:
    tokens = AdminTokens()
    if options.admin_token_file is not None and not options.authenticates:
        tokens = load_admin_tokens(options.admin_token_file)
    return tokens if options.allow_cross_cluster_reads else None


def _browsers(options: ServeOptions, listener: socket.socket) -> Browsers:
    # Of an address that others reach the server cannot know all names.
    return Browsers([options.bind_address] if is_loopback(listener) and not options.insecure_allow_remote else None)


def _tls(options: ServeOptions, now: datetime) -> "Tls":
    # What they import takes longer than all the rest here, and few need it.
    from kplane_apiserver.credentials.certificates import development_tls  # noqa: PLC0415
    from kplane_apiserver.credentials.tls import load_tls, require_cryptography  # noqa: PLC0415

    require_cryptography()
    if options.tls_cert_file is not None and options.tls_private_key_file is not None:
        return load_tls(options.tls_cert_file, options.tls_private_key_file, now)
    names = [options.bind_address] if options.bind_address not in _EVERY_ADDRESS else []
    return development_tls(options.cert_dir, (*names, *options.tls_san), now)
