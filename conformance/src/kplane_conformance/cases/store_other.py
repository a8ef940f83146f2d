"""Stats, CompactRevision and KeySchema: the upstream functions on the store's other methods."""

from collections.abc import Awaitable, Callable, Sequence

from kplane_conformance.case import Capability, Hook, case
from kplane_conformance.context import Context
from kplane_conformance.expect import raises
from kplane_conformance.objects import pod
from kplane_core.errors import Expired, InvalidKey, KeyNotFound, KplaneError
from kplane_core.storage.interface import ListOptions, Stats, Store, StoredObject


@case("Stats", upstream="RunTestStats")
async def stats(ctx: Context) -> None:
    """The statistics count every stored object, and with size estimation know their average stored size."""
    for estimated in (False, True):
        store = await ctx.store()
        if estimated:
            store.enable_resource_size_estimation(_live_keys(ctx, store))
        await _check_stats(ctx, store, estimated=estimated)


def _live_keys(ctx: Context, store: Store) -> Callable[[], Awaitable[Sequence[str]]]:
    async def keys() -> Sequence[str]:
        return [item.key for item in (await ctx.list(store)).items]

    return keys


async def _check_stats(ctx: Context, store: Store, *, estimated: bool) -> None:
    async def expect(*objects: StoredObject) -> None:
        await ctx.list(store)
        sizes = [len(ctx.transformer.prepend(obj.raw)) for obj in objects]
        average = sum(sizes) // len(sizes) if sizes and estimated else 0
        found = await store.stats()
        assert found == Stats(len(objects), average), f"{found} instead of {len(objects)} objects of {average} bytes"

    await expect()
    foo = await store.create(ctx.key("test-ns", "foo"), pod("foo"))
    await expect(foo)
    bar = await store.create(ctx.key("test-ns", "bar"), pod("bar"))
    await expect(foo, bar)
    bar = await ctx.update(store, pod("bar", labels={"foo": "bar"}))
    await expect(foo, bar)
    await store.delete(foo.key)
    await expect(bar)
    with raises(KeyNotFound):
        await store.delete(foo.key)
    await expect(bar)
    await store.delete(bar.key)
    await expect()


@case("Stats.twice")
async def stats_twice(ctx: Context) -> None:
    """Size estimation is enabled once only."""
    store = await ctx.store()
    store.enable_resource_size_estimation(_live_keys(ctx, store))
    with raises(KplaneError, match="already enabled"):
        store.enable_resource_size_estimation(_live_keys(ctx, store))


@case(
    "CompactRevision",
    upstream="RunTestCompactRevision",
    requires=[Capability.COMPACTION, Capability.EXACT_RV_LIST],
    hooks=[Hook.COMPACT, Hook.INCREASE_RV],
)
async def compact_revision(ctx: Context) -> None:
    """A store knows up to where the history was compacted, and refuses exact lists from below."""
    store = await ctx.store()
    await ctx.put(store, pod("foo"))
    before = await ctx.current(store)
    assert store.compact_revision() < before
    exact = {"resource_version": str(before), "resource_version_match": "Exact"}
    await ctx.list(store, **exact)
    compacted = await ctx.increase_rv()
    await ctx.compact(compacted, store)
    with raises(Expired, match="The resourceVersion for the provided list is too old"):
        await ctx.list(store, **exact)
    assert store.compact_revision() == compacted, f"compacted at {store.compact_revision()}, not at {compacted}"


@case("GetCurrentResourceVersion")
async def get_current_resource_version(ctx: Context) -> None:
    """The current resourceVersion is that of the newest write to anything, and never falls."""
    store, other = await ctx.store(), await ctx.second_store()
    assert await store.get_current_resource_version() > 0, "a clock that has not begun"
    for number in range(20):
        written = (await ctx.put(other, pod(f"foo-{number}"))).revision if number % 2 else await ctx.increase_rv()
        first = await store.get_current_resource_version()
        second = await store.get_current_resource_version()
        assert written <= first <= second, f"{first}, then {second}, after a write at {written}"


@case("KeySchema", upstream="RunTestKeySchema")
async def key_schema(ctx: Context) -> None:
    """Every method takes the keys below the resource prefix, and refuses all others before it does anything."""
    store = await ctx.store()
    checked = await _check_writes(ctx, store) + await _check_reads(ctx, store)
    assert checked == 68, f"{checked} checks were made, upstream makes 68"


_Call = Callable[[str], Awaitable[object]]


async def _refuse(call: _Call, keys: Sequence[tuple[str, str]]) -> int:
    for key, text in keys:
        with raises(InvalidKey, match=text):
            await call(key)
    return len(keys)


async def _accept(call: _Call, keys: Sequence[str]) -> int:
    for key in keys:
        await call(key)
    return len(keys)


def _bad_keys(ctx: Context, *, last: str) -> Sequence[tuple[str, str]]:
    """Return the keys that every method refuses, and the words of the refusal."""
    base = ctx.resource.resource_prefix.rstrip("/")
    outside = (base[1:], base, f"{base}.apps", last)
    malformed = (("", "empty key"), ("/", "empty key"), (".", "invalid key"), ("..", "invalid key"))
    return (*malformed, *((key, "lacks resource prefix") for key in outside))


async def _check_writes(ctx: Context, store: Store) -> int:
    prefix = ctx.prefix
    taken = (prefix, f"{prefix}namespace", f"{prefix}namespace/name")

    def create(key: str) -> Awaitable[StoredObject]:
        return store.create(key, pod("foo"))

    def update(key: str) -> Awaitable[StoredObject]:
        return store.guaranteed_update(key, lambda _old, _meta: (pod("foo"), None))

    checked = 0
    for call, keys in ((create, (*taken, f"{prefix}name")), (store.get, taken), (update, taken)):
        checked += await _refuse(call, _bad_keys(ctx, last="/foo/")) + await _accept(call, keys)
    return checked + await _refuse(store.delete, _bad_keys(ctx, last="/foo")) + await _accept(store.delete, taken)


async def _check_reads(ctx: Context, store: Store) -> int:
    prefix, base = ctx.prefix, ctx.resource.resource_prefix.rstrip("/")

    def get_list(key: str) -> Awaitable[object]:
        return store.get_list(key, ListOptions(recursive=key != base))

    async def watch(key: str) -> None:
        ctx.adopt(await store.watch(key, ListOptions(recursive=key != base)))

    below = (f"{prefix}namespace", f"{prefix}namespace/name")
    checked = await _refuse(get_list, _bad_keys(ctx, last="/foo/")) + await _refuse(watch, _bad_keys(ctx, last="/foo/"))
    await ctx.list(store, base)
    await ctx.watch(store, base)
    return checked + 2 + await _accept(get_list, (prefix, *below)) + await _accept(watch, below)
