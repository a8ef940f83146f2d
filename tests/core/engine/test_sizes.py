"""The size estimator: newest news wins, in whatever order it comes."""

from kplane_core.engine.sizes import SizeEstimator


def test_the_average_is_of_the_known_keys_among_the_living_rounded_down():
    sizes = SizeEstimator()
    assert sizes.average([]) == 0
    assert sizes.average(["a"]) == 0
    sizes.seen("a", 10, 5)
    sizes.seen("b", 21, 6)
    assert sizes.average(["a", "b", "unknown"]) == 15
    assert sizes.average(["b"]) == 21


def test_a_key_that_died_unseen_is_forgotten():
    sizes = SizeEstimator()
    sizes.seen("a", 10, 5)
    assert sizes.average(["b"]) == 0
    assert sizes.average(["a"]) == 0, "a later life of the key has another size"


def test_older_news_changes_nothing():
    """Lists, watches and writes report the same change at different times."""
    sizes = SizeEstimator()
    sizes.seen("a", 10, 5)
    sizes.seen("a", 99, 5)
    sizes.seen("a", 99, 4)
    sizes.deleted("a", 4)
    sizes.deleted("a", 5)
    assert sizes.average(["a"]) == 10
    sizes.seen("a", 20, 6)
    assert sizes.average(["a"]) == 20
    sizes.deleted("a", 7)
    sizes.deleted("a", 7)
    assert sizes.average(["a"]) == 0
