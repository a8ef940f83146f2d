"""The ordered keys: order, ranges and cost."""

import random
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from kplane_core import ordered
from kplane_core.ordered import SortedKeys

KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
ODD = ["a", "B", "_", " ", "%2f", "/", "//", "é", "e\u0301", "ß", "\uffff", "\U00010000", "😀", "a ", "a\0"]


@given(
    keys=st.lists(KEYS, unique=True), doomed=st.sets(st.integers(0, 30)), start=KEYS, end=KEYS, limit=st.integers(0, 5)
)
def test_behaves_like_one_sorted_list(keys: list[str], doomed: set[int], start: str, end: str, limit: int) -> None:
    sorted_keys = SortedKeys()
    with patch.object(ordered, "_SPLIT", 4):
        for key in keys:
            sorted_keys.add(key)
        for key in [key for at, key in enumerate(keys) if at in doomed]:
            sorted_keys.remove(key)
    expected = sorted(key for at, key in enumerate(keys) if at not in doomed and start <= key < end)
    assert sorted_keys.between(start, end) == expected
    assert sorted_keys.all() == sorted(key for at, key in enumerate(keys) if at not in doomed)
    assert sorted_keys.between(start, end, limit) == (expected[:limit] if limit else expected)
    assert sorted_keys.count(start, end) == len(expected)


def test_order_is_that_of_code_points_and_so_of_utf8_bytes() -> None:
    sorted_keys = SortedKeys()
    for key in ODD:
        sorted_keys.add(key)
    found = sorted_keys.between("", "\U0010ffff")
    assert found == sorted(ODD)
    assert [key.encode() for key in found] == sorted(key.encode() for key in ODD)


def test_an_insert_moves_a_bounded_number_of_entries() -> None:
    # Counted, not timed: no chunk outgrows the bound, whatever the order of the keys, and none is empty.
    for order in ("ascending", "descending", "random"):
        keys = [f"/registry/pods/clusters/c/{number:06d}" for number in range(20_000)]
        if order == "descending":
            keys.reverse()
        elif order == "random":
            random.Random(1).shuffle(keys)
        sorted_keys = SortedKeys()
        for key in keys:
            sorted_keys.add(key)
        sizes = [len(chunk) for chunk in sorted_keys._chunks]
        assert max(sizes) <= ordered._SPLIT
        assert min(sizes) > 0
        assert len(sizes) <= 2 * 20_000 / (ordered._SPLIT / 2)


def test_removing_everything_leaves_nothing_behind() -> None:
    sorted_keys = SortedKeys()
    for number in range(3000):
        sorted_keys.add(str(number))
    for number in range(3000):
        sorted_keys.remove(str(number))
    assert sorted_keys._chunks == sorted_keys._lasts == []
    assert sorted_keys.between("", "z") == []
    assert sorted_keys.count("", "z") == 0
