"""Patterns matched in time that grows with the text alone, as RE2 does it, for those that make `re` try for ever.

A pattern becomes a graph of states; a text is read once, with all states that are possible at each place. Sets of
states that were met are remembered with what each character makes of them, so that most characters cost one look-up.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from re import _constants as code  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

_MOST_STATES = 20_000
_MOST_REMEMBERED = 4_000
_MOST_WORK = 2_000_000
_MANY = 10  # repeated more often than that is as good as repeated without end
_STEPS = 100_000

Test = Callable[[str], bool]


class UnsuitableError(Exception):
    """A pattern is none of RE2's, or too large."""


class _State:
    """A state: a character to be read or a condition to hold before the next ones, if there is either."""

    __slots__ = ("at", "nexts", "number", "test")

    def __init__(self, number: int, nexts: list[_State], test: Test | None = None, at: Any = None) -> None:
        self.number = number
        self.nexts = nexts
        self.test = test
        self.at = at


def parsed(pattern: str) -> Any:
    """Return a pattern of Python's as a tree.

    Raises:
        re.error: it is none.
    """
    return parser.parse(pattern, re.ASCII)


def safe_length(tree: Any) -> int:
    """Return up to which length of a text `re` is sure to be quick.

    Raises:
        UnsuitableError: the pattern looks around or back, which no automaton can.
    """
    loops, nested = _loops(tree)
    if nested:
        return 0
    first = tree[0] if len(tree) else (None, None)
    anchored = first[0] is code.AT and first[1] in {code.AT_BEGINNING, code.AT_BEGINNING_STRING}
    degree = loops + (0 if anchored else 1)
    return int(_STEPS ** (1 / degree)) if degree else _STEPS * _STEPS


def _loops(items: Any) -> tuple[int, bool]:
    """Return how many repetitions without end a tree has, and whether one is within another."""
    total, nested = 0, False
    for operation, argument in items:
        for inner in _inner(operation, argument):
            found, deeper = _loops(inner)
            total += found
            nested = nested or deeper
        if operation in _REPEATS and argument[1] > _MANY:
            nested = nested or _loops(argument[2])[0] > 0
            total += 1
    return total, nested


_REPEATS = frozenset({code.MAX_REPEAT, code.MIN_REPEAT})
_SINGLE = frozenset({code.LITERAL, code.NOT_LITERAL, code.ANY, code.IN})


def _inner(operation: Any, argument: Any) -> Iterator[Any]:
    if operation in _REPEATS:
        yield argument[2]
    elif operation is code.SUBPATTERN:
        yield argument[3]
    elif operation is code.BRANCH:
        yield from argument[1]
    elif operation not in _SINGLE and operation is not code.AT:
        raise UnsuitableError


class Automaton:
    """What finds a pattern in texts.

    Args:
        tree: the pattern, as `parsed` returned it.

    Raises:
        UnsuitableError: it is none of RE2's, or too large.
    """

    def __init__(self, tree: Any) -> None:
        self._states: list[_State] = []
        self._end = self._new([])
        self._start = self._sequence(tree, self._end, tree.state.flags)
        self._sets: dict[tuple[frozenset[int], str], dict[str, Any]] = {}
        self._remembered = 0
        self._first = self._set(frozenset({self._start.number}), "")

    def search(self, text: str) -> bool:
        """Return whether the pattern matches a text somewhere; no match is found that takes too much work to find."""
        seen, work = self._first, 0
        for char in text:
            following = seen.get(char)
            if following is None:
                work += len(seen[_SELF][0])
                if work > _MOST_WORK:
                    return False
                following = self._read(seen, char)
            if following is _FOUND:
                return True
            seen = following
        ended = seen.get("")
        if ended is None:
            states, before = seen[_SELF]
            ended = seen[""] = self._end.number in self._closure(states, before, "")
        return bool(ended)

    # --- reading ------------------------------------------------------------------------------------------------------

    def _read(self, seen: dict[str, Any], char: str) -> Any:
        self._remembered += 1
        if self._remembered > _MOST_REMEMBERED:
            self._forget()
        states, before = seen[_SELF]
        possible = self._closure(states, before, char)
        if self._end.number in possible:
            seen[char] = _FOUND
            return _FOUND
        # A match may begin at every place.
        reached = {self._start.number}
        for number in possible:
            state = self._states[number]
            if state.test is not None and state.test(char):
                reached.update(following.number for following in state.nexts)
        found = seen[char] = self._set(frozenset(reached), char if char == "\n" or _is_word(char) else " ")
        return found

    def _set(self, states: frozenset[int], before: str) -> dict[str, Any]:
        before = "w" if _is_word(before) else before
        found = self._sets.get((states, before))
        if found is None:
            found = self._sets[states, before] = {_SELF: (states, before)}
        return found

    def _forget(self) -> None:
        for seen in self._sets.values():
            what = seen[_SELF]
            seen.clear()
            seen[_SELF] = what
        self._sets.clear()
        self._remembered = 0

    def _closure(self, states: frozenset[int], before: str, after: str) -> set[int]:
        """Return the states that can be reached without reading, between two characters; no text is an end."""
        found: set[int] = set()
        pending = list(states)
        while pending:
            number = pending.pop()
            if number in found:
                continue
            found.add(number)
            state = self._states[number]
            if state.test is None and (state.at is None or _holds(state.at, before, after)):
                pending.extend(following.number for following in state.nexts)
        return found

    # --- building -----------------------------------------------------------------------------------------------------

    def _new(self, nexts: list[_State], test: Test | None = None, at: Any = None) -> _State:
        if len(self._states) >= _MOST_STATES:
            raise UnsuitableError
        state = _State(len(self._states), nexts, test, at)
        self._states.append(state)
        return state

    def _sequence(self, items: Any, following: _State, flags: int) -> _State:
        for operation, argument in reversed(list(items)):
            following = self._one(operation, argument, following, flags)
        return following

    def _one(self, operation: Any, argument: Any, following: _State, flags: int) -> _State:
        if operation in _SINGLE:
            return self._new([following], _test(operation, argument, flags))
        if operation in _REPEATS:
            return self._repeat(argument, following, flags)
        if operation is code.BRANCH:
            return self._new([self._sequence(branch, following, flags) for branch in argument[1]])
        if operation is code.SUBPATTERN:
            _, more, less, items = argument
            return self._sequence(items, following, (flags | more) & ~less)
        if operation is code.AT:
            multiline = {code.AT_BEGINNING: code.AT_BEGINNING_LINE, code.AT_END: code.AT_END_LINE}
            at = multiline.get(argument, argument) if flags & re.MULTILINE else argument
            return self._new([following], at=at)
        raise UnsuitableError

    def _repeat(self, argument: Any, following: _State, flags: int) -> _State:
        least, most, items = argument
        if most is code.MAXREPEAT:
            start = self._new([])
            start.nexts = [self._sequence(items, start, flags), following]
        else:
            start = following
            for _ in range(most - least):
                start = self._new([self._sequence(items, start, flags), following])
        for _ in range(least):
            start = self._sequence(items, start, flags)
        return start


_SELF = "self"
"""Where a set of states notes what it is; no character is as long."""
_FOUND: dict[str, Any] = {}


def _is_word(char: str) -> bool:
    return char.isascii() and (char.isalnum() or char == "_")


def _holds(at: Any, before: str, after: str) -> bool:
    """Return whether a condition holds between two characters; no text is the beginning or the end."""
    if at in {code.AT_BEGINNING, code.AT_BEGINNING_STRING}:
        return not before
    if at is code.AT_END_STRING:
        return not after
    if at is code.AT_BEGINNING_LINE:
        return before in {"", "\n"}
    if at in {code.AT_END_LINE, code.AT_END}:
        return after in {"", "\n"}
    return (_is_word(before) is not _is_word(after)) is (at is code.AT_BOUNDARY)


# --- single characters ------------------------------------------------------------------------------------------------


def _test(operation: Any, argument: Any, flags: int) -> Test:
    if operation is code.ANY:
        return _anything if flags & re.DOTALL else lambda char: char != "\n"
    if operation is code.LITERAL:
        test = _member([(code.LITERAL, argument)])
    elif operation is code.NOT_LITERAL:
        test = _member([(code.NEGATE, None), (code.LITERAL, argument)])
    else:
        test = _member(argument)
    if not flags & re.IGNORECASE:
        return test
    negated = operation is code.NOT_LITERAL or (operation is code.IN and argument[0][0] is code.NEGATE)
    quantify = all if negated else any
    return lambda char: quantify(test(one) for one in {char, char.lower(), char.upper()})


def _anything(_char: str) -> bool:
    return True


def _member(items: Sequence[tuple[Any, Any]]) -> Test:
    """Return whether characters are in a class."""
    negated = bool(items) and items[0][0] is code.NEGATE
    single = frozenset(chr(argument) for operation, argument in items if operation is code.LITERAL)
    ranges = [argument for operation, argument in items if operation is code.RANGE]
    categories = [_CATEGORIES[argument] for operation, argument in items if operation is code.CATEGORY]

    def test(char: str) -> bool:
        point = ord(char) if len(char) == 1 else -1
        known = char in single or any(low <= point <= high for low, high in ranges)
        return (known or any(category(char) for category in categories)) is not negated

    return test


def _is_digit(char: str) -> bool:
    return char.isascii() and char.isdigit()


def _is_space(char: str) -> bool:
    return char in {" ", "\t", "\n", "\r", "\f", "\v"}


_CATEGORIES: dict[Any, Test] = {
    code.CATEGORY_DIGIT: _is_digit,
    code.CATEGORY_NOT_DIGIT: lambda char: not _is_digit(char),
    code.CATEGORY_SPACE: _is_space,
    code.CATEGORY_NOT_SPACE: lambda char: not _is_space(char),
    code.CATEGORY_WORD: _is_word,
    code.CATEGORY_NOT_WORD: lambda char: not _is_word(char),
}
