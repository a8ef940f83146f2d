"""The functions that Kubernetes adds to CEL, as far as the CEL runtime lets one add them from Python.

A URL, a quantity, an address or a network is a map to the runtime, which has no types of ours.
"""

import ipaddress
import re
from collections.abc import Callable, Iterator
from decimal import Decimal, InvalidOperation
from typing import Any
from urllib.parse import parse_qs, urlsplit

from kplane_apiserver.schemas.patterns import compile_pattern

Row = tuple[str, tuple[str, ...], str, Callable[..., Any]]
"""A function's name (with a dot before it for a method), its parameters, what it returns, and how."""

_SUFFIXES = {
    "": Decimal(1),
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    **{suffix: Decimal(10) ** (3 * power) for power, suffix in enumerate(("k", "M", "G", "T", "P", "E"), 1)},
    **{suffix: Decimal(1024) ** power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)},
}
_QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([eE][+-]?\d+)|([numkMGTPE]|[KMGTPE]i)?)")


def rows() -> Iterator[Row]:
    """Yield the functions."""
    yield from _texts_and_lists()
    yield from _sets()
    yield from _urls()
    yield from _quantities()
    yield from _addresses()


# --- texts and lists --------------------------------------------------------------------------------------------------


def _texts_and_lists() -> Iterator[Row]:
    yield ".find", ("string", "string"), "string", _find
    yield ".findAll", ("string", "string"), "list", _find_all
    yield ".findAll", ("string", "string", "int"), "list", lambda text, pattern, most: _find_all(text, pattern)[:most]
    yield ".isSorted", ("list",), "bool", lambda items: items == sorted(items)
    yield ".sum", ("list",), "dyn", lambda items: sum(items[1:], items[0]) if items else 0
    yield ".min", ("list",), "dyn", min
    yield ".max", ("list",), "dyn", max


def _find(text: str, pattern: str) -> str:
    return next(iter(_find_all(text, pattern)), "")


def _find_all(text: str, pattern: str) -> list[str]:
    search = compile_pattern(pattern)
    if search is None:
        raise ValueError(f"the pattern {pattern!r} cannot be read")
    compiled: re.Pattern[str] = search.__self__  # type: ignore[attr-defined]
    return [match[0] for match in compiled.finditer(text)]


def _sets() -> Iterator[Row]:
    yield "sets.contains", ("list", "list"), "bool", _contains
    yield "sets.intersects", ("list", "list"), "bool", lambda one, other: any(item in other for item in one)
    yield (
        "sets.equivalent",
        ("list", "list"),
        "bool",
        lambda one, other: _contains(one, other) and _contains(other, one),
    )


def _contains(one: list[Any], other: list[Any]) -> bool:
    return all(item in one for item in other)


# --- URLs -------------------------------------------------------------------------------------------------------------


def _urls() -> Iterator[Row]:
    yield "isURL", ("string",), "bool", lambda text: _url(text) is not None
    yield "url", ("string",), "map", _must(_url, "URL")
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


def _must(parse: Callable[[str], dict[str, Any] | None], what: str) -> Callable[[str], dict[str, Any]]:
    def parsed(text: str) -> dict[str, Any]:
        found = parse(text)
        if found is None:
            raise ValueError(f"{text!r} is no {what}")
        return found

    return parsed


# --- quantities -------------------------------------------------------------------------------------------------------


def _quantities() -> Iterator[Row]:
    yield "isQuantity", ("string",), "bool", lambda text: _quantity(text) is not None
    yield "quantity", ("string",), "map", _must(_quantity, "quantity")
    yield ".isLessThan", ("map", "map"), "bool", lambda one, other: _amount(one) < _amount(other)
    yield ".isGreaterThan", ("map", "map"), "bool", lambda one, other: _amount(one) > _amount(other)
    yield ".compareTo", ("map", "map"), "int", lambda one, other: int(_amount(one).compare(_amount(other)))
    yield ".sign", ("map",), "int", lambda one: int(_amount(one).compare(Decimal(0)))
    yield ".isInteger", ("map",), "bool", lambda one: _amount(one) % 1 == 0
    yield ".asInteger", ("map",), "int", lambda one: int(_amount(one))
    yield ".asApproximateFloat", ("map",), "double", lambda one: float(_amount(one))
    yield ".add", ("map", "map"), "map", lambda one, other: {"quantity": str(_amount(one) + _amount(other))}
    yield ".sub", ("map", "map"), "map", lambda one, other: {"quantity": str(_amount(one) - _amount(other))}
    yield ".add", ("map", "int"), "map", lambda one, other: {"quantity": str(_amount(one) + other)}
    yield ".sub", ("map", "int"), "map", lambda one, other: {"quantity": str(_amount(one) - other)}


def _quantity(text: str) -> dict[str, Any] | None:
    match = _QUANTITY.fullmatch(text)
    if match is None:
        return None
    try:
        amount = Decimal(match[1] + (match[2] or "")) * _SUFFIXES[match[3] or ""]
    except InvalidOperation:
        return None
    return {"quantity": str(amount)}


def _amount(value: dict[str, Any]) -> Decimal:
    return Decimal(value["quantity"])


# --- addresses and networks -------------------------------------------------------------------------------------------


def _addresses() -> Iterator[Row]:
    yield "isIP", ("string",), "bool", lambda text: _address(text) is not None
    yield "ip", ("string",), "map", _must(_address, "IP address")
    yield "isCIDR", ("string",), "bool", lambda text: _network(text) is not None
    yield "cidr", ("string",), "map", _must(_network, "network in CIDR notation")
    yield ".family", ("map",), "int", lambda one: ipaddress.ip_address(one["ip"]).version
    yield ".isLoopback", ("map",), "bool", lambda one: ipaddress.ip_address(one["ip"]).is_loopback
    yield ".isUnspecified", ("map",), "bool", lambda one: ipaddress.ip_address(one["ip"]).is_unspecified
    yield ".prefixLength", ("map",), "int", lambda one: ipaddress.ip_interface(one["cidr"]).network.prefixlen
    yield ".containsIP", ("map", "string"), "bool", _holds
    yield ".containsIP", ("map", "map"), "bool", lambda one, other: _holds(one, other["ip"])


def _address(text: str) -> dict[str, Any] | None:
    try:
        return {"ip": str(ipaddress.ip_address(text))}
    except ValueError:
        return None


def _network(text: str) -> dict[str, Any] | None:
    if "/" not in text:
        return None
    try:
        return {"cidr": str(ipaddress.ip_interface(text))}
    except ValueError:
        return None


def _holds(one: dict[str, Any], text: str) -> bool:
    return ipaddress.ip_address(text) in ipaddress.ip_interface(one["cidr"]).network
