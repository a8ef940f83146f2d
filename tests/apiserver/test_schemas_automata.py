"""Patterns take time as a text is long, whatever a tenant writes, and match what `re` matches."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kplane_apiserver.schemas import automata
from kplane_apiserver.schemas.automata import Automaton, UnsuitableError, parsed, safe_length
from kplane_apiserver.schemas.patterns import compile_pattern, is_foreign

ATOMS = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\w", r"\W", r"\d", r"\s", "[a-c1]", "-", r"\.", "A"])
ASSERTIONS = st.sampled_from(["^", r"\Z", r"\b", r"\B", "$"])


def larger(inner):
    quantified = st.builds(
        str.__add__,
        inner.map(lambda text: f"(?:{text})"),
        st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{2,}", "*?"]),
    )
    return st.one_of(
        st.builds(str.__add__, inner, inner),
        st.builds(lambda one, other: f"({one}|{other})", inner, inner),
        quantified,
        inner.map(lambda text: f"(?i:{text})"),
    )


PATTERNS = st.builds(
    lambda flags, text: flags + text,
    st.sampled_from(["", "(?s)", "(?m)", "(?i)"]),
    st.recursive(ATOMS | ASSERTIONS, larger, max_leaves=8),
)


@settings(max_examples=500, deadline=None)
@given(PATTERNS, st.text(alphabet="abAB1-._ \nä", max_size=8))
def test_an_automaton_finds_what_re_finds(pattern, text):
    wanted = re.search(pattern, text, re.ASCII) is not None
    automaton = Automaton(parsed(pattern))
    # `$` also holds before a line feed at the end, which no schema's pattern means: it is rewritten before. And `\B`
    # does not hold in an empty text, as only Python has it.
    if ("$" not in pattern or "(?m)" in pattern) and (text or r"\B" not in pattern):
        assert automaton.search(text) is wanted
        assert automaton.search(text) is wanted, "what was remembered says the same"


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("^(a+)+$", "a" * 1_000_000 + "!"),
        (r"^(a|aa)+\b$", "a" * 100_000 + "-"),
        ("^(a|a)*$", "a" * 100_000 + "!"),
        ("(x+x+)+y", "x" * 100_000),
        ("^a*a*a*a*b$", "a" * 100_000),
        ("[a-z]+@", "a" * 1_000_000),
        ("(a?){50}a{50}", "a" * 49),
        ("(?m)^(a+)+$", "a" * 100_000 + "!"),
        ("^(([a-z])+.)+[A-Z]([a-z])+$", "a" * 100_000),
        ("(.*)*,$", "".join(map(chr, range(0x4E00, 0x9000)))),
    ],
)
def test_no_pattern_takes_longer_than_its_text(pattern, text):
    matches = compile_pattern(pattern)
    assert matches is not None
    assert not matches(text), "and this ends: `re` would try for years"


def test_too_much_work_finds_nothing(monkeypatch):
    monkeypatch.setattr(automata, "_MOST_WORK", 50)
    automaton = Automaton(parsed("(a|b)*c"))
    assert automaton.search("ab" * 100 + "c"), "what is remembered is no work"
    assert not automaton.search("".join(map(chr, range(0x4E00, 0x4E00 + 100))) + "c")


def test_what_is_remembered_is_bounded():
    automaton = Automaton(parsed("^(.*)*,$"))
    automaton.search("".join(map(chr, range(0x4E00, 0x9000))))
    assert sum(map(len, automaton._sets.values())) <= automata._MOST_REMEMBERED * 2


@pytest.mark.parametrize(
    ("pattern", "length"),
    [("^abc$", 10**10), ("^[a-z]+$", 100_000), ("[a-z]+", 316), ("^a*b*c*$", 46), ("^(a+b)+$", 0), ("a{0,5}", 100_000)],
)
def test_short_texts_are_left_to_re(pattern, length):
    assert safe_length(parsed(pattern)) == length


@pytest.mark.parametrize("pattern", [r"(a)\1", "(?=a)", "(?!a)", "(?<=a)b", "(?>a)"])
def test_what_re2_cannot_read_is_known(pattern):
    assert is_foreign(pattern)
    assert compile_pattern(pattern) is None
    assert not is_foreign(r"\p{Greek}")


def test_a_pattern_that_is_too_large_is_not_read():
    with pytest.raises(UnsuitableError):
        Automaton(parsed("(((a{0,99}){0,99}){0,99})"))
    assert compile_pattern("(((a{0,99}){0,99}){0,99})") is None
