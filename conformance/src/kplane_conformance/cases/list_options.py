"""Lists beyond upstream's table: the continue tokens and selectors that a store takes, and those it does not."""

import base64
from collections.abc import Sequence
from typing import Final

import attrs

from kplane_conformance.case import Capability, case
from kplane_conformance.cases.list_table import continue_token
from kplane_conformance.context import Context
from kplane_conformance.expect import raises
from kplane_conformance.objects import pod, pod_attributes
from kplane_core.errors import BadRequest, DecodeError
from kplane_core.storage.interface import StoredObject
from kplane_core.storage.selection import Attributes


def _encoded(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


@attrs.frozen
class TokenRow:
    """A continue token, and what comes of it.

    Attributes:
        text: the JSON in it, or the token itself when it begins with `!`.
        first: the name of the first object that is listed; "" for none.
        refused: what the refusal says.
    """

    text: str
    first: str = ""
    refused: str = ""


_VERSION: Final = '{"v":"meta.k8s.io/v1",'

_TOKENS = (
    TokenRow(_VERSION + '"rv":-1,"start":"key"}', first="key"),
    TokenRow(_VERSION + '"rv":-1,"start":"/key"}', first="key"),
    TokenRow(_VERSION + '"rv":-1,"start":"/"}', first="a"),
    TokenRow(_VERSION + '"rv":-1,"start":"kez"}'),
    TokenRow('{"start":"key","rv":-1,"v":"meta.k8s.io/v1"}', first="key"),
    TokenRow(_VERSION + '"rv":0,"start":"key"}', refused="incorrect encoded start resourceVersion"),
    TokenRow(_VERSION + '"start":"key"}', refused="incorrect encoded start resourceVersion"),
    TokenRow(_VERSION + '"rv":-1,"start":""}', refused="encoded start key empty"),
    TokenRow('{"v":"","rv":-1,"start":"key"}', refused="server does not recognize this encoded version"),
    TokenRow('{"v":"meta.k8s.io/v2","rv":-1,"start":"key"}', refused="does not recognize this encoded version"),
    TokenRow(_VERSION + '"rv":-1,"start":"../key"}', refused="continue key is not valid"),
    TokenRow(_VERSION + '"rv":-1,"start":"./key"}', refused="continue key is not valid"),
    TokenRow(_VERSION + '"rv":-1,"start":"./../key"}', refused="continue key is not valid"),
    TokenRow(_VERSION + '"rv":-1,"start":"key/../.."}', refused="continue key is not valid"),
    TokenRow(_VERSION + '"rv":-1,"start":"a//key"}', refused="continue key is not valid"),
    TokenRow(_VERSION + '"rv":-1,"start":5}', refused="continue key is not valid"),
    TokenRow("[]", refused="continue key is not valid"),
    TokenRow("!no base64", refused="continue key is not valid"),
)


@case("ContinueToken", rows=_TOKENS, requires=[Capability.CONTINUE_TOKEN])
async def continue_tokens(ctx: Context, row: TokenRow) -> None:
    """A continue token is taken in exactly the form that upstream gives it, and cannot leave the list's directory."""
    store = await ctx.store()
    for name in ("a", "key"):
        await store.create(f"{ctx.prefix}{name}", pod(name, ""))
    token = row.text if row.text.startswith("!") else _encoded(row.text)
    if row.refused:
        with raises(BadRequest, match="invalid continue token: ") as caught:
            await ctx.list(store, predicate=ctx.select(token=token))
        assert row.refused in str(caught.error), f"the refusal says: {caught.error}"
        assert caught.error.status().code == 400
        return
    items = (await ctx.list(store, predicate=ctx.select(token=token))).items
    first = items[0].decode()["metadata"]["name"] if items else ""
    assert first == row.first, f"the list begins with {first!r}, not with {row.first!r}"


@case("ContinueToken.other-request", requires=[Capability.CONTINUE_TOKEN])
async def token_of_another_request(ctx: Context) -> None:
    """A continue token is not tied to the limit, the selector or the server of the page that gave it."""
    store, other = await ctx.store(), await ctx.second_store()
    stored = [await ctx.put(store, pod(name)) for name in "abcde"]
    token = (await ctx.list(store, predicate=ctx.select(limit=1))).continue_token
    page = await ctx.list(other, predicate=ctx.select(token=token, limit=2, fields="metadata.name!=c"))
    ctx.expect_same(page.items, [stored[1], stored[3]], "the page with another limit and selector")
    ctx.expect_same((await ctx.list(other, predicate=ctx.select(token=token))).items, stored[1:], "the rest")
    single = await ctx.list(store, stored[0].key, recursive=False, predicate=ctx.select(token=token, limit=1))
    ctx.expect_same(single.items, stored[:1], "a list of one key, which knows no continue token,")


@case("ContinueToken.with-version", requires=[Capability.CONTINUE_TOKEN])
async def token_with_a_version(ctx: Context) -> None:
    """A list cannot be given both a continue token and a resourceVersion other than 0."""
    store = await ctx.store()
    stored = await ctx.put(store, pod("a"))
    token = continue_token("test-ns/a", stored.revision)
    for version in ("", "0"):
        page = await ctx.list(store, resource_version=version, predicate=ctx.select(token=token))
        ctx.expect_same(page.items, [stored], "the list")
    with raises(BadRequest, match="specifying resource version is not allowed when using continue"):
        await ctx.list(store, resource_version=str(stored.revision), predicate=ctx.select(token=token))


@attrs.frozen
class SelectorRow:
    """A selector over the pods a (tier=web, zone=1), b (tier=db), c (zone=2, node n) and d (no labels, node m)."""

    labels: str = ""
    fields: str = ""
    expected: str = ""


@case(
    "ListSelector",
    rows=(
        SelectorRow("tier=web", "", "a"),
        SelectorRow("tier==web", "", "a"),
        SelectorRow("tier!=web", "", "bcd"),
        SelectorRow("tier in (web,db)", "", "ab"),
        SelectorRow("tier notin (web)", "", "bcd"),
        SelectorRow("tier", "", "ab"),
        SelectorRow("!tier", "", "cd"),
        SelectorRow("zone>1", "", "c"),
        SelectorRow("zone<2", "", "a"),
        SelectorRow("tier,zone", "", "a"),
        SelectorRow("tier,!zone", "", "b"),
        SelectorRow("", "spec.nodeName=n", "c"),
        SelectorRow("", "spec.nodeName=", "ab"),
        SelectorRow("", "spec.nodeName!=n", "abd"),
        SelectorRow("zone", "spec.nodeName=n", "c"),
        SelectorRow("", "metadata.name=a,metadata.namespace=test-ns", "a"),
        SelectorRow("", "metadata.name=a,metadata.name!=a", ""),
        SelectorRow("", "spec.unknown=x", ""),
    ),
)
async def list_selector(ctx: Context, row: SelectorRow) -> None:
    """Every operator of label and field selectors selects what Kubernetes selects, also page by page."""
    store = await ctx.store()
    stored = {
        "a": await ctx.put(store, pod("a", labels={"tier": "web", "zone": "1"})),
        "b": await ctx.put(store, pod("b", labels={"tier": "db"})),
        "c": await ctx.put(store, pod("c", labels={"zone": "2"}, node="n")),
        "d": await ctx.put(store, pod("d", node="m")),
    }
    wanted = [stored[name] for name in row.expected]
    predicate = ctx.select(labels=row.labels, fields=row.fields)
    ctx.expect_same((await ctx.list(store, predicate=predicate)).items, wanted, "the list")
    for name, obj in stored.items():
        single = await ctx.list(store, obj.key, recursive=False, predicate=predicate)
        ctx.expect_same(single.items, [obj] if name in row.expected else [], f"the list of {name} alone")
    found: Sequence[StoredObject] = ()
    token = ""
    for _ in range(len(stored) + 1):
        page = await ctx.list(store, predicate=attrs.evolve(predicate, limit=1, continue_token=token))
        found = [*found, *page.items]
        if not (token := page.continue_token):
            break
    ctx.expect_same(found, wanted, "the pages of one")


@case("ListSelector.without-attributes")
async def unreadable_attributes(ctx: Context) -> None:
    """An object whose attributes cannot be read matches no selector and fails no list."""

    def attributes(raw: bytes) -> Attributes:
        if b'"name":"b"' in raw:
            raise DecodeError("this one's attributes cannot be read")
        return pod_attributes(raw)

    store = await ctx.store(attributes=attributes)
    stored = [await ctx.put(store, pod(name)) for name in "abc"]
    predicate = attrs.evolve(ctx.select(fields="metadata.name!=a"), attributes=attributes)
    ctx.expect_same((await ctx.list(store, predicate=predicate)).items, stored[2:], "the list with a selector")
    ctx.expect_same((await ctx.list(store)).items, stored, "the list without one")
