"""Ready-made parsers: the text of a flag, variable or file value becomes a typed value, or a short complaint."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

import attrs

T = TypeVar("T")

INT64_MAX = 9223372036854775807
_LONGEST_SHOWN = 60
_LONGEST_DURATION = 10 * 365 * 24 * 3600.0
_ROUNDING = 1e-9
_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)(e[+-]?[0-9]+)?", re.IGNORECASE)
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|us|h|m|s|d)")
_DURATION_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)([a-z]*)", re.IGNORECASE)
_SIZE_UNITS = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "ki": 2**10,
    "mi": 2**20,
    "gi": 2**30,
    "ti": 2**40,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
_USER_INFO = re.compile(r"(?<=://).*@", re.DOTALL)


def hide_user_info(text: str) -> str:
    """Return `text` with whatever stands between `://` and the last `@` replaced: it may be a password."""
    return _USER_INFO.sub("***@", text)


def quoted(text: str) -> str:
    """Return `text` fit for a one-line message: quoted, shortened, without credentials before an `@`."""
    safe = hide_user_info(text) if "://" in text else re.sub(r"^.*@", "***@", text, flags=re.DOTALL)
    return repr(safe if len(safe) <= _LONGEST_SHOWN else f"{safe[:_LONGEST_SHOWN]}…")


@attrs.frozen
class Parser(Generic[T]):
    """How the text of one value becomes typed.

    Attributes:
        convert: text -> value; raises ValueError with a complaint that follows "--flag: ".
        metavar: what stands for the value in `--help`.
        repeatable: the flag may be given several times; the texts are joined by commas.
        accepts: TOML types taken besides strings; their text is converted.
        show: value -> text, for `--help` and reports.
        item: for a parser of lists, what parses one item of a TOML list.
        empty: blank text is a value like any other.
    """

    convert: Callable[[str], T]
    metavar: str = "VALUE"
    repeatable: bool = False
    accepts: tuple[type, ...] = ()
    show: Callable[[T], str] = str
    item: Callable[[str], Any] | None = None
    empty: bool = False

    def __call__(self, text: str) -> T:
        """Return the typed value of `text`.

        Raises:
            ValueError: the complaint.
        """
        if not self.empty and not text.strip():
            raise ValueError("is empty")
        return self.convert(text)


def _boolean(value: str) -> bool:
    lowered = value.strip().lower()
    if lowered in {"true", "1", "yes", "on"}:
        return True
    if lowered in {"false", "0", "no", "off"}:
        return False
    raise ValueError(f"neither true nor false: {quoted(value)}")


def integer_between(minimum: int, maximum: int) -> Parser[int]:
    """Return a parser of whole numbers from `minimum` to `maximum`."""

    def convert(value: str) -> int:
        stripped = value.strip()
        if not _INTEGER.fullmatch(stripped):
            raise ValueError(f"not a whole number: {quoted(value)}")
        # Python refuses to convert thousands of digits in words of its own; no value of ours has more than 20.
        number = int(stripped) if len(stripped) <= _LONGEST_SHOWN else None
        low = stripped.startswith("-") if number is None else number < minimum
        if low:
            raise ValueError(f"must be at least {minimum}, not {quoted(value)[1:-1]}")
        if number is None or number > maximum:
            raise ValueError(f"must be at most {maximum}, not {quoted(value)[1:-1]}")
        return number

    return Parser(convert, "N", accepts=(int,))


def _number(value: str) -> float:
    if not _NUMBER.fullmatch(value.strip()):
        raise ValueError(f"not a number: {quoted(value)}")
    number = float(value)
    if number in {float("inf"), float("-inf")}:
        raise ValueError(f"too large: {quoted(value)}")
    return number


def _duration(value: str) -> float:
    stripped = value.strip()
    if _NUMBER.fullmatch(stripped):
        if stripped.strip("+0.") == "":
            return 0.0
        if stripped.startswith("-"):
            raise ValueError(f"must not be negative: {quoted(value)}")
        raise ValueError(f"needs a unit, for example {quoted(f'{stripped}s')[1:-1]}: {quoted(value)}")
    if stripped.startswith("-") and re.fullmatch(f"(?:{_DURATION.pattern})+", stripped[1:]):
        raise ValueError(f"must not be negative: {quoted(value)}")
    if not re.fullmatch(f"(?:{_DURATION.pattern})+", stripped):
        raise ValueError(f"not a duration such as 30s, 5m or 1h30m: {quoted(value)}")
    seconds = sum(float(amount) * _DURATION_UNITS[unit] for amount, unit in _DURATION.findall(stripped))
    if seconds > _LONGEST_DURATION:
        raise ValueError(f"longer than ten years: {quoted(value)}")
    return seconds


def show_duration(seconds: float) -> str:
    """Return the shortest way to write a duration, for example `5m` or `250ms`."""
    if seconds <= 0:
        return "0"
    for unit in ("d", "h", "m", "s", "ms", "us"):
        amount = seconds / _DURATION_UNITS[unit]
        if round(amount) >= 1 and abs(amount - round(amount)) < _ROUNDING:
            return f"{round(amount)}{unit}"
    return f"{seconds:g}s"


def _size(value: str) -> int:
    match = _SIZE.fullmatch(value.strip())
    unit = match.group(2).lower() if match else ""
    if match is None or unit not in _SIZE_UNITS:
        raise ValueError(f"not a size such as 512KiB or 3MiB: {quoted(value)}")
    size = float(match.group(1)) * _SIZE_UNITS[unit]
    if size > INT64_MAX:
        raise ValueError(f"too large: {quoted(value)}")
    return int(size)


def show_size(size: int) -> str:
    """Return the shortest exact way to write a size, for example `3MiB`."""
    for unit, factor in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size and size % factor == 0:
            return f"{size // factor}{unit}"
    return str(size)


def _text(value: str) -> str:
    if "\0" in value:
        raise ValueError("contains a NUL character")
    return value


def _path(value: str) -> Path:
    return Path(_text(value)).expanduser()


def _file(value: str) -> Path:
    path = _path(value)
    try:
        if path.is_dir():
            raise ValueError(f"is a directory, not a file: {quoted(value)}")
        if not path.is_file():
            raise ValueError(f"no such file: {quoted(value)}")
    except OSError as error:  # a name that no file can have
        raise ValueError(f"no such file: {quoted(value)}") from error
    return path


def _url(value: str) -> str:
    # Imported here: only URLs need it.
    from urllib.parse import urlsplit  # noqa: PLC0415

    stripped = value.strip()
    if not re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", stripped):
        raise ValueError(f"not a URL: {quoted(value)}")
    try:
        parts = urlsplit(stripped)
        host, port = parts.hostname, parts.port
    except ValueError:
        # The library's sentence may carry the password; ours names the part.
        raise ValueError(f"not a URL, its host or port cannot be read: {quoted(value)}") from None
    if not host or port == 0 or re.search(r"\s", stripped):
        raise ValueError(f"not a URL, its host or port cannot be read: {quoted(value)}")
    if "@" in parts.path + parts.query + parts.fragment:
        # A password with /, ? or # in it moves the end of the host: what follows would be read as something else.
        raise ValueError(f"has an @ after its host, percent-encode special characters of a password: {quoted(value)}")
    return stripped


def csv_of(item: Callable[[str], T], metavar: str = "ITEM,...") -> Parser[tuple[T, ...]]:
    """Return a repeatable parser of comma-separated values, each parsed by `item`; a TOML list works too."""

    def convert(value: str) -> tuple[T, ...]:
        pieces = [piece.strip() for piece in value.split(",")]
        if not all(pieces):
            raise ValueError(f"has an empty item: {quoted(value)}")
        return tuple(item(piece) for piece in pieces)

    shown = item.show if isinstance(item, Parser) else str
    return Parser(
        convert,
        metavar,
        repeatable=True,
        accepts=(list,),
        show=lambda values: ",".join(shown(one) for one in values),
        item=item,
    )


def choice(*names: str) -> Parser[str]:
    """Return a parser that takes one of `names`."""

    def convert(value: str) -> str:
        if value in names:
            return value
        # Imported here: only a mistake needs it.
        from kplane_core.plugins.errors import suggestion  # noqa: PLC0415

        raise ValueError(f"must be one of {', '.join(names)}, not {quoted(value)}{suggestion(value, names)}")

    return Parser(convert, "|".join(names))


#: Any text, empty too.
text: Parser[str] = Parser(_text, "TEXT", empty=True)
#: Text that says something.
filled_text: Parser[str] = Parser(_text, "TEXT")
#: `--x`, `--no-x`, or true and false in words.
boolean: Parser[bool] = Parser(_boolean, "", accepts=(bool,), show=lambda value: str(value).lower())
#: A whole number that fits an int64.
integer = integer_between(-INT64_MAX - 1, INT64_MAX)
#: A whole number from 1.
positive_int = integer_between(1, INT64_MAX)
#: A whole number from 0.
non_negative_int = integer_between(0, INT64_MAX)
#: A finite decimal number.
number: Parser[float] = Parser(_number, "N", accepts=(int, float), show=lambda value: f"{value:g}")
#: A TCP port; 0 lets the system choose.
port: Parser[int] = attrs.evolve(integer_between(0, 65535), metavar="PORT")
#: Seconds, written with a unit: `30s`, `5m`, `1h30m`, `250ms`; 0 needs none.
duration: Parser[float] = Parser(_duration, "DURATION", accepts=(int, float), show=show_duration)
#: Bytes, written plainly or with a unit: `3MiB`, `64KB`.
size: Parser[int] = Parser(_size, "SIZE", accepts=(int,), show=show_size)
#: A path, which need not exist yet; `~` is expanded.
path: Parser[Path] = Parser(_path, "PATH")
#: The path of an existing file.
file: Parser[Path] = Parser(_file, "FILE")
#: A URL with a host.
url: Parser[str] = Parser(_url, "URL", show=hide_user_info)
#: Comma-separated texts.
csv: Parser[tuple[str, ...]] = csv_of(_text)


def parser_for(default: object, annotation: Any) -> Parser[Any]:
    """Return the parser that fits a field without one: by its default's type, else by its annotation.

    Raises:
        TypeError: neither tells.
    """
    by_type: dict[str, Parser[Any]] = {"bool": boolean, "int": integer, "float": number, "str": text, "Path": path}
    if isinstance(default, tuple):
        return csv
    name = next((known.__name__ for known in (bool, int, float, str, Path) if isinstance(default, known)), None)
    if name is None:
        spelled = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
        name = spelled.split("|")[0].strip()
    if name not in by_type:
        raise TypeError(f"no parser for {annotation!r}: give option(parse=...)")
    return by_type[name]
