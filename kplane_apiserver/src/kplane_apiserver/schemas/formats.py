"""The string formats that Kubernetes checks; every other format says something to people only."""

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable, Mapping
from datetime import date
from types import MappingProxyType
from urllib.parse import urlsplit

_UUID = "[0-9a-f]{8}-?[0-9a-f]{4}-?%s[0-9a-f]{3}-?%s-?[0-9a-f]{12}"
_ANY_QUARTER = "[0-9a-f]{4}"
_VARIANT = "[89ab][0-9a-f]{3}"
_HOST_LENGTH = 255
_PORT_LIMIT = 65535
_ISBN_10, _ISBN_13 = 10, 13
_CARD_DIGITS = range(12, 20)

Check = Callable[[str], bool]


def _matches(pattern: str, flags: int = 0) -> Check:
    # `re` keeps what it compiled; compiled here, all patterns would cost every start.
    return lambda text: re.fullmatch(pattern, text, flags | re.ASCII) is not None


_DATE_TIME = r"(\d{4}-\d\d-\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:[.,]\d+)?(?:[Zz]|[+-](\d\d):?(\d\d))"
_DURATION = _matches(r"[+-]?(?:0|(?:(?:\d+(?:\.\d*)?|\.\d+)(?:ns|us|µs|μs|ms|s|m|h))+)")
_LONG_DURATION = _matches(
    r"\d+\s*(?:ns|nanos?|nanoseconds?|us|µs|micros?|microseconds?|ms|millis?|milliseconds?|s|secs?|seconds?"
    r"|m|mins?|minutes?|h|hrs?|hours?|d|days?|w|wks?|weeks?)",
    re.IGNORECASE,
)
_HOSTNAME = _matches(
    r"[a-zA-Z0-9](?:[-a-zA-Z0-9]{0,61}[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[-a-zA-Z0-9]{0,61}[a-zA-Z0-9])?)*"
)
_EMAIL = _matches(r"(?:[^<>@\"]*<)?[^\s<>@\"(),:;\[\]\\]+@[^\s<>@\"(),:;\\]+>?")
_MAC = _matches(r"(?:[0-9a-f]{2}([:-]))(?:[0-9a-f]{2}\1){4}[0-9a-f]{2}|(?:[0-9a-f]{4}\.){2}[0-9a-f]{4}", re.IGNORECASE)
_SCHEME = _matches(r"[A-Za-z][-A-Za-z0-9+.]*:.+", re.DOTALL)
_CARD = _matches(r"[0-9][- 0-9]{10,22}[0-9]")


def _is_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return len(text) == len("2000-01-01")


def _is_date_time(text: str) -> bool:
    match = re.fullmatch(_DATE_TIME, text, re.ASCII)
    if match is None or not _is_date(match[1]):
        return False
    hour, minute, second = int(match[2]), int(match[3]), int(match[4])
    return hour < 24 and minute < 60 and second < 60  # noqa: PLR2004 (hours, minutes and seconds)


def _is_duration(text: str) -> bool:
    return _DURATION(text) or _LONG_DURATION(text)


def _is_hostname(text: str) -> bool:
    return len(text) <= _HOST_LENGTH and _HOSTNAME(text)


def _is_uri(text: str) -> bool:
    if not text or any(char in text for char in " \x7f") or not (text.startswith("/") or _SCHEME(text)):
        return False
    try:
        port = urlsplit(text).port
    except ValueError:
        return False
    return port is None or port <= _PORT_LIMIT


def _is_ipv4(text: str) -> bool:
    return _parses(ipaddress.IPv4Address, text)


def _is_ipv6(text: str) -> bool:
    return "%" not in text and _parses(ipaddress.IPv6Address, text)


def _is_cidr(text: str) -> bool:
    head, slash, length = text.partition("/")
    return bool(slash and head) and length.isdigit() and _parses(ipaddress.ip_interface, text)


def _parses(parse: Callable[[str], object], text: str) -> bool:
    try:
        parse(text)
    except ValueError:
        return False
    return True


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode(text.replace("\r", "").replace("\n", ""), validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def _digits_of_isbn(text: str) -> str:
    return text.replace("-", "").replace(" ", "")


def _is_isbn10(text: str) -> bool:
    digits = _digits_of_isbn(text)
    if re.fullmatch(r"\d{9}[\dX]", digits, re.ASCII) is None:
        return False
    values = [_ISBN_10 if digit == "X" else int(digit) for digit in digits]
    return sum((position + 1) * value for position, value in enumerate(values)) % 11 == 0


def _is_isbn13(text: str) -> bool:
    digits = _digits_of_isbn(text)
    if re.fullmatch(r"97[89]\d{10}", digits, re.ASCII) is None:
        return False
    return sum(int(digit) * (3 if position % 2 else 1) for position, digit in enumerate(digits)) % 10 == 0


def _is_credit_card(text: str) -> bool:
    if not _CARD(text):
        return False
    digits = [int(char) for char in text if char.isdigit()]
    if len(digits) not in _CARD_DIGITS:
        return False
    doubled = [digit * 2 - 9 * (digit > 4) for digit in digits[-2::-2]]  # noqa: PLR2004 (Luhn's rule)
    return (sum(doubled) + sum(digits[-1::-2])) % 10 == 0


FORMATS: Mapping[str, Check] = MappingProxyType(
    {
        "bsonobjectid": _matches("[0-9a-fA-F]{24}"),
        "uri": _is_uri,
        "email": _EMAIL,
        "hostname": _is_hostname,
        "ipv4": _is_ipv4,
        "ipv6": _is_ipv6,
        "cidr": _is_cidr,
        "mac": _MAC,
        "uuid": _matches(_UUID % ("[0-9a-f]", _ANY_QUARTER), re.IGNORECASE),
        "uuid3": _matches(_UUID % ("3", _ANY_QUARTER), re.IGNORECASE),
        "uuid4": _matches(_UUID % ("4", _VARIANT), re.IGNORECASE),
        "uuid5": _matches(_UUID % ("5", _VARIANT), re.IGNORECASE),
        "isbn": lambda text: _is_isbn10(text) or _is_isbn13(text),
        "isbn10": _is_isbn10,
        "isbn13": _is_isbn13,
        "creditcard": _is_credit_card,
        "ssn": _matches(r"\d{3}[- ]?\d{2}[- ]?\d{4}"),
        "hexcolor": _matches("#?(?:[0-9a-fA-F]{3}|[0-9a-fA-F]{6})"),
        "rgbcolor": _matches(
            r"rgb\(\s*(?:(?:0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*,\s*){2}(?:0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*\)"
        ),
        "byte": _is_base64,
        "date": _is_date,
        "date-time": _is_date_time,
        "datetime": _is_date_time,
        "duration": _is_duration,
    }
)
"""What each format asks of a text."""
