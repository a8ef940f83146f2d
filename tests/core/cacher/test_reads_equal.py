"""Lists of the cache against those of the storage: the same pages at every revision, by index or without."""

import random

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kplane_core.errors import Expired, InternalError
from kplane_core.storage.selection import Attributes

EXACT = {"resource_version_match": "Exact"}


def keys(page):
    return [found.key for found in page.items]


async def filled(w, count=5):
    for index in range(count):
        await w.put(f"p{index}", node=f"n{index % 2}", app=f"a{index % 3}")
    await w.synced()
    w.tap.calls.clear()


NAMES = st.sampled_from(["a", "a-b", "a.b", "b", "b1", "c"])
NAMESPACES = st.sampled_from(["n", "n1", "n-1", "m"])
CLUSTERS = st.sampled_from(["c1", "c10", "c1-x", "d"])
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("put"), NAMES, NAMESPACES, CLUSTERS, st.sampled_from(["", "n1", "n2"]), st.sampled_from("xy")
        ),
        st.tuples(st.just("delete"), NAMES, NAMESPACES, CLUSTERS),
        st.tuples(st.just("elsewhere")),
    ),
    max_size=40,
)
SELECTORS = st.sampled_from(
    [
        {},
        {"labels": "app=x"},
        {"labels": "app!=x"},
        {"fields": "spec.nodeName=n1"},
        {"fields": "spec.nodeName="},
        {"fields": "spec.nodeName=n1,metadata.name=a"},
        {"fields": "spec.nodeName!=n1"},
        {"fields": "spec.nodeName=n1", "labels": "app=x"},
        {"fields": "metadata.namespace=n"},
    ]
)
BELOW = st.sampled_from(["", "c1/", "c1/n/", "c10/", "c1", "d/m/", "nowhere/"])


@attrs.define
class Log:
    """What was written: the revisions that exist."""

    revisions: list = attrs.field(factory=list)


async def play(w, steps):
    log, alive = Log(), set()
    for kind, *rest in steps:
        if kind == "put":
            name, namespace, cluster, node, app = rest
            alive.add((name, namespace, cluster))
            written = await w.put(name, namespace, cluster=cluster, node=node, app=app)
            log.revisions.append(written.revision)
        elif kind == "delete":
            if tuple(rest) in alive:
                alive.remove(tuple(rest))
                name, namespace, cluster = rest
                log.revisions.append((await w.delete(name, namespace, cluster=cluster)).revision)
        else:
            log.revisions.append(await w.elsewhere())
    return log


async def pages(store, w, below, options):
    """Return all pages of a list, with what a client sees of each."""
    found, token, after = [], "", options.pop("after", "")
    while True:
        page = await store.get_list(w.root + below, w.options("" if token else after, token=token, **options))
        found.append((page.items, page.revision, bool(page.continue_token), page.remaining))
        token = page.continue_token
        options.pop("resource_version_match", None)
        if not token:
            return found


@given(STEPS, BELOW, SELECTORS, st.integers(0, 5), st.booleans())
@settings(max_examples=150, deadline=None)
def test_pages_are_those_of_the_storage(world, run, steps, below, selector, limit, indexed):
    """Same items, revisions, ends of pages and remaining counts, whatever is listed and selected; D31 for lists."""

    async def scenario():
        async with world(clusters=True, indexed_fields=("spec.nodeName",) if indexed else ()) as w:
            await play(w, steps)
            cached = await pages(w.store, w, below, {**selector, "limit": limit})
            stored = await pages(w.plain, w, below, {**selector, "limit": limit})
            assert cached == stored

    run(scenario())


@given(STEPS, BELOW, SELECTORS, st.integers(0, 5), st.randoms(use_true_random=False))
@settings(max_examples=150, deadline=None)
def test_exact_reads_from_the_history_are_those_of_the_storage(world, run, steps, below, selector, limit, chance):
    """At every revision since the cache was filled, paged or not, and without one call of the storage's list."""

    async def scenario():
        async with world(clusters=True, indexed_fields=("spec.nodeName",)) as w:
            log = await play(w, steps)
            await w.synced()
            w.tap.calls.clear()
            for revision in chance.sample(log.revisions, min(4, len(log.revisions))):
                options = {**selector, "limit": limit, "after": revision, **EXACT}
                cached = await pages(w.store, w, below, dict(options))
                assert cached == await pages(w.plain, w, below, dict(options))
            assert w.tap.calls["get_list"] == 0

    run(scenario())


def test_paging_goes_on_from_the_same_snapshot_while_others_write(world, run):
    """ListContinuation: the pages together are one snapshot, whatever is written in between."""

    async def scenario():
        async with world(clusters=True) as w:
            chance = random.Random(7)
            for index in range(60):
                await w.put(f"p{index:02}", cluster=f"c{index % 3}")
            snapshot = await w.plain.get_list(w.root)
            items, token = [], ""
            while True:
                page = await w.list(token=token, limit=7)
                items += page.items
                assert page.revision == snapshot.revision
                token = page.continue_token
                if not token:
                    break
                await w.put(f"p{chance.randrange(60):02}", cluster=f"c{chance.randrange(3)}")
                if chance.random() < 0.3:
                    await w.put(f"new{len(items)}", cluster="c1")
            assert tuple(items) == snapshot.items

    run(scenario())


def test_a_token_for_the_newest_continues_in_the_newest_state(world, run):
    """ListInconsistentContinuation: after 410 the token that came with it reads on, consistently from there."""

    async def scenario():
        async with world() as w:
            await filled(w)
            page = await w.list(limit=2)
            newer = await w.put("p3", app="new")
            await w.synced()
            w.cacher.forget_history(newer.revision)
            await w.engine.compact(newer.revision)
            with pytest.raises(Expired) as caught:
                await w.list(token=page.continue_token, limit=2)
            token = caught.value.status().continue_token
            assert token
            rest = await w.list(token=token, limit=10)
            assert newer in rest.items
            assert keys(rest) == [w.key("p2"), w.key("p3"), w.key("p4")]

    run(scenario())


def test_an_index_is_not_asked_about_fields_of_somebody_elses_making(world, run):
    """D31: an index may only narrow what the predicate would reject."""

    async def scenario():
        async with world(clusters=True, indexed_fields=("spec.nodeName",)) as w:
            await w.put("a", node="n1")
            await w.put("b", node="n2")
            options = w.options(fields="spec.nodeName=x")
            everything = attrs.evolve(options.predicate, attributes=lambda _raw: Attributes({}, {"spec.nodeName": "x"}))
            page = await w.store.get_list(f"{w.root}c1/", attrs.evolve(options, predicate=everything))
            assert len(page.items) == 2

    run(scenario())


def test_an_indexed_list_looks_only_at_what_the_index_names(world, run):
    async def scenario():
        async with world(clusters=True, indexed_fields=("spec.nodeName",)) as w:
            for index in range(200):
                await w.put(f"p{index}", node=f"n{index % 100}", cluster="c1")
                await w.put(f"p{index}", node=f"n{index % 100}", cluster="c2")
            await w.synced()
            before = w.cacher.metrics.list_fetched_objects
            page = await w.list("0", below=f"{w.root}c1/", fields="spec.nodeName=n7")
            assert keys(page) == [w.key("p107"), w.key("p7")]
            assert w.cacher.metrics.list_fetched_objects - before == 2

    run(scenario())


def test_a_failing_storage_fails_a_consistent_list_as_itself(world, run):
    async def scenario():
        async with world() as w:
            await filled(w)

            def refuse(name):
                if name == "get_current_resource_version":
                    raise InternalError("no quorum")

            w.tap.before = refuse
            with pytest.raises(InternalError, match="no quorum"):
                await w.list()
            assert len((await w.list("0")).items) == 5

    run(scenario())
