"""The socket that the server listens on, and what can be said of it."""

import ipaddress
import socket

from kplane_core.errors import UsageError

UNPROTECTED = (
    "whoever reaches it may do everything: listen on 127.0.0.1, give users tokens with --token-auth-file FILE, "
    "or accept that with --insecure-allow-remote"
)
"""Why a server without authentication listens on no address that others can reach."""

_BACKLOG = 2048


def listen(address: str, port: int, *, exposed: str = UNPROTECTED) -> socket.socket:
    """Return a socket that listens there.

    Args:
        address: an address of this machine, or a name of one.
        port: 0 lets the system choose.
        exposed: what is wrong with an address that other machines could reach, and what to do; empty for nothing.

    Raises:
        UsageError: the address is none of this machine or open to others, the port is taken or needs privileges.
    """
    family, kind, protocol, target = _resolve(address, port)
    if exposed and not _address(target[0]).is_loopback:
        raise UsageError(f"--bind-address {address}: other machines could reach it, and {exposed}")
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(target)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise UsageError(f"cannot listen on {address} port {port}: {_explain(error)}") from error
    return listener


def base_url(listener: socket.socket, scheme: str = "http") -> str:
    """Return the URL under which this machine reaches the socket."""
    return f"{scheme}://{url_host(host_of(listener))}:{listener.getsockname()[1]}"


def host_of(listener: socket.socket) -> str:
    """Return the address by which this machine reaches the socket."""
    address = _address(listener.getsockname()[0])
    if address.is_unspecified:
        return "127.0.0.1" if isinstance(address, ipaddress.IPv4Address) else "::1"
    return str(address)


def is_loopback(listener: socket.socket) -> bool:
    """Return whether only this machine can reach the socket."""
    return _address(listener.getsockname()[0]).is_loopback


def url_host(address: str) -> str:
    """Return an address as it stands in a URL."""
    return f"[{address}]" if ":" in address else address


def _address(text: object) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    return ipaddress.ip_address(str(text).partition("%")[0])


def _resolve(address: str, port: int) -> tuple[int, int, int, tuple[object, ...]]:
    try:
        found = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise UsageError(f"cannot listen on {address}: this is neither an address nor the name of one") from error
    family, kind, protocol, _, target = found[0]
    return family, kind, protocol, target


def _explain(error: OSError) -> str:
    reason = (error.strerror or str(error)).lower()
    if isinstance(error, PermissionError):
        return f"{reason}; ports below 1024 need privileges, choose another with --port"
    if "in use" in reason:
        return f"{reason}; stop the other program, or choose a port with --port (0 finds a free one)"
    return f"{reason}; --bind-address must be an address of this machine"
