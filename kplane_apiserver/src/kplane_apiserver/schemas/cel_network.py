"""URLs, addresses and networks in CEL, as Kubernetes adds them; each is a map to the runtime, which has no such types.

What cannot be read is told without its text: it may be a secret.
"""

import ipaddress
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

from kplane_apiserver.schemas.cel_strings import Row

_LINK_LOCAL_MULTICAST = (ipaddress.ip_network("224.0.0.0/24"), ipaddress.ip_network("ff02::/16"))
_BROADCAST = ipaddress.ip_address("255.255.255.255")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Interface = ipaddress.IPv4Interface | ipaddress.IPv6Interface


def network_rows() -> Iterator[Row]:
    """Yield the functions."""
    yield from _urls()
    yield from _addresses()
    yield from _networks()


def must(parse: Callable[..., dict[str, Any] | None], what: str) -> Callable[..., dict[str, Any]]:
    """Return a function that parses, or says that a text is not `what`."""

    def parsed(*given: Any) -> dict[str, Any]:
        found = parse(*given)
        if found is None:
            raise ValueError(f"{what} parse error during conversion from string")
        return found

    return parsed


# --- URLs -------------------------------------------------------------------------------------------------------------


def _urls() -> Iterator[Row]:
    yield "isURL", ("string",), "bool", lambda text: _url(text) is not None
    yield "url", ("string",), "map", must(_url, "URL")
    yield ".getScheme", ("map",), "string", lambda url: url["scheme"]
    yield ".getHost", ("map",), "string", lambda url: url["host"]
    yield ".getHostname", ("map",), "string", lambda url: url["hostname"]
    yield ".getPort", ("map",), "string", lambda url: url["port"]
    yield ".getEscapedPath", ("map",), "string", lambda url: url["path"]
    yield ".getQuery", ("map",), "map", lambda url: url["query"]


def _url(text: str) -> dict[str, Any] | None:
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return None
    if not parts.scheme and not text.startswith("/"):
        return None
    host = parts.netloc.rpartition("@")[2]
    return {
        "scheme": parts.scheme,
        "host": host,
        "hostname": parts.hostname or "",
        "port": "" if port is None else str(port),
        "path": parts.path,
        "query": parse_qs(parts.query, keep_blank_values=True),
    }


# --- addresses --------------------------------------------------------------------------------------------------------


def _addresses() -> Iterator[Row]:
    yield "isIP", ("string",), "bool", lambda text: _address(text) is not None
    yield "ip", ("string",), "map", must(_address, "IP Address")
    yield "ip.isCanonical", ("string",), "bool", _is_canonical
    yield ".family", ("map",), "int", lambda one: _ip(one).version
    yield ".isLoopback", ("map",), "bool", lambda one: _ip(one).is_loopback
    yield ".isUnspecified", ("map",), "bool", lambda one: _ip(one).is_unspecified
    yield ".isLinkLocalMulticast", ("map",), "bool", lambda one: _is_link_local_multicast(_ip(one))
    yield ".isLinkLocalUnicast", ("map",), "bool", lambda one: _ip(one).is_link_local
    yield ".isGlobalUnicast", ("map",), "bool", lambda one: _is_global_unicast(_ip(one))


def _parsed_address(text: str) -> Address | None:
    """Return an address, unless it has a zone or is an IPv4 address written as IPv6."""
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    return None if "%" in text or getattr(found, "ipv4_mapped", None) is not None else found


def _address(text: str) -> dict[str, Any] | None:
    found = _parsed_address(text)
    return None if found is None else {"ip": str(found)}


def _ip(one: dict[str, Any]) -> Address:
    return ipaddress.ip_address(one["ip"])


def _is_canonical(text: str) -> bool:
    return bool(must(_address, "IP Address")(text)["ip"] == text)


def _is_link_local_multicast(address: Address) -> bool:
    return any(address in network for network in _LINK_LOCAL_MULTICAST if network.version == address.version)


def _is_global_unicast(address: Address) -> bool:
    other = address.is_unspecified or address.is_loopback or address.is_multicast or address.is_link_local
    return not other and address != _BROADCAST


# --- networks ---------------------------------------------------------------------------------------------------------


def _networks() -> Iterator[Row]:
    yield "isCIDR", ("string",), "bool", lambda text: _network(text) is not None
    yield "cidr", ("string",), "map", must(_network, "network address")
    yield ".ip", ("map",), "map", lambda one: {"ip": str(_interface(one).ip)}
    yield ".masked", ("map",), "map", lambda one: {"cidr": str(_interface(one).network)}
    yield ".prefixLength", ("map",), "int", lambda one: _interface(one).network.prefixlen
    yield ".containsIP", ("map", "string"), "bool", lambda one, text: _holds(one, must(_address, "IP Address")(text))
    yield ".containsIP", ("map", "map"), "bool", _holds
    yield (
        ".containsCIDR",
        ("map", "string"),
        "bool",
        lambda one, text: _contains(one, must(_network, "network address")(text)),
    )
    yield ".containsCIDR", ("map", "map"), "bool", _contains


def _network(text: str) -> dict[str, Any] | None:
    head, slash, length = text.partition("/")
    if not slash or not (length.isascii() and length.isdigit()) or _parsed_address(head) is None:
        return None
    try:
        return {"cidr": str(ipaddress.ip_interface(text))}
    except ValueError:
        return None


def _interface(one: dict[str, Any]) -> Interface:
    return ipaddress.ip_interface(one["cidr"])


def _holds(one: dict[str, Any], address: dict[str, Any]) -> bool:
    return _ip(address) in _interface(one).network


def _contains(one: dict[str, Any], other: dict[str, Any]) -> bool:
    outer, inner = _interface(one).network, _interface(other).network
    if outer.version != inner.version:
        return False
    return outer.prefixlen <= inner.prefixlen and inner.network_address in outer
