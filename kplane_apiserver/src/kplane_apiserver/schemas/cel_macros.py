"""Expressions as the runtime needs them: every round of a loop asks whether it may go on; what it lacks is rewritten.

`map.transformMap(k, v, e)` becomes `map.transformList(k, v, [k, e]).kplane_map()`, for example. What is rewritten is
the text, by its tokens; what is no such macro stays as it is.
"""

import math
import re
from collections.abc import Sequence

_TOKEN = re.compile(
    r'''(?:[rR][bB]?|[bB][rR])(?:""".*?"""|\'\'\'.*?\'\'\'|"[^"\n]*"|'[^'\n]*')'''
    r'''|[bB]?(?:"""(?:\\.|.)*?"""|\'\'\'(?:\\.|.)*?\'\'\'|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')'''
    r"|//[^\n]*|[A-Za-z_]\w*|\s+|\d[\w.]*|.",
    re.DOTALL,
)
_LOOPS = {
    # macro: for each number of arguments, which of them is worked out first in every round
    "all": {2: 1, 3: 2},
    "exists": {2: 1, 3: 2},
    "exists_one": {2: 1},
    "existsOne": {2: 1, 3: 2},
    "filter": {2: 1},
    "map": {2: 1, 3: 1},
    "transformList": {3: 2, 4: 2},
    "transformMap": {3: 2, 4: 2},
    "transformMapEntry": {3: 2, 4: 2},
}
_TURNED = {"transformMap": "kplane_map", "transformMapEntry": "kplane_merged"}
_OPTIONAL = frozenset({"validate", "named"})
"""Methods and functions that return an optional value in Kubernetes, and here a list of at most one."""
_MAKING = frozenset({"map", "transformList", "transformMap", "transformMapEntry"})
_MATCHING = frozenset({"matches", "find", "findAll"})
_BINDING = frozenset({"bind", "optMap", "optFlatMap"})
_CONSTANTS = frozenset({"true", "false", "null", "in"})
_MANY = 64
_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")


def rewritten(text: str) -> str:
    """Return an expression as the runtime needs it; one with unmatched brackets stays as it is, for CEL to refuse."""
    tokens = _TOKEN.findall(text)
    try:
        return _rewritten(tokens)
    except _UnmatchedError:
        return text


def literal_patterns(text: str) -> list[str]:
    """Return the literals in an expression that are used as patterns, as they are written."""
    tokens = [part for part in _TOKEN.findall(text) if not part.isspace()]
    return [
        literal
        for dot, name, bracket, literal, end in zip(
            tokens, tokens[1:], tokens[2:], tokens[3:], tokens[4:], strict=False
        )
        if dot == "." and name in _MATCHING and bracket == "(" and literal[-1] in "'\"" and end in {")", ","}
    ]


def growth(text: str) -> int:
    """Return an upper bound of how many times as large as all values together a text or list in the expression can be.

    Sums and literals add up, and what has a name can be added to itself again: that doubles with each name.
    """
    tokens = _TOKEN.findall(text)
    sums = tokens.count("+") + _gathered(tokens)
    if not sums:
        return 1
    names = sum(token in _LOOPS or token in _BINDING for token in tokens)
    parts = min(names + 1, sums)
    return math.ceil((sums / parts + 1) ** min(parts, _MANY))


def _gathered(tokens: Sequence[str]) -> int:
    """Return how many values the literals of lists and maps in an expression put together, beyond one each."""
    total = 0
    open_brackets: list[_Bracket] = []
    before = ""
    for part in tokens:
        if part.isspace():
            continue
        if part in _OPENING:
            literal = part == "{" or (part == "[" and not (before.isidentifier() or before in _CLOSING))
            open_brackets.append(_Bracket(literal))
        elif open_brackets and part == ",":
            open_brackets[-1].end_element()
        elif open_brackets and part in _CLOSING:
            closed = open_brackets.pop()
            closed.end_element()
            total += max(closed.elements - 1, 0) if closed.literal else 0
            if open_brackets:
                open_brackets[-1].varies |= closed.elements > 0
        elif open_brackets and part.isidentifier() and part not in _CONSTANTS:
            open_brackets[-1].varies = True
        before = part
    return total


class _Bracket:
    """A bracket that is open: whether it makes a literal, its elements with variables, whether this one has any."""

    __slots__ = ("elements", "literal", "varies")

    def __init__(self, literal: bool) -> None:  # noqa: FBT001 (a record of one use)
        self.literal = literal
        self.elements = 0
        self.varies = False

    def end_element(self) -> None:
        self.elements += self.varies
        self.varies = False


class _UnmatchedError(Exception):
    """A bracket is not closed."""


def _rewritten(tokens: Sequence[str]) -> str:
    parts: list[str] = []
    at, count = 0, len(tokens)
    while at < count:
        name = tokens[at]
        called = at > 0 and (name in _LOOPS or name in _OPTIONAL) and _previous(tokens, at) == "."
        start = _opening(tokens, at + 1) if called else -1
        if start < 0:
            parts.append(name)
            at += 1
            continue
        arguments, at = _arguments(tokens, start + 1)
        parts.append(_call(name, [_rewritten(argument) for argument in arguments]))
    return "".join(parts)


def _call(name: str, arguments: list[str]) -> str:
    if name in _OPTIONAL:
        return f"{name}({', '.join(arguments)})[?0]"
    first = _LOOPS[name].get(len(arguments))
    if first is None:
        return f"{name}({', '.join(arguments)})"
    if name == "existsOne" and first == 1:
        name = "exists_one"  # the runtime knows the other name with two variables only
    asks = "made" if name in _MAKING and _mentions_others(arguments[:first], arguments[-1]) else "tick"
    if name == "transformMap":
        arguments[-1] = f"[{arguments[0]}, {arguments[-1]}]"
    arguments[first] = f"kplane.{asks}() ? ({arguments[first]}) : kplane.stop()"
    turned = _TURNED.get(name)
    name = "transformList" if turned else name
    return f"{name}({', '.join(arguments)})" + (f".{turned}()" if turned else "")


def _mentions_others(variables: Sequence[str], body: str) -> bool:
    """Whether what a round makes may hold more than the element that it is about."""
    own = {*(variable.strip() for variable in variables), *_CONSTANTS}
    before = ""
    for token in _TOKEN.findall(body):
        if token.isspace():
            continue
        if token.isidentifier() and token not in own and before != ".":
            return True
        before = token
    return False


def _previous(tokens: Sequence[str], at: int) -> str:
    """Return the token before, but for white space."""
    at -= 1
    while at > 0 and tokens[at].isspace():
        at -= 1
    return tokens[at]


def _opening(tokens: Sequence[str], at: int) -> int:
    """Return where the bracket of a call's arguments stands; -1 when there is none."""
    while at < len(tokens) and tokens[at].isspace():
        at += 1
    return at if at < len(tokens) and tokens[at] == "(" else -1


def _arguments(tokens: Sequence[str], start: int) -> tuple[list[list[str]], int]:
    """Return a call's arguments and the position behind it."""
    found: list[list[str]] = [[]]
    depth = 0
    for position in range(start, len(tokens)):
        part = tokens[position]
        if part == ")" and depth == 0:
            return ([] if found == [[]] else found), position + 1
        if part == "," and depth == 0:
            found.append([])
            continue
        depth += (part in _OPENING) - (part in _CLOSING)
        found[-1].append(part)
    raise _UnmatchedError
