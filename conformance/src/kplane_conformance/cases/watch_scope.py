"""Watch: scopes and selectors together."""

import attrs

from kplane_conformance.case import case
from kplane_conformance.context import Context
from kplane_conformance.scripts import play, selection


@attrs.frozen
class ClusterRow:
    """A row of the table of ClusterScopedWatch."""

    name: str
    selector: str
    script: str


CLUSTER_ROWS = (
    ClusterRow("", "*", "foo1:A foo1~:M foo2@bar1:A"),
    ClusterRow("", "node=bar1", "foo1:. foo1@bar1:A"),
    ClusterRow("", "node!=bar1", "foo1:A foo2:A foo1~:M foo1@bar1:D"),
    ClusterRow("foo1", "name=foo1", "foo1:A foo2:. foo1~:M foo2~:."),
    ClusterRow("foo1", "name=foo1,node=bar1", "foo1:. foo2:. foo1~:. foo2~:. foo1@bar1:A"),
    ClusterRow("foo1", "name=foo1,node!=bar1", "foo1:A foo2:. foo1~:M foo1@bar1:D foo2@bar1:."),
)


@case("ClusterScopedWatch", upstream="RunTestClusterScopedWatch", rows=CLUSTER_ROWS)
async def cluster_scoped_watch(ctx: Context, row: ClusterRow) -> None:
    """A watch on objects without a namespace tells exactly what its scope and selector let it see."""
    store = await ctx.store()
    predicate = selection(ctx, row.selector)
    path = ctx.prefix + row.name
    start = (await ctx.list(store, path, predicate=predicate, recursive=not row.name)).revision
    watch = await ctx.watch(store, path, after=start, predicate=predicate, recursive=not row.name)
    await play(ctx, store, watch, row.script, namespace="", key=lambda _, name: ctx.prefix + name)


@attrs.frozen
class NamespaceRow:
    """A row of the table of NamespaceScopedWatch."""

    namespace: str
    name: str
    selector: str
    script: str


NAMESPACE_ROWS = (
    NamespaceRow("", "", "*", "ns1/foo1:A ns2/foo2:A ns1/foo1~:M ns2/foo2~:M"),
    NamespaceRow("", "", "ns=ns1", "ns1/foo1:A ns2/foo1:. ns1/foo1~:M ns2/foo1~:."),
    NamespaceRow("", "", "node=bar1", "ns1/foo1:. ns2/foo2:. ns1/foo1@bar1:A ns2/foo2@bar1:A"),
    NamespaceRow("", "", "node!=bar1", "ns1/foo1:A ns1/foo2:A ns1/foo1~:M ns1/foo1@bar1:D"),
    NamespaceRow("ns1", "", "*", "ns1/foo1:A ns2/foo1:. ns1/foo2:A ns1/foo1~:M ns2/foo1~:."),
    NamespaceRow("ns1", "", "ns=ns1", "ns1/foo1:A ns2/foo1:. ns1/foo1~:M"),
    NamespaceRow("ns1", "", "ns=ns2", "ns1/foo1:. ns2/foo1:. ns1/foo1~:. ns2/foo1~:."),
    NamespaceRow("ns1", "", "node=bar2", "ns1/foo1:. ns1/foo1@bar1:. ns2/foo1@bar2:. ns1/foo1@bar2:A"),
    NamespaceRow("ns2", "", "node!=bar1", "ns1/foo1:. ns2/foo1:A ns2/foo1@bar1:D ns2/foo1@bar2:A"),
    NamespaceRow("", "foo1", "name=foo1", "ns1/foo1:A ns2/foo1:A ns1/foo2:. ns1/foo1~:M ns1/foo1@bar1:M"),
    NamespaceRow("", "foo1", "name=foo1,ns=ns1", "ns1/foo1:A ns1/foo2:. ns2/foo1:. ns1/foo1~:M ns1/foo1@bar1:M"),
    NamespaceRow("", "foo1", "name=foo1,node=bar1", "ns1/foo1:. ns1/foo1~:. ns1/foo1@bar1:A"),
    NamespaceRow(
        "", "foo1", "name=foo1,node!=bar1", "ns1/foo1:A ns1/foo2:. ns1/foo1~:M ns1/foo1@bar1:D ns1/foo1@bar2:A"
    ),
    NamespaceRow("ns1", "foo1", "name=foo1", "ns1/foo1:A ns1/foo2:. ns1/foo1~:M ns1/foo1@bar1:M"),
    NamespaceRow("ns1", "foo2", "name=foo2,ns=ns1", "ns1/foo1:. ns1/foo2:A ns1/foo1~:. ns1/foo2@bar1:M"),
    NamespaceRow(
        "ns1", "foo1", "name=foo1,ns=ns1,node=bar1", "ns1/foo1:. ns1/foo2:. ns2/foo1:. ns1/foo1~:. ns1/foo1@bar1:A"
    ),
    NamespaceRow(
        "ns1", "foo2", "name=foo2,ns=ns1,node!=bar1", "ns1/foo1:. ns2/foo2:. ns1/foo2:A ns1/foo2~:M ns1/foo2@bar1:D"
    ),
)


@case("NamespaceScopedWatch", upstream="RunTestNamespaceScopedWatch", rows=NAMESPACE_ROWS)
async def namespace_scoped_watch(ctx: Context, row: NamespaceRow) -> None:
    """A watch on namespaced objects tells exactly what its scope and selector let it see."""
    store = await ctx.store()
    predicate = selection(ctx, row.selector)
    recursive = not (row.namespace and row.name)
    path = ctx.prefix
    if row.namespace:
        path = ctx.key(row.namespace, row.name)
    start = (await ctx.list(store, path, predicate=predicate, recursive=recursive)).revision
    watch = await ctx.watch(store, path, after=start, predicate=predicate, recursive=recursive)
    await play(ctx, store, watch, row.script)
