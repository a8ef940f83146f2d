"""The socket that the server listens on, and what can be said of it."""

import ipaddress
import socket

from kplane_core.errors import UsageError

_BACKLOG = 2048


def listen(address: str, port: int) -> socket.socket:
    """Return a socket that listens there.

    Raises:
        UsageError: the address is none of this machine, the port is taken, or it needs privileges.
    """
    family, kind, protocol, target = _resolve(address, port)
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(target)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise UsageError(f"cannot listen on {address} port {port}: {_explain(error)}") from error
    return listener


def is_loopback(listener: socket.socket) -> bool:
    """Whether only programs of this machine can reach the socket."""
    return _address(listener).is_loopback


def base_url(listener: socket.socket) -> str:
    """Return the URL under which this machine reaches the socket."""
    address = _address(listener)
    if address.is_unspecified:
        address = ipaddress.ip_address("127.0.0.1" if isinstance(address, ipaddress.IPv4Address) else "::1")
    host = str(address) if isinstance(address, ipaddress.IPv4Address) else f"[{address}]"
    return f"http://{host}:{listener.getsockname()[1]}"


def _address(listener: socket.socket) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    return ipaddress.ip_address(listener.getsockname()[0])


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
