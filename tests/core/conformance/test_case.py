"""Declaring cases: what cannot be meant is refused when the suite is imported."""

from importlib import metadata

import pytest

from kplane_conformance.case import Capability, Group, Inventory, case, load
from kplane_conformance.upstream import LEAF_CASES, UPSTREAM


def declare(inventory: Inventory, name: str = "a", **options: object) -> None:
    @case(name, inventory=inventory, **options)  # type: ignore[arg-type]  # whatever a test tries
    async def function(*_: object) -> None:
        """It promises something."""


def test_the_numbering_follows_sixty_functions_with_267_leaf_cases() -> None:
    assert (len(UPSTREAM), LEAF_CASES) == (60, 267)


def test_rows_are_leaf_cases_numbered_from_one() -> None:
    inventory = Inventory()
    declare(inventory, "List", rows=["x", "y"])
    declare(inventory, "D18")
    assert [leaf.id for leaf in inventory.leaves()] == ["List[row-1]", "List[row-2]", "D18"]


def test_rows_may_have_ids_of_their_own() -> None:
    inventory = Inventory()
    declare(inventory, rows=[1, 2], row_ids=["one", "two"])
    assert [leaf.id for leaf in inventory.leaves()] == ["a[one]", "a[two]"]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("has space", {}, "a bad id"),
        ("", {}, "a bad id"),
        ("taken", {}, "already taken"),
        ("a", {"rows": [1, 2], "row_ids": ["x"]}, "one distinct id per row"),
        ("a", {"rows": [1, 2], "row_ids": ["x", "x"]}, "one distinct id per row"),
        ("a", {"upstream": "RunTestNothing"}, "upstream has no function"),
        ("List", {"upstream": "RunTestList", "rows": range(85)}, "has 85 leaf cases, RunTestList has 86"),
        ("a", {"provisional": "soon"}, "no version like '0.2'"),
        ("Create2", {"upstream": "RunTestCreateWithTTL"}, "is restated already"),
    ],
)
def test_contradictions_are_refused(name: str, options: dict[str, object], message: str) -> None:
    inventory = Inventory()
    declare(inventory, "taken")
    declare(inventory, "CreateWithTTL", upstream="RunTestCreateWithTTL")
    with pytest.raises(ValueError, match=message):
        declare(inventory, name, **options)


def test_a_case_without_a_promise_is_refused() -> None:
    async def function(_ctx: object) -> None:
        pass

    with pytest.raises(ValueError, match="docstring says what it promises"):
        case("a", inventory=Inventory())(function)


def test_a_case_that_is_not_async_is_refused() -> None:
    def function(_ctx: object) -> None:
        """It is no coroutine function."""

    with pytest.raises(ValueError, match="must be an async function"):
        case("a", inventory=Inventory())(function)  # type: ignore[arg-type]  # what the test is about


def test_the_digest_tells_suites_apart_and_not_the_order() -> None:
    one, other, third = Inventory(), Inventory(), Inventory()
    for inventory, names in ((one, "ab"), (other, "ba"), (third, "ac")):
        for name in names:
            declare(inventory, name)
    assert one.digest() == other.digest() != third.digest()


def test_the_installed_suite_loads_and_counts_each_upstream_leaf_case_at_most_once() -> None:
    inventory = load()
    upstream = [leaf for leaf in inventory.leaves() if leaf.case.group is Group.UPSTREAM]
    assert len({leaf.id for leaf in inventory.leaves()}) == len(inventory.leaves())
    assert len(upstream) <= LEAF_CASES
    assert load() is inventory


def test_no_case_is_new_for_longer_than_one_minor_version() -> None:
    major, minor = map(int, metadata.version("kplane-conformance").split(".")[:2])
    soon = {"", f"{major}.{minor + 1}", f"{major + 1}.0"}
    assert {found.name: found.provisional for found in load().cases() if found.provisional not in soon} == {}


def test_every_capability_has_a_case_that_proves_its_absence() -> None:
    assert {found.unless for found in load().cases()} - {None} == set(Capability)
