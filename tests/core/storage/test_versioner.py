"""resourceVersions as text: strict when read, compared as numbers."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kplane_core.errors import InvalidError
from kplane_core.storage import INT64_MAX, compare_resource_versions, parse_resource_version

# A busy machine is no failure.
PATIENT = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize(
    ("text", "revision"),
    [("", 0), ("0", 0), ("1", 1), ("10", 10), ("007", 7), (str(INT64_MAX), INT64_MAX), ("0" * 5000 + "5", 5)],
    ids=lambda value: str(value)[:20],
)
def test_unset_zero_and_decimals_are_revisions(text, revision):
    assert parse_resource_version(text) == revision


@pytest.mark.parametrize(
    "text",
    ["a", " ", "-1", "+1", " 1", "1 ", "1.0", "1e3", "0x1", "1_0", "٣", "²", "1\n", str(INT64_MAX + 1), "9" * 5000],
    ids=lambda text: repr(text[:20]),
)
def test_anything_else_is_invalid_and_names_the_field(text):
    with pytest.raises(InvalidError) as caught:
        parse_resource_version(text)
    (cause,) = caught.value.causes
    assert cause.field == "resourceVersion"
    assert cause.reason == "FieldValueInvalid"
    assert caught.value.status().code == 422


@PATIENT
@given(st.integers(0, INT64_MAX))
def test_every_int64_reads_back(revision):
    assert parse_resource_version(str(revision)) == revision


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [("9", "10", -1), ("10", "9", 1), ("10", "10", 0), ("", "0", 0), ("0", "1", -1), ("2", "01", 1)],
)
def test_comparison_is_of_numbers_never_of_text(first, second, expected):
    assert compare_resource_versions(first, second) == expected


@pytest.mark.parametrize(("first", "second"), [("x", "1"), ("1", "x")])
def test_comparison_refuses_what_is_no_version(first, second):
    with pytest.raises(InvalidError):
        compare_resource_versions(first, second)
