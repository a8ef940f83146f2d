"""Reads: who answers what, and that the cache's answers are the storage's."""

import asyncio

import pytest

from kplane_core.cacher import OutOfOrder
from kplane_core.errors import (
    BadRequest,
    Expired,
    InvalidKey,
    KeyNotFound,
    TooLargeResourceVersion,
    TooManyRequests,
)
from kplane_core.storage.interface import INT64_MAX, GetOptions

EXACT = {"resource_version_match": "Exact"}
NOT_OLDER = {"resource_version_match": "NotOlderThan"}


def keys(page):
    return [found.key for found in page.items]


async def filled(w, count=5):
    written = [await w.put(f"p{index}", node=f"n{index % 2}", app=f"a{index % 3}") for index in range(count)]
    await w.synced()
    w.tap.calls.clear()
    return written


# --- who answers what -----------------------------------------------------------------------------------------------


def test_a_get_of_the_newest_goes_to_the_storage_and_any_other_to_the_cache(world, run):
    """GetCacheBypass."""

    async def scenario():
        async with world() as w:
            written = (await filled(w))[0]
            assert await w.store.get(written.key) == written
            assert w.tap.calls["get"] == 1
            for version in ("0", "1", str(written.revision)):
                assert await w.store.get(written.key, GetOptions(resource_version=version)) == written
            assert w.tap.calls["get"] == 1

    run(scenario())


def test_a_get_from_the_cache_answers_an_absent_key_like_the_storage(world, run):
    async def scenario():
        async with world() as w:
            await filled(w)
            with pytest.raises(KeyNotFound):
                await w.store.get(w.key("none"), GetOptions(resource_version="0"))
            absent = await w.store.get(w.key("none"), GetOptions(resource_version="0", ignore_not_found=True))
            assert (absent.exists, absent.key) == (False, w.key("none"))
            with pytest.raises(BadRequest):
                await w.store.get(w.key("none"), GetOptions(resource_version="abc"))
            for key in ("/pods/../x", "/other/a"):
                with pytest.raises(InvalidKey):
                    await w.store.get(key, GetOptions(resource_version="0"))

    run(scenario())


def test_a_get_waits_until_the_cache_is_as_new_as_asked(world, run):
    async def scenario():
        async with world() as w:
            await filled(w)
            w.tap.hold()
            written = await w.put("late")
            reading = asyncio.create_task(w.store.get(written.key, GetOptions(resource_version=str(written.revision))))
            await asyncio.sleep(1)
            assert not reading.done()
            w.tap.release()
            assert await reading == written
            with pytest.raises(TooLargeResourceVersion):
                await w.store.get(written.key, GetOptions(resource_version=str(INT64_MAX)))

    run(scenario())


@pytest.mark.parametrize(
    ("options", "stored"),
    [
        ({}, 0),
        ({"limit": 2}, 0),
        ({"after": "0"}, 0),
        ({"after": "0", "limit": 2}, 0),
        ({"after": "R"}, 0),
        ({"after": "R", "limit": 2}, 0),
        ({"after": "R", **EXACT}, 0),
        ({"after": "R", **NOT_OLDER}, 0),
        ({"after": "0", **NOT_OLDER}, 0),
        ({"after": "R", **EXACT, "recursive": False, "below": "/pods/ns/p1"}, 1),
        ({"after": "0", "recursive": False, "below": "/pods/ns/p1"}, 0),
        ({"recursive": False, "below": "/pods/ns/p1"}, 0),
    ],
)
@pytest.mark.parametrize("exact_reads", [True, False])
def test_lists_are_served_where_the_table_says(world, run, options, stored, exact_reads):
    """WatchCacheBypass and the delegation table: no list reaches the storage that the cache can answer."""
    match = options.get("resource_version_match")
    pinned = options.get("after") == "R" and (match == "Exact" or (match is None and "limit" in options))

    async def scenario():
        async with world(exact_reads=exact_reads) as w:
            revision = (await filled(w))[-1].revision
            given_options = {**options, **({"after": revision} if options.get("after") == "R" else {})}
            page = await w.list(**given_options)
            assert page.items
            assert w.tap.calls["get_list"] == (stored if exact_reads or not pinned else 1)

    run(scenario())


def test_a_consistent_list_asks_the_storage_for_its_revision_and_nothing_else(world, run):
    """D6: the page's revision is the current one, its token is pinned to it, and the storage is not listed."""

    async def scenario():
        async with world() as w:
            await filled(w)
            revision = await w.elsewhere()
            page = await w.list(limit=2)
            assert page.revision == revision
            assert w.tap.calls["get_current_resource_version"] == 1
            await w.put("p0")
            rest = await w.list(token=page.continue_token, limit=10)
            assert rest.revision == revision
            assert w.tap.calls["get_list"] == 0

    run(scenario())


def test_a_limit_with_a_revision_is_an_exact_read_and_a_revision_alone_is_not(world, run):
    """D5, MatchExactResourceVersionFallback: the legacy rule holds for limited, recursive lists only."""

    async def scenario():
        async with world() as w:
            old = (await filled(w, 3))[-1]
            newer = await w.put("p9")
            await w.synced()
            assert (await w.list(old.revision, limit=10)).revision == old.revision
            assert len((await w.list(old.revision, limit=10)).items) == 3
            page = await w.list(old.revision)
            assert (page.revision, len(page.items)) == (newer.revision, 4)
            page = await w.list(old.revision, limit=2, **NOT_OLDER)
            assert (page.revision, len(page.items)) == (newer.revision, 2)

    run(scenario())


def test_the_limit_is_ignored_for_any_revision(world, run):
    """ComputeListLimit, D8: with "0" everything comes at once, and nothing is left to continue."""

    async def scenario():
        async with world() as w:
            await filled(w)
            page = await w.list("0", limit=2)
            assert (len(page.items), page.continue_token, page.remaining) == (5, "", None)
            page = await w.list("", limit=2)
            assert (len(page.items), page.remaining) == (2, 3)
            assert len((await w.list("", limit=-1)).items) == 5

    run(scenario())


def test_an_exact_read_that_the_history_does_not_reach_goes_to_the_storage(world, run):
    """MatchExactResourceVersionFallback: forgotten here may still be known there; forgotten there is 410."""

    async def scenario():
        async with world() as w:
            written = await filled(w)
            w.cacher.forget_history(written[3].revision)
            page = await w.list(written[1].revision, **EXACT)
            assert keys(page) == [w.key("p0"), w.key("p1")]
            assert w.tap.calls["get_list"] == 1
            await w.engine.compact(written[3].revision)
            with pytest.raises(Expired):
                await w.list(written[1].revision, **EXACT)
            assert keys(await w.list(written[3].revision, **EXACT)) == [w.key(f"p{index}") for index in range(4)]

    run(scenario())


def test_exact_reads_obey_the_storages_compaction(world, scripted, run):
    """What the storage has compacted is gone from the cache too, although its history still knows it."""

    async def scenario():
        async with world() as w:
            written = await filled(w)
            w.plain._compact_revision = lambda: written[3].revision
            w.tap.compact_revision = lambda: written[3].revision
            await w.list(written[1].revision, **EXACT)
            assert w.tap.calls["get_list"] == 1
            await w.list(written[3].revision, **EXACT)
            assert w.tap.calls["get_list"] == 1

    run(scenario())


def test_bad_requests_are_refused_before_anybody_is_asked(world, run):
    async def scenario():
        async with world() as w:
            await filled(w)
            token = (await w.list(limit=2)).continue_token
            w.tap.calls.clear()
            for options in (
                {"after": "abc"},
                {"after": "-1"},
                {"token": "nonsense"},
                {"after": "5", "token": token},
                {"after": "5", "resource_version_match": "Newest"},
            ):
                with pytest.raises(BadRequest):
                    await w.list(**options)
            assert not w.tap.calls

    run(scenario())


# --- not ready --------------------------------------------------------------------------------------------------------


def test_while_the_cache_is_not_ready_only_cheap_lists_reach_the_storage(world, run):
    """An unselective page goes to the storage; everything else gets 429, and a get is served by the storage."""

    async def scenario():
        async with world() as w:
            written = await filled(w)
            w.cacher.lost(None)
            assert len((await w.list(limit=2)).items) == 2
            selective = ({"limit": 2, "labels": "app=a1"}, {"limit": 2, "fields": "spec.nodeName=n0"})
            for options in ({}, {"after": "0"}, *selective):
                with pytest.raises(TooManyRequests) as caught:
                    await w.list(**options)
                assert caught.value.status().retry_after == 1
            with pytest.raises(TooManyRequests):
                await w.watch("0")
            assert await w.store.get(written[0].key, GetOptions(resource_version="0")) == written[0]

    run(scenario())


def test_a_stopped_cache_accepts_no_watch_and_no_list(world, run):
    """CacherDontAcceptRequestsStopped."""

    async def scenario():
        async with world() as w:
            written = await filled(w)
            await w.cacher.aclose()
            for refused in (w.watch("0"), w.list("0"), w.list()):
                with pytest.raises(TooManyRequests, match="stopped"):
                    await refused
            assert await w.store.get(written[0].key, GetOptions(resource_version="0")) == written[0]

    run(scenario())


def test_a_reader_that_waited_while_the_feed_broke_is_not_served_what_may_be_wrong(world, scripted, run):
    async def scenario():
        async with world(restart_delay=60.0) as w:
            written = await filled(w)
            w.tap.hold()
            late = await w.put("late")
            listing = asyncio.create_task(w.list(late.revision, **NOT_OLDER))
            getting = asyncio.create_task(w.store.get(late.key, GetOptions(resource_version=str(late.revision))))
            exact = asyncio.create_task(w.list(late.revision, **EXACT))
            await asyncio.sleep(0.1)
            good = scripted.event("ADDED", late.key, late.revision)
            with pytest.raises(OutOfOrder) as caught:
                w.cacher.ingest([good, scripted.event("MODIFIED", written[0].key, written[0].revision)])
            w.cacher.lost(caught.value)
            with pytest.raises(TooManyRequests):
                await listing
            assert await getting == late
            assert len((await exact).items) == 6

    run(scenario())


# --- freshness --------------------------------------------------------------------------------------------------------


def test_a_lagging_cache_never_shows_deleted_objects_to_those_who_ask_for_the_newest(world, run):
    """D1: "0" may be old; "" and NotOlderThan wait, and are refused rather than told an old state."""

    async def scenario():
        async with world() as w:
            await filled(w, 2)
            w.tap.hold()
            gone = await w.delete("p0")
            assert w.key("p0") in keys(await w.list("0"))
            with pytest.raises(TooManyRequests):
                await w.list("")
            with pytest.raises(TooLargeResourceVersion) as caught:
                await w.list(gone.revision, **NOT_OLDER)
            status = caught.value.status()
            assert (status.code, status.retry_after, len(status.causes)) == (504, 1, 1)
            w.tap.release()
            assert w.key("p0") not in keys(await w.list(""))
            assert w.key("p0") not in keys(await w.list(gone.revision, **NOT_OLDER))

    run(scenario())


def test_a_consistent_read_that_is_too_slow_is_refused_by_default(world, run):
    """ConsistentReadFallback, D2: 429 after three seconds, and the storage is not listed."""

    async def scenario():
        async with world() as w:
            await filled(w)
            w.tap.hold()
            await w.put("late")
            started = asyncio.get_running_loop().time()
            with pytest.raises(TooManyRequests) as caught:
                await w.list(limit=3)
            assert asyncio.get_running_loop().time() - started == pytest.approx(3.0, abs=0.01)
            assert caught.value.status().retry_after == 1
            assert "Too large resource version" in str(caught.value)
            assert w.tap.calls["get_list"] == 0
            assert w.cacher.metrics.consistent_reads_refused == 1

    run(scenario())


def test_a_consistent_read_that_is_too_slow_goes_to_the_storage_where_that_is_allowed(world, run):
    """ConsistentReadFallback, opted in."""

    async def scenario():
        async with world(storage_fallback=True, read_timeout=0.2) as w:
            await filled(w)
            w.tap.hold()
            late = await w.put("late")
            page = await w.list()
            assert late in page.items
            assert (page.revision, w.tap.calls["get_list"]) == (late.revision, 1)
            assert w.cacher.metrics.consistent_reads_stored == 1

    run(scenario())


def test_an_idle_resource_stays_fresh(world, run):
    """D3: the global clock moves on by other resources; the cache is told so within a moment."""

    async def scenario():
        async with world() as w:
            await filled(w, 2)
            for _ in range(50):
                revision = await w.elsewhere()
            started = asyncio.get_running_loop().time()
            page = await w.list(revision, **NOT_OLDER)
            assert page.revision == revision
            assert asyncio.get_running_loop().time() - started < 0.2
            assert w.tap.calls["request_watch_progress"] >= 1

    run(scenario())


def test_waiting_readers_are_counted_with_how_long_they_waited(world, run):
    async def scenario():
        async with world() as w:
            await filled(w)
            w.tap.hold()
            await w.put("late")
            with pytest.raises(TooManyRequests):
                await w.list()
            samples = {
                (sample.name, sample.labels): sample
                for sample in w.cacher.metrics.samples(revision=w.cacher.revision, capacity=100)
            }
            waits = samples["apiserver_watch_cache_read_wait_seconds", ()]
            assert waits.buckets[-1] == 1
            assert waits.value == pytest.approx(3.0, abs=0.01)
            refused = samples[
                "apiserver_watch_cache_consistent_read_total", (("success", "false"), ("fallback", "skipped"))
            ]
            assert refused.value == 1

    run(scenario())


def test_a_reader_may_be_cancelled_while_it_waits(world, run):
    async def scenario():
        async with world() as w:
            await filled(w)
            w.tap.hold()
            await w.put("late")
            reading = asyncio.create_task(w.list())
            await asyncio.sleep(0.1)
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading

    run(scenario())


def test_unreadable_data_is_reported_by_the_storage_while_the_cache_cannot_start(world, run):
    async def scenario():
        w = world()
        await w.put("good")
        await w.engine.write("/registry/pods/ns/bad", b"{", expect=0)
        await w.store.start(timeout=0.5)
        with pytest.raises(Exception, match="bad") as caught:
            await w.list()
        assert [found.key for found in caught.value.partial.items] == [w.key("good")]
        await w.store.aclose()

    run(scenario())


# --- writes -----------------------------------------------------------------------------------------------------------


def test_writes_go_to_the_storage_with_the_caches_copy_as_suggestion(world, run):
    """An update of a cached object needs no read; a stale copy costs a retry and never a failure."""

    async def scenario():
        async with world() as w:
            await filled(w)
            reads = w.engine.read
            counted = []

            async def read(key, **options):
                counted.append(key)
                return await reads(key, **options)

            w.engine.read = read

            def touch(pod, _meta):
                pod["metadata"]["labels"]["touched"] = "yes"
                return pod, None

            await w.store.guaranteed_update(w.key("p0"), touch)
            await w.store.delete(w.key("p1"))
            assert not counted
            w.tap.hold()
            await w.put("p2", app="changed")
            updated = await w.store.guaranteed_update(w.key("p2"), touch)
            labels = updated.decode()["metadata"]["labels"]
            assert labels == {"app": "changed", "touched": "yes"}
            deleted = await w.store.delete(w.key("p2"))
            assert deleted.raw == updated.raw

    run(scenario())


def test_the_cache_lists_the_keys_that_size_estimation_asks_for(world, run):
    async def scenario():
        async with world() as w:
            written = await filled(w)
            assert await w.store.keys() == [found.key for found in written]

    run(scenario())
