"""The little HTTP client of `kplane cluster`: one server, JSON both ways, failures in one line."""

import functools
import http
import json
import socket
import ssl
import urllib.error
import urllib.parse
import urllib.request
from base64 import b64decode
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import attrs
import yaml

from kplane_apiserver.credentials.kubeconfig import Credentials
from kplane_apiserver.wire.routes import CONTROL_PLANE, PREFIX_SEGMENT
from kplane_core.errors import UsageError

Document = dict[str, Any]

_TIMEOUT = 60.0
_LONGEST_WORDS = 200
_UNAUTHORIZED = (
    "Unauthorized: this needs a token that is good for the root cluster, as kplane serve writes one into its "
    "kubeconfig at each start; name that file with --kubeconfig FILE"
)


class Refused(UsageError):
    """The server answered with a failure.

    Attributes:
        code: the HTTP status.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@attrs.frozen(slots=False)  # for the property that is made once
class Client:
    """A server, and how to be let in.

    Attributes:
        url: its address, without the part that names a cluster.
        credentials: the token, and how its certificate is checked.
    """

    url: str
    credentials: Credentials = attrs.field(factory=Credentials)

    @classmethod
    def find(cls, server: str, kubeconfig: Path) -> Self:
        """Return the client of an address, or else of the server that a kubeconfig names.

        Raises:
            UsageError: neither names one.
        """
        if not server and not kubeconfig.exists():
            raise UsageError(f"no server: {kubeconfig} does not exist; name it with --server URL or --kubeconfig FILE")
        cluster, user = _entries(kubeconfig, _base(server)) if kubeconfig.exists() else ({}, {})
        named = cluster.get("server", "")
        url = _base(server or named)
        if not url.startswith(("http://", "https://")):
            raise UsageError(f"no server: {server or kubeconfig} names no http:// or https:// address")
        # What lets us in at one server is not shown to another.
        return cls(url, Credentials.of_entries(cluster, user) if url == _base(named) else Credentials())

    @functools.cached_property
    def _context(self) -> ssl.SSLContext | None:
        return _tls_context(self.credentials.trust)

    def get(self, path: str, **query: str) -> Document:
        """Return what a GET answers.

        Raises:
            Refused: the server answers with a failure.
            UsageError: it does not answer.
        """
        return self._ask("GET", path, None, query)

    def post(self, path: str, document: Document, **query: str) -> Document:
        """Return what a POST answers; raises as `get` does."""
        return self._ask("POST", path, document, query)

    def delete(self, path: str) -> Document:
        """Return what a DELETE answers; raises as `get` does."""
        return self._ask("DELETE", path, None, {})

    def _ask(self, method: str, path: str, document: Document | None, query: dict[str, str]) -> Document:
        url = self.url + urllib.parse.quote(path) + (f"?{urllib.parse.urlencode(query)}" if query else "")
        body = None if document is None else json.dumps(document).encode()
        headers = {"Accept": "application/json", "Content-Type": "application/json", "User-Agent": "kplane-cluster"}
        if self.credentials.token:
            headers["Authorization"] = f"Bearer {self.credentials.token}"
        request = urllib.request.Request(url, body, headers, method=method)  # noqa: S310 (`find` checked the scheme)
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT, context=self._context) as answer:  # noqa: S310
                document = json.loads(answer.read())
        except urllib.error.HTTPError as error:
            raise Refused(error.code, _words(error)) from None
        except (OSError, ValueError) as error:
            raise UsageError(_silence(self.url, getattr(error, "reason", error))) from error
        if not isinstance(document, dict):
            raise UsageError(f"what answers at {self.url} is no kplane server")
        return document


def _silence(url: str, reason: object) -> str:
    """Return why there is no answer, and where that helps what to do."""
    if isinstance(reason, ssl.SSLCertVerificationError):
        hint = "name the kubeconfig that kplane serve wrote with --kubeconfig FILE: it has the authority"
        return f"the certificate of {url} is not trusted: {reason.verify_message}; {hint}"
    # Without the number that the system has for it.
    return f"no kplane server answers at {url}: {getattr(reason, 'strerror', None) or reason}"


def _words(error: urllib.error.HTTPError) -> str:
    body = error.read()
    if error.code == http.HTTPStatus.UNAUTHORIZED:
        return _UNAUTHORIZED
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        plain = body if error.headers.get_content_type() == "text/plain" else b""
        said = plain.decode(errors="replace").strip().partition("\n")[0][:_LONGEST_WORDS]
        return f"the server answered {error.code} {error.reason}{': ' if said else ''}{said}"


def _base(url: str) -> str:
    """Return a server's address without the path of a cluster."""
    head, found, _ = url.partition(f"/{PREFIX_SEGMENT}/")
    return (head if found and url.rstrip("/").endswith(f"/{CONTROL_PLANE}") else url).rstrip("/")


def _entries(kubeconfig: Path, wanted: str) -> tuple[Document, Document]:
    """Return the cluster and the user of a context: the current one, or one of the wanted server, or else the first."""
    try:
        document = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
        contexts = {one["name"]: one["context"] for one in document.get("contexts") or ()}
        clusters = {one["name"]: one["cluster"] for one in document.get("clusters") or ()}
        users = {one["name"]: one.get("user") or {} for one in document.get("users") or ()}
        current = contexts.get(document.get("current-context"))
        known = [context for context in (current, *contexts.values()) if context is not None]
        context = next((one for one in known if wanted == _base(clusters[one["cluster"]]["server"])), known[0])
        return clusters[context["cluster"]], users.get(context.get("user"), {})
    except OSError as error:
        raise UsageError(f"cannot read the kubeconfig {kubeconfig}: {error.strerror or error}") from error
    except (yaml.YAMLError, UnicodeDecodeError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise UsageError(f"{kubeconfig} names no server; name it with --server URL") from error


class _Named(ssl.SSLContext):
    """Asks for a server by another name than that in its address."""

    server_name = ""

    def wrap_socket(self, sock: socket.socket, *args: Any, **kwargs: Any) -> ssl.SSLSocket:
        """Begin TLS with the server of that name."""
        return super().wrap_socket(sock, *args, **{**kwargs, "server_hostname": self.server_name})


def _tls_context(trust: Mapping[str, Any]) -> ssl.SSLContext | None:
    if not trust:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if name := trust.get("tls-server-name"):
        context = _Named(ssl.PROTOCOL_TLS_CLIENT)
        context.server_name = str(name)
    if trust.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context
    try:
        if data := trust.get("certificate-authority-data"):
            context.load_verify_locations(cadata=b64decode(data).decode())
        elif file := trust.get("certificate-authority"):
            context.load_verify_locations(cafile=file)
        else:
            context.load_default_certs()
    except (OSError, ValueError) as error:
        raise UsageError(f"the certificate authority in the kubeconfig cannot be used: {error}") from error
    return context
