"""Create: the upstream functions on creating objects."""

import attrs

from kplane_conformance.case import Capability, Hook, case
from kplane_conformance.context import Context
from kplane_conformance.expect import raises
from kplane_conformance.objects import pod
from kplane_core.errors import KeyExists, KeyNotFound, RVSetOnCreate
from kplane_core.storage.interface import EventType


@attrs.frozen
class CreateRow:
    """A row of the table of Create."""

    name: str
    resource_version: str = ""
    refused: bool = False


@case(
    "Create",
    upstream="RunTestCreate",
    rows=(CreateRow("foo"), CreateRow("bar", resource_version="1", refused=True)),
    hooks=[Hook.RAW_PEEK],
)
async def create(ctx: Context, row: CreateRow) -> None:
    """An object is stored under an absent key, without its resourceVersion; one that carries one is refused."""
    store = await ctx.store()
    obj = pod(row.name, resource_version=row.resource_version)
    with raises(KeyNotFound):
        await store.get(ctx.key_of(obj))
    if row.refused:
        with raises(RVSetOnCreate):
            await store.create(ctx.key_of(obj), obj)
        return
    created = await store.create(ctx.key_of(obj), obj)
    assert created.revision > 0
    assert created.decode()["metadata"]["name"] == row.name
    await ctx.expect_canonical(ctx.key_of(obj))
    ctx.expect_same(await store.get(ctx.key_of(obj)), created)


@case("CreateWithTTL", upstream="RunTestCreateWithTTL", requires=[Capability.TTL])
async def create_with_ttl(ctx: Context) -> None:
    """An object with a time to live is deleted when it has passed, and its watchers see it go."""
    store = await ctx.store()
    created = await store.create(ctx.key("test-ns", "foo"), pod("foo"), ttl=1)
    watch = await ctx.watch(store, created.key, after=created.revision, recursive=False)
    await ctx.elapse(1.0)
    event = await ctx.expect_event(watch, EventType.DELETED)
    assert event.object is not None
    assert event.object.revision > created.revision
    ctx.expect_same_content(event.object, created)


@case("CreateWithKeyExist", upstream="RunTestCreateWithKeyExist")
async def create_with_key_exist(ctx: Context) -> None:
    """Creating an object whose key is taken is refused and changes nothing."""
    store = await ctx.store()
    stored = await ctx.put(store, pod("foo"))
    with raises(KeyExists):
        await store.create(stored.key, pod("foo"))
    ctx.expect_same(await store.get(stored.key), stored)
