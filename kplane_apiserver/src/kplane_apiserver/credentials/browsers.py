"""Web pages in a browser on the same machine: what they may not ask of a server that asks nobody for a credential.

A page can send requests to a loopback address: from its own origin, or, once its host name was made to point there (DNS
rebinding), as if it came from the server. The first kind carries an Origin or says that it crosses sites, the second
kind a Host that is not the server's. Clients that are no browsers send neither.
"""

import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

from kplane_core.errors import ApiError, Status

_REMEMBERED = 64
_OWN_SITE = frozenset({b"same-origin", b"none"})
_LOCALHOST = "localhost"


class Browsers:
    """Refuses what comes from web pages of others.

    Args:
        names: the server's own host names besides `localhost` and addresses; None takes every name.
    """

    def __init__(self, names: Iterable[str] | None) -> None:
        self._names = None if names is None else frozenset(name.lower() for name in names)
        self._known: set[bytes] = set()

    def check(self, host: bytes, origin: bytes, site: bytes) -> None:
        """Return if the request can be one of the server's own clients.

        Args:
            host: the Host header; empty when absent, as with all of these.
            origin: the Origin header.
            site: the Sec-Fetch-Site header.

        Raises:
            ApiError: 403.
        """
        if host and host not in self._known:
            self._check_host(host)
        if origin and origin.partition(b"://")[2] != host:
            raise _refused("it comes from a web page of another origin")
        if site and site not in _OWN_SITE:
            raise _refused("it comes from a web page of another site")

    def _check_host(self, host: bytes) -> None:
        if self._names is not None and not self._is_own(host):
            raise _refused("its Host is not a name of this server; address it by its IP address or as localhost")
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        self._known.add(host)

    def _is_own(self, host: bytes) -> bool:
        try:
            name = (urlsplit(f"//{host.decode('ascii')}").hostname or "").rstrip(".")
        except ValueError:  # no ASCII, or brackets that do not match
            return False
        assert self._names is not None
        if name == _LOCALHOST or name.endswith(f".{_LOCALHOST}") or name in self._names:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def _refused(reason: str) -> ApiError:
    return ApiError(Status(403, "Forbidden", f"forbidden: without authentication this request is refused: {reason}"))
