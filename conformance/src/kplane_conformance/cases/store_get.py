"""Get: the upstream function on reading one object."""

import attrs

from kplane_conformance.case import case
from kplane_conformance.context import Context
from kplane_conformance.expect import raises
from kplane_conformance.objects import difference, pod
from kplane_core.errors import KeyNotFound, TooLargeResourceVersion
from kplane_core.storage.interface import INT64_MAX, GetOptions, StoredObject


@attrs.frozen
class GetRow:
    """A row of the table of Get.

    Attributes:
        name: whose key is read.
        rv: "" or "0", `max`, or the letter of the object whose resourceVersion is asked for.
        expected: letters of the objects that may come, `-` for none.
        ignore_not_found: the option.
        refused: how the request is refused instead.
    """

    name: str
    rv: str
    expected: str = ""
    ignore_not_found: bool = False
    refused: type[Exception] | None = None


@case(
    "Get",
    upstream="RunTestGet",
    rows=(
        GetRow("foo", "", "G"),
        GetRow("foo", "0", "-FG", ignore_not_found=True),
        GetRow("foo", "F", "FG"),
        GetRow("foo", "G", "G"),
        GetRow("foo", "B", "G"),
        GetRow("foo", "max", refused=TooLargeResourceVersion),
        GetRow("non-existing", "", refused=KeyNotFound),
        GetRow("non-existing", "", "-", ignore_not_found=True),
    ),
)
async def get(ctx: Context, row: GetRow) -> None:
    """A get answers with a state not older than the asked resourceVersion, or says why there is none."""
    store = await ctx.store()
    first = await ctx.put(store, pod("foo"))
    second = await ctx.update(store, pod("foo", annotations={"a": "b"}), ttl=3600)
    later = await store.create(ctx.key("test-ns", "bar"), pod("bar"))
    key = ctx.key("test-ns", row.name)
    known = {"F": first, "G": second, "B": later, "-": StoredObject(key, 0, b"")}
    asked = str(known[row.rv].revision) if row.rv in known else row.rv.replace("max", str(INT64_MAX))
    options = GetOptions(ignore_not_found=row.ignore_not_found, resource_version=asked)
    if row.refused:
        with raises(row.refused):
            await store.get(key, options)
        return
    got = await store.get(key, options)
    differences = [difference(got, known[letter]) for letter in row.expected]
    assert "" in differences, f"the object differs from what was promised:\n{differences[-1]}"


@case("Get.own-copy")
async def get_own_copy(ctx: Context) -> None:
    """What a reader does to its decoded object is seen by nobody else."""
    store = await ctx.store()
    stored = await ctx.put(store, pod("foo", labels={"a": "b"}))
    document = (await store.get(stored.key)).decode()
    document["metadata"]["labels"]["a"] = "changed"
    ctx.expect_same(await store.get(stored.key), stored)
    assert stored.decode()["metadata"]["resourceVersion"] == str(stored.revision)
