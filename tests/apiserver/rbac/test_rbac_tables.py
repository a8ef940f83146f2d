"""A table finds what its rules allow, however long their lists are, and grows with their text only."""

import pytest

from kplane_apiserver.authorization.rbac.rules import Rule, Table, path_question, resource_question


def texts(letter, count):
    return tuple(f"{letter}{number}" for number in range(count))


@pytest.mark.parametrize(
    ("groups", "resources", "names"), [(1, 1, 30), (2, 1, 30), (3, 1, 30), (1, 9, 0), (9, 9, 0), (9, 9, 9)]
)
def test_every_combination_of_a_rule_is_found_and_nothing_else(groups, resources, names):
    rule = Rule(("get",), texts("g", groups), texts("r", resources), texts("n", names))
    table = Table([([rule], "here")])
    for group in texts("g", groups):
        for resource in texts("r", resources):
            for name in texts("n", names) or (None, "any"):
                assert table.find(resource_question("get", group, resource, name)) == "here"
    assert table.find(resource_question("list", "g0", "r0", "n0")) is None
    assert table.find(resource_question("get", "g", "r0", "n0")) is None
    assert table.find(resource_question("get", "g0", "r", "n0")) is None
    assert table.find(resource_question("get", "g0", "r0/status", "n0")) is None
    if names:
        assert table.find(resource_question("get", "g0", "r0", "n")) is None
        assert table.find(resource_question("get", "g0", "r0")) is None


@pytest.mark.parametrize("groups", [("*",), ("*", *texts("g", 9))])
@pytest.mark.parametrize("resources", [("*",), ("*/status", *texts("r", 9)), ("r0/status", *texts("r", 9))])
def test_stars_count_in_long_lists_too(groups, resources):
    table = Table([([Rule(("*",), groups, resources)], True)])
    assert table.find(resource_question("get", "any", "r0/status"))
    assert bool(table.find(resource_question("get", "any", "other/status"))) == (resources[0] != "r0/status")
    assert bool(table.find(resource_question("get", "any", "other"))) == (resources[0] == "*")


def test_a_table_is_as_large_as_its_rules_are_long():
    many = texts("x", 1000)
    table = Table([([Rule(many, many, many, many, many)], True)])
    places = sum(len(index) for index in (table._resources, table._named, table._exact, table._prefixes))
    assert places <= 2 * len(many)
    assert table.find(resource_question("x1", "x2", "x3", "x4"))
    assert table.find(path_question("x1", "x2"))


def test_the_longest_and_the_shortest_prefix_count():
    table = Table([([Rule(verbs=("get",), paths=("/a/*", "/a/b/c*", "/exact"))], True)])
    for path, found in {
        "/a/": True,
        "/a/b/c": True,
        "/a/x": True,
        "/a": False,
        "/exact": True,
        "/exact/x": False,
    }.items():
        assert bool(table.find(path_question("get", path))) == found, path
    assert table.find(path_question("put", "/a/x")) is None


def test_stars_at_the_end_of_a_path_are_one_as_upstream_has_it():
    table = Table([([Rule(verbs=("get",), paths=("/a**",))], True)])
    assert table.find(path_question("get", "/a"))
