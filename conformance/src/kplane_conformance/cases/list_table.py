"""List: the 86 rows of the upstream table, over one history of seven writes, a deletion and a compaction."""

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from kplane_conformance.case import Capability, Hook, case
from kplane_conformance.context import Context
from kplane_conformance.expect import raises
from kplane_conformance.objects import difference, pod
from kplane_core.errors import BadRequest, Expired, TooLargeResourceVersion
from kplane_core.storage.interface import INT64_MAX, ObjectList, Store, StoredObject

_SHORT: Final = {"name": "metadata.name", "ns": "metadata.namespace", "node": "spec.nodeName"}


def selector(short: str) -> str:
    """Return a field selector whose fields are written `name`, `ns` and `node` in full."""
    terms = []
    for term in filter(None, short.split(",")):
        field, _, value = term.partition("=")
        negated = "!" if field.endswith("!") else ""
        terms.append(f"{_SHORT[field.rstrip('!')]}{negated}={value}")
    return ",".join(terms)


def continue_token(start: str, revision: int) -> str:
    """Return the continue token for a start key relative to the list's prefix, made without the code under test."""
    text = json.dumps({"v": "meta.k8s.io/v1", "rv": revision, "start": start}, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read_token(token: str) -> tuple[str, int]:
    """Return the start key, without the leading slash it may have, and the revision of a continue token."""
    assert token.isascii()
    assert not set(token) & set("+/="), f"a continue token must be base64url without padding: {token}"
    document = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    assert document["v"] == "meta.k8s.io/v1", f"a continue token of an unknown version: {document}"
    return document["start"].removeprefix("/"), document["rv"]


@attrs.frozen
class ListRow:
    """A row of the table of List.

    In `start` and `cont`, `x@Rn` is a continue token that starts at `x` with the resourceVersion Rn; `^` is a NUL.

    Attributes:
        path: below the resource prefix.
        rv: "" or "0", a number, `max`, or the name of a resourceVersion of the history.
        match: the resourceVersionMatch.
        fields: the field selector, see `selector`.
        limit: items per page.
        start: the continue token that is sent.
        items: what is listed, by the letters of the history; `|` stands between alternatives.
        revision: `=Rn` or `>=Rn`; "" promises nothing.
        cont: the next page's token, `y` for any, "" for none.
        remaining: the remaining item count; None for none.
        error: how the request is refused, instead of all these.
    """

    path: str
    rv: str
    match: str = ""
    fields: str = ""
    limit: int = 0
    start: str = ""
    items: str = ""
    revision: str = ""
    cont: str = ""
    remaining: int | None = None
    error: str = ""


ROWS: Final = (
    # row 1
    ListRow("", "abc", error="error"),
    ListRow("", "1", limit=1, start="foo@R8", error="error"),
    ListRow("", "max", error="too-large"),
    ListRow("first/", "", items="A'"),
    ListRow("first/", "0", items="|A'"),
    # row 6
    ListRow("first/", "R1", match="Exact", items="A", revision="=R1"),
    ListRow("second/", "R1", match="Exact", items="", revision="=R1"),
    ListRow("second/", "R2", match="Exact", items="B", revision="=R2"),
    ListRow("first/", "R0", match="Exact", error="too-old"),
    ListRow("first/", "0", match="NotOlderThan", items="|A'"),
    # row 11
    ListRow("first/", "0", match="Invalid", error="error"),
    ListRow("first/", "R0", match="NotOlderThan", items="|A'"),
    ListRow("first/", "R0", match="Invalid", error="error"),
    ListRow("first/", "R8", items="A'"),
    ListRow("first/", "R8", match="Exact", items="A'", revision="=R8"),
    # row 16
    ListRow("first/", "R8", match="NotOlderThan", items="A'"),
    ListRow("non-existing/", "", items=""),
    ListRow("first/", "", fields="name!=bar", items=""),
    ListRow("first/", "R8", match="NotOlderThan", fields="name!=bar", items=""),
    ListRow("second/", "", limit=1, items="B", revision="=R9", cont="bar^@R9", remaining=1),
    # row 21
    ListRow("second/", "R8", limit=1, items="B", revision="=R8", cont="bar^@R8", remaining=1),
    ListRow("second/", "R8", match="Exact", limit=1, items="B", revision="=R8", cont="bar^@R8", remaining=1),
    ListRow("second/", "R8", match="NotOlderThan", limit=1, items="B", revision=">=R8", cont="y", remaining=1),
    ListRow("second/", "0", limit=1, items="B", revision=">=R8", cont="y", remaining=1),
    ListRow("second/", "0", match="NotOlderThan", limit=1, items="B", revision=">=R8", cont="y", remaining=1),
    # row 26
    ListRow("second/", "R1", match="Exact", limit=1, items="", revision="=R1"),
    ListRow("second/", "R2", match="Exact", limit=1, items="B", revision="=R2"),
    ListRow("second/", "", limit=1, start="foo@R8", items="C"),
    ListRow("second/", "0", limit=1, start="foo@R8", items="C"),
    ListRow("second/", "", items="B,C"),
    # row 31
    ListRow("second/", "R8", match="NotOlderThan", items="B,C"),
    ListRow("", "", fields="name=barfoo", limit=1, items="D", cont="y"),
    ListRow("", "R8", match="NotOlderThan", fields="name=barfoo", limit=1, items="D", revision=">=R8", cont="y"),
    ListRow("", "", fields="name=barfoo", limit=2, items="D"),
    ListRow("", "R8", match="NotOlderThan", fields="name=barfoo", limit=2, items="D", revision=">=R8"),
    # row 36
    ListRow("", "0", fields="name=barfoo", limit=2, items="|D"),
    ListRow("", "", fields="name=bar", limit=2, items="A',B", cont="y"),
    ListRow("", "R8", match="NotOlderThan", fields="name=bar", limit=2, items="A',B", cont="y"),
    ListRow("", "", fields="name=foo", limit=2, items="C,E"),
    ListRow("", "R8", match="NotOlderThan", fields="name=foo", limit=2, items="C,E"),
    # row 41
    ListRow("", "", fields="name=foo", limit=2, start="third/barfoo@R8", items="E"),
    ListRow("", "", fields="name=foo", limit=1, start="third/barfoo@R8", items="E"),
    ListRow("", "", fields="name=foo", limit=2, start="third/barfoo@R8", items="E"),
    ListRow("", "", fields="name=foo", limit=5, items="C,E"),
    ListRow("", "R8", match="NotOlderThan", fields="name=foo", limit=5, items="C,E"),
    # row 46
    ListRow("", "", fields="name=barfoo", limit=5, items="D"),
    ListRow("", "R8", match="NotOlderThan", fields="name=barfoo", limit=5, items="D"),
    ListRow("", "", items="A',B,C,D,E"),
    ListRow("", "R8", match="NotOlderThan", items="A',B,C,D,E"),
    ListRow("", "R8", match="NotOlderThan", fields="node=fakeNode", limit=5, items="A'"),
    # row 51
    ListRow("", "R8", match="NotOlderThan", fields="name=baz", limit=5, items=""),
    ListRow("empty", "", items="", revision="=R9"),
    ListRow("empty", "0", items="", revision=">=R0"),
    ListRow("", "R0", match="Exact", error="too-old"),
    ListRow("", "R1", match="Exact", items="A", revision="=R1"),
    # row 56
    ListRow("", "R2", match="Exact", items="A,B", revision="=R2"),
    ListRow("", "R3", match="Exact", items="A,B,C", revision="=R3"),
    ListRow("", "R4", match="Exact", items="A,B,C,D", revision="=R4"),
    ListRow("", "R5", match="Exact", items="A,B,C,D,E", revision="=R5"),
    ListRow("", "R6", match="Exact", items="A,B,Z,C,D,E", revision="=R6"),
    # row 61
    ListRow("", "R7", match="Exact", items="A',B,Z,C,D,E", revision="=R7"),
    ListRow("", "R8", match="Exact", items="A',B,C,D,E", revision="=R8"),
    ListRow("", "R9", match="Exact", items="A',B,C,D,E", revision="=R9"),
    ListRow("", "R9+1", match="Exact", error="too-large"),
    ListRow("", "R2", match="Exact", limit=1, items="A", revision="=R2", cont="first/bar^@R2", remaining=1),
    # row 66
    ListRow("", "R3", match="Exact", limit=2, items="A,B", revision="=R3", cont="second/bar^@R3", remaining=1),
    ListRow("", "R4", match="Exact", limit=4, items="A,B,C,D", revision="=R4"),
    ListRow("", "R5", match="Exact", limit=1, items="A", revision="=R5", cont="first/bar^@R5", remaining=4),
    ListRow("", "R6", match="Exact", limit=2, items="A,B", revision="=R6", cont="second/bar^@R6", remaining=4),
    ListRow("", "R7", match="Exact", limit=4, items="A',B,Z,C", revision="=R7", cont="second/foo^@R7", remaining=2),
    # row 71
    ListRow("", "R8", match="Exact", limit=8, items="A',B,C,D,E", revision="=R8"),
    ListRow("", "R9", match="Exact", limit=1, items="A'", revision="=R9", cont="first/bar^@R9", remaining=4),
    ListRow("", "", limit=1, start="first/bar^@R0", error="continue-too-old"),
    ListRow("", "", limit=1, start="first/bar^@R1", items="", revision="=R1"),
    ListRow("", "", limit=1, start="first/bar^@R2", items="B", revision="=R2"),
    # row 76
    ListRow("", "", limit=2, start="second/bar^@R3", items="C", revision="=R3"),
    ListRow("", "", limit=1, start="first/bar^@R5", items="B", revision="=R5", cont="second/bar^@R5", remaining=3),
    ListRow("", "", limit=2, start="second/bar^@R6", items="Z,C", revision="=R6", cont="second/foo^@R6", remaining=2),
    ListRow("", "", limit=4, start="second/foo^@R7", items="D,E", revision="=R7"),
    ListRow("", "", limit=1, start="first/bar^@R9", items="B", revision="=R9", cont="second/bar^@R9", remaining=3),
    # row 81
    ListRow("", "", start="first/bar^@-1", items="B,C,D,E", revision="=R9"),
    ListRow("", "", limit=2, start="first/bar^@-1", items="B,C", revision="=R9", cont="second/foo^@R9", remaining=2),
    ListRow("", "", start="second/foo^@-1", items="D,E", revision="=R9"),
    ListRow("", "", start="@R8", error="error"),
    ListRow("", "", start="first/bar^@0", error="error"),
    # row 86
    ListRow("", "-1", error="error"),
)

_REFUSALS: Final = {
    "error": BadRequest,
    "too-large": TooLargeResourceVersion,
    "too-old": Expired,
    "continue-too-old": Expired,
}


@attrs.frozen
class History:
    """What happened before the rows are asked: the objects by letter, the resourceVersions by name."""

    objects: Mapping[str, StoredObject]
    revisions: Mapping[str, int]

    def revision(self, name: str) -> int:
        """Return a resourceVersion: `R3`, `max` or a number."""
        # On a busy or a ticking clock R9 + 1 may come to exist during the case; the largest one never does.
        return INT64_MAX if name in {"max", "R9+1"} else self.revisions.get(name) or int(name)

    def token(self, text: str) -> tuple[str, int]:
        """Return the start key and revision that `x@Rn` stands for."""
        start, _, name = text.partition("@")
        return start.replace("^", "\0"), self.revision(name)


_REQUIRED: Final = (Capability.EXACT_RV_LIST, Capability.CONTINUE_TOKEN, Capability.COMPACTION)


@case("List", upstream="RunTestList", rows=ROWS, requires=_REQUIRED, hooks=[Hook.COMPACT])
async def list_(ctx: Context, row: ListRow) -> None:
    """A list shows what was stored at the resourceVersion it is asked for, page by page, or is refused by name."""
    if row.rv == "0" and row.limit and not row.start:
        ctx.not_on_a_cache("a cache ignores the limit of a list at resourceVersion 0, as upstream does")
    store = await ctx.store()
    history = await _make_history(ctx, store)
    token = continue_token(*history.token(row.start)) if row.start else ""
    options = {
        "resource_version": row.rv if row.rv in {"", "0", "abc", "-1"} else str(history.revision(row.rv)),
        "resource_version_match": row.match,
        "predicate": ctx.select(fields=selector(row.fields), limit=row.limit, token=token),
    }
    if row.error:
        with raises(_REFUSALS[row.error]) as caught:
            await ctx.list(store, ctx.prefix + row.path, **options)
        if row.error == "continue-too-old":
            replacement = read_token(caught.error.status().continue_token)
            assert replacement == (history.token(row.start)[0], -1), f"the replacement token is {replacement}"
        return
    page = await ctx.list(store, ctx.prefix + row.path, **options)
    _check_items(page, [_objects(history, text) for text in row.items.split("|")])
    if row.revision:
        _check_revision(row, history, page.revision, await store.get_current_resource_version())
    _check_rest(row, history, page)


async def _make_history(ctx: Context, store: Store) -> History:
    revisions = {"R0": await ctx.current(store)}
    objects: dict[str, StoredObject] = {}
    script = (("A", "first", "bar"), ("B", "second", "bar"), ("C", "second", "foo"), ("D", "third", "barfoo"))
    for letter, namespace, name in (*script, ("E", "third", "foo"), ("Z", "second", "baz")):
        objects[letter] = await ctx.put(store, pod(name, namespace))
        revisions[f"R{len(objects)}"] = objects[letter].revision
    objects["A'"] = await ctx.update(store, pod("bar", "first", node="fakeNode"))
    revisions["R7"] = objects["A'"].revision
    await store.delete(objects["Z"].key)
    revisions["R8"] = (await ctx.list(store, ctx.key("second"))).revision
    await ctx.compact(revisions["R1"], store)
    revisions["R9"] = await store.get_current_resource_version()
    return History(objects, revisions)


def _objects(history: History, letters: str) -> Sequence[StoredObject]:
    return [history.objects[letter] for letter in letters.split(",") if letter]


def _check_items(page: ObjectList, alternatives: Sequence[Sequence[StoredObject]]) -> None:
    assert page.items is not None
    differences = [difference(page.items, wanted) for wanted in alternatives]
    assert "" in differences, f"the items differ from what was promised:\n{differences[-1]}"


def _check_revision(row: ListRow, history: History, revision: int, current: int) -> None:
    """Fail unless the list's resourceVersion is as promised; what is newest may be newer than the history's end."""
    wanted = history.revision(row.revision.lstrip(">="))
    newest = row.rv == "" and (not row.start or row.start.endswith("@-1"))
    if row.revision.startswith(">") or newest:
        assert wanted <= revision <= current, f"the list's resourceVersion is {revision}, not in {wanted}..{current}"
    else:
        assert revision == wanted, f"the list's resourceVersion is {revision}, not {wanted}"


def _check_rest(row: ListRow, history: History, page: ObjectList) -> None:
    """Fail unless the next page begins, and the count of what follows is, as promised."""
    if row.cont == "":
        assert not page.continue_token, f"nothing follows, but there is a token: {read_token(page.continue_token)}"
    else:
        assert page.continue_token, "something follows, but there is no continue token"
        start, revision = read_token(page.continue_token)
        assert revision == page.revision, f"the token pins {revision}, the page came from {page.revision}"
        if row.cont != "y":
            assert start == history.token(row.cont)[0], f"the token starts at {start!r}"
    assert page.remaining == row.remaining, f"{page.remaining} are said to remain, not {row.remaining}"
