"""The JSONPath dialect of printer columns: fields, indexes, slices, wildcards, filters and recursive descent.

Kubernetes writes these paths without the `$` of RFC 9535 (`.status.conditions[?(@.type=="Ready")].status`) and escapes
a dot within a field name with a backslash. A path is parsed once and then applied to many objects; applying one never
raises, whatever the object looks like.
"""

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from operator import eq, ge, gt, le, lt, ne
from typing import Any

from kplane_core.errors import KplaneError

Step = Callable[[Any], Iterator[Any]]
"""One step of a path: a value in, the values it leads to out."""

_FIELD = re.compile(r"((?:\\.|[^.\[\]\\\s])+)")
_FILTER = re.compile(
    r"""\?\(\s*@(?P<path>[^=!<>]*?)\s*"""
    r"""(?:(?P<op>==|!=|<=|>=|<|>)\s*(?P<literal>"[^"]*"|'[^']*'|[^\s"']+?)\s*)?\)""",
)
_SLICE = re.compile(r"(-?\d*):(-?\d*)")
_QUOTED = re.compile(r"""'((?:\\.|[^'\\])*)'|"((?:\\.|[^"\\])*)\"""")
_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {"==": eq, "!=": ne, "<=": le, ">=": ge, "<": lt, ">": gt}


class JSONPathError(KplaneError):
    """The text is no path of the supported dialect."""

    def __init__(self, text: str, detail: str) -> None:
        super().__init__(f"JSONPath {text!r} cannot be read: {detail}")


class JSONPath:
    """A parsed path."""

    __slots__ = ("_steps", "text")

    def __init__(self, text: str, steps: tuple[Step, ...]) -> None:
        self.text = text
        self._steps = steps

    def find(self, document: Any) -> list[Any]:
        """Return the values that the path leads to, in document order; none is no error."""
        values = [document]
        for step in self._steps:
            values = [found for value in values for found in step(value)]
            if not values:
                break
        return values


@lru_cache(maxsize=4096)
def parse_jsonpath(text: str) -> JSONPath:
    """Return the parsed path; the same object for the same text.

    Raises:
        JSONPathError: the text is no path, or uses what the dialect does not have.
    """
    body = text.strip()
    if body.startswith("{") and body.endswith("}"):
        body = body[1:-1].strip()
    if body.startswith(("$", "@")):
        body = body[1:]
    if not body:
        raise JSONPathError(text, "it is empty")
    return JSONPath(text, tuple(_steps(text, body)))


def _steps(text: str, body: str) -> Iterator[Step]:
    position = 0
    if body[0] not in ".[":
        body = "." + body
    while position < len(body):
        if body[position] == "[":
            inside, position = _bracket(text, body, position)
            yield _bracket_step(text, inside)
        elif body.startswith("..", position):
            yield _descend
            position += 1 if body[position + 2 : position + 3] != "[" else 2
        elif body[position] == "." and body[position + 1 : position + 2] == "[":
            position += 1
        elif body[position] == "." and (match := _FIELD.match(body, position + 1)):
            yield _every if match[1] == "*" else _field(re.sub(r"\\(.)", r"\1", match[1]))
            position = match.end()
        elif body == ".":
            return
        else:
            raise JSONPathError(text, f"unexpected {body[position : position + 10]!r} at position {position}")


def _bracket(text: str, body: str, start: int) -> tuple[str, int]:
    """Return what stands between the bracket at `start` and its partner, and the position after that."""
    depth, quote = 0, ""
    for position in range(start, len(body)):
        char = body[position]
        if quote:
            quote = "" if char == quote and body[position - 1] != "\\" else quote
        elif char in "\"'":
            quote = char
        elif char == "[":
            depth += 1
        elif char == "]":
            depth -= 1
            if depth == 0:
                return body[start + 1 : position].strip(), position + 1
    raise JSONPathError(text, "a bracket or a quote is not closed")


def _bracket_step(text: str, inside: str) -> Step:
    if inside == "*":
        return _every
    if re.fullmatch(r"-?\d+", inside):
        return _index(int(inside))
    if match := _SLICE.fullmatch(inside):
        return _slice(*(int(bound) if bound else None for bound in match.groups()))
    if match := _FILTER.fullmatch(inside):
        return _filter(text, match)
    if (names := list(_QUOTED.finditer(inside))) and re.fullmatch(r"[\s,]*", _QUOTED.sub("", inside)):
        return _fields([re.sub(r"\\(.)", r"\1", match[1] if match[1] is not None else match[2]) for match in names])
    raise JSONPathError(text, f"[{inside}] is not an index, a slice, a quoted name, * or a ?(...) filter")


def _field(name: str) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, dict) and name in value:
            yield value[name]

    return step


def _fields(names: list[str]) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, dict):
            yield from (value[name] for name in names if name in value)

    return step


def _index(number: int) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, list) and -len(value) <= number < len(value):
            yield value[number]

    return step


def _slice(start: int | None, stop: int | None) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, list):
            yield from value[start:stop]

    return step


def _every(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def _descend(value: Any) -> Iterator[Any]:
    pending = [value]
    while pending:
        current = pending.pop()
        yield current
        pending.extend(reversed(list(_every(current))))


def _filter(text: str, match: re.Match[str]) -> Step:
    path = parse_jsonpath(match["path"] or ".")
    if match["op"] is None:

        def exists(value: Any) -> Iterator[Any]:
            yield from (item for item in _every(value) if path.find(item))

        return exists
    compare, literal = _OPERATORS[match["op"]], _literal(text, match["literal"])

    def step(value: Any) -> Iterator[Any]:
        for item in _every(value):
            if any(_holds(compare, found, literal) for found in path.find(item)):
                yield item

    return step


def _holds(compare: Callable[[Any, Any], Any], found: Any, literal: Any) -> bool:
    if isinstance(found, bool) != isinstance(literal, bool):
        return compare is ne
    try:
        return bool(compare(found, literal))
    except TypeError:  # text against a number has no order
        return False


def _literal(text: str, written: str) -> Any:
    if written[0] in "\"'":
        return written[1:-1]
    if written in ("true", "false"):
        return written == "true"
    try:
        return float(written) if "." in written else int(written)
    except ValueError:
        raise JSONPathError(text, f"{written!r} is neither a quoted text, a number nor a boolean") from None
