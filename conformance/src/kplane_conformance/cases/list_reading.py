"""ConsistentList, GetListNonRecursive, GetListRecursivePrefix: the upstream functions on what a list shows."""

import attrs

from kplane_conformance.case import Capability, Hook, case
from kplane_conformance.cases.list_table import continue_token, selector
from kplane_conformance.context import Context
from kplane_conformance.expect import raises
from kplane_conformance.objects import difference, pod
from kplane_core.errors import TooLargeResourceVersion
from kplane_core.storage.interface import INT64_MAX


@attrs.frozen
class ConsistentListRow:
    """A row of the table of ConsistentList: the requests up to this one are made, this one is looked at."""

    rv: str = ""
    continued: bool = False


_CONSISTENT_ROWS = (
    ConsistentListRow("0"),
    ConsistentListRow(),
    ConsistentListRow(continued=True),
    ConsistentListRow("0"),
)


@case(
    "ConsistentList",
    upstream="RunTestConsistentList",
    rows=_CONSISTENT_ROWS,
    requires=[Capability.CONSISTENT_LIST, Capability.CONTINUE_TOKEN],
    hooks=[Hook.INCREASE_RV],
)
async def consistent_list(ctx: Context, row: ConsistentListRow) -> None:
    """A list of nothing carries the newest resourceVersion, also when all writes went to other resources."""
    store = await ctx.store()
    await store.create(ctx.key("default", "foo"), pod("foo", "default"))
    token = continue_token("a", -1)
    for step in _CONSISTENT_ROWS:
        newest = await ctx.increase_rv()
        predicate = ctx.select(token=token if step.continued else "")
        page = await ctx.list(store, f"{ctx.prefix}empty", resource_version=step.rv, predicate=predicate)
        current = await store.get_current_resource_version()
        assert page.items == (), f"an empty directory has {len(page.items)} items"
        oldest = 1 if ctx.view.cached and step.rv == "0" else newest  # "0" is whatever a cache has
        assert oldest <= page.revision <= current, f"the list's RV is {page.revision}, not in {oldest}..{current}"
        if step is row:
            return


@attrs.frozen
class SingleRow:
    """A row of the table of GetListNonRecursive.

    Attributes:
        name: whose key is listed.
        rv: "" or "0", `max`, or the letter of the object whose resourceVersion is asked for.
        match: the resourceVersionMatch.
        fields: the field selector, see `selector`.
        expected: letters of the objects that may come, `-` for none.
        refused: how the request is refused instead.
    """

    name: str = "foo"
    rv: str = ""
    match: str = ""
    fields: str = ""
    expected: str = ""
    refused: type[Exception] | None = None


@case(
    "GetListNonRecursive",
    upstream="RunTestGetListNonRecursive",
    rows=(
        SingleRow(expected="S"),
        SingleRow(rv="0", expected="-PS"),
        SingleRow(rv="0", match="NotOlderThan", expected="-PS"),
        SingleRow(rv="S", expected="S"),
        SingleRow(rv="S", match="NotOlderThan", expected="S"),
        SingleRow(rv="P", match="NotOlderThan", expected="PS"),
        SingleRow(rv="S", match="Exact", expected="S"),
        SingleRow(rv="P", match="Exact", expected="P"),
        SingleRow(rv="max", refused=TooLargeResourceVersion),
        SingleRow("non-existing", expected="-"),
        SingleRow("non-existing", fields="name!=foo", expected="-"),
        SingleRow(rv="S", fields="name!=foo", expected="-"),
    ),
    requires=[Capability.EXACT_RV_LIST],
    hooks=[Hook.INCREASE_RV],
)
async def get_list_non_recursive(ctx: Context, row: SingleRow) -> None:
    """A list of one key has the object there, or nothing, as of the resourceVersion asked for."""
    store = await ctx.store()
    first = await ctx.put(store, pod("foo"))
    known = {"P": first, "S": await ctx.update(store, pod("foo", annotations={"a": "b"}))}
    await ctx.increase_rv()
    options = {
        "resource_version": str(known[row.rv].revision) if row.rv in known else row.rv.replace("max", str(INT64_MAX)),
        "resource_version_match": row.match,
        "predicate": ctx.select(fields=selector(row.fields)),
        "recursive": False,
    }
    if row.refused:
        with raises(row.refused):
            await ctx.list(store, ctx.key("test-ns", row.name), **options)
        return
    page = await ctx.list(store, ctx.key("test-ns", row.name), **options)
    alternatives = [[] if letter == "-" else [known[letter]] for letter in row.expected]
    differences = [difference(page.items, wanted) for wanted in alternatives]
    assert "" in differences, f"the items differ from what was promised:\n{differences[-1]}"
    assert page.continue_token == ""
    assert page.remaining is None
    if row.match == "Exact":
        assert page.revision == known[row.rv].revision, f"an exact list at another resourceVersion: {page.revision}"
    else:
        assert page.revision >= max([item.revision for item in page.items], default=1)


@attrs.frozen
class PrefixRow:
    """A row of the table of GetListRecursivePrefix, in one of three modes.

    Attributes:
        path: below the resource prefix.
        recursive: the option.
        expected: letters of the objects.
        mode: `exact` at the last write, `consistent`, or `any`.
    """

    path: str
    recursive: bool
    expected: str
    mode: str


_PREFIX_ROWS = tuple(
    PrefixRow(path, recursive, expected, mode)
    for path, recursive, expected in (
        ("", False, ""),
        ("", True, "FGH"),
        ("test-ns/", False, ""),
        ("test-ns/", True, "FG"),
        ("test-ns/foo", False, "F"),
        ("test-ns/foo", True, ""),
        ("test-ns/foobar", False, "G"),
        ("test-ns/foobar", True, ""),
    )
    for mode in ("exact", "consistent", "any")
)


@case(
    "GetListRecursivePrefix",
    upstream="RunTestGetListRecursivePrefix",
    rows=_PREFIX_ROWS,
    requires=[Capability.EXACT_RV_LIST, Capability.CONSISTENT_LIST],
)
async def get_list_recursive_prefix(ctx: Context, row: PrefixRow) -> None:
    """A recursive list shows what lies below a directory and ends at its slash; any other shows exactly one key."""
    store = await ctx.store()
    known = {
        "F": await ctx.put(store, pod("foo", "test-ns")),
        "G": await ctx.put(store, pod("foobar", "test-ns")),
        "H": await ctx.put(store, pod("baz", "test-ns2")),
    }
    last = known["H"].revision
    await ctx.current(store)  # a cache has now seen everything
    version, match = {"exact": (str(last), "Exact"), "consistent": ("", ""), "any": ("0", "NotOlderThan")}[row.mode]
    page = await ctx.list(
        store,
        ctx.prefix + row.path,
        resource_version=version,
        resource_version_match=match,
        recursive=row.recursive,
    )
    ctx.expect_same(page.items, [known[letter] for letter in row.expected], "the list")
    assert page.revision == last if row.mode == "exact" else page.revision >= last
