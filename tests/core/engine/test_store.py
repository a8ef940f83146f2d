"""EngineStore: what it promises beyond the conformance battery, on create, get, stats and failure."""

import asyncio
import copy

import pytest

from kplane_core.engine import EngineConnection, EngineStore, EngineUnreachable
from kplane_core.errors import (
    BadRequest,
    CorruptObj,
    DecodeError,
    InternalError,
    InvalidKey,
    KeyExists,
    KeyNotFound,
    RVSetOnCreate,
    TooLargeResourceVersion,
    Unreachable,
    UsageError,
)
from kplane_core.storage import (
    INT64_MAX,
    GetOptions,
    ListOptions,
    Resource,
    Stats,
    TransformError,
    TransformUnavailable,
)
from kplane_memory.engine import MemoryEngine


class Failing:
    """A transformer that cannot read, or cannot write."""

    def __init__(self, *, reading=None, writing=None):
        self.reading, self.writing = reading, writing

    def from_storage(self, data, _key):
        if self.reading:
            raise self.reading
        return data, False

    def to_storage(self, data, _key):
        if self.writing:
            raise self.writing
        return data


def unchanged(found, _meta):
    return found, None


def calls_of(store, key, *, recursive):
    """Return a coroutine function per method that takes a key."""
    options = ListOptions(recursive=recursive)
    return {
        "create": lambda: store.create(key, {"metadata": {"resourceVersion": "7"}}),
        "get": lambda: store.get(key, GetOptions(resource_version="garbage")),
        "delete": lambda: store.delete(key),
        "guaranteed_update": lambda: store.guaranteed_update(key, unchanged),
        "get_list": lambda: store.get_list(key, options),
        "watch": lambda: store.watch(key, options),
    }


@pytest.mark.parametrize("key", ["", "/", ".", "..", "pods", "/pods.apps", "/foo/", "/pods/../a", "/pods/a\0"])
def test_all_six_methods_refuse_a_key_alike_and_before_anything_else(run, store, engine, key):
    """Before the object or the options are looked at, and before the database is asked."""

    async def scenario():
        messages = set()
        for call in calls_of(store, key, recursive=False).values():
            with pytest.raises(InvalidKey) as caught:
                await call()
            messages.add(str(caught.value))
        assert len(messages) == 1
        assert engine.calls == []

    run(scenario())


# --- create ----------------------------------------------------------------------------------------------


def test_create_answers_what_it_stored_and_leaves_the_object_alone(run, store, engine, pod):
    async def scenario():
        document = pod() | {"metadata": {"name": "a", "resourceVersion": "0", "selfLink": "/x"}}
        before = copy.deepcopy(document)
        made = await store.create("/pods/ns/a", document)
        assert document == before
        assert made.key == "/pods/ns/a"
        assert made.decode()["metadata"] == {"name": "a", "resourceVersion": str(made.revision)}
        assert made == await store.get("/pods/ns/a")
        record = (await engine.real.read("/registry/pods/ns/a")).record
        assert record.value == made.raw
        assert record.mod_revision == made.revision

    run(scenario())


def test_create_is_one_write_and_no_read(run, store, engine, pod):
    async def scenario():
        await store.create("/pods/ns/a", pod())
        with pytest.raises(KeyExists):
            await store.create("/pods/ns/a", pod())
        assert [name for name, _, _ in engine.calls] == ["write", "write"]

    run(scenario())


@pytest.mark.parametrize("version", ["1", "garbage", "-1", 1, [], {}, " "])
def test_create_refuses_an_object_with_a_version(run, store, engine, version):
    async def scenario():
        with pytest.raises(RVSetOnCreate):
            await store.create("/pods/ns/a", {"metadata": {"resourceVersion": version}})
        assert engine.calls == []

    run(scenario())


@pytest.mark.parametrize("version", ["", "0", None])
def test_create_takes_an_object_whose_version_is_unset(run, store, version):
    async def scenario():
        assert (await store.create("/pods/ns/a", {"metadata": {"resourceVersion": version}})).exists

    run(scenario())


@pytest.mark.parametrize("error", [TransformUnavailable("down"), ValueError("broken")])
def test_a_transformer_that_cannot_write_is_an_internal_error_and_nothing_is_stored(run, store_of, engine, error):
    async def scenario():
        store = store_of(transformer=Failing(writing=error))
        with pytest.raises(InternalError, match="unable to transform the value of key '/registry/pods/ns/a'"):
            await store.create("/pods/ns/a", {})
        assert engine.calls == []

    run(scenario())


def test_stores_of_one_engine_share_the_clock_and_nothing_else(run, engine):
    async def scenario():
        pods = EngineStore(engine, Resource("pods", "/pods"))
        other = EngineStore(engine, Resource("pods.apps", "/pods.apps"))
        rooted = EngineStore(engine, Resource("pods", "/pods"), path_prefix="")
        made = [await one.create(one.resource_prefix + "a", {}) for one in (pods, other, rooted)]
        revisions = [one.revision for one in made]
        assert revisions == sorted(set(revisions))
        for one, own in zip((pods, other, rooted), made, strict=True):
            assert (await one.get_list(one.resource_prefix)).items == (own,)
            assert await one.get_current_resource_version() == revisions[-1]
        assert (await engine.real.read("/pods/a")).record is not None

    run(scenario())


# --- get -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["/pods/ns/a", "/pods/ns/absent"])
def test_a_version_from_the_future_is_found_before_existence_is(run, store, pod, key):
    async def scenario():
        made = await store.create("/pods/ns/a", pod())
        with pytest.raises(TooLargeResourceVersion) as caught:
            await store.get(key, GetOptions(resource_version=str(INT64_MAX), ignore_not_found=True))
        assert caught.value.minimum == INT64_MAX
        assert caught.value.current == made.revision
        assert caught.value.status().retry_after == 0

    run(scenario())


def test_a_get_is_of_the_newest_never_of_the_past(run, store, pod):
    async def scenario():
        old = await store.create("/pods/ns/a", pod())
        new = await store.guaranteed_update("/pods/ns/a", lambda _found, _meta: (pod(x="1"), None))
        for version in ("", "0", str(old.revision), str(new.revision)):
            assert await store.get("/pods/ns/a", GetOptions(resource_version=version)) == new

    run(scenario())


@pytest.mark.parametrize("version", ["a", "-1", "1.0", " ", "9" * 5000])
def test_a_version_that_is_no_number_is_a_bad_request_on_every_path(run, store, version):
    async def scenario():
        options = ListOptions(resource_version=version)
        with pytest.raises(BadRequest, match="invalid resource version"):
            await store.get("/pods/ns/a", GetOptions(resource_version=version))
        with pytest.raises(BadRequest, match="invalid resource version"):
            await store.get_list("/pods/", options)
        with pytest.raises(BadRequest, match="invalid resource version"):
            await store.watch("/pods/", options)

    run(scenario())


def test_an_absent_object_is_an_error_or_a_zero_object(run, store):
    async def scenario():
        with pytest.raises(KeyNotFound) as caught:
            await store.get("/pods/ns/a")
        assert caught.value.key == "/pods/ns/a"
        zero = await store.get("/pods/ns/a", GetOptions(ignore_not_found=True))
        assert not zero.exists
        assert zero.revision == 0

    run(scenario())


@pytest.mark.parametrize(
    ("value", "transformer", "reports", "error"),
    [
        (b"not json", None, True, CorruptObj),
        (b"not json", None, False, DecodeError),
        (b"[]", None, True, CorruptObj),
        (b"k8s:enc:aescbc:v1:k:x", None, True, CorruptObj),
        (b"k8s:enc:aescbc:v1:k:x", None, False, InternalError),
        (b"{}", Failing(reading=TransformError("x")), True, CorruptObj),
        (b"{}", Failing(reading=ValueError("x")), True, CorruptObj),
        (b"{}", Failing(reading=TransformError("x")), False, InternalError),
        (b"{}", Failing(reading=TransformUnavailable("x")), True, InternalError),
    ],
)
def test_a_record_that_cannot_be_read_is_corrupt_unless_nobody_could_look(
    run, store_of, engine, value, transformer, reports, error
):
    async def scenario():
        settings = {"transformer": transformer} if transformer else {}
        store = store_of(corrupt_object_reports=reports, **settings)
        await engine.real.write("/registry/pods/ns/a", value, expect=0)
        for call in (store.get, store.delete):
            with pytest.raises(error) as caught:
                await call("/pods/ns/a")
            assert type(caught.value) is error
        with pytest.raises(error):
            await store.guaranteed_update("/pods/ns/a", unchanged)

    run(scenario())


def test_data_written_by_others_is_answered_in_canonical_form(run, store, engine):
    async def scenario():
        foreign = b'{ "metadata": {"resourceVersion": "4", "name": "a"}, "kind": "Pod" }'
        written = await engine.real.write("/registry/pods/ns/a", foreign, expect=0)
        for _ in range(2):
            found = await store.get("/pods/ns/a")
            assert found.raw == b'{"kind":"Pod","metadata":{"name":"a"}}'
            assert found.decode()["metadata"]["resourceVersion"] == str(written.revision)

    run(scenario())


def test_a_record_that_was_read_once_is_checked_again_when_it_changes(run, store, engine, pod):
    """What is remembered of a record must not outlive it."""

    async def scenario():
        made = await store.create("/pods/ns/a", pod())
        await store.get("/pods/ns/a")
        await engine.real.write("/registry/pods/ns/a", b"broken", expect=made.revision)
        with pytest.raises(CorruptObj):
            await store.get("/pods/ns/a")

    run(scenario())


# --- the database is away --------------------------------------------------------------------------------


def test_every_method_says_unreachable_when_the_database_is_away(run, store, engine):
    async def scenario():
        await engine.real.aclose()
        calls = calls_of(store, "/pods/ns/a", recursive=True)
        calls["create"] = lambda: store.create("/pods/ns/a", {})
        calls["get"] = lambda: store.get("/pods/ns/a")
        del calls["watch"]
        calls |= {
            "stats": store.stats,
            "request_watch_progress": store.request_watch_progress,
            "get_current_resource_version": store.get_current_resource_version,
        }
        for call in calls.values():
            with pytest.raises(Unreachable, match="the memory engine is closed") as caught:
                await call()
            assert isinstance(caught.value.__cause__, EngineUnreachable)

    run(scenario())


def test_closing_a_store_leaves_the_shared_engine_open(run, store, pod):
    async def scenario():
        await store.aclose()
        await store.aclose()
        assert (await store.create("/pods/ns/a", pod())).exists
        store.readiness_check()

    run(scenario())


# --- clock, stats ----------------------------------------------------------------------------------------


def test_the_current_version_is_the_newest_of_the_whole_backend(run, store, engine, pod):
    async def scenario():
        made = await store.create("/pods/ns/a", pod())
        assert await store.get_current_resource_version() == made.revision
        written = await engine.real.write("/elsewhere", b"x", expect=0)
        assert await store.get_current_resource_version() == written.revision

    run(scenario())


def test_a_backend_that_answers_version_zero_is_broken(run, store, engine):
    async def scenario():
        engine.after = lambda name, answer: 0 if name == "revision" else answer
        with pytest.raises(InternalError, match="revision 0"):
            await store.get_current_resource_version()

    run(scenario())


def test_linearizable_reads_never_see_the_clock_go_back(run, store, pod):
    async def scenario():
        seen = []

        async def writer(name):
            for _ in range(20):
                seen.append((await store.create(f"/pods/ns/{name}", pod(name))).revision)
                seen.append((await store.delete(f"/pods/ns/{name}")).revision)

        async def reader():
            last = 0
            for _ in range(60):
                for now in (await store.get_current_resource_version(), (await store.get_list("/pods/")).revision):
                    assert now >= last
                    last = now
                await asyncio.sleep(0)

        async with asyncio.TaskGroup() as group:
            for name in "abc":
                group.create_task(writer(name))
            group.create_task(reader())
        assert len(set(seen)) == len(seen) == 120

    run(scenario())


def test_stats_count_the_records_and_estimate_sizes_only_when_asked(run, store, engine, pod):
    async def scenario():
        made = [await store.create(f"/pods/ns/{name}", pod(name)) for name in "abc"]
        await engine.real.write("/registry/podsandmore/x", b"x", expect=0)
        assert await store.stats() == Stats(3, 0)

        live = ["/pods/ns/a", "/pods/ns/b", "/pods/ns/c"]

        async def keys():
            return live

        store.enable_resource_size_estimation(keys)
        with pytest.raises(UsageError, match="already enabled"):
            store.enable_resource_size_estimation(keys)
        assert await store.stats() == Stats(3, 0), "nothing was seen yet"
        await store.get_list("/pods/")
        assert await store.stats() == Stats(3, len(made[0].raw))
        big = await store.guaranteed_update("/pods/ns/a", lambda _found, _meta: (pod("a", x="1" * 30), None))
        watch = await store.watch("/pods/", ListOptions(resource_version=str(made[-1].revision)))
        await watch.batch()
        expected = (len(big.raw) + 2 * len(made[0].raw)) // 3
        assert await store.stats() == Stats(3, expected)
        live.remove("/pods/ns/a")
        assert await store.stats() == Stats(3, len(made[0].raw))
        await store.delete("/pods/ns/b")
        await store.delete("/pods/ns/c")
        assert await store.stats() == Stats(1, 0)

    run(scenario())


def test_the_known_compaction_is_the_connections(run, pod):
    async def scenario():
        engine = MemoryEngine()
        connection = EngineConnection(engine)
        first, second = (connection.store(Resource("pods", "/pods")) for _ in range(2))
        assert first.compact_revision() == 0
        made = await first.create("/pods/ns/a", pod())
        await connection.compact(made.revision)
        assert first.compact_revision() == second.compact_revision() == made.revision
        await connection.aclose()

    run(scenario())
