"""Cases: what the suite holds a backend to, and the inventory of all of them.

A case is an async function with an id that is for ever. A case with rows counts as one case per row, and each row is
an own pytest item: `List[row-20]` is row 20 of the table of `List`, counted from one as the specification does.
"""

import hashlib
import importlib
import inspect
import pkgutil
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Any, Final

import attrs

from kplane_conformance.upstream import UPSTREAM
from kplane_core.plugins.capabilities import Capability

__all__ = [
    "INVENTORY",
    "RETIRED",
    "Capability",
    "Case",
    "CaseFunction",
    "Group",
    "Hook",
    "Inventory",
    "Layer",
    "Leaf",
    "View",
    "case",
    "load",
]


class Hook(StrEnum):
    """What a case needs beyond the storage contract itself.

    A hook that a backend cannot give skips the case by name; it is never played by a no-op.
    """

    COMPACT = "compact"
    """Compact the history at a revision."""
    INCREASE_RV = "increase_rv"
    """Write once outside the case's resource."""
    SWAP_TRANSFORMER = "swap_transformer"
    """Replace the value transformer of a living store."""
    SET_FAILING = "set_failing"
    """Make every read of a stored value fail, in the transformer or in the decoder."""
    COUNT_CALLS = "count_calls"
    """Count the reads that reach the engine."""
    ENGINE = "engine"
    """Call the ten engine methods directly."""
    RAW_PEEK = "raw_peek"
    """Read the stored bytes of a record past the store."""
    RAW_POKE = "raw_poke"
    """Write the stored bytes of a record past the store."""
    CLOCK = "clock"
    """Move the clock that decides about TTLs."""
    RESTART = "restart"
    """Restart the database."""
    RESTORE = "restore"
    """Take a backup of the database, and put the database back to it."""
    FAULT = "fault"
    """Break the connection to the database on purpose."""


class Layer(StrEnum):
    """What a case can be seen on."""

    STORE = "store"
    """A plain store."""
    CACHE = "cache"
    """A cache in front of a store."""
    DATABASE = "database"
    """A database with a life of its own: processes, disks, networks."""
    HTTP = "http"
    """The API server."""


class View(StrEnum):
    """Through what a case looks at a backend: the columns of a certificate."""

    STORE = "store"
    """A plain store."""
    CACHE = "cache"
    """A store behind the watch cache."""
    CACHE_NO_HISTORY = "cache-no-history"
    """The same, with every exact read left to the store."""
    CLUSTERS = "clusters"
    """The directory of one cluster, through the cluster-aware store over all of them."""
    SECOND_HANDLE = "second-handle"
    """Written through one store and read through another one, as two API servers do."""

    @property
    def cached(self) -> bool:
        """Whether a watch cache answers."""
        return self in {View.CACHE, View.CACHE_NO_HISTORY, View.CLUSTERS}

    @property
    def layer(self) -> Layer:
        """The layer that a case must be visible on to be run here."""
        return Layer.CACHE if self.cached else Layer.STORE


class Group(StrEnum):
    """Under which heading a case is counted."""

    UPSTREAM = "upstream battery"
    CONTRACT = "contract beyond upstream"
    SECTION_D = "sharp edges (D)"
    REPORTS = "field reports"
    ENGINE = "engine"
    MODEL = "model"
    CAPABILITIES = "capabilities"


_GROUP_OF_MODULE: Final = (
    ("section_d", Group.SECTION_D),
    ("cacher_section_d", Group.SECTION_D),
    ("cacher_reports", Group.REPORTS),
    ("reports", Group.REPORTS),
    ("engine", Group.ENGINE),
    ("model", Group.MODEL),
    ("linearizability", Group.MODEL),
    ("capabilities", Group.CAPABILITIES),
)

RETIRED: Final[frozenset[str]] = frozenset()
"""Ids of cases that were removed. They are never given again."""

_MINOR: Final = re.compile(r"(\d+)\.(\d+)")
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*")

CaseFunction = Callable[..., Awaitable[None]]
"""`async def f(ctx: Context)`, or `async def f(ctx: Context, row: Row)` for a case with rows."""


def _minor(version: str) -> tuple[int, int]:
    found = _MINOR.match(version)
    assert found is not None, version
    return int(found[1]), int(found[2])


@attrs.frozen
class Case:
    """One case and what it needs.

    Attributes:
        name: its id, for ever.
        function: the code.
        promise: what it proves, from its docstring.
        group: the heading that counts it.
        rows: its rows; empty for a case without rows.
        row_ids: one id per row.
        upstream: the upstream function that it restates, or "".
        requires: capabilities without which the backend skips it.
        unless: the capability that must be *unsupported*: the case proves the documented error. Where the capability
            is supported the case does not apply.
        hooks: what it needs of the harness.
        layers: on what it can be seen.
        timeout: seconds after which it counts as hanging.
        elsewhere: the suite that shows it, for a promise that no case of this one can show; it is then only listed.
        provisional: the version of the suite from which on a failure counts, as `0.2`; "" for a case that counts.
    """

    name: str
    function: CaseFunction
    promise: str
    group: Group
    rows: tuple[Any, ...] = ()
    row_ids: tuple[str, ...] = ()
    upstream: str = ""
    requires: tuple[Capability, ...] = ()
    unless: Capability | None = None
    hooks: tuple[Hook, ...] = ()
    layers: tuple[Layer, ...] = (Layer.STORE, Layer.CACHE)
    timeout: float = 60.0
    elsewhere: str = ""
    provisional: str = ""

    def leaves(self) -> Iterator["Leaf"]:
        """Yield what counts: the rows, or the case itself."""
        if not self.row_ids:
            yield Leaf(self.name, self, None)
        for row_id, row in zip(self.row_ids, self.rows, strict=True):
            yield Leaf(f"{self.name}[{row_id}]", self, row)

    def counts(self, suite: str) -> bool:
        """Return whether a failure counts in this version of the suite; before, it is only reported."""
        return not self.provisional or _minor(suite) >= _minor(self.provisional)

    def views(self) -> Iterator[View]:
        """Yield through what else than a plain store the case is run: all that it can be seen on."""
        if not self.elsewhere:
            yield from (view for view in _VIEWS.get(self.group, ()) if view.layer in self.layers)


_VIEWS: Final = {
    Group.UPSTREAM: (View.CACHE, View.CACHE_NO_HISTORY, View.CLUSTERS, View.SECOND_HANDLE),
    Group.CONTRACT: (View.CACHE, View.CACHE_NO_HISTORY, View.CLUSTERS, View.SECOND_HANDLE),
    Group.SECTION_D: (View.CACHE, View.CLUSTERS),
    Group.REPORTS: (View.CACHE, View.CLUSTERS),
}
"""Groups about the storage contract; engines and models are the same whatever stands in front of them."""


@attrs.frozen
class Leaf:
    """A case, or one row of it: the thing that passes or fails.

    Attributes:
        name: `Name` or `Name[row-N]`.
        case: the case.
        row: the row's value; None for a case without rows.
        view: through what it looks at the backend.
    """

    name: str
    case: Case
    row: Any
    view: View = View.STORE

    @property
    def id(self) -> str:
        """The name, with the view behind an at sign where it is not a plain store."""
        return self.name if self.view is View.STORE else f"{self.name}@{self.view.value}"

    def call(self, ctx: Any) -> Awaitable[None]:
        """Return the running case."""
        return self.case.function(ctx, self.row) if self.case.row_ids else self.case.function(ctx)


@attrs.define
class Inventory:
    """All cases of an installed suite, in the order they were read."""

    _cases: dict[str, Case] = attrs.field(factory=dict)

    def add(self, case: Case) -> None:
        """Take a case in.

        Raises:
            ValueError: its id is taken or retired, or it claims an upstream function wrongly.
        """
        if case.name in self._cases or case.name in RETIRED:
            raise ValueError(f"case id {case.name!r} is already taken; ids are for ever")
        if case.upstream:
            self._check_upstream(case)
        self._cases[case.name] = case

    def _check_upstream(self, case: Case) -> None:
        if case.upstream not in UPSTREAM:
            raise ValueError(f"case {case.name!r}: upstream has no function {case.upstream!r}")
        if any(other.upstream == case.upstream for other in self._cases.values()):
            raise ValueError(f"case {case.name!r}: {case.upstream} is restated already")
        leaves = len(case.row_ids) or 1
        if leaves != UPSTREAM[case.upstream]:
            raise ValueError(
                f"case {case.name!r} has {leaves} leaf cases, {case.upstream} has {UPSTREAM[case.upstream]}"
            )

    def cases(self) -> Sequence[Case]:
        """Return the cases."""
        return tuple(self._cases.values())

    def leaves(self) -> Sequence[Leaf]:
        """Return every leaf case."""
        return tuple(leaf for case in self._cases.values() for leaf in case.leaves())

    def views(self) -> Sequence[Leaf]:
        """Return every leaf case once more for each view other than a plain store that it is run through."""
        return tuple(
            attrs.evolve(leaf, view=view)
            for case in self._cases.values()
            for view in case.views()
            for leaf in case.leaves()
        )

    def digest(self) -> str:
        """Return a short hash over all leaf ids: two suites with one digest ask the same questions by name."""
        text = "\n".join(sorted(leaf.id for leaf in self.leaves()))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


INVENTORY: Final = Inventory()
"""The installed suite. Filled by importing `kplane_conformance.cases`; see `load`."""


def case(
    name: str,
    *,
    upstream: str = "",
    rows: Sequence[Any] = (),
    row_ids: Iterable[str] = (),
    requires: Iterable[Capability] = (),
    unless: Capability | None = None,
    hooks: Iterable[Hook] = (),
    layers: Iterable[Layer] = (Layer.STORE, Layer.CACHE),
    timeout: float = 60.0,
    elsewhere: str = "",
    provisional: str = "",
    inventory: Inventory = INVENTORY,
) -> Callable[[CaseFunction], CaseFunction]:
    """Declare an async function to be a case.

    Args:
        name: its id, for ever: the upstream name without `RunTest`/`Run`, or `D18`, `R12.short-words`, `engine.scan`.
        upstream: the upstream function restated, which must have as many leaf cases as this.
        rows: the table; the function is called with `(ctx, row)` once per row.
        row_ids: ids of the rows where `row-1`, `row-2`, ... do not do.
        requires: capabilities without which the case is skipped.
        unless: the capability whose absence the case proves to be answered as documented.
        hooks: what it needs of the harness.
        layers: on what it can be seen; a case that is not for `Layer.STORE` is only listed.
        timeout: seconds after which it counts as hanging.
        elsewhere: the suite that shows it; the case is then only listed, on every layer.
        provisional: for a new case, the next minor version of the suite: until then a failure is reported and does not
            count, so that no backend becomes wrong overnight.
        inventory: where it is entered.

    Returns:
        The decorator; it leaves the function as it is.

    Raises:
        ValueError: from the decorator, when the case contradicts the inventory or itself.
    """
    table = tuple(rows)
    needs = {
        "upstream": upstream,
        "rows": table,
        "row_ids": tuple(row_ids) or tuple(f"row-{number}" for number in range(1, len(table) + 1)),
        "requires": tuple(requires),
        "unless": unless,
        "hooks": tuple(hooks),
        "layers": tuple(layers),
        "timeout": timeout,
        "elsewhere": elsewhere,
        "provisional": provisional,
    }

    def declare(function: CaseFunction) -> CaseFunction:
        inventory.add(_checked(name, function, needs))
        return function

    return declare


def _checked(name: str, function: CaseFunction, needs: dict[str, Any]) -> Case:
    ids = needs["row_ids"]
    if not _ID.fullmatch(name) or len(ids) != len(needs["rows"]) or len(set(ids)) != len(ids):
        raise ValueError(f"case {name!r}: a bad id, or not one distinct id per row")
    if needs["provisional"] and not _MINOR.fullmatch(needs["provisional"]):
        raise ValueError(f"case {name!r}: provisional until {needs['provisional']!r}, which is no version like '0.2'")
    promise = inspect.getdoc(function)
    if not promise or not inspect.iscoroutinefunction(function):
        raise ValueError(f"case {name!r} must be an async function whose docstring says what it promises")
    return Case(
        name=name, function=function, promise=promise, group=_group(function.__module__, needs["upstream"]), **needs
    )


def _group(module: str, upstream: str) -> Group:
    if upstream:
        return Group.UPSTREAM
    stem = module.rpartition(".")[2]
    return next((group for start, group in _GROUP_OF_MODULE if stem.startswith(start)), Group.CONTRACT)


def load() -> Inventory:
    """Import every case module and return the whole inventory.

    Returns:
        The inventory, the same at every call.
    """
    package = importlib.import_module("kplane_conformance.cases")
    for module in sorted(pkgutil.iter_modules(package.__path__), key=lambda found: found.name):
        importlib.import_module(f"{package.__name__}.{module.name}")
    return INVENTORY
