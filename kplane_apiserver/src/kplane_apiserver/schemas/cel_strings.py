"""The functions of texts that CEL's own library of strings has (version 2, as Kubernetes has it).

The runtime brings them too, but without bounds on what they make: `a.replace('', b)` is as long as the product of both.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec

from kplane_apiserver.schemas.cel_cost import check_count, check_made

Row = tuple[str, tuple[str, ...], str, Callable[..., Any]]
"""A function's name (with a dot before it for a method), its parameters, what it returns, and how."""

_VERB = re.compile(r"%(?:%|(?:\.(\d*))?([a-zA-Z]))|%")
_MOST_DIGITS = 100
_ALL_DIGITS = 1e15
_ASCII_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_ASCII_UPPER = {code: code - 32 for code in range(ord("a"), ord("z") + 1)}


def string_rows() -> Iterator[Row]:
    """Yield the functions."""
    yield ".charAt", ("string", "int"), "string", _char_at
    yield ".indexOf", ("string", "string"), "int", str.find
    yield ".indexOf", ("string", "string", "int"), "int", _index_from
    yield ".lastIndexOf", ("string", "string"), "int", str.rfind
    yield ".lastIndexOf", ("string", "string", "int"), "int", _last_index_from
    yield ".lowerAscii", ("string",), "string", lambda text: text.translate(_ASCII_LOWER)
    yield ".upperAscii", ("string",), "string", lambda text: text.translate(_ASCII_UPPER)
    yield ".trim", ("string",), "string", str.strip
    yield ".replace", ("string", "string", "string"), "string", _replace
    yield ".replace", ("string", "string", "string", "int"), "string", _replace
    yield ".split", ("string", "string"), "list", _split
    yield ".split", ("string", "string", "int"), "list", _split
    yield ".substring", ("string", "int"), "string", _substring
    yield ".substring", ("string", "int", "int"), "string", _substring
    yield ".join", ("list",), "string", _join
    yield ".join", ("list", "string"), "string", _join
    yield ".format", ("string", "list"), "string", format_text
    yield "strings.quote", ("string",), "string", lambda text: msgspec.json.encode(text).decode()


def _char_at(text: str, at: int) -> str:
    if not 0 <= at <= len(text):
        raise ValueError(f"index out of range: {at}")
    return text[at : at + 1]


def _index_from(text: str, part: str, start: int) -> int:
    if not 0 <= start <= len(text):
        raise ValueError(f"index out of range: {start}")
    return text.find(part, start)


def _last_index_from(text: str, part: str, start: int) -> int:
    if not 0 <= start <= len(text):
        raise ValueError(f"index out of range: {start}")
    return text.rfind(part, 0, start + len(part))


def _substring(text: str, start: int, end: int | None = None) -> str:
    stop = len(text) if end is None else end
    if not 0 <= start <= stop <= len(text):
        raise ValueError(f"invalid substring range. start: {start}, end: {stop}")
    return text[start:stop]


def _replace(text: str, old: str, new: str, most: int = -1) -> str:
    times = text.count(old) if most < 0 else min(most, text.count(old))
    check_made(len(text) + times * (len(new) - len(old)), len(text))
    return text.replace(old, new, most)


def _split(text: str, by: str, most: int = -1) -> list[str]:
    if most == 0:
        return []
    pieces = text.count(by) + 1 if by else len(text)
    check_count(pieces if most < 0 else min(pieces, most))
    if by:
        return text.split(by, most - 1 if most > 0 else -1)
    letters = list(text)
    return letters if most < 0 or most >= len(letters) else [*letters[: most - 1], "".join(letters[most - 1 :])]


def _join(parts: list[Any], by: str = "") -> str:
    if not all(isinstance(part, str) for part in parts):
        raise TypeError("no such overload")
    given = sum(map(len, parts))
    check_made(given + len(by) * max(len(parts) - 1, 0), given)
    return by.join(parts)


# --- format -----------------------------------------------------------------------------------------------------------


def format_text(pattern: str, values: list[Any]) -> str:
    """Return a text with its verbs replaced by values, as CEL's `format` does.

    Raises:
        ValueError: a verb cannot take its value, or there are not enough of them.
    """
    rest = iter(values)
    made = 0

    def one(match: re.Match[str]) -> str:
        nonlocal made
        if match[0] == "%%":
            return "%"
        if not match[2]:
            raise ValueError("could not parse formatting clause: unexpected end of string")
        try:
            value = next(rest)
        except StopIteration:
            raise ValueError(f"index {len(values)} out of range") from None
        text = _formatted(match[2], match[1], value)
        made += len(text)
        check_made(made, len(pattern))
        return text

    return _VERB.sub(one, pattern)


def _formatted(verb: str, precision: str | None, value: Any) -> str:
    digits = int(precision) if precision else 6
    if digits > _MOST_DIGITS:
        raise ValueError(f"precision of at most {_MOST_DIGITS} digits")
    if verb == "s":
        return _text(value)
    if isinstance(value, float) and verb in {"d", "f", "e"} and not math.isfinite(value):
        return _text(value)
    if isinstance(value, (int, float)) and (verb == "b" or not isinstance(value, bool)):
        if verb in {"f", "e"}:
            return f"{value:.{digits}{verb}}"
        if verb in {"d", "b", "o", "x", "X"} and isinstance(value, int):
            return f"{value:{verb}}"
    if verb in {"x", "X"} and isinstance(value, (str, bytes, bytearray)):
        text = (value.encode() if isinstance(value, str) else value).hex()
        return text.upper() if verb == "X" else text
    raise ValueError(f'could not parse formatting clause: no value of this type for "%{verb}"')


def _text(value: Any) -> str:
    """Return a value as `%s` writes it."""
    write = _WRITERS.get(type(value))
    return str(value).lower() if write is None else write(value)


def _float_text(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return str(int(value)) if value.is_integer() and abs(value) < _ALL_DIGITS else format(Decimal(repr(value)), "f")


def _map_text(value: dict[Any, Any]) -> str:
    pairs = sorted((_text(name), _text(inner)) for name, inner in value.items())
    return "{" + ", ".join(f"{name}: {inner}" for name, inner in pairs) + "}"


_WRITERS: Mapping[type, Callable[[Any], str]] = {
    str: str,
    int: str,
    float: _float_text,
    bool: lambda value: "true" if value else "false",
    type(None): lambda _: "null",
    bytearray: lambda value: value.decode(errors="replace"),
    bytes: lambda value: value.decode(errors="replace"),
    datetime: lambda value: value.isoformat().replace("+00:00", "Z"),
    timedelta: lambda value: f"{_float_text(value.total_seconds())}s",
    list: lambda value: f"[{', '.join(map(_text, value))}]",
    dict: _map_text,
}
