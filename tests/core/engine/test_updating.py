"""guaranteed_update and delete: suggestions that save a read and never cause a failure, TTLs, and the unsafe path."""

import asyncio
import random

import pytest

from kplane_core.engine import EngineStore
from kplane_core.errors import CorruptObj, InternalError, InvalidObj, KeyNotFound
from kplane_core.storage import (
    DeleteOptions,
    GetOptions,
    ListOptions,
    Preconditions,
    Resource,
    StoredObject,
    TransformError,
    TransformUnavailable,
    encode_object,
)
from kplane_memory.engine import MemoryEngine

KEY = "/pods/ns/a"
FULL_KEY = "/registry/pods/ns/a"
UNSAFE = DeleteOptions(expect_transform_or_decode_error=True)


class Refused(Exception):
    """What a caller's own function raises."""


def labelled(value):
    """Return an update that sets one label."""

    def update(found, _meta):
        found["metadata"].setdefault("labels", {})["x"] = value
        return found, None

    return update


def refuse_unless(value, calls):
    """Return an update and validator that refuses whatever does not have the label, and notes what it saw."""

    def look(found, _meta=None):
        document = found.decode() if isinstance(found, StoredObject) else found
        seen = document["metadata"].get("labels", {}).get("x")
        calls.append(seen)
        if seen != value:
            raise Refused(seen)
        return document, None

    return look


# --- update ----------------------------------------------------------------------------------------------


def test_an_update_sees_a_private_copy_with_the_version(run, store, pod):
    async def scenario():
        made = await store.create(KEY, pod())

        async def update(found, meta):
            assert meta.resource_version == made.revision
            assert found["metadata"]["resourceVersion"] == str(made.revision)
            found["metadata"]["labels"] = {"x": "1"}
            await asyncio.sleep(0)
            return found, None

        new = await store.guaranteed_update(KEY, update)
        assert new.decode()["metadata"]["labels"] == {"x": "1"}
        assert new == await store.get(KEY)
        assert "labels" not in made.decode()["metadata"]

    run(scenario())


def test_an_unchanged_object_is_not_written_and_causes_no_event(run, store, engine, pod):
    async def scenario():
        made = await store.create(KEY, pod())
        watch = await store.watch("/pods/", ListOptions(resource_version=str(made.revision)))
        engine.calls.clear()
        same = await store.guaranteed_update(KEY, lambda found, _meta: (found, 5))
        assert same == made
        assert engine.count("write") == 0
        await store.delete(KEY)
        assert [event.type for event in await watch.batch()] == ["DELETED"]

    run(scenario())


def test_a_record_of_another_form_is_rewritten_though_the_object_is_the_same(run, store, engine):
    async def scenario():
        await engine.real.write(FULL_KEY, b'{"metadata": {"name": "a"}}', expect=0)
        before = await store.get(KEY)
        after = await store.guaranteed_update(KEY, lambda found, _meta: (found, None))
        assert after.revision > before.revision
        assert after.raw == before.raw == (await engine.real.read(FULL_KEY)).record.value
        # A suggestion looks canonical already: only the stored record can tell.
        await engine.real.write(FULL_KEY, b'{"metadata": {"name": "a"}}', expect=after.revision)
        suggestion = await store.get(KEY)
        rewritten = await store.guaranteed_update(KEY, lambda found, _meta: (found, None), suggestion=suggestion)
        assert rewritten.revision > suggestion.revision

    run(scenario())


def test_an_absent_object_is_an_error_or_an_empty_dict(run, store, pod):
    async def scenario():
        with pytest.raises(KeyNotFound):
            await store.guaranteed_update(KEY, labelled("1"))

        def create(found, meta):
            assert (found, meta.resource_version) == ({}, 0)
            return pod(), None

        made = await store.guaranteed_update(KEY, create, ignore_not_found=True)
        assert made == await store.get(KEY)

    run(scenario())


def test_a_good_suggestion_saves_the_read(run, store, engine, pod):
    async def scenario():
        made = await store.create(KEY, pod())
        engine.calls.clear()
        await store.guaranteed_update(KEY, labelled("1"), suggestion=made)
        assert [name for name, _, _ in engine.calls] == ["write"]

    run(scenario())


@pytest.mark.parametrize(
    "suggestion", [StoredObject(KEY, 0, b""), StoredObject(KEY, 0, encode_object({"kind": "Pod"}))]
)
def test_a_suggestion_without_a_version_is_none(run, store, suggestion):
    """It must not create what is absent."""

    async def scenario():
        with pytest.raises(KeyNotFound):
            await store.guaranteed_update(KEY, labelled("1"), suggestion=suggestion)
        with pytest.raises(KeyNotFound):
            await store.delete(KEY, suggestion=suggestion)

    run(scenario())


def test_an_error_on_a_stale_suggestion_is_tried_again_on_what_is_stored(run, store, pod):
    async def scenario():
        stale = await store.create(KEY, pod())
        await store.guaranteed_update(KEY, labelled("new"))
        calls: list = []
        await store.guaranteed_update(KEY, refuse_unless("new", calls), suggestion=stale)
        assert calls == [None, "new"]

    run(scenario())


def test_an_error_on_a_suggestion_that_is_current_is_final_and_the_function_is_not_asked_again(run, store, pod):
    async def scenario():
        made = await store.create(KEY, pod())
        calls: list = []
        with pytest.raises(Refused):
            await store.guaranteed_update(KEY, refuse_unless("never", calls), suggestion=made)
        assert calls == [None]
        assert await store.get(KEY) == made

    run(scenario())


def test_a_stale_suggestion_of_something_deleted_is_not_found(run, store, pod):
    async def scenario():
        gone = await store.create(KEY, pod())
        await store.delete(KEY)
        for call in (
            store.guaranteed_update(KEY, labelled("1"), suggestion=gone),
            store.guaranteed_update(KEY, refuse_unless("never", []), suggestion=gone),
            store.delete(KEY, suggestion=gone),
        ):
            with pytest.raises(KeyNotFound):
                await call

    run(scenario())


@pytest.mark.parametrize(
    ("now", "wanted", "passes"), [("A", "A", True), ("B", "A", False), ("A", "B", False), ("B", "B", True)]
)
def test_preconditions_judge_what_is_stored_not_what_is_suggested(run, store, now, wanted, passes):
    async def scenario():
        stale = await store.create(KEY, {"metadata": {"uid": "A"}})
        await store.guaranteed_update(KEY, lambda _found, _meta: ({"metadata": {"uid": now, "name": "a"}}, None))
        for call in (store.guaranteed_update, store.delete):
            arguments = [labelled("1")] if call == store.guaranteed_update else []
            attempt = call(KEY, *arguments, preconditions=Preconditions(uid=wanted), suggestion=stale)
            if passes:
                await attempt
                continue
            with pytest.raises(InvalidObj, match=f"UID in precondition: {wanted}"):
                await attempt

    run(scenario())


def test_preconditions_are_checked_on_every_round(run, store, engine, pod):
    async def scenario():
        made = await store.create(KEY, pod())
        rounds = 0

        async def overtaken(found, _meta):
            nonlocal rounds
            rounds += 1
            await engine.real.write(FULL_KEY, encode_object(pod(round=str(rounds))), expect=made.revision)
            return found | {"spec": {}}, None

        version = Preconditions(resource_version=str(made.revision))
        with pytest.raises(InvalidObj, match="ResourceVersion in precondition"):
            await store.guaranteed_update(KEY, overtaken, preconditions=version)
        assert rounds == 1

    run(scenario())


def test_an_absent_object_has_no_uid(run, store, pod):
    async def scenario():
        with pytest.raises(InvalidObj):
            await store.guaranteed_update(
                KEY, lambda _f, _m: (pod(), None), ignore_not_found=True, preconditions=Preconditions(uid="A")
            )

    run(scenario())


def test_an_object_without_metadata_cannot_meet_preconditions(run, store, engine):
    async def scenario():
        await engine.real.write(FULL_KEY, b'{"metadata":null}', expect=0)
        for call in (
            store.guaranteed_update(KEY, labelled("1"), preconditions=Preconditions(uid="A")),
            store.delete(KEY, preconditions=Preconditions(uid="A")),
        ):
            with pytest.raises(InternalError, match="can't enforce preconditions"):
                await call

    run(scenario())


def test_racing_updates_with_stale_suggestions_lose_nothing(run, store):
    """Every success counts once, whatever each writer believed was stored."""

    async def scenario():
        versions = [await store.create(KEY, {"metadata": {}, "spec": {"count": 0}})]
        successes = 0
        source = random.Random(7)

        async def writer():
            nonlocal successes

            async def increment(found, _meta):
                await asyncio.sleep(0)
                return found | {"spec": {"count": found["spec"]["count"] + 1}}, None

            for _ in range(25):
                suggestion = source.choice([None, *versions])
                wanted = source.choice([None, None, versions[-1]])
                preconditions = Preconditions(resource_version=str(wanted.revision)) if wanted else None
                try:
                    new = await store.guaranteed_update(
                        KEY, increment, suggestion=suggestion, preconditions=preconditions
                    )
                except InvalidObj:
                    continue
                successes += 1
                versions.append(new)

        async with asyncio.TaskGroup() as group:
            for _ in range(6):
                group.create_task(writer())
        assert 75 < successes < 150
        assert (await store.get(KEY)).decode()["spec"]["count"] == successes

    run(scenario())


# --- time to live ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ttl", "alive_at"),
    [(None, {5: True, 11: False}), (0, {5: True, 1000: True}), (20, {11: True, 19: True, 21: False})],
)
def test_an_update_keeps_clears_or_sets_the_time_to_live(run, pod, ttl, alive_at):
    """None keeps what remains, 0 clears it, n starts anew."""

    async def scenario():
        now = 0.0
        engine = MemoryEngine(clock=lambda: now)
        store = EngineStore(engine, Resource("pods", "/pods/"))
        await store.create(KEY, pod(), ttl=10)
        await store.guaranteed_update(KEY, lambda found, _meta: (found | {"spec": {}}, ttl))
        for at, alive in alive_at.items():
            now = at
            assert (await store.get(KEY, GetOptions(ignore_not_found=True))).exists is alive, at
        await engine.aclose()

    run(scenario())


# --- delete ----------------------------------------------------------------------------------------------


def test_a_delete_answers_what_was_deleted_with_the_version_of_the_deletion(run, store, pod):
    async def scenario():
        stale = await store.create(KEY, pod())
        new = await store.guaranteed_update(KEY, labelled("1"))
        watch = await store.watch("/pods/", ListOptions(resource_version=str(new.revision)))
        deleted = await store.delete(KEY, suggestion=stale)
        assert deleted.raw == new.raw
        assert deleted.revision > new.revision
        (event,) = await watch.batch()
        assert (event.type, event.object) == ("DELETED", deleted)

    run(scenario())


def test_the_validator_runs_before_every_attempt_and_after_the_preconditions(run, store, engine, pod):
    async def scenario():
        stale = await store.create(KEY, pod())
        new = await store.guaranteed_update(KEY, labelled("new"))
        seen: list = []

        async def validate(found):
            seen.append(found.revision)
            await asyncio.sleep(0)

        await store.delete(KEY, validate=validate, suggestion=stale)
        assert seen == [stale.revision, new.revision]

        seen.clear()
        await store.create(KEY, {"metadata": {"uid": "A"}})
        with pytest.raises(InvalidObj):
            await store.delete(KEY, validate=validate, preconditions=Preconditions(uid="B"))
        assert seen == []

    run(scenario())


def test_a_refusal_on_a_stale_suggestion_is_asked_again_on_what_is_stored(run, store, pod):
    async def scenario():
        stale = await store.create(KEY, pod())
        await store.guaranteed_update(KEY, labelled("new"))
        calls: list = []
        with pytest.raises(Refused):
            await store.delete(
                KEY, validate=lambda found: refuse_unless("never", calls)(found) and None, suggestion=stale
            )
        assert calls == [None, "new"]
        await store.delete(KEY, validate=lambda found: refuse_unless("new", calls)(found) and None, suggestion=stale)
        assert calls == [None, "new", None, "new"]

    run(scenario())


def test_a_refusal_on_current_data_is_final(run, store, pod):
    async def scenario():
        made = await store.create(KEY, pod())
        for suggestion in (None, made):
            calls: list = []
            with pytest.raises(Refused):
                await store.delete(
                    KEY,
                    validate=lambda found, calls=calls: refuse_unless("x", calls)(found) and None,
                    suggestion=suggestion,
                )
            assert calls == [None]
        assert await store.get(KEY) == made

    run(scenario())


def test_a_good_suggestion_makes_a_delete_one_round_trip(run, store, engine, pod):
    async def scenario():
        made = await store.create(KEY, pod())
        engine.calls.clear()
        await store.delete(KEY, suggestion=made)
        assert [name for name, _, _ in engine.calls] == ["write"]

    run(scenario())


# --- the unsafe path -------------------------------------------------------------------------------------


class Switchable:
    """A transformer that fails to read with what `error` says."""

    error: Exception | None = None

    def from_storage(self, data, _key):
        if self.error:
            raise self.error
        return data, False

    def to_storage(self, data, _key):
        return data


@pytest.fixture
def switch():
    return Switchable()


@pytest.fixture
def unsafe_store(store_of, switch):
    return store_of(transformer=switch)


def test_only_what_cannot_be_read_is_deleted_unsafely(run, unsafe_store, switch, pod):
    async def scenario():
        made = await unsafe_store.create(KEY, pod())
        with pytest.raises(InvalidObj, match="decodable from storage"):
            await unsafe_store.delete(KEY, suggestion=made, options=UNSAFE)
        switch.error = TransformError("bad")
        with pytest.raises(CorruptObj):
            await unsafe_store.delete(KEY)
        seen: list = []
        deleted = await unsafe_store.delete(KEY, validate=seen.append, options=UNSAFE)
        assert seen == [None]
        assert deleted.revision > made.revision
        assert deleted.raw == b""
        for options in (UNSAFE, None):
            with pytest.raises(KeyNotFound):
                await unsafe_store.delete(KEY, options=options)

    run(scenario())


def test_data_that_nobody_could_look_at_is_not_deleted(run, unsafe_store, switch, pod):
    """A key service that is down makes every record unreadable; none of them is corrupt."""

    async def scenario():
        made = await unsafe_store.create(KEY, pod())
        switch.error = TransformUnavailable("down")
        with pytest.raises(InternalError, match="down"):
            await unsafe_store.delete(KEY, options=UNSAFE)
        switch.error = None
        assert await unsafe_store.get(KEY) == made

    run(scenario())


def test_an_unsafe_delete_that_is_refused_or_overtaken_deletes_nothing(run, unsafe_store, switch, engine, pod):
    async def scenario():
        await unsafe_store.create(KEY, pod())
        switch.error = TransformError("bad")

        def refuse(_found):
            raise Refused

        with pytest.raises(Refused):
            await unsafe_store.delete(KEY, validate=refuse, options=UNSAFE)

        async def repair(_found):
            switch.error = None
            await unsafe_store.guaranteed_update(KEY, labelled("repaired"))

        with pytest.raises(InvalidObj, match="decodable from storage"):
            await unsafe_store.delete(KEY, validate=repair, options=UNSAFE)
        assert (await unsafe_store.get(KEY)).decode()["metadata"]["labels"] == {"x": "repaired"}

    run(scenario())


def test_an_unreadable_object_meets_no_precondition(run, unsafe_store, switch, pod):
    async def scenario():
        await unsafe_store.create(KEY, pod())
        switch.error = TransformError("bad")
        with pytest.raises(InvalidObj):
            await unsafe_store.delete(KEY, preconditions=Preconditions(uid="A"), options=UNSAFE)
        assert (await unsafe_store.delete(KEY, preconditions=Preconditions(), options=UNSAFE)).revision

    run(scenario())
