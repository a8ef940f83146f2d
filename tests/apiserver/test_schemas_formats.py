"""Formats and patterns mean what they mean to Kubernetes."""

import pytest

from kplane_apiserver.schemas.formats import FORMATS
from kplane_apiserver.schemas.patterns import compile_pattern

GOOD = {
    "bsonobjectid": ["507f1f77bcf86cd799439011"],
    "uri": ["https://example.com/a?b#c", "/a/path", "mailto:a@b.c"],
    "email": ["a@example.com", "Ann <a@example.com>"],
    "hostname": ["example.com", "a", "a-b.c"],
    "ipv4": ["10.0.0.1"],
    "ipv6": ["::1", "fe80::1"],
    "cidr": ["10.0.0.0/8", "fd00::/8", "10.1.2.3/8"],
    "mac": ["01:23:45:67:89:ab", "01-23-45-67-89-AB", "0123.4567.89ab"],
    "uuid": ["6ba7b810-9dad-11d1-80b4-00c04fd430c8"],
    "uuid3": ["bcd02e22-68f0-3046-a512-327cca9def8f"],
    "uuid4": ["025b0d74-00a2-4048-bf57-227c5111bb34"],
    "uuid5": ["886313e1-3b8a-5372-9b90-0c9aee199e5d"],
    "isbn": ["0-306-40615-2", "978-0-306-40615-7"],
    "isbn10": ["080442957X"],
    "isbn13": ["9780306406157"],
    "creditcard": ["4111-1111-1111-1111"],
    "ssn": ["111-11-1111"],
    "hexcolor": ["#fff", "A1B2C3"],
    "rgbcolor": ["rgb(0, 128,255)"],
    "byte": ["aGVsbG8=", ""],
    "date": ["2026-02-28"],
    "date-time": ["2026-02-28T23:59:59Z", "2026-02-28T01:02:03.004+02:00"],
    "datetime": ["2026-02-28T23:59:59Z"],
    "duration": ["1h30m", "-1.5s", "0", "5 days", "300ms"],
}
BAD = {
    "bsonobjectid": ["507f"],
    "uri": ["example.com", "a b", "", "http://a:99999/"],
    "email": ["example.com", "a@", "a b@c.d"],
    "hostname": ["-a", "a_b", "a..b", ""],
    "ipv4": ["10.0.0", "::1", "10.0.0.256"],
    "ipv6": ["10.0.0.1", "fe80::1%eth0"],
    "cidr": ["10.0.0.0", "10.0.0.0/33", "x/8", "10.0.0.0/255.0.0.0"],
    "mac": ["01:23:45:67:89", "01:23-45:67:89:ab"],
    "uuid": ["6ba7b810"],
    "uuid3": ["025b0d74-00a2-4048-bf57-227c5111bb34"],
    "uuid4": ["6ba7b810-9dad-11d1-80b4-00c04fd430c8"],
    "uuid5": ["025b0d74-00a2-4048-bf57-227c5111bb34"],
    "isbn": ["123"],
    "isbn10": ["0804429571"],
    "isbn13": ["9780306406158"],
    "creditcard": ["4111-1111-1111-1112", "no"],
    "ssn": ["11-11-1111"],
    "hexcolor": ["#ff", "blue"],
    "rgbcolor": ["rgb(0,0,256)"],
    "byte": ["a", "%%%"],
    "date": ["2026-02-30", "20260228", "28.2.2026"],
    "date-time": ["2026-02-28", "2026-02-28T24:00:00Z", "2026-02-30T00:00:00Z", "2026-02-28T10:00:00"],
    "datetime": ["now"],
    "duration": ["1", "h", ""],
}


def test_every_format_has_examples() -> None:
    assert GOOD.keys() == BAD.keys() == FORMATS.keys()


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_a_long_text_is_judged_as_fast_as_it_is_read(name: str) -> None:
    """One that could be read in many ways would hold up the server for hours."""
    for part in ("1", "a", "a-", "a.", "1 ", "1.", "<", "@", ":", "/", " "):
        FORMATS[name](part * 200_000)
        FORMATS[name](f"{part * 200_000}!")


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_a_format_takes_the_right_texts_alone(name: str) -> None:
    assert [text for text in GOOD[name] if not FORMATS[name](text)] == []
    assert [text for text in BAD[name] if FORMATS[name](text)] == []


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        (r"^a$", "a", "a\n"),
        (r"(?m)^a$", "b\na\nb", "ba"),
        (r"^a\z", "a", "a\n"),
        (r"^[[:alpha:]]+$", "abc", "ab1"),
        (r"^[^[:space:]]$", "a", " "),
        (r"^[]a]$", "]", "b"),
        (r"^[^]a]$", "b", "]"),
        (r"^[[]$", "[", "]"),
        (r"^[$]$", "$", "\\"),
        (r"^\Q[a]\E$", "[a]", "a"),
        (r"^(?<x>a)$", "a", "b"),
        (r"^\d$", "1", "\u0661"),
        (r"b", "abc", "ac"),
        (r"^\$$", "$", "a"),
        (r"^\[a$", "[a", "a"),
    ],
)
def test_a_pattern_means_what_it_means_to_go(pattern: str, matching: str, other: str) -> None:
    matches = compile_pattern(pattern)
    assert matches is not None
    assert matches(matching)
    assert not matches(other)


def test_a_pattern_that_cannot_be_read_is_known_for_it() -> None:
    assert compile_pattern(r"\p{Greek}") is None
