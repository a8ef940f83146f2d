"""Quantities, semantic versions and image references in CEL, as Kubernetes adds them; each is a map to the runtime."""

import re
from collections.abc import Callable, Iterator
from decimal import Context, Decimal, DecimalException
from typing import Any

from kplane_apiserver.schemas.cel_network import must
from kplane_apiserver.schemas.cel_strings import Row

_SUFFIXES = {
    "": Decimal(1),
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    **{suffix: Decimal(10) ** (3 * power) for power, suffix in enumerate(("k", "M", "G", "T", "P", "E"), 1)},
    **{suffix: Decimal(1024) ** power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)},
}
_QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([eE][+-]?\d+)|([numkMGTPE]|[KMGTPE]i)?)", re.ASCII)
_LONGEST = 256  # characters of a quantity or version that are worth a look
_EXACT = Context(prec=600)
_LARGEST_EXPONENT = 256
_INT_64 = 1 << 63


def version_rows() -> Iterator[Row]:
    """Yield the functions."""
    yield from _quantities()
    yield from _versions()
    yield from _images()
    yield ".isLessThan", ("map", "map"), "bool", lambda one, other: _compare(one, other) < 0
    yield ".isGreaterThan", ("map", "map"), "bool", lambda one, other: _compare(one, other) > 0
    yield ".compareTo", ("map", "map"), "int", _compare


def _compare(one: dict[str, Any], other: dict[str, Any]) -> int:
    left: Any
    right: Any
    if "semver" in one and "semver" in other:
        left, right = _order(one), _order(other)
    else:
        left, right = _amount(one), _amount(other)
    return int(left > right) - int(left < right)


# --- quantities -------------------------------------------------------------------------------------------------------


def _quantities() -> Iterator[Row]:
    yield "isQuantity", ("string",), "bool", lambda text: _quantity(text) is not None
    yield "quantity", ("string",), "map", must(_quantity, "quantity")
    yield ".sign", ("map",), "int", lambda one: int(_amount(one).compare(Decimal(0)))
    yield ".isInteger", ("map",), "bool", lambda one: _is_integer(_amount(one))
    yield ".asInteger", ("map",), "int", _as_integer
    yield ".asApproximateFloat", ("map",), "double", lambda one: float(_amount(one))
    yield ".add", ("map", "map"), "map", lambda one, other: _made(_EXACT.add(_amount(one), _amount(other)))
    yield ".sub", ("map", "map"), "map", lambda one, other: _made(_EXACT.subtract(_amount(one), _amount(other)))
    yield ".add", ("map", "int"), "map", lambda one, other: _made(_EXACT.add(_amount(one), Decimal(other)))
    yield ".sub", ("map", "int"), "map", lambda one, other: _made(_EXACT.subtract(_amount(one), Decimal(other)))


def _quantity(text: str) -> dict[str, Any] | None:
    match = _QUANTITY.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        return None
    if match[2] and abs(int(match[2][1:])) > _LARGEST_EXPONENT:
        return None
    try:
        return _made(_EXACT.multiply(Decimal(match[1] + (match[2] or "")), _SUFFIXES[match[3] or ""]))
    except DecimalException:
        return None


def _made(amount: Decimal) -> dict[str, Any]:
    # Normalized, so that equal amounts are equal maps.
    return {"quantity": str(amount.normalize(_EXACT))}


def _amount(value: dict[str, Any]) -> Decimal:
    return Decimal(value["quantity"])


def _is_integer(amount: Decimal) -> bool:
    return -_INT_64 <= amount < _INT_64 and amount == amount.to_integral_value()


def _as_integer(one: dict[str, Any]) -> int:
    amount = _amount(one)
    if not _is_integer(amount):
        raise ValueError("cannot convert value to integer")
    return int(amount)


# --- semantic versions ------------------------------------------------------------------------------------------------

_NUMBER = r"(0|[1-9]\d*)"
_SEMVER = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?",
    re.ASCII,
)
_PARTS = 3


def _versions() -> Iterator[Row]:
    yield "isSemver", ("string",), "bool", lambda text: _semver(text) is not None
    yield "isSemver", ("string", "bool"), "bool", lambda text, normal: _semver(text, normal=normal) is not None
    yield "semver", ("string",), "map", must(_semver, "semver")
    yield "semver", ("string", "bool"), "map", must(lambda text, normal: _semver(text, normal=normal), "semver")
    yield ".major", ("map",), "int", lambda one: one["semver"][0]
    yield ".minor", ("map",), "int", lambda one: one["semver"][1]
    yield ".patch", ("map",), "int", lambda one: one["semver"][2]


def _semver(text: str, *, normal: bool = False) -> dict[str, Any] | None:
    if len(text) > _LONGEST:
        return None
    match = _SEMVER.fullmatch(_normalized(text) if normal else text)
    if match is None or any(int(match[part]) >= _INT_64 for part in (1, 2, 3)):
        return None
    pre = match[4] or ""
    if any(_is_padded(part) for part in pre.split(".")):
        return None
    return {"semver": [int(match[1]), int(match[2]), int(match[3]), pre]}


def _is_padded(part: str) -> bool:
    return len(part) > 1 and part.isdigit() and part[0] == "0"


def _normalized(text: str) -> str:
    """Return a version without its v and leading zeros, and with all three numbers."""
    parts = [_unpadded(part) for part in text.removeprefix("v").split(".", _PARTS - 1)]
    if len(parts) < _PARTS and any(char in parts[-1] for char in "+-"):
        return ""
    return ".".join([*parts, *["0"] * (_PARTS - len(parts))])


def _unpadded(part: str) -> str:
    rest = part.lstrip("0") if len(part) > 1 else part
    return rest if rest[:1].isdigit() or rest == part else f"0{rest}"


def _order(one: dict[str, Any]) -> tuple[Any, ...]:
    *numbers, pre = one["semver"]
    parts = [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in pre.split(".")] if pre else []
    return (*numbers, not pre, parts)


# --- images -----------------------------------------------------------------------------------------------------------

_COMPONENT = r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*"
_IMAGE = re.compile(
    rf"([a-zA-Z0-9][-a-zA-Z0-9.]*(?::\d+)?)/({_COMPONENT}(?:/{_COMPONENT})*)"
    r"(?::(\w[\w.-]{0,127}))?(?:@(sha256:[0-9a-f]{64}))?",
    re.ASCII,
)
_REGISTRY = "index.docker.io"
_LONGEST_IMAGE = 512


def _images() -> Iterator[Row]:
    yield "isImage", ("string",), "bool", lambda text: _image(text) is not None
    yield "image", ("string",), "map", must(_image, "image reference")
    yield ".containsDigest", ("map",), "bool", lambda one: bool(one["digest"])
    for part in ("registry", "repository", "tag", "digest", "identifier"):
        yield f".{part}", ("map",), "string", _part_of(part)


def _part_of(name: str) -> Callable[[dict[str, Any]], str]:
    return lambda image: str(image[name])


def _image(text: str) -> dict[str, Any] | None:
    host, slash, _ = text.partition("/")
    hosted = bool(slash) and (any(char in host for char in ".:") or host == "localhost")
    match = _IMAGE.fullmatch(text if hosted else f"{_REGISTRY}/{text}") if len(text) <= _LONGEST_IMAGE else None
    if match is None:
        return None
    registry = _REGISTRY if match[1] == "docker.io" else match[1]
    repository = match[2] if registry != _REGISTRY or "/" in match[2] else f"library/{match[2]}"
    # As upstream's library has it: a reference with a digest has no tag.
    digest = match[4] or ""
    tag = "" if digest else match[3] or "latest"
    return {
        "registry": registry,
        "repository": repository,
        "tag": tag,
        "digest": digest,
        "identifier": digest or tag,
    }
