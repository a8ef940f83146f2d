"""The socket that the server listens on, and what can be said of it."""

import ipaddress
import socket

from kplane_core.errors import UsageError

_BACKLOG = 2048


def listen(address: str, port: int, *, allow_remote: bool = False) -> socket.socket:
    """Return a socket that listens there.

    Args:
        address: an address of this machine, or a name of one.
        port: 0 lets the system choose.
        allow_remote: listen also where other machines could connect.

    Raises:
        UsageError: the address is none of this machine or open to others, the port is taken or needs privileges.
    """
    family, kind, protocol, target = _resolve(address, port)
    if not allow_remote and not ipaddress.ip_address(str(target[0]).partition("%")[0]).is_loopback:
        raise UsageError(
            f"--bind-address {address}: other machines could reach it, and kplane has no authentication yet: "
            "listen on 127.0.0.1, or accept that everybody may do everything with --insecure-allow-remote"
        )
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(target)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise UsageError(f"cannot listen on {address} port {port}: {_explain(error)}") from error
    return listener


def base_url(listener: socket.socket) -> str:
    """Return the URL under which this machine reaches the socket."""
    address = ipaddress.ip_address(listener.getsockname()[0].partition("%")[0])
    if address.is_unspecified:
        address = ipaddress.ip_address("127.0.0.1" if isinstance(address, ipaddress.IPv4Address) else "::1")
    host = str(address) if isinstance(address, ipaddress.IPv4Address) else f"[{address}]"
    return f"http://{host}:{listener.getsockname()[1]}"


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
