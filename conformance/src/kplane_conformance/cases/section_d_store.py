"""Sharp edges on reading: what upstream's and other stores' lists, pages, revisions and prefixes once got wrong."""

import asyncio
import contextlib
import random
from typing import Any

import attrs

from kplane_conformance.case import Capability, Hook, Layer, case
from kplane_conformance.cases.list_paging import RestlessEngine, pages
from kplane_conformance.cases.list_table import continue_token, read_token
from kplane_conformance.context import Context
from kplane_conformance.expect import raises
from kplane_conformance.objects import pod
from kplane_core.engine.interface import Compacted
from kplane_core.errors import BadRequest, Expired, TooLargeResourceVersion
from kplane_core.storage.interface import INT64_MAX, GetOptions, ObjectList, Store, StoredObject


async def seed(ctx: Context, store: Store, *names: str, namespace: str = "test-ns") -> list[StoredObject]:
    """Create pods in this order and return them in the order of their keys."""
    stored = [await ctx.put(store, pod(name, namespace)) for name in names]
    return sorted(stored, key=lambda obj: obj.key.encode())


@case("D4", requires=[Capability.EXACT_RV_LIST], hooks=[Hook.ENGINE], layers=[Layer.STORE])
async def d4_pages_are_pinned(ctx: Context) -> None:
    """A filtered page that takes many reads shows one snapshot, however much is written between the reads."""
    quiet = await ctx.store()
    await seed(ctx, quiet, *(f"pod-{number:02}" for number in range(99)))
    rare = await ctx.put(quiet, pod("pod-99", labels={"hit": "yes"}))
    created: list[StoredObject] = []

    async def write() -> None:
        # Before the only match in the order of the keys, so that an unpinned read would meet it first.
        created.append(await ctx.put(quiet, pod(f"pod-98-{len(created):06}", labels={"hit": "yes"})))

    store = ctx.session.wrap(RestlessEngine(ctx.engine, write), ctx.root).store(ctx.resource)
    predicate = ctx.select(labels="hit=yes", limit=1)
    page = await ctx.list(store, predicate=predicate)
    ctx.expect_same(page.items, [rare], "the page")
    assert len(created) == 100, "nothing was written between the reads"
    exact = {"resource_version": str(page.revision), "resource_version_match": "Exact"}
    again = await ctx.list(quiet, predicate=predicate, **exact)
    ctx.expect_same(page.items, again.items, "the page, against the exact list at its resourceVersion,")
    assert (page.continue_token, page.remaining) == (again.continue_token, again.remaining)


@case("D5", requires=[Capability.EXACT_RV_LIST])
async def d5_legacy_rule(ctx: Context) -> None:
    """A limit makes a resourceVersion exact where no match is given and a directory is listed, and nowhere else."""
    store = await ctx.store()
    first = await ctx.put(store, pod("a"))
    second = await ctx.update(store, pod("a", node="n"))
    old: dict[str, Any] = {"resource_version": str(first.revision)}
    limited: dict[str, Any] = {"predicate": ctx.select(limit=1)}
    exact = await ctx.list(store, **old, **limited)
    ctx.expect_same(exact.items, [first], "the list with a limit")
    assert exact.revision == first.revision
    for what, options in (
        ("without a limit", old),
        ("with NotOlderThan", {**old, **limited, "resource_version_match": "NotOlderThan"}),
    ):
        page = await ctx.list(store, **options)
        ctx.expect_same(page.items, [second], f"the list {what}")
        assert page.revision >= second.revision
    single = await ctx.list(store, first.key, **old, **limited, recursive=False)
    ctx.expect_same(single.items, [second], "the list of one key")


@case("D8")
async def d8_any_version_with_limit(ctx: Context) -> None:
    """A list at resourceVersion 0 may ignore its limit, but where it keeps it, it says that something follows."""
    store = await ctx.store()
    stored = await seed(ctx, store, "a", "b", "c")
    await ctx.current(store)
    page = await ctx.list(store, resource_version="0", predicate=ctx.select(limit=1))
    ctx.expect_same(page.items, stored[: len(page.items)], "the page")
    assert (len(page.items), bool(page.continue_token)) in {(3, False), (1, True)}, (
        f"{len(page.items)} of 3 items, continue token {page.continue_token!r}"
    )


@case("D12", requires=[Capability.EXACT_RV_LIST, Capability.COMPACTION], hooks=[Hook.COMPACT])
async def d12_outside_the_history(ctx: Context) -> None:
    """An exact read below the compaction is expired and one of the future too large; neither is ever answered."""
    store = await ctx.store()
    first = await ctx.put(store, pod("a"))
    second = await ctx.update(store, pod("a", node="n"))
    third = await ctx.update(store, pod("a", node="m"))
    await ctx.compact(third.revision, store)
    for path, recursive in ((ctx.prefix, True), (first.key, False)):
        for revision in (first.revision, second.revision):
            with raises(Expired) as caught:
                await _exact(ctx, store, path, revision, recursive=recursive)
            assert caught.error.status().code == 410
        with raises(TooLargeResourceVersion):
            await _exact(ctx, store, path, INT64_MAX, recursive=recursive)
        at_compaction = await _exact(ctx, store, path, third.revision, recursive=recursive)
        ctx.expect_same(at_compaction.items, [third], "the exact list at the compaction")


async def _exact(ctx: Context, store: Store, path: str, revision: int, *, recursive: bool) -> ObjectList:
    return await ctx.list(
        store, path, resource_version=str(revision), resource_version_match="Exact", recursive=recursive
    )


@case(
    "D16", rows=(2**53 + 1, 2**62 + 1, INT64_MAX - 1, INT64_MAX), row_ids=["53-bits", "62-bits", "largest-1", "largest"]
)
async def d16_large_versions(ctx: Context, revision: int) -> None:
    """A resourceVersion near the end of int64 is read to its last digit, in options and in tokens, and is too large."""
    store = await ctx.store()
    stored = await ctx.put(store, pod("a"))
    if stored.revision > revision:
        return  # a clock that counts nanoseconds has passed 53 bits long ago: the next row asks the same of it
    token = continue_token("a", revision)
    with raises(TooLargeResourceVersion, match=f"Too large resource version: {revision}, current: ") as caught:
        await store.get(stored.key, GetOptions(resource_version=str(revision)))
    assert caught.error.current >= stored.revision, "a current resourceVersion that is too small"
    with raises(TooLargeResourceVersion, match=f": {revision},"):
        await ctx.list(store, resource_version=str(revision))
    with raises(TooLargeResourceVersion, match=f": {revision},"):
        await ctx.list(store, predicate=ctx.select(token=token))


@case("D16.beyond")
async def d16_beyond_int64(ctx: Context) -> None:
    """What is no int64 is no resourceVersion: it is refused as bad, in options and in tokens."""
    store = await ctx.store()
    stored = await ctx.put(store, pod("a"))
    for text in (str(INT64_MAX + 1), "-1", "1.5", "1e3", "abc", " ", "+1", "0x10", "\u0661"):
        with raises(BadRequest):
            await store.get(stored.key, GetOptions(resource_version=text))
        with raises(BadRequest):
            await ctx.list(store, resource_version=text)
    for start, revision in (("a", INT64_MAX + 1), ("a", 0), ("", 5), ("../a", 5), ("a/../../b", 5), ("a//b", 5)):
        with raises(BadRequest, match="invalid continue token"):
            await ctx.list(store, predicate=ctx.select(token=continue_token(start, revision)))
    for token in ("!", "e30", "bnVsbA", "W10"):
        with raises(BadRequest, match="invalid continue token"):
            await ctx.list(store, predicate=ctx.select(token=token))


@attrs.frozen
class ExpiredRow:
    """How an overtaken list is continued."""

    limit: int = 0
    fields: str = ""
    expected: tuple[int, ...] = (2, 3)


@case(
    "D17",
    rows=(ExpiredRow(), ExpiredRow(limit=5), ExpiredRow(fields="metadata.name!=c", expected=(3,))),
    row_ids=["without-limit", "with-limit", "with-selector"],
    requires=[Capability.CONTINUE_TOKEN, Capability.COMPACTION],
    hooks=[Hook.COMPACT],
)
async def d17_continue_after_compaction(ctx: Context, row: ExpiredRow) -> None:
    """A list that compaction has overtaken need not begin anew: the refusal carries a token for the rest."""
    store = await ctx.store()
    stored = await seed(ctx, store, "a", "b", "c", "d")
    page = await ctx.list(store, predicate=ctx.select(limit=2))
    ctx.expect_same(page.items, stored[:2], "the first page")
    stored[3] = await ctx.update(store, pod("d", node="n"))
    await ctx.compact(stored[3].revision, store)

    async def go_on(token: str) -> ObjectList:
        return await ctx.list(store, predicate=ctx.select(fields=row.fields, limit=row.limit, token=token))

    with raises(Expired, match="The provided continue parameter is too old ") as caught:
        await go_on(page.continue_token)
    token = caught.error.status().continue_token
    assert read_token(token) == (read_token(page.continue_token)[0], -1), f"the new token is {read_token(token)}"
    rest = await go_on(token)
    ctx.expect_same(rest.items, [stored[index] for index in row.expected], "the rest of the list")
    assert rest.revision >= stored[3].revision


@case("D18", requires=[Capability.CONTINUE_TOKEN])
async def d18_order_of_keys(ctx: Context) -> None:
    """Pages go through the keys in byte order, whatever the order of the writes, and count what is left of the list."""
    store = await ctx.store()
    names = [f"pod-{number:02}" for number in range(20)]
    stored = await seed(ctx, store, *reversed(names))
    # The newest write lies in the middle of the keys.
    stored[9] = await ctx.update(store, pod(names[9], node="n"))
    found = [page async for page in pages(ctx, store, 2, of=len(stored))]
    ctx.expect_same([item for page in found for item in page.items], stored, "the whole list")
    remaining = [page.remaining for page in found]
    assert remaining == [*range(18, 0, -2), None], f"the remaining counts are {remaining}"
    assert len({page.revision for page in found}) == 1, "the pages come from different snapshots"


@case(
    "D19",
    rows=(("odd=True", ""), ("", "metadata.name!=b")),
    row_ids=["labels", "fields"],
    requires=[Capability.CONTINUE_TOKEN],
)
async def d19_no_count_with_selector(ctx: Context, selectors: tuple[str, str]) -> None:
    """What remains is not counted where a selector is set, because the count would include what does not match."""
    store = await ctx.store()
    for name in "abcdef":
        await ctx.put(store, pod(name, labels={"odd": str(name in "ace")}))
    labels, fields = selectors
    page = await ctx.list(store, predicate=ctx.select(limit=1, labels=labels, fields=fields))
    assert page.continue_token, "more follows, but there is no token"
    assert page.remaining is None, f"{page.remaining} are said to remain"
    page = await ctx.list(store, predicate=ctx.select(limit=1))
    assert page.remaining == 5, f"{page.remaining} are said to remain of 6"


@case("D20", requires=[Capability.CONTINUE_TOKEN])
async def d20_inclusive_start(ctx: Context) -> None:
    """A token that names an existing key goes on with that very key, pinned or not."""
    store = await ctx.store()
    stored = await seed(ctx, store, "a", "b", "c")
    current = await ctx.current(store)
    for revision in (current, -1):
        for start in ("test-ns/b", "/test-ns/b"):
            page = await ctx.list(store, predicate=ctx.select(token=continue_token(start, revision)))
            ctx.expect_same(page.items, stored[1:], f"the list from {start} at {revision}")


@case("D21")
async def d21_segments(ctx: Context) -> None:
    """A directory ends at its slash: neither longer names nor the record of the same name belong to it."""
    store = await ctx.store()
    inside = await seed(ctx, store, "a", "b", namespace="clusters/c1/ns1")
    for namespace in ("clusters/c10/ns1", "clusters/c1/ns11", "clusters/c", "clusters/c1-/ns1", "clusters/c1./ns1"):
        await seed(ctx, store, "a", namespace=namespace)
    for key in (f"{ctx.prefix}clusters/c1", f"{ctx.prefix}clusters/c1/ns1"):
        await store.create(key, pod("same-as-prefix"))
    podsets = await ctx.store(attrs.evolve(ctx.resource, resource_prefix=f"{ctx.resource.resource_prefix[:-1]}ets/"))
    await podsets.create(f"{podsets.resource_prefix}clusters/c1/ns1/a", pod("a"))
    for path in ("clusters/c1/ns1", "clusters/c1/ns1/"):
        page = await ctx.list(store, ctx.prefix + path)
        ctx.expect_same(page.items, inside, f"the list of {path}")
        found = [page async for page in pages(ctx, store, 1, of=len(inside), path=ctx.prefix + path)]
        ctx.expect_same([item for page in found for item in page.items], inside, f"the pages of {path}")
    cluster = await ctx.list(store, f"{ctx.prefix}clusters/c1/")
    assert [item.key for item in cluster.items] == [
        f"{ctx.prefix}clusters/c1/{rest}" for rest in ("ns1", "ns1/a", "ns1/b", "ns11/a")
    ]
    assert (await store.stats()).object_count == 9, "the objects of another resource were counted"
    assert (await podsets.stats()).object_count == 1


@case("D40")
async def d40_the_future(ctx: Context) -> None:
    """The largest resourceVersion is in the future on every clock, for a get, a list and a list of one key."""
    store = await ctx.store()
    stored = await ctx.put(store, pod("a"))
    future = str(INT64_MAX)
    for key in (stored.key, ctx.key("test-ns", "absent")):
        for options in (GetOptions(resource_version=future), GetOptions(True, future)):
            with raises(TooLargeResourceVersion) as caught:
                await store.get(key, options)
            status = caught.error.status()
            assert (status.code, status.reason) == (504, "Timeout")
            assert [cause.reason for cause in status.causes] == ["ResourceVersionTooLarge"]
    for match in ("", "NotOlderThan", "Exact"):
        for path, recursive in ((ctx.prefix, True), (stored.key, False)):
            with raises(TooLargeResourceVersion):
                await ctx.list(store, path, resource_version=future, resource_version_match=match, recursive=recursive)


@case("D11", requires=[Capability.COMPACTION, Capability.EXACT_RV_LIST], hooks=[Hook.COMPACT], timeout=120)
async def d11_compaction_keeps_what_lives(ctx: Context) -> None:
    """After any compaction every live object is there with its last content, and no deleted one has come back."""
    chance = random.Random(ctx.session.seed)  # noqa: S311 - a test's choice, no secret
    store = await ctx.store()
    await churn(ctx, chance, store, store)


@case(
    "D11.two-servers",
    requires=[Capability.COMPACTION, Capability.EXACT_RV_LIST, Capability.MULTI_WRITER],
    hooks=[Hook.COMPACT],
    timeout=120,
)
async def d11_two_servers(ctx: Context) -> None:
    """Two servers that write and compact in turn neither lose an object nor bring a deleted one back."""
    chance = random.Random(ctx.session.seed)  # noqa: S311 - a test's choice, no secret
    await churn(ctx, chance, await ctx.store(), await ctx.second_store())


async def churn(ctx: Context, chance: random.Random, first: Store, second: Store) -> None:
    """Write and delete at random through two stores, compact at random, and compare with a dict after each."""
    live: dict[str, StoredObject] = {}
    states: list[tuple[int, list[StoredObject]]] = []
    compacted = await ctx.current(first)
    for _ in range(30):
        for _ in range(10):
            revision = await _random_write(ctx, chance, chance.choice([first, second]), live)
            states.append((revision, [live[key] for key in sorted(live)]))
        compacted = await _compact(ctx, first, compacted, [chance.choice(states)[0] for _ in range(2)])
        ctx.expect_same((await ctx.list(second)).items, states[-1][1], f"the list after compaction at {compacted}")
        states = [state for state in states if state[0] >= compacted]
        revision, wanted = chance.choice(states)
        exact = {"resource_version": str(revision), "resource_version_match": "Exact"}
        ctx.expect_same((await ctx.list(first, **exact)).items, wanted, f"the exact list at {revision}")


async def _compact(ctx: Context, store: Store, compacted: int, revisions: list[int]) -> int:
    """Let two compactors work at once, of which one may come too late; return up to where is compacted."""

    async def compact(revision: int) -> None:
        with contextlib.suppress(Compacted):
            await ctx.compact(revision)

    async with asyncio.TaskGroup() as group:
        for revision in revisions:
            if revision > compacted:
                group.create_task(compact(revision))
    newest = max(compacted, *revisions)
    if newest > compacted:
        await ctx.eventually(lambda: store.compact_revision() >= newest, "the store learns of the compaction")
    return newest


async def _random_write(ctx: Context, chance: random.Random, store: Store, live: dict[str, StoredObject]) -> int:
    name = f"pod-{chance.randrange(50):02}"
    key = ctx.key("test-ns", name)
    if key in live and chance.random() < 0.4:
        del live[key]
        return (await store.delete(key)).revision
    live[key] = await ctx.update(store, pod(name, node=f"n{chance.randrange(10**9)}"))
    return live[key].revision
