"""Regular expressions as Kubernetes understands them (RE2's), compiled by Python's `re`.

The two languages agree on most of what schemas use. What RE2 writes differently is rewritten: the end of the text, the
POSIX classes, Unicode classes by their general names. What cannot be rewritten is not
checked, of which the author of the definition is warned.

RE2 takes as long as a text is; `re` may take for ever. Where it may, an automaton of our own reads the text.
"""

import re
from collections.abc import Callable
from functools import lru_cache

from kplane_apiserver.schemas.automata import Automaton, UnsuitableError, parsed, safe_length

_POSIX = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "ascii": r"\x00-\x7F",
    "blank": r"\t ",
    "cntrl": r"\x00-\x1F\x7F",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": r"!-/:-@\[-`{-~",
    "space": r"\t\n\v\f\r ",
    "upper": "A-Z",
    "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}
_TOKEN = re.compile(
    r"\\Q(?P<literal>.*?)(?:\\E|$)|\\.|\[:(?P<posix>[a-z]+):\]|\(\?<(?P<name>[A-Za-z_]\w*)>|.", re.DOTALL
)
_GROUP = re.compile(
    r"\\Q.*?(?:\\E|$)|\\.|\[:[a-z]+:\]|\[\^?\]?|(?P<group>\((?:\?P?<[A-Za-z_]\w*>|(?!\?)))|.", re.DOTALL
)
_LONGEST_TEXT = 4 << 20  # no body is longer
_MULTILINE = re.compile(r"\(\?[a-zA-Z]*m")


@lru_cache(maxsize=2048)
def compile_pattern(pattern: str) -> Callable[[str], object] | None:
    """Return a function that is true for texts which the pattern matches somewhere; None if it cannot be checked."""
    try:
        translated = _translated(pattern)
        search = re.compile(translated, re.ASCII).search
        tree = parsed(translated)
        longest = safe_length(tree)
        if longest >= _LONGEST_TEXT:
            return search
        automaton = Automaton(tree)
    except (re.error, OverflowError, RecursionError, UnsuitableError):
        return None

    def matches(text: str) -> object:
        return search(text) if len(text) <= longest else automaton.search(text)

    return matches


@lru_cache(maxsize=1024)
def is_foreign(pattern: str) -> bool:
    """Return whether a pattern looks around or back, which RE2 cannot and so Kubernetes refuses."""
    try:
        safe_length(parsed(_translated(pattern)))
    except UnsuitableError:
        return True
    except (re.error, OverflowError, RecursionError):
        return False
    return False


def uncaptured(pattern: str) -> str:
    """Return a pattern of RE2's that matches the same and captures nothing."""
    parts: list[str] = []
    inside = False  # a class of characters, where brackets say nothing
    for match in _GROUP.finditer(pattern):
        part = match[0]
        if inside:
            inside = part != "]"
        elif part[0] == "[":
            inside = True
        elif match["group"]:
            part = "(?:"
        parts.append(part)
    return "".join(parts)


def _translated(pattern: str) -> str:
    """Return the pattern in Python's language."""
    end = "$" if _MULTILINE.search(pattern) else r"\Z"
    parts: list[str] = []
    start = -1  # where the class that is being read began
    for match in _TOKEN.finditer(pattern):
        part = match[0]
        if match["literal"] is not None:
            part = re.escape(match["literal"])
        elif start >= 0:
            part, closed = _in_class(match, first=len(parts) == start)
            start = -1 if closed else start + 1 if part == "^" and len(parts) == start else start
        elif part == "[":
            start = len(parts) + 1
        else:
            part = _outside(match, end)
        parts.append(part)
    return "".join(parts)


def _outside(match: re.Match[str], end: str) -> str:
    if match["name"] is not None:
        return f"(?P<{match['name']}>"
    return {"$": end, r"\z": r"\Z"}.get(match[0], match[0])


def _in_class(match: re.Match[str], *, first: bool) -> tuple[str, bool]:
    """Return a part of a class in Python's language, and whether it ends the class."""
    if match["posix"] is not None:
        return _POSIX.get(match["posix"], match[0]), False
    if match[0] == "[":
        return r"\[", False  # Python warns of a bracket that opens nothing
    return match[0], match[0] == "]" and not first
