"""Watches over an engine: which event a change becomes, where a stream starts, and how it ends."""

import asyncio

import pytest

from kplane_core.engine import Compacted, EngineEvent, EngineUnreachable, FutureRevision, Record, watching
from kplane_core.engine.reading import RecordReader
from kplane_core.engine.watching import EventBuilder
from kplane_core.errors import Expired, InternalError, KplaneError, StoreReadError, TooLargeResourceVersion, Unreachable
from kplane_core.storage import (
    INITIAL_EVENTS_END,
    INT64_MAX,
    ListOptions,
    Predicate,
    Resource,
    TransformError,
    TransformUnavailable,
    encode_object,
    parse_label_selector,
)

KEY = "/registry/pods/ns/a"
YES = encode_object({"kind": "Pod", "metadata": {"name": "a", "labels": {"x": "1"}}})
NO = encode_object({"kind": "Pod", "metadata": {"name": "a"}})
UNTELLABLE = b'{"metadata":{"labels":{"x":7}}}'


def selecting(labels="x=1", **more):
    return Predicate(labels=parse_label_selector(labels), **more)


def builder(labels="x=1", **resource):
    pods = Resource("pods", "/pods/", kind="Pod", **resource)
    matches = selecting(labels).matcher(pods.attributes)
    return EventBuilder(pods, RecordReader(pods, "/registry"), matches)


def entry(new, old, *, created=False):
    previous = Record(KEY, old, 3, 5) if old is not None else None
    return EngineEvent(KEY, 9, new, previous, created)


# --- one change ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("new", "old", "created", "event"),
    [
        (YES, None, True, ("ADDED", YES)),
        (NO, None, True, None),
        (UNTELLABLE, None, True, None),
        (YES, YES, False, ("MODIFIED", YES)),
        (YES, NO, False, ("ADDED", YES)),
        (YES, UNTELLABLE, False, ("ADDED", YES)),
        (NO, YES, False, ("DELETED", YES)),
        (UNTELLABLE, YES, False, ("DELETED", YES)),
        (NO, NO, False, None),
        (None, YES, False, ("DELETED", YES)),
        (None, NO, False, None),
        (None, UNTELLABLE, False, None),
    ],
)
def test_a_change_seen_through_a_selector(new, old, created, event):
    """What leaves the selection is deleted for the watcher, with its old content and the version of the change."""
    found = builder().change(entry(new, old, created=created))
    if event is None:
        assert found is None
    else:
        kind, raw = event
        assert (found.type, found.object.raw, found.object.revision, found.object.key) == (kind, raw, 9, "/pods/ns/a")
        assert found.error is None


@pytest.mark.parametrize(
    ("new", "old", "created", "event"),
    [
        (NO, None, True, ("ADDED", NO)),
        (NO, YES, False, ("MODIFIED", NO)),
        (UNTELLABLE, NO, False, ("MODIFIED", UNTELLABLE)),
        (NO, b"broken", False, ("MODIFIED", NO)),
        (NO, None, False, ("MODIFIED", NO)),
        (None, NO, False, ("DELETED", NO)),
    ],
)
def test_without_a_selector_every_change_is_told_and_the_old_value_of_an_update_is_not_needed(new, old, created, event):
    kind, raw = event
    found = builder("").change(entry(new, old, created=created))
    assert (found.type, found.object.raw, found.object.revision) == (kind, raw, 9)


@pytest.mark.parametrize(("labels", "new"), [("x=1", YES), ("x=1", NO), ("x=1", None), ("", None)])
def test_a_lost_previous_value_is_an_error_never_silence(labels, new):
    """A deletion without its object would leave a ghost in every cache (kubernetes#76624)."""
    with pytest.raises(InternalError, match="PrevKv=nil") as caught:
        builder(labels).change(entry(new, None))
    assert caught.value.status().code == 500
    assert KEY in str(caught.value)


@pytest.mark.parametrize(("new", "old"), [(b"broken", YES), (YES, b"broken"), (NO, b"broken")])
def test_a_value_that_cannot_be_read_is_an_internal_error(new, old):
    with pytest.raises(InternalError, match="not a JSON object"):
        builder().change(entry(new, old))


class Unreadable:
    """A transformer that reads nothing."""

    def __init__(self, error):
        self.error = error

    def from_storage(self, _data, _key):
        raise self.error

    def to_storage(self, data, _key):
        return data


@pytest.mark.parametrize(
    ("reports", "error", "raised", "words"),
    [
        (True, TransformError("bad"), StoreReadError, "saw a DELETED event, but object data is corrupt - "),
        (False, TransformError("bad"), InternalError, "unable to transform key"),
        (True, TransformUnavailable("down"), InternalError, "unable to transform key"),
    ],
)
def test_a_deletion_of_what_cannot_be_read_is_told_as_an_error(reports, error, raised, words):
    with pytest.raises(raised, match=words) as caught:
        builder("", transformer=Unreadable(error), corrupt_object_reports=reports).change(entry(None, YES))
    assert type(caught.value) is raised
    assert caught.value.status().code == 500


def test_a_bookmark_is_an_empty_object_of_the_resource_with_only_its_version():
    plain = builder(api_version="v1").bookmark(9).object
    end = builder(api_version="v1").bookmark(9, initial_events_end=True).object
    assert plain.decode() == {"apiVersion": "v1", "kind": "Pod", "metadata": {"resourceVersion": "9"}}
    assert end.decode()["metadata"] == {"resourceVersion": "9", "annotations": {INITIAL_EVENTS_END: "true"}}


# --- where a stream starts -------------------------------------------------------------------------------


async def take(watch, count):
    """Return so many events; the jumping loop turns a missing one into an error."""
    return [await anext(watch) for _ in range(count)]


async def silent(watch):
    """Return after a while in which nothing came."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(60):
            await anext(watch)


def shown(events):
    return [(event.type.value, event.object.key.rpartition("/")[2]) for event in events]


def beginning(revision, initial, *, bookmarks=True, **more):
    return ListOptions(
        resource_version=revision,
        send_initial_events=initial,
        predicate=Predicate(allow_watch_bookmarks=bookmarks),
        **more,
    )


@pytest.mark.parametrize(
    ("revision", "initial", "expected"),
    [
        ("", None, ["ADDED a", "ADDED b"]),
        ("0", None, ["ADDED a", "ADDED b"]),
        ("", True, ["ADDED a", "ADDED b", "BOOKMARK "]),
        ("0", True, ["ADDED a", "ADDED b", "BOOKMARK "]),
        ("", False, []),
        ("0", False, []),
        ("first", None, ["ADDED b"]),
        ("first", True, ["ADDED a", "ADDED b", "BOOKMARK "]),
        ("first", False, ["ADDED b"]),
    ],
)
def test_a_stream_starts_where_its_options_say(run, store, engine, pod, revision, initial, expected):
    async def scenario():
        first = await store.create("/pods/ns/a", pod())
        await store.create("/pods/ns/b", pod("b"))
        newest = (await engine.real.write("/registry/elsewhere", b"x", expect=0)).revision
        at = str(first.revision) if revision == "first" else revision
        async with await store.watch("/pods/", beginning(at, initial)) as watch:
            events = await take(watch, len(expected))
            assert [f"{kind} {name}" for kind, name in shown(events)] == expected
            for event in events:
                if event.type == "BOOKMARK":
                    assert event.object.revision == newest, "of the whole backend, not of this resource"
                else:
                    assert event.object == await store.get(event.object.key), "with a version of its own"
            await store.create("/pods/ns/c", pod("c"))
            assert shown(await take(watch, 1)) == [("ADDED", "c")]
            await silent(watch)

    run(scenario())


def test_no_bookmark_ends_the_initial_events_of_who_did_not_ask(run, store, pod):
    async def scenario():
        await store.create("/pods/ns/a", pod())
        async with await store.watch("/pods/", beginning("", True, bookmarks=False)) as watch:
            assert shown(await take(watch, 1)) == [("ADDED", "a")]
            await silent(watch)

    run(scenario())


def test_the_initial_events_of_one_key_are_of_that_key(run, store, pod):
    async def scenario():
        for name in ("a", "a/below", "ab"):
            await store.create(f"/pods/ns/{name}", pod())
        async with await store.watch("/pods/ns/a", beginning("", True, recursive=False)) as watch:
            assert [event.type for event in await take(watch, 2)] == ["ADDED", "BOOKMARK"]
            for name in ("a/below2", "ab2"):
                await store.create(f"/pods/ns/{name}", pod())
            deleted = await store.delete("/pods/ns/a")
            (event,) = await take(watch, 1)
            assert (event.type, event.object) == ("DELETED", deleted)
            await silent(watch)

    run(scenario())


def test_initial_events_come_in_pages_of_one_snapshot(run, store, pod, monkeypatch):
    """What is created between two pages is no initial event: it comes live, once."""
    monkeypatch.setattr(watching, "_PAGE", 2)

    async def scenario():
        for name in "aceg":
            await store.create(f"/pods/ns/{name}", pod(name))
        async with await store.watch("/pods/", beginning("", True)) as watch:
            first = await watch.batch()
            assert shown(first) == [("ADDED", "a"), ("ADDED", "c")]
            late = await store.create("/pods/ns/f", pod("f"))
            await store.delete("/pods/ns/g")
            second = await watch.batch()
            assert shown(second) == [("ADDED", "e"), ("ADDED", "g"), ("BOOKMARK", "")]
            assert second[-1].object.revision < late.revision
            assert shown(await take(watch, 2)) == [("ADDED", "f"), ("DELETED", "g")]

    run(scenario())


def test_a_compaction_between_initial_pages_ends_the_stream_with_expired(run, store, engine, pod, monkeypatch):
    monkeypatch.setattr(watching, "_PAGE", 2)

    async def scenario():
        for name in "abcd":
            await store.create(f"/pods/ns/{name}", pod(name))
        async with await store.watch("/pods/") as watch:
            await take(watch, 2)
            written = await engine.real.write("/registry/elsewhere", b"x", expect=0)
            await engine.real.compact(written.revision)
            (event,) = await watch.batch()
            assert event.type == "ERROR"
            assert event.error.status().code == 410
            assert await watch.batch() == ()

    run(scenario())


# --- how a stream fails ----------------------------------------------------------------------------------


async def failure(watch):
    """Return the error of a stream that must end with it."""
    *before, last = [event async for event in watch]
    assert all(event.type != "ERROR" for event in before)
    assert last.type == "ERROR"
    assert last.object is None
    assert await watch.batch() == ()
    return last.error


def test_initial_events_from_the_future_are_too_large_with_a_retry(run, store, pod):
    async def scenario():
        made = await store.create("/pods/ns/a", pod())
        error = await failure(await store.watch("/pods/", beginning(str(INT64_MAX), True)))
        assert isinstance(error, TooLargeResourceVersion)
        assert (error.minimum, error.current) == (INT64_MAX, made.revision)
        assert error.status().code == 504
        assert 1 <= error.status().retry_after <= 3

    run(scenario())


def test_a_watch_from_the_future_waits_and_is_told_nothing_older(run, store, pod):
    async def scenario():
        made = await store.create("/pods/ns/a", pod())
        options = ListOptions(resource_version=str(made.revision + 2))
        async with await store.watch("/pods/", options) as watch:
            for name in "bcd":
                await store.create(f"/pods/ns/{name}", pod(name))
            assert shown(await take(watch, 1)) == [("ADDED", "d")]

    run(scenario())


def test_progress_without_a_kind_is_refused_at_once(run, store_of, engine):
    """A bookmark is an empty object of the kind: the cache that asks for progress could not read it."""

    async def scenario():
        with pytest.raises(InternalError, match="no kind"):
            await store_of(kind="").watch("/pods/", ListOptions(progress_notify=True))
        assert engine.calls == []

    run(scenario())


@pytest.mark.parametrize(
    ("raised", "shown_as", "code"),
    [
        (Compacted(5, 9), Expired, 410),
        (EngineUnreachable("gone"), Unreachable, 500),
        (FutureRevision(9, 5), TooLargeResourceVersion, 504),
        (InternalError("odd"), InternalError, 500),
    ],
)
@pytest.mark.parametrize("method", ["revision", "watch", "scan"])
def test_whatever_goes_wrong_after_the_check_is_the_streams_error(run, store, engine, method, raised, shown_as, code):
    async def scenario():
        def before(name):
            if name == method:
                raise raised

        engine.before = before
        options = beginning("", method == "scan")
        error = await failure(await store.watch("/pods/", options))
        assert type(error) is shown_as
        assert error.status().code == code

    run(scenario())


def test_a_version_older_than_the_history_is_expired(run, store, engine, pod):
    async def scenario():
        made = [await store.create(f"/pods/ns/{name}", pod(name)) for name in "abcd"]
        await engine.real.compact(made[3].revision)
        error = await failure(await store.watch("/pods/", ListOptions(resource_version=str(made[1].revision))))
        assert str(error) == Expired.WATCH
        async with await store.watch("/pods/", ListOptions(resource_version=str(made[2].revision))) as watch:
            assert shown(await take(watch, 1)) == [("ADDED", "d")]

    run(scenario())


def test_what_came_before_a_failing_change_is_told_and_nothing_after_it(run, store, engine, pod):
    async def scenario():
        async with await store.watch("/pods/", beginning("", False)) as watch:
            await store.create("/pods/ns/a", pod())
            await engine.real.write("/registry/pods/ns/b", b"broken", expect=0)
            await store.create("/pods/ns/c", pod("c"))
            events = [event async for event in watch]
            assert [event.type for event in events] == ["ADDED", "ERROR"]
            assert "not a JSON object" in str(events[1].error)
            await store.create("/pods/ns/d", pod("d"))
            assert await watch.batch() == ()

    run(scenario())


def test_the_database_going_away_ends_the_stream_and_wakes_the_waiting(run, store, engine):
    async def scenario():
        watch = await store.watch("/pods/")
        waiting = asyncio.create_task(watch.batch())
        await asyncio.sleep(0)
        await engine.real.aclose()
        assert await waiting == ()
        assert await watch.batch() == ()

    run(scenario())


# --- how a stream is ended -------------------------------------------------------------------------------


def test_stopping_ends_the_stream_after_what_was_read(run, store, pod):
    async def scenario():
        for name in "ab":
            await store.create(f"/pods/ns/{name}", pod(name))
        watch = await store.watch("/pods/")
        assert shown([await anext(watch)]) == [("ADDED", "a")]
        watch.stop()
        watch.stop()
        assert shown([event async for event in watch]) == [("ADDED", "b")]
        with pytest.raises(StopAsyncIteration):
            await anext(watch)

    run(scenario())


def test_stopping_wakes_a_waiting_reader(run, store):
    async def scenario():
        watch = await store.watch("/pods/")
        waiting = asyncio.create_task(watch.batch())
        await asyncio.sleep(0)
        watch.stop()
        assert await waiting == ()

    run(scenario())


def test_a_cancelled_read_loses_nothing(run, store, pod):
    """A caller may wait with a timeout, again and again."""

    async def scenario():
        async with await store.watch("/pods/") as watch:
            for name in "abc":
                await silent(watch)
                await store.create(f"/pods/ns/{name}", pod(name))
                await store.create(f"/pods/ns/{name}2", pod(name))
                assert shown(await take(watch, 2)) == [("ADDED", name), ("ADDED", name + "2")]

    run(scenario())


def test_the_deadline_ends_the_stream(run, store, pod):
    async def scenario():
        loop = asyncio.get_running_loop()
        begun = loop.time()
        watch = await store.watch("/pods/", beginning("", None, deadline=begun + 30))
        await store.create("/pods/ns/a", pod())
        assert shown([event async for event in watch]) == [("ADDED", "a")]
        assert loop.time() == pytest.approx(begun + 30)

    run(scenario())


def test_a_deadline_in_the_past_is_a_stream_that_ends_at_once(run, store, engine, pod):
    async def scenario():
        await store.create("/pods/ns/a", pod())
        engine.calls.clear()
        now = asyncio.get_running_loop().time()
        watch = await store.watch("/pods/", beginning("", None, deadline=now))
        assert [event async for event in watch] == []
        assert engine.calls == []

    run(scenario())


async def end(watch, how, engine):
    """End a watch in one of the ways in which watches end, inside its `async with`."""
    if how == "leave":
        return
    if how == "stop":
        watch.stop()
    if how == "fail":
        await engine.real.write("/registry/pods/ns/x", b"broken", expect=0)
    async for _ in watch:
        pass


@pytest.mark.parametrize("how", ["stop", "leave", "cancel", "fail"])
def test_an_ended_watch_holds_nothing(run, store, engine, how):
    """Neither in the engine nor on the loop's clock."""

    async def scenario():
        loop = asyncio.get_running_loop()
        sources = []
        engine.after = lambda name, answer: sources.append(answer) or answer if name == "watch" else answer

        async def reader():
            async with await store.watch("/pods/", beginning("", None, deadline=loop.time() + 3600)) as watch:
                await end(watch, how, engine)

        task = asyncio.create_task(reader())
        for _ in range(5):
            await asyncio.sleep(0)
        if how == "cancel":
            task.cancel()
        await asyncio.wait([task])
        (source,) = sources
        assert await source.batch() == ()
        assert [handle for handle in loop._scheduled if not handle.cancelled()] == []

    run(scenario())


# --- progress --------------------------------------------------------------------------------------------


def test_progress_is_a_bookmark_for_who_asked_and_nothing_for_others(run, store, engine, pod):
    async def scenario():
        asked = await store.watch("/pods/", ListOptions(progress_notify=True))
        other = await store.watch("/pods/", beginning("", None))
        made = await store.create("/pods/ns/a", pod())
        newest = (await engine.real.write("/registry/elsewhere", b"x", expect=0)).revision
        await store.request_watch_progress()
        first, second = await take(asked, 2)
        assert (first.type, first.object) == ("ADDED", made)
        assert (second.type, second.object.revision) == ("BOOKMARK", newest)
        assert second.object.decode()["kind"] == "Pod"
        assert INITIAL_EVENTS_END not in second.object.raw.decode()
        assert shown(await take(other, 1)) == [("ADDED", "a")]
        await silent(other)
        for watch in (asked, other):
            watch.stop()

    run(scenario())


def test_a_selector_hides_events_but_not_progress(run, store, pod):
    async def scenario():
        options = ListOptions(progress_notify=True, predicate=selecting())
        async with await store.watch("/pods/", options) as watch:
            hidden = await store.create("/pods/ns/a", pod())
            await store.request_watch_progress()
            (event,) = await watch.batch()
            assert (event.type, event.object.revision) == ("BOOKMARK", hidden.revision)

    run(scenario())


def test_errors_in_a_stream_are_of_the_one_tree(run, store, engine):
    async def scenario():
        def before(name):
            if name == "watch":
                raise Compacted(1, 2)

        engine.before = before
        assert isinstance(await failure(await store.watch("/pods/")), KplaneError)

    run(scenario())
