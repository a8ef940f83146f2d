"""Field reports on reading: revisions, pages, unusual keys and prefixes, and data that cannot be read."""

import asyncio
import random
import unicodedata
from collections.abc import Sequence

import attrs

from kplane_conformance.case import Capability, Hook, Layer, case
from kplane_conformance.cases.list_paging import pages
from kplane_conformance.cases.section_d_store import seed
from kplane_conformance.cases.store_delete import UNSAFE
from kplane_conformance.context import Context
from kplane_conformance.expect import raises
from kplane_conformance.objects import pod
from kplane_core.errors import (
    CorruptObj,
    Expired,
    InvalidKey,
    KeyNotFound,
    StoreReadError,
    TooLargeResourceVersion,
)
from kplane_core.storage.interface import INT64_MAX, EventType, GetOptions, Store, StoredObject


@case(
    "R14",
    rows=("Exact", "NotOlderThan", ""),
    row_ids=["exact", "not-older-than", "legacy"],
    requires=[Capability.EXACT_RV_LIST, Capability.COMPACTION],
    hooks=[Hook.COMPACT],
)
async def r14_compacted_and_future(ctx: Context, match: str) -> None:
    """An old or future resourceVersion is answered as its match says, never as if it were the newest by accident."""
    store = await ctx.store()
    first = await ctx.put(store, pod("a"))
    second = await ctx.update(store, pod("a", node="n"))
    await ctx.compact(second.revision, store)
    future = {"resource_version": str(INT64_MAX), "resource_version_match": match}
    old = {"resource_version": str(first.revision), "resource_version_match": match}
    with raises(TooLargeResourceVersion):
        await ctx.list(store, **future)
    with raises(TooLargeResourceVersion):
        await store.get(first.key, GetOptions(resource_version=str(INT64_MAX)))
    if match == "Exact":
        with raises(Expired):
            await ctx.list(store, **old)
    else:
        page = await ctx.list(store, **old)
        ctx.expect_same(page.items, [second], "the list that need only not be older")
        assert page.revision >= second.revision
    ctx.expect_same(await store.get(first.key, GetOptions(resource_version=str(first.revision))), second)


@attrs.frozen
class MatrixRow:
    """One cell of resourceVersionMatch x resourceVersion x limit."""

    match: str
    rv: str
    limit: int


_MATRIX = tuple(
    MatrixRow(match, rv, limit)
    for match in ("", "NotOlderThan", "Exact")
    for rv in ("", "0", "old")
    for limit in (0, 1, 10)
    if not match or rv == "old" or (match == "NotOlderThan" and rv == "0")
)


@case(
    "R16",
    rows=_MATRIX,
    row_ids=[f"{row.match or 'none'}-{row.rv or 'unset'}-{row.limit}" for row in _MATRIX],
    requires=[Capability.EXACT_RV_LIST],
)
async def r16_matrix(ctx: Context, row: MatrixRow) -> None:
    """Match, resourceVersion and limit together decide which state is listed, as the documented table says."""
    store = await ctx.store()
    old = await seed(ctx, store, "a", "b")
    version = await ctx.current(store)
    new = [*old, await ctx.put(store, pod("c"))]
    current = await ctx.current(store)
    page = await ctx.list(
        store,
        resource_version=str(version) if row.rv == "old" else row.rv,
        resource_version_match=row.match,
        predicate=ctx.select(limit=row.limit),
    )
    exact = row.match == "Exact" or (not row.match and row.rv == "old" and row.limit > 0)
    wanted = old if exact else new
    # At resourceVersion 0 a limit may be ignored.
    whole = not row.limit or (row.rv == "0" and len(page.items) == len(wanted))
    ctx.expect_same(page.items, wanted if whole else wanted[: row.limit], "the page")
    assert bool(page.continue_token) is (len(page.items) < len(wanted)), f"continue token {page.continue_token!r}"
    assert page.revision == version if exact else page.revision >= current, f"the list's RV is {page.revision}"


@case("R17")
async def r17_single_page(ctx: Context) -> None:
    """A list that fits into one page has neither a continue token nor a remaining count."""
    store = await ctx.store()
    for names in ((), ("a",), ("a", "b", "c")):
        stored = await seed(ctx, store, *names)
        for limit in (0, len(names), len(names) + 1, 500):
            page = await ctx.list(store, predicate=ctx.select(limit=limit))
            ctx.expect_same(page.items, stored, "the page")
            assert (page.continue_token, page.remaining) == ("", None), f"{page.continue_token!r}, {page.remaining}"


@case("R18", requires=[Capability.CONTINUE_TOKEN], timeout=120)
async def r18_pages_under_change(ctx: Context) -> None:
    """Pages chain to exactly the first page's snapshot, while others insert, change and delete between them."""
    chance = random.Random(ctx.session.seed)  # noqa: S311 - a test's choice, no secret
    store, other = await ctx.store(), await ctx.second_store()
    live = {obj.key: obj for obj in await seed(ctx, store, *(f"pod-{number:02}" for number in range(0, 40, 3)))}
    for _ in range(20):
        snapshot = [live[key] for key in sorted(live)]
        limit = chance.randint(1, 6)
        found: list[StoredObject] = []
        async for page in pages(ctx, store, limit, of=len(snapshot)):
            found += page.items
            left = len(snapshot) - len(found)
            assert page.remaining == (left or None), f"{page.remaining} are said to remain, not {left}"
            await _change(ctx, chance, other, live)
        ctx.expect_same(found, snapshot, f"the pages of {limit}")


async def _change(ctx: Context, chance: random.Random, store: Store, live: dict[str, StoredObject]) -> None:
    name = f"pod-{chance.randrange(40):02}"
    key = ctx.key("test-ns", name)
    if key in live and len(live) > 8 and chance.random() < 0.5:
        await store.delete(key)
        del live[key]
    else:
        live[key] = await ctx.update(store, pod(name, node=f"n{chance.randrange(10**9)}"))


@case(
    "R19",
    requires=[Capability.EXACT_RV_LIST, Capability.COMPACTION, Capability.HISTORY_WINDOW],
    hooks=[Hook.COMPACT],
)
async def r19_revision_of_an_exact_list(ctx: Context) -> None:
    """An exact list carries the resourceVersion it was asked for, and any other one that a watch can go on from."""
    store = await ctx.store()
    first = await ctx.put(store, pod("a"))
    for number in range(10):
        last = await ctx.update(store, pod("a", node=f"n{number}"))
    asked = str(first.revision)
    exact = await ctx.list(store, resource_version=asked, resource_version_match="Exact")
    assert exact.revision == first.revision, f"the exact list at {asked} carries {exact.revision}"
    ctx.expect_same(exact.items, [first], "the exact list")
    fresh = await ctx.list(store, resource_version=asked, resource_version_match="NotOlderThan")
    assert fresh.revision >= last.revision, f"a list of what is stored at {last.revision} carries {fresh.revision}"
    await ctx.compact(last.revision, store)
    watch = await ctx.watch(store, after=fresh.revision)
    await ctx.expect_event(watch, EventType.ADDED, await ctx.put(store, pod("b")))


@case("R28", requires=[Capability.CONSISTENT_LIST])
async def r28_one_snapshot(ctx: Context) -> None:
    """A list that does not show an object is of a resourceVersion before the object's creation."""
    ctx.jitter()
    store, other = await ctx.store(), await ctx.second_store()
    for number in range(150):
        name = f"pod-{number}"
        version = ("", "0")[number % 2]
        select = ctx.select(fields=f"metadata.name={name}")
        async with asyncio.TaskGroup() as group:
            creating = group.create_task(other.create(ctx.key("test-ns", name), pod(name)))
            listing = group.create_task(ctx.list(store, resource_version=version, predicate=select))
        created, listed = creating.result(), listing.result()
        if listed.items:
            ctx.expect_same(listed.items, [created], "the list")
            assert listed.revision >= created.revision, "a list that is older than what it shows"
        else:
            assert listed.revision < created.revision, (
                f"the list at {listed.revision} misses what was created at {created.revision}"
            )


_LITERAL = ("a-b", "a_b", "a%b", "a.b", "a*b", "a?b", "a[b]", "a\\b", "a'b", 'a"b', "a;b", "a b", "A-B", "%", "_", "*")


@case("R31")
async def r31_wildcards(ctx: Context) -> None:
    """No character of a key stands for another: neither in a get, nor in a list, nor in a watch."""
    store = await ctx.store()
    for name in _LITERAL:
        stored = await ctx.put(store, pod(name))
        watch = await ctx.watch(store, ctx.key(name), after=stored.revision)
        for other in _LITERAL:
            if other != name:
                with raises(KeyNotFound):
                    await store.get(ctx.key("test-ns", other))
                assert (await ctx.list(store, ctx.key(other))).items == ()
                await ctx.put(store, pod("x", other))
        inside = await ctx.put(store, pod("x", name))
        ctx.expect_same((await ctx.list(store, ctx.key(name))).items, [inside], f"the list of namespace {name!r}")
        await ctx.expect_event(watch, EventType.ADDED, inside)
        for other in _LITERAL:
            await store.delete(ctx.key(other, "x"))
        await store.delete(stored.key)


@case("R32")
async def r32_neighbours(ctx: Context) -> None:
    """What is done to cluster c1 or to pods - list, watch, count, delete all - leaves c10 and podsets alone."""
    store = await ctx.store()
    podsets = await ctx.store(attrs.evolve(ctx.resource, resource_prefix=f"{ctx.prefix[:-1]}ets/"))
    mine = await seed(ctx, store, "a", "b", namespace="clusters/c1/ns")
    neighbours = await seed(ctx, store, "a", "b", namespace="clusters/c10/ns")
    foreign = await podsets.create(f"{podsets.resource_prefix}clusters/c1/ns/a", pod("a"))
    watch = await ctx.watch(store, ctx.key("clusters/c1"), after=foreign.revision)
    await ctx.update(store, pod("a", "clusters/c10/ns", node="n"))
    await podsets.delete(foreign.key)
    listed = await ctx.list(store, ctx.key("clusters/c1"))
    ctx.expect_same(listed.items, mine, "the list of c1")
    assert (await store.stats()).object_count == 4
    for item in listed.items:
        deleted = await store.delete(item.key)
        await ctx.expect_event(watch, EventType.DELETED, StoredObject(item.key, deleted.revision, item.raw))
    assert (await ctx.list(store, ctx.key("clusters/c1"))).items == ()
    left = (await ctx.list(store)).items
    assert [item.key for item in left] == [item.key for item in neighbours]


@case("R33")
async def r33_escapes(ctx: Context) -> None:
    """No key with `.` or `..` segments, or outside the prefix, reaches the storage; dots within a segment are fine."""
    store = await ctx.store()
    for name in ("..", ".", "a/..", "../a", "./a", "a/../../others/b", "a/./b", "a/.."):
        key = ctx.key("test-ns", name)
        with raises(InvalidKey):
            await store.create(key, pod("a"))
        with raises(InvalidKey):
            await store.get(key)
        with raises(InvalidKey):
            await ctx.list(store, key)
        with raises(InvalidKey):
            await store.watch(key)
        with raises(InvalidKey):
            await store.delete(key)
    names = sorted(("a..b", "..a", "a..", "...", ".a", "a.", "%2e%2e", "%2F", "a%2f..%2fb"))
    stored = [await ctx.put(store, pod(name)) for name in names]
    ctx.expect_same((await ctx.list(store)).items, stored, "the list")


_NAMES = (
    *("foo", "Foo", "FOO", "foo ", " foo", "foo  ", "fo-o", "fo_o", "z", "Z", "\u00e9", "e\u0301", "\u00e8", "e"),
    *("ss", "\u00df", "\u0131", "i", "I", "\u0130", "\uff21", "A", "\ufffd", "\U0001f600", "\ue000", "\uffff"),
    *("a" * 253, "a" * 252 + "b", "\u00e9" * 120, "1", "10", "2", "01", "\u0661", "a\tb", "a\u00a0b", "a b"),
)


@case("R34")
async def r34_bytewise(ctx: Context) -> None:
    """Keys are told apart and ordered by their bytes: no case, accent, space or number is folded together."""
    assert len({unicodedata.normalize("NFKC", name).casefold().strip() for name in _NAMES}) < len(set(_NAMES))
    store = await ctx.store()
    stored = [await store.create(ctx.key("test-ns", name), pod(name)) for name in _NAMES]
    for obj in stored:
        ctx.expect_same(await store.get(obj.key), obj)
    wanted = sorted(stored, key=lambda obj: obj.key.encode())
    ctx.expect_same((await ctx.list(store)).items, wanted, "the list")
    found = [item async for page in pages(ctx, store, 4, of=len(wanted)) for item in page.items]
    ctx.expect_same(found, wanted, "the pages")
    for obj in stored[::2]:
        await store.delete(obj.key)
    left = {obj.key for obj in stored[1::2]}
    ctx.expect_same((await ctx.list(store)).items, [obj for obj in wanted if obj.key in left], "the list of the rest")


@case("R35", hooks=[Hook.ENGINE])
async def r35_nothing_left(ctx: Context) -> None:
    """After a cluster's objects were deleted the database holds no key of it, and its neighbour is whole."""
    resources = [
        attrs.evolve(ctx.resource, group_resource=name, resource_prefix=f"{ctx.prefix}{name}/")
        for name in ("things", "others", "leases")
    ]
    stores = [await ctx.store(resource) for resource in resources]
    for store in stores:
        for cluster in ("c1", "c10", "c1-1"):
            for number in range(20):
                key = f"{store.resource_prefix}clusters/{cluster}/ns-{number % 3}/pod-{number}"
                await store.create(key, pod(f"pod-{number}"), ttl=3600 if number % 2 else 0)
    for store in stores:
        for item in (await ctx.list(store, f"{store.resource_prefix}clusters/c1/")).items:
            await store.delete(item.key)
    keys = [record.key for record in (await ctx.engine.scan(*ctx.span())).records]
    left = [key for key in keys if "/clusters/c1/" in key.removeprefix(ctx.full_key(ctx.prefix))]
    assert not left, f"keys of the deleted cluster are left: {left}"
    assert len(keys) == 2 * 20 * len(stores), f"{len(keys)} keys of the neighbours are left"


_JUNK: Sequence[bytes] = (
    b"",
    b"\x00\xff\xfe",
    b"not json",
    b"[]",
    b"null",
    b"{",
    b'{"metadata":',
    b'{"metadata":"text"}',
    b'{"metadata":{"name":"\xff"}}',
)


@case(
    "R50",
    rows=_JUNK,
    row_ids=[f"junk-{number}" for number in range(1, len(_JUNK) + 1)],
    requires=[Capability.HISTORY_WINDOW],
    hooks=[Hook.RAW_POKE],
    layers=[Layer.STORE],
)
async def r50_junk(ctx: Context, junk: bytes) -> None:
    """One unreadable record is named by every list over it, breaks no other key, and can be deleted."""
    store = await ctx.store()
    good = await seed(ctx, store, "a", "c")
    key = (await ctx.put(store, pod("b"))).key
    start = await ctx.current(store)
    await ctx.poke(key, ctx.transformer.prepend(junk))
    with raises(CorruptObj):
        await store.get(key)
    with raises(StoreReadError) as caught:
        await ctx.list(store)
    assert [cause.field for cause in caught.error.status().causes] == [ctx.full_key(key)]
    ctx.expect_same(caught.error.partial.items, good, "the readable items")
    watch = await ctx.watch(store, after=start)
    event = await ctx.expect_event(watch, EventType.ERROR)
    assert event.error is not None
    assert event.error.status().code == 500
    await ctx.expect_closed(watch)
    with raises(CorruptObj):
        await store.delete(key)
    await _delete_unsafely(ctx, store, key, good)


async def _delete_unsafely(ctx: Context, store: Store, key: str, good: Sequence[StoredObject]) -> None:
    for obj in good:
        ctx.expect_same(await store.get(obj.key), obj)
    ctx.expect_same((await ctx.list(store, good[0].key, recursive=False)).items, good[:1], "the list of a good key")
    await store.delete(key, options=UNSAFE)
    ctx.expect_same((await ctx.list(store)).items, good, "the list afterwards")
    with raises(KeyNotFound):
        await store.get(key)
