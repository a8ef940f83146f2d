"""Watch: changes that cannot be told end the stream, at the right place and with the right error."""

import asyncio

from kplane_conformance.case import Capability, Hook, Layer, case
from kplane_conformance.context import Context, describe
from kplane_conformance.expect import raises
from kplane_conformance.objects import pod
from kplane_conformance.transformers import TransformFailed, fail
from kplane_core.errors import KplaneError, Status
from kplane_core.storage.interface import DeleteOptions, EventType, Watch

OTHER_PREFIX = b"otherprefix!"


async def expect_error(ctx: Context, watch: Watch) -> Status:
    """Return the Status of the ERROR event that must come next and end the watch."""
    event = await ctx.expect_event(watch, EventType.ERROR)
    assert event.error is not None, describe(event)
    assert event.object is None, "an ERROR event carries an error, not an object"
    await ctx.expect_closed(watch)
    return event.error.status()


@case(
    "WatchError",
    upstream="RunTestWatchError",
    requires=[Capability.HISTORY_WINDOW],
    hooks=[Hook.SWAP_TRANSFORMER],
    layers=[Layer.STORE],
)
async def watch_error(ctx: Context) -> None:
    """A change whose value cannot be read is told as an ERROR, and the watch ends."""
    store = await ctx.store()
    start = await ctx.list(store, resource_version="0")
    stored = await ctx.put(store, pod("foo"))
    with ctx.transformer.swapped(read=fail):
        watch = await ctx.watch(store, stored.key, after=start.revision, recursive=False)
        status = await expect_error(ctx, watch)
    assert (status.code, status.reason) == (500, "InternalError"), status


def _read_other(data: bytes) -> tuple[bytes, bool]:
    if not data.startswith(OTHER_PREFIX):
        raise TransformFailed("written before the prefix was switched")
    return data[len(OTHER_PREFIX) :], False


@case(
    "WatchErrorIsBlockingFurtherEvents",
    upstream="RunWatchErrorIsBlockingFurtherEvents",
    requires=[Capability.HISTORY_WINDOW],
    hooks=[Hook.SWAP_TRANSFORMER],
    layers=[Layer.STORE],
)
async def error_blocks_further_events(ctx: Context) -> None:
    """After a change that cannot be read no later one is told, though it could be, however many watch at once."""
    store = await ctx.store()
    first = await ctx.put(store, pod("foo", "test"))
    await ctx.put(store, pod("bar", "test"))
    with ctx.transformer.swapped(read=_read_other, write=lambda data: OTHER_PREFIX + data):
        await store.create(ctx.key("test", "baz"), pod("baz", "test"))
        async with asyncio.TaskGroup() as tasks:
            for _ in range(10):
                tasks.create_task(_expect_only_error(ctx, await ctx.watch(store, after=first.revision)))


async def _expect_only_error(ctx: Context, watch: Watch) -> None:
    status = await expect_error(ctx, watch)
    assert status.code == 500, status


@case(
    "WatchWithUnsafeDelete",
    upstream="RunTestWatchWithUnsafeDelete",
    hooks=[Hook.SWAP_TRANSFORMER],
    layers=[Layer.STORE],
)
async def watch_with_unsafe_delete(ctx: Context) -> None:
    """Deleting an unreadable object by force is told as an ERROR that says so."""
    store = await ctx.store()
    stored = await ctx.put(store, pod("foo"))
    start = await ctx.list(store, resource_version="0")
    with ctx.transformer.swapped(read=fail):
        watch = await ctx.watch(store, stored.key, after=start.revision, recursive=False)
        with raises(KplaneError):
            await store.delete(stored.key)
        await store.delete(stored.key, options=DeleteOptions(expect_transform_or_decode_error=True))
        status = await expect_error(ctx, watch)
    assert (status.code, status.reason) == (500, "StorageReadError"), status
    assert "saw a DELETED event, but object data is corrupt" in status.message
