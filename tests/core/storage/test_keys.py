"""Keys: the 8 legal and 28 illegal ones of the specification, and prefixes that stop at segment boundaries."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kplane_core.errors import InvalidKey, UsageError
from kplane_core.storage.keys import normalize_path_prefix, normalize_resource_prefix, prefix_end, prepare_key

# A busy machine is no failure.
PATIENT = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])

LEGAL = [
    "/pods/",
    "/pods/a",
    "/pods/ns/a",
    "/pods/a.b",
    "/pods/a..b",
    "/pods/bar..",
    "/pods/..bar",
    "/pods/ns.with.dots/.hidden",
]
EMPTY = ["", "/"]
DOTS = [
    ".",
    "..",
    "./",
    "../",
    "./pods/a",
    "../pods/a",
    "/./pods/a",
    "/../pods/a",
    "/pods/.",
    "/pods/..",
    "/pods/./a",
    "/pods/../a",
    "/pods/ns/.",
    "/pods/ns/..",
    "/pods/../secrets/a",
    "/..",
    "/.",
]
OUTSIDE = ["pods", "pods/a", "/pods", "/pods.apps", "/pods.apps/a", "/podsa/b", "/foo/", "/Pods/a", "//pods/a"]


def test_the_tables_have_the_counts_of_the_specification():
    assert len(set(LEGAL)) == 8
    assert len({*EMPTY, *DOTS, *OUTSIDE}) == 28


@pytest.mark.parametrize("key", LEGAL)
def test_legal_keys_are_kept_as_they_are(key):
    assert prepare_key(key, "/pods/", recursive=False) == key


@pytest.mark.parametrize("key", EMPTY)
def test_an_empty_key_is_called_empty(key):
    for recursive in (False, True):
        with pytest.raises(InvalidKey, match="empty key"):
            prepare_key(key, "/pods/", recursive=recursive)


@pytest.mark.parametrize("key", DOTS)
def test_dot_segments_are_refused_before_anything_else(key):
    for recursive in (False, True):
        with pytest.raises(InvalidKey, match="invalid key") as caught:
            prepare_key(key, "/pods/", recursive=recursive)
        assert "lacks" not in str(caught.value)


@pytest.mark.parametrize("key", OUTSIDE)
def test_keys_outside_the_prefix_are_refused(key):
    with pytest.raises(InvalidKey, match=r"invalid key.*lacks resource prefix"):
        prepare_key(key, "/pods/", recursive=False)


@pytest.mark.parametrize("key", ["/pods/a\0b", "/pods/\ud800"])
def test_characters_that_no_database_keeps_are_refused(key):
    with pytest.raises(InvalidKey, match="characters"):
        prepare_key(key, "/pods/", recursive=False)


@pytest.mark.parametrize(
    ("key", "prepared"), [("/pods", "/pods/"), ("/pods/", "/pods/"), ("/pods/ns", "/pods/ns/"), ("/pods/é", "/pods/é/")]
)
def test_a_directory_gets_its_slash(key, prepared):
    assert prepare_key(key, "/pods/", recursive=True) == prepared


@pytest.mark.parametrize(
    ("prefix", "normalized"),
    [
        ("custom/prefix", "/custom/prefix/"),
        ("/custom//prefix//", "/custom/prefix/"),
        ("/registry", "/registry/"),
        ("", "/"),
        ("/", "/"),
    ],
)
def test_path_prefixes_are_normalized(prefix, normalized):
    assert normalize_path_prefix(prefix) == normalized
    assert normalize_path_prefix(normalized) == normalized


@pytest.mark.parametrize("prefix", ["..", "/a/../b", "/./a"])
def test_path_prefixes_do_not_climb(prefix):
    with pytest.raises(UsageError, match="segments"):
        normalize_path_prefix(prefix)


@pytest.mark.parametrize(("prefix", "normalized"), [("/pods", "/pods/"), ("/pods/", "/pods/")])
def test_resource_prefixes_end_with_a_slash(prefix, normalized):
    assert normalize_resource_prefix(prefix) == normalized


@pytest.mark.parametrize("prefix", ["", "/", "pods", "pods/"])
def test_resource_prefixes_name_a_directory(prefix):
    with pytest.raises(UsageError, match="resource prefix"):
        normalize_resource_prefix(prefix)


SEGMENT = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=6)


@PATIENT
@given(SEGMENT, st.text(st.characters(codec="utf-8"), max_size=8))
def test_a_directorys_range_holds_exactly_what_begins_with_it(segment, rest):
    """c1 must not leak into c10, whatever the bytes are."""
    directory = f"/{segment}/"
    for key in (directory + rest, f"/{segment}{rest}", f"/{segment}0/{rest}", f"/{segment}"):
        inside = directory.encode() <= key.encode() < prefix_end(directory).encode()
        assert inside == key.startswith(directory)
