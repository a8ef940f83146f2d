"""get_list: one snapshot per call, counts, tokens that expire, and unreadable items one by one."""

import pytest

from kplane_core.engine import Page
from kplane_core.errors import (
    BadRequest,
    CorruptObj,
    Expired,
    InternalError,
    StoreReadError,
    TooLargeResourceVersion,
)
from kplane_core.storage import (
    INT64_MAX,
    ListOptions,
    Predicate,
    TransformError,
    TransformUnavailable,
    parse_field_selector,
    parse_label_selector,
)


async def fill(store, pod, count, *, rare=()):
    """Create pods 000, 001, ...; those whose number is in `rare` get the label rare=yes."""
    return [
        await store.create(f"/pods/ns/{number:03}", pod(f"{number:03}", **({"rare": "yes"} if number in rare else {})))
        for number in range(count)
    ]


def paged(limit=0, token="", labels="", **options):
    predicate = Predicate(labels=parse_label_selector(labels), limit=limit, continue_token=token)
    return ListOptions(predicate=predicate, **options)


def names(page):
    return [item.key.rpartition("/")[2] for item in page.items]


async def pages_of(store, limit, labels=""):
    token, pages = "", []
    while True:
        page = await store.get_list("/pods/", paged(limit, token, labels))
        pages.append(page)
        token = page.continue_token
        if not token:
            return pages


# --- counts and continuation -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stored", "limit", "remaining"),
    [
        (0, 0, [None]),
        (0, 2, [None]),
        (5, 0, [None]),
        (5, -1, [None]),
        (5, 5, [None]),
        (5, 6, [None]),
        (5, 4, [1, None]),
        (5, 2, [3, 1, None]),
        (6, 2, [4, 2, None]),
        (5, 1, [4, 3, 2, 1, None]),
    ],
)
def test_the_remaining_count_is_of_the_keys_behind_this_page(run, store, pod, stored, limit, remaining):
    """Counted from the page's start, never zero, and all pages together are the whole list once."""

    async def scenario():
        made = await fill(store, pod, stored)
        pages = await pages_of(store, limit)
        assert [page.remaining for page in pages] == remaining
        assert [item for page in pages for item in page.items] == made
        assert {page.revision for page in pages} == {pages[0].revision}

    run(scenario())


@pytest.mark.parametrize("labels", ["rare=yes", "rare!=yes", "!absent"])
def test_no_count_is_given_of_what_a_selector_would_leave(run, store, pod, labels):
    async def scenario():
        await fill(store, pod, 6, rare={1, 4})
        for page in await pages_of(store, 1, labels):
            assert page.remaining is None

    run(scenario())


def test_a_full_filtered_page_continues_while_any_key_is_left(run, store, pod):
    """Whether what is left matches is not known before it is read."""

    async def scenario():
        await fill(store, pod, 5, rare={0, 1})
        first, second = await pages_of(store, 2, "rare=yes")
        assert (names(first), bool(first.continue_token)) == (["000", "001"], True)
        assert (names(second), second.continue_token) == ([], "")
        (only,) = await pages_of(store, 3, "rare=yes")
        assert names(only) == ["000", "001"]

    run(scenario())


@pytest.mark.parametrize(
    ("stored", "limit", "scans"), [(10, 0, [0]), (10, 20, [20]), (10, 2, [2, 4, 8]), (100, 1, [1, 2, 4, 8, 16, 32, 64])]
)
def test_a_rare_object_is_searched_in_pages_that_double(run, store, engine, pod, stored, limit, scans):
    async def scenario():
        last = (await fill(store, pod, stored, rare={stored - 1}))[-1]
        engine.calls.clear()
        page = await store.get_list("/pods/", paged(limit, labels="rare=yes"))
        assert page.items == (last,)
        assert [kwargs["limit"] for name, _, kwargs in engine.calls if name == "scan"] == scans

    run(scenario())


@pytest.mark.parametrize(("limit", "sizes"), [(4_000, [4_000, 8_000, 10_000, 10_000]), (30_000, [30_000] * 4)])
def test_the_page_size_stops_doubling(run, store, engine, pod, limit, sizes):
    """At 10,000, or at a client's own larger limit."""

    async def scenario():
        await store.create("/pods/ns/a", pod())
        pages = iter([True, True, True, False])
        engine.after = lambda name, page: Page(scanned, page.revision, more=next(pages)) if name == "scan" else page
        scanned = (await engine.real.scan("/registry/pods/", "/registry/pods0")).records
        await store.get_list("/pods/", paged(limit, labels="rare=yes"))
        assert [kwargs["limit"] for name, _, kwargs in engine.calls if name == "scan"] == sizes

    run(scenario())


def test_a_client_may_change_the_limit_and_the_selector_between_pages(run, store, pod):
    async def scenario():
        made = await fill(store, pod, 6, rare={5})
        first = await store.get_list("/pods/", paged(2))
        rest = await store.get_list("/pods/", paged(0, first.continue_token))
        assert [*first.items, *rest.items] == made
        rare = await store.get_list("/pods/", paged(1, first.continue_token, "rare=yes"))
        assert rare.items == (made[5],)

    run(scenario())


def test_a_page_is_pinned_to_its_first_read(run, store, engine, pod):
    """Writes between the internal pages of one call must not show (kubernetes#94002)."""

    async def scenario():
        await fill(store, pod, 20, rare={3, 19})
        written = 0

        async def write(_name):
            nonlocal written
            written += 1
            await engine.real.write(
                f"/registry/pods/ns/zz{written}", b'{"metadata":{"labels":{"rare":"yes"}}}', expect=0
            )

        async def before(name):
            if name == "scan" and engine.count("scan") > 1:
                await write(name)

        engine.calls.clear()
        engine.before = before
        page = await store.get_list("/pods/", paged(2, labels="rare=yes"))
        engine.before = None
        assert names(page) == ["003", "019"]
        assert written >= 2
        exact = ListOptions(
            resource_version=str(page.revision),
            resource_version_match="Exact",
            predicate=Predicate(labels=parse_label_selector("rare=yes")),
        )
        assert (await store.get_list("/pods/", exact)).items == page.items

    run(scenario())


def test_pages_stay_at_the_tokens_version(run, store, pod):
    async def scenario():
        made = await fill(store, pod, 4)
        first = await store.get_list("/pods/", paged(2))
        await store.delete("/pods/ns/003")
        await store.create("/pods/ns/002a", pod("002a"))
        rest = await store.get_list("/pods/", paged(0, first.continue_token))
        assert [*first.items, *rest.items] == made
        assert rest.revision == first.revision

    run(scenario())


def test_more_without_records_is_a_broken_backend_not_an_endless_loop(run, store, engine):
    async def scenario():
        engine.after = lambda name, page: Page([], page.revision, more=True) if name == "scan" else page
        with pytest.raises(InternalError, match="more follows"):
            await store.get_list("/pods/", paged(2))

    run(scenario())


# --- versions --------------------------------------------------------------------------------------------


def test_exact_lists_are_of_the_past_and_say_so(run, store, pod):
    async def scenario():
        made = await fill(store, pod, 3)
        for number, at in enumerate(made, 1):
            for options in (
                ListOptions(resource_version=str(at.revision), resource_version_match="Exact"),
                paged(10, resource_version=str(at.revision)),
            ):
                page = await store.get_list("/pods/", options)
                assert (page.items, page.revision) == (tuple(made[:number]), at.revision)

    run(scenario())


@pytest.mark.parametrize("match", ["", "NotOlderThan", "Exact"])
@pytest.mark.parametrize("recursive", [True, False])
def test_a_list_from_the_future_is_too_large(run, store, pod, match, recursive):
    async def scenario():
        made = await store.create("/pods/ns/a", pod())
        options = ListOptions(resource_version=str(INT64_MAX), resource_version_match=match, recursive=recursive)
        with pytest.raises(TooLargeResourceVersion) as caught:
            await store.get_list("/pods/ns" if recursive else "/pods/ns/a", options)
        assert (caught.value.minimum, caught.value.current) == (INT64_MAX, made.revision)

    run(scenario())


def test_a_compacted_version_is_gone_recursive_or_not(run, store, engine, pod):
    async def scenario():
        made = await fill(store, pod, 3)
        await engine.real.compact(made[2].revision)
        for recursive, key in ((True, "/pods/"), (False, "/pods/ns/000")):
            old, floor = (
                ListOptions(resource_version=str(at.revision), resource_version_match="Exact", recursive=recursive)
                for at in made[1:]
            )
            with pytest.raises(Expired, match="The resourceVersion for the provided list is too old"):
                await store.get_list(key, old)
            assert made[0] in (await store.get_list(key, floor)).items

    run(scenario())


def test_an_expired_token_is_replaced_by_one_that_goes_on_from_the_same_key(run, store, engine, pod):
    async def scenario():
        await fill(store, pod, 6)
        first = await store.get_list("/pods/", paged(2))
        await store.delete("/pods/ns/003")
        await engine.real.compact(await store.get_current_resource_version())
        with pytest.raises(Expired) as caught:
            await store.get_list("/pods/", paged(2, first.continue_token))
        status = caught.value.status()
        assert status.message.startswith("The provided continue parameter is too old")
        second = await store.get_list("/pods/", paged(2, status.continue_token))
        assert names(second) == ["002", "004"]
        assert second.revision > first.revision
        await store.delete("/pods/ns/005")
        third = await store.get_list("/pods/", paged(2, second.continue_token))
        assert (names(third), third.revision) == (["005"], second.revision), "consistent with the second page"

    run(scenario())


def test_a_compaction_between_the_pages_of_one_call_has_no_token_to_offer(run, store, engine, pod):
    async def scenario():
        await fill(store, pod, 6, rare={5})

        async def before(name):
            if name == "scan" and engine.count("scan") == 2:
                await engine.real.write("/registry/elsewhere", b"x", expect=0)
                await engine.real.compact(await engine.real.revision())

        engine.calls.clear()
        engine.before = before
        with pytest.raises(Expired) as caught:
            await store.get_list("/pods/", paged(1, labels="rare=yes"))
        assert caught.value.status().continue_token == ""
        assert str(caught.value) == Expired.LIST

    run(scenario())


# --- one key ---------------------------------------------------------------------------------------------


def single(fields="", **options):
    predicate = Predicate(
        fields=parse_field_selector(fields), limit=options.pop("limit", 0), continue_token=options.pop("token", "")
    )
    return ListOptions(recursive=False, predicate=predicate, **options)


def test_a_list_of_one_key_has_at_most_one_item_and_never_continues(run, store, pod):
    async def scenario():
        made = await fill(store, pod, 3)
        for options in (single(), single(limit=1), single(token="not even a token"), single("metadata.name=001")):
            page = await store.get_list("/pods/ns/001", options)
            assert (page.items, page.continue_token, page.remaining) == ((made[1],), "", None)
        for key, options in (("/pods/ns/001", single("metadata.name=002")), ("/pods/ns/absent", single())):
            page = await store.get_list(key, options)
            assert page.items == ()
            assert page.revision == made[2].revision

    run(scenario())


def test_a_directory_is_not_one_of_its_objects(run, store, pod):
    async def scenario():
        await store.create("/pods/ns1", pod("ns1"))
        await store.create("/pods/ns11/a", pod())
        made = await store.create("/pods/ns1/a", pod())
        assert (await store.get_list("/pods/ns1")).items == (made,)
        assert (await store.get_list("/pods/ns1/")).items == (made,)
        assert names(await store.get_list("/pods/ns1", single())) == ["ns1"]

    run(scenario())


def test_a_limit_at_an_old_version_is_exact_only_for_directories(run, store, pod):
    async def scenario():
        made = await fill(store, pod, 1)
        new = await store.guaranteed_update("/pods/ns/000", lambda _found, _meta: (pod("000", x="1"), None))
        old = str(made[0].revision)
        assert (await store.get_list("/pods/", paged(1, resource_version=old))).items == (made[0],)
        assert (await store.get_list("/pods/ns/000", single(limit=1, resource_version=old))).items == (new,)

    run(scenario())


@pytest.mark.parametrize("recursive", [True, False])
def test_an_unknown_match_is_a_bad_request(run, store, recursive):
    async def scenario():
        options = ListOptions(resource_version="1", resource_version_match="Newest", recursive=recursive)
        with pytest.raises(BadRequest, match="unknown ResourceVersionMatch value: Newest"):
            await store.get_list("/pods/ns", options)

    run(scenario())


# --- unreadable items ------------------------------------------------------------------------------------


class Marked:
    """Cannot read values that say so."""

    def from_storage(self, data, _key):
        if b"unavailable" in data:
            raise TransformUnavailable("the key service is down")
        if b"corrupt" in data:
            raise TransformError("bad data")
        return data, False

    def to_storage(self, data, _key):
        return data


async def broken_list(store, engine, pod, kinds):
    """Store one record per kind (good, corrupt, unavailable) and return how the list of them fails."""
    for number, kind in enumerate(kinds):
        await engine.real.write(
            f"/registry/pods/ns/{number:03}", b'{"metadata":{"uid":"%s"}}' % kind.encode(), expect=0
        )
    with pytest.raises((StoreReadError, InternalError, CorruptObj)) as caught:
        await store.get_list("/pods/")
    return caught.value


def test_every_unreadable_item_is_named_and_the_good_ones_are_kept(run, store_of, engine, pod):
    async def scenario():
        store = store_of(transformer=Marked())
        error = await broken_list(store, engine, pod, ["good", "corrupt", "good", "corrupt", "good"])
        status = error.status()
        assert (status.code, status.reason, status.name, status.kind) == (500, "StorageReadError", "list", "pods")
        assert [(cause.reason, cause.field) for cause in status.causes] == [
            ("UnexpectedServerResponse", "/registry/pods/ns/001"),
            ("UnexpectedServerResponse", "/registry/pods/ns/003"),
        ]
        assert "bad data" in status.message
        assert status.message.endswith("(and 1 more)")
        assert names(error.partial) == ["000", "002", "004"]

    run(scenario())


@pytest.mark.parametrize(("corrupt", "causes"), [(1, 1), (99, 99), (100, 101), (150, 101)])
def test_a_hundred_unreadable_items_end_the_list(run, store_of, engine, pod, corrupt, causes):
    async def scenario():
        store = store_of(transformer=Marked())
        error = await broken_list(store, engine, pod, ["good", *["corrupt"] * corrupt, "good"])
        found = error.status().causes
        assert len(found) == causes
        truncated = [cause for cause in found if cause.reason == "FieldValueTooMany"]
        assert [cause.message for cause in truncated] == ["too many errors, the list is truncated"] * (causes == 101)
        assert len(error.partial.items) == (1 if causes == 101 else 2)

    run(scenario())


def test_what_is_not_corruption_ends_the_list_at_once(run, store_of, engine, pod):
    async def scenario():
        store = store_of(transformer=Marked())
        alone = await broken_list(store, engine, pod, ["good", "unavailable", "corrupt"])
        assert isinstance(alone, InternalError)
        assert str(alone).startswith('unable to transform key "/registry/pods/ns/001"')
        assert names(alone.partial) == ["000"]

    run(scenario())


def test_what_is_not_corruption_comes_last_after_collected_corruption(run, store_of, engine, pod):
    async def scenario():
        store = store_of(transformer=Marked())
        error = await broken_list(store, engine, pod, ["corrupt", "unavailable", "corrupt"])
        first, last = error.status().causes
        assert first.field == "/registry/pods/ns/000"
        assert (last.reason, last.field) == ("UnexpectedServerResponse", "")
        assert "the key service is down" in last.message

    run(scenario())


def test_without_reports_the_first_unreadable_item_ends_the_list(run, store_of, engine, pod):
    async def scenario():
        store = store_of(transformer=Marked(), corrupt_object_reports=False)
        error = await broken_list(store, engine, pod, ["good", "corrupt", "corrupt"])
        assert isinstance(error, InternalError)
        assert str(error).startswith('unable to transform key "/registry/pods/ns/001"')
        assert names(error.partial) == ["000"]

    run(scenario())


def test_an_object_whose_attributes_cannot_be_read_is_left_out_in_silence(run, store, engine, pod):
    async def scenario():
        await engine.real.write("/registry/pods/ns/odd", b'{"metadata":{"labels":{"x":1}}}', expect=0)
        made = await store.create("/pods/ns/a", pod(x="1"))
        assert (await store.get_list("/pods/", paged(labels="x"))).items == (made,)
        assert len((await store.get_list("/pods/")).items) == 2

    run(scenario())
