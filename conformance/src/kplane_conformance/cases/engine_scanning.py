"""The engine: scans over ranges of keys."""

import asyncio

from kplane_conformance.case import Capability, Hook, case
from kplane_conformance.context import Context
from kplane_conformance.engines import delete, keys, put
from kplane_core.engine.interface import Engine

# Their order differs between bytes, UTF-16 units and collations; "/" and what stands around it matter most.
_ODD = [*"!%-.0A_az~é", "/x", "a b", "a!", "a-", "a/b", "aa", "日本", "\uffff", "\U0001f600"]


@case("engine.scan.order", hooks=[Hook.ENGINE])
async def order(ctx: Context) -> None:
    """Records come in the order of the bytes of their keys, whatever characters these hold."""
    engine = ctx.engine
    names = [ctx.full_key("d/") + odd for odd in _ODD]
    for name in reversed(names):
        await put(engine, name, name.encode())
    page = await engine.scan(*ctx.span("d"))
    assert keys(page.records) == sorted(names, key=str.encode)
    assert [record.value for record in page.records] == [record.key.encode() for record in page.records]


@case("engine.scan.bounds", hooks=[Hook.ENGINE])
async def bounds(ctx: Context) -> None:
    """The start of a range belongs to it, the end does not; an empty range is empty."""
    engine = ctx.engine
    a, b, c = (ctx.full_key(name) for name in "abc")
    for key in (a, b, c):
        await put(engine, key, b"1")
    assert keys((await engine.scan(a, c)).records) == [a, b]
    assert keys((await engine.scan(a, c + "\0")).records) == [a, b, c]
    assert keys((await engine.scan(a + "\0", c)).records) == [b]
    assert keys((await engine.scan(b, b)).records) == []
    assert keys((await engine.scan(ctx.full_key("x"), ctx.full_key("y"))).records) == []


@case("engine.scan.cluster-boundary", hooks=[Hook.ENGINE])
async def cluster_boundary(ctx: Context) -> None:
    """The range of a directory holds nothing of a directory whose name begins alike, nor the directory's own key.

    clusters/{c1/{a,b}, c10/a, c1} . scan(clusters/c1/) == [a, b]
    """
    engine = ctx.engine
    mine = [ctx.full_key("clusters/c1/a"), ctx.full_key("clusters/c1/b")]
    for key in (*mine, *(ctx.full_key(f"clusters/{other}") for other in ("c10/a", "c1", "c1-x/a", "c1.y/a", "c2/a"))):
        await put(engine, key, b"1")
    page = await engine.scan(*ctx.span("clusters/c1"), count=True)
    assert keys(page.records) == mine
    assert page.total == 2


@case("engine.scan.limit", hooks=[Hook.ENGINE])
async def limit(ctx: Context) -> None:
    """A limit cuts the page and `more` says whether it cut anything; `count` counts the whole range."""
    engine = ctx.engine
    names = [ctx.full_key(f"d/{number}") for number in range(5)]
    for name in names:
        await put(engine, name, b"1")
    start, end = ctx.span("d")
    for size, more in ((0, False), (1, True), (4, True), (5, False), (6, False)):
        page = await engine.scan(start, end, limit=size, count=True)
        assert keys(page.records) == (names[:size] if size else names)
        assert (page.more, page.total) == (more, 5), f"limit {size}"
    assert (await engine.scan(start, end, limit=2)).total == 0, "nobody asked for the count"


@case("engine.scan.at", requires=[Capability.EXACT_RV_LIST], hooks=[Hook.ENGINE])
async def scan_at(ctx: Context) -> None:
    """A scan at a revision shows the range as of exactly then, also with a limit and a count."""
    engine = ctx.engine
    a, b, c = (ctx.full_key(f"d/{name}") for name in "abc")
    await put(engine, a, b"1")
    then = await put(engine, b, b"1")
    await put(engine, a, b"2")
    await delete(engine, b)
    await put(engine, c, b"1")
    page = await engine.scan(*ctx.span("d"), at=then)
    assert [(record.key, record.value) for record in page.records] == [(a, b"1"), (b, b"1")]
    assert page.revision == then
    page = await engine.scan(*ctx.span("d"), at=then, limit=1, count=True)
    assert (keys(page.records), page.more, page.total) == ([a], True, 2)


@case("engine.scan.one-snapshot", requires=[Capability.CONSISTENT_LIST], hooks=[Hook.ENGINE])
async def one_snapshot(ctx: Context) -> None:
    """A page and its revision come from one snapshot: it shows every write up to the revision and none after it."""
    engine = ctx.engine
    log: list[tuple[int, str, bytes]] = []
    pages = []
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        for name in "abcd":
            tasks.create_task(_keep_writing(engine, ctx.full_key(f"d/{name}"), log, stop))
        for _ in range(40):
            pages.append(await engine.scan(*ctx.span("d")))
            await asyncio.sleep(0)
        stop.set()
    for page in pages:
        expected = {key: value for revision, key, value in sorted(log) if revision <= page.revision}
        shown = {record.key: record.value for record in page.records}
        assert shown == expected, f"the page at revision {page.revision} is not the state at that revision"


async def _keep_writing(engine: Engine, key: str, log: list[tuple[int, str, bytes]], stop: asyncio.Event) -> None:
    number = 0
    while not stop.is_set():
        value = str(number := number + 1).encode()
        log.append((await put(engine, key, value), key, value))
        await asyncio.sleep(0)
