"""Pages: the upstream functions on continue tokens, on what a page costs, and on pinning it to one snapshot."""

from collections.abc import AsyncIterator
from typing import Any, Final

from kplane_conformance.case import Capability, Hook, Layer, case
from kplane_conformance.cases.list_table import read_token
from kplane_conformance.context import Context
from kplane_conformance.counting import CountingEngine
from kplane_conformance.expect import raises
from kplane_conformance.objects import pod
from kplane_core.engine.interface import Engine, Page
from kplane_core.errors import Expired
from kplane_core.storage.interface import ObjectList, Store, StoredObject

_LARGEST_PAGE: Final = 10_000


class Calls:
    """Tells how many reads the last list took.

    Args:
        ctx: of the case; its stores must be opened afterwards.
    """

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._counter: CountingEngine = ctx.counted()
        self._transformed, self._scanned = ctx.transformer.reads, self._counter.scans

    def expect(self, limit: int, records: int) -> None:
        """Fail unless since the last look `records` were transformed, in pages that began at `limit` and doubled."""
        scans, size, seen = 1, limit, limit
        while limit and seen < records:
            size = min(size * 2, _LARGEST_PAGE)
            seen += size
            scans += 1
        transformed = self._ctx.transformer.reads - self._transformed
        scanned = self._counter.scans - self._scanned
        assert transformed == records, f"{transformed} records were transformed, not {records}"
        assert scanned == scans, f"the engine was asked {scanned} times, not {scans}"
        self._transformed, self._scanned = self._ctx.transformer.reads, self._counter.scans


def _check_page(ctx: Context, page: ObjectList, items: list[StoredObject], revision: int, *, more: bool) -> str:
    ctx.expect_same(page.items, items, "the page")
    assert page.revision == revision, f"the page's resourceVersion is {page.revision}, not {revision}"
    assert bool(page.continue_token) is more, "there should be a continue token" if more else "a needless token"
    return page.continue_token


async def pages(ctx: Context, store: Store, limit: int, *, of: int, path: str = "") -> AsyncIterator[ObjectList]:
    """Yield the pages of a list that should have `of` objects; fail when there are more pages than that allows."""
    token = ""
    for _ in range(max(-(-of // limit), 1)):
        page = await ctx.list(store, path, predicate=ctx.select(limit=limit, token=token))
        yield page
        if not (token := page.continue_token):
            return
    raise AssertionError(f"the pages of {limit} do not end with the {of} objects that there are")


async def _seed(ctx: Context, store: Store) -> list[StoredObject]:
    names = (("first", "bar"), ("second", "bar"), ("second", "foo"))
    return [await store.create(ctx.key(space, name), pod(name, space)) for space, name in names]


@case("ListPaging", upstream="RunTestListPaging", requires=[Capability.CONTINUE_TOKEN])
async def list_paging(ctx: Context) -> None:
    """All pages of one list come from the snapshot of the first: what is created meanwhile is not among them."""
    store = await ctx.store()
    stored = [await ctx.put(store, pod(f"test-{number}", "paging")) for number in range(4)]
    listed: list[StoredObject] = []
    calls = revision = 0
    async for page in pages(ctx, store, 1, of=4):
        calls += 1
        listed += page.items
        revision = revision or page.revision
        assert page.revision == revision, "a page of another resourceVersion"
        assert page.remaining == (4 - calls or None), f"{page.remaining} remain after {calls} of 4"
        if calls == 2:
            await ctx.put(store, pod("test-5", "paging"))
    assert calls == 4, f"four objects came in {calls} pages of one"
    ctx.expect_same(listed, stored, "the list")


@case(
    "ListContinuation",
    upstream="RunTestListContinuation",
    requires=[Capability.CONTINUE_TOKEN],
    hooks=[Hook.COUNT_CALLS],
)
async def list_continuation(ctx: Context) -> None:
    """A continued list goes on where the page before ended, with any limit, and reads no more than it returns."""
    calls = Calls(ctx)
    store = await ctx.store()
    stored = await _seed(ctx, store)
    last = stored[-1].revision
    page = await ctx.list(store, predicate=ctx.select(limit=1))
    revision = page.revision
    assert revision >= last
    second = _check_page(ctx, page, stored[:1], revision, more=True)
    calls.expect(1, 1)
    page = await ctx.list(store, predicate=ctx.select(token=second))
    _check_page(ctx, page, stored[1:], revision, more=False)
    calls.expect(0, 2)
    page = await ctx.list(store, predicate=ctx.select(limit=1, token=second))
    third = _check_page(ctx, page, stored[1:2], revision, more=True)
    calls.expect(1, 1)
    page = await ctx.list(store, predicate=ctx.select(limit=1, token=third))
    _check_page(ctx, page, stored[2:], revision, more=False)
    calls.expect(1, 1)


@case("ListPaginationRareObject", upstream="RunTestListPaginationRareObject", hooks=[Hook.COUNT_CALLS])
async def list_pagination_rare_object(ctx: Context) -> None:
    """A page whose selector matches one object in a thousand finds it, in reads that double in size."""
    calls = Calls(ctx)
    store = await ctx.store()
    for number in range(1000):
        rare = await store.create(ctx.key("", f"pod-{number}"), pod(f"pod-{number}", ""))
    page = await ctx.list(store, predicate=ctx.select(fields="metadata.name=pod-999", limit=1))
    _check_page(ctx, page, [rare], page.revision, more=False)
    assert page.revision >= rare.revision
    calls.expect(1, 1000)


@case(
    "ListContinuationWithFilter",
    upstream="RunTestListContinuationWithFilter",
    requires=[Capability.CONTINUE_TOKEN],
    hooks=[Hook.COUNT_CALLS],
)
async def list_continuation_with_filter(ctx: Context) -> None:
    """A selector never shortens a page that is not the last, and nothing is read twice."""
    calls = Calls(ctx)
    store = await ctx.store()
    names = (("1", "foo"), ("2", "bar"), ("3", "foo"), ("4", "foo"))
    stored = [await store.create(ctx.key(space, name), pod(name, space)) for space, name in names]
    page = await ctx.list(store, predicate=ctx.select(fields="metadata.name!=bar", limit=2))
    revision = page.revision
    assert revision >= stored[-1].revision
    token = _check_page(ctx, page, [stored[0], stored[2]], revision, more=True)
    assert page.remaining is None, "what remains was counted although a selector is set"
    calls.expect(2, 3)
    page = await ctx.list(store, predicate=ctx.select(fields="metadata.name!=bar", limit=2, token=token))
    _check_page(ctx, page, stored[3:], revision, more=False)
    calls.expect(2, 1)


@case(
    "ListInconsistentContinuation",
    upstream="RunTestListInconsistentContinuation",
    requires=[Capability.CONTINUE_TOKEN, Capability.COMPACTION],
    hooks=[Hook.COMPACT],
    layers=[Layer.STORE],
)
async def list_inconsistent_continuation(ctx: Context) -> None:
    """A continue token that compaction has overtaken is refused with another one, which goes on with newer data."""
    store = await ctx.store()
    stored = await _seed(ctx, store)

    async def page(token: str, limit: int = 1) -> ObjectList:
        return await ctx.list(store, resource_version="0", predicate=ctx.select(limit=limit, token=token))

    first = await page("")
    token = _check_page(ctx, first, stored[:1], first.revision, more=True)
    updated = await store.guaranteed_update(
        stored[2].key,
        lambda _old, _meta: (pod("foo", "second", annotations={"a": "b"}), None),
        suggestion=StoredObject(stored[2].key, 0, stored[2].raw),
    )
    await ctx.compact(updated.revision, store)
    with raises(Expired, match="The provided continue parameter is too old ") as caught:
        await page(token, limit=0)
    status = caught.error.status()
    assert (status.code, status.reason) == (410, "Expired")
    assert read_token(status.continue_token)[1] == -1, "the replacement token is pinned to a resourceVersion"
    second = await page(status.continue_token)
    assert second.revision >= updated.revision
    token = _check_page(ctx, second, stored[1:2], second.revision, more=True)
    assert read_token(token)[1] == second.revision, "the token after the replacement is not pinned"
    _check_page(ctx, await page(token), [updated], second.revision, more=False)


class RestlessEngine:
    """Delegates to an engine; after every scan it lets somebody write once per record that was read.

    Args:
        engine: the engine.
        write: writes once.
    """

    def __init__(self, engine: Engine, write: Any) -> None:
        self._engine = engine
        self._write = write

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def scan(self, start: str, end: str, *, at: int = 0, limit: int = 0, count: bool = False) -> Page:
        """Scan, and then let the database change."""
        page = await self._engine.scan(start, end, at=at, limit=limit, count=count)
        for _ in page.records:
            await self._write()
        return page


async def restless_store(ctx: Context, name: str, *, first: int = 0) -> Store:
    """Return a store whose every page is followed by a new pod per record, labelled in turn `even=true` and `false`.

    Args:
        ctx: of the case.
        name: how the pods' names begin; a number of six digits follows.
        first: the first number.
    """
    quiet = await ctx.store()
    numbers = iter(range(first, 1_000_000))

    async def write() -> None:
        number = next(numbers)
        even = "false" if number % 2 else "true"
        await ctx.put(quiet, pod(f"{name}-{number:06}", labels={"even": even}))

    for _ in range(5):
        await write()
    return ctx.session.wrap(RestlessEngine(ctx.engine, write), ctx.root).store(ctx.resource)


@case(
    "ListResourceVersionMatch",
    upstream="RunTestListResourceVersionMatch",
    requires=[Capability.EXACT_RV_LIST],
    hooks=[Hook.ENGINE],
    layers=[Layer.STORE],
)
async def list_resource_version_match(ctx: Context) -> None:
    """A list shows one snapshot also when each of its pages is followed by writes: an exact list finds it again."""
    store = await restless_store(ctx, "pod")
    predicate = ctx.select(labels="even=true", limit=4)
    version = ""
    for match in ("", "NotOlderThan"):
        listed = await ctx.list(store, resource_version=version, resource_version_match=match, predicate=predicate)
        version = str(listed.revision)
        again = await ctx.list(store, resource_version=version, resource_version_match="Exact", predicate=predicate)
        ctx.expect_same(listed.items, again.items, "the list, against the exact list at its own resourceVersion,")
        assert len(listed.items) == (3 if match == "" else 4), f"{len(listed.items)} pods were listed"
        got, want = ((page.revision, page.continue_token, page.remaining) for page in (listed, again))
        assert got == want, f"RV, token and remaining count are {got}, of the exact list {want}"
