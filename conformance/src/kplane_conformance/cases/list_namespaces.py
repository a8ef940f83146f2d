"""NamespaceScopedList: the upstream function on selectors over one namespace or all."""

import attrs

from kplane_conformance.case import case
from kplane_conformance.cases.list_table import selector
from kplane_conformance.context import Context
from kplane_conformance.objects import pod
from kplane_core.storage.interface import StoredObject


@attrs.frozen
class NamespaceRow:
    """A row of the table of NamespaceScopedList.

    Attributes:
        namespace: what is listed; "" for all.
        fields: the field selector; see `selector`.
        inputs: what is stored, in this order: `namespace:name` or `namespace:name@node`.
        expected: which of them are listed, in this order.
    """

    namespace: str
    fields: str
    inputs: str
    expected: str


_TWO = "ns1:foo1 ns1:foo2 ns2:foo1 ns2:foo2"

# Upstream counts these rows from 0, the ids here from 1.
_ROWS = (
    NamespaceRow("", "", "ns1:foo1 ns2:foo2", "ns1:foo1 ns2:foo2"),
    NamespaceRow("", "ns=ns1", "ns1:foo1 ns2:foo1", "ns1:foo1"),
    NamespaceRow("", "node=bar1", "ns1:foo1@bar1 ns2:foo2@bar2", "ns1:foo1@bar1"),
    NamespaceRow("", "node!=bar1", "ns1:foo1@bar1 ns2:foo2@bar2", "ns2:foo2@bar2"),
    NamespaceRow("ns1", "", "ns1:foo1 ns2:foo1 ns1:foo2", "ns1:foo1 ns1:foo2"),
    NamespaceRow("ns1", "ns=ns1", "ns1:foo1 ns2:foo1", "ns1:foo1"),
    NamespaceRow("ns1", "ns=ns2", "ns1:foo1 ns2:foo1 ns1:foo2 ns2:foo2", ""),
    NamespaceRow("ns1", "node=bar2", "ns1:foo1@bar1 ns2:foo1@bar2 ns1:foo2@bar2", "ns1:foo2@bar2"),
    NamespaceRow("ns2", "node!=bar1", "ns1:foo1 ns2:foo1 ns2:foo3@bar1 ns2:foo2@bar2", "ns2:foo1 ns2:foo2@bar2"),
    NamespaceRow("", "name=foo1", "ns1:foo1 ns2:foo1 ns1:foo2", "ns1:foo1 ns2:foo1"),
    NamespaceRow("", "name=foo1,ns=ns1", "ns1:foo1 ns1:foo2 ns2:foo1", "ns1:foo1"),
    NamespaceRow("", "name=foo1,node=bar1", "ns1:foo1@bar1", "ns1:foo1@bar1"),
    NamespaceRow(
        "",
        "name=foo1,node!=bar1",
        "ns1:foo1 ns1:foo2 ns2:foo1@bar1 ns2:foo2@bar1 ns3:foo1@bar2 ns3:foo2@bar2",
        "ns1:foo1 ns3:foo1@bar2",
    ),
    NamespaceRow("ns1", "name=foo1", _TWO, "ns1:foo1"),
    NamespaceRow("ns1", "name=foo1,ns=ns1", _TWO, "ns1:foo1"),
    NamespaceRow(
        "ns2",
        "name=foo2,ns=ns2,node=bar1",
        "ns1:foo1 ns1:foo2 ns2:foo1 ns2:foo2@bar1 ns3:foo1@bar1 ns3:foo2@bar1",
        "ns2:foo2@bar1",
    ),
    NamespaceRow(
        "ns2",
        "name=foo1,ns=ns2,node!=bar2",
        "ns1:foo1 ns1:foo2 ns2:foo1@bar1 ns2:foo2@bar2 ns3:foo1@bar2",
        "ns2:foo1@bar1",
    ),
)


@case("NamespaceScopedList", upstream="RunTestNamespaceScopedList", rows=_ROWS)
async def namespace_scoped_list(ctx: Context, row: NamespaceRow) -> None:
    """A list shows exactly what matches every term of the selector in the namespace asked for, in order of the keys."""
    store = await ctx.store()
    stored: dict[str, StoredObject] = {}
    for text in row.inputs.split():
        namespace, _, rest = text.partition(":")
        name, _, node = rest.partition("@")
        stored[text] = await ctx.put(store, pod(name, namespace, node=node))
    page = await ctx.list(
        store, ctx.prefix + row.namespace, predicate=ctx.select(fields=selector(row.fields)), recursive=True
    )
    ctx.expect_same(page.items, [stored[text] for text in row.expected.split()], "the list")
