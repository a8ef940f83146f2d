"""Watches over HTTP: what comes, in which order, and how they end."""

import time
from typing import Any

import pytest

from kplane_memory.engine import MemoryEngine

PATH = "/api/v1/namespaces/default/configmaps"


def _names(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(event["type"], event["object"]["metadata"]["name"]) for event in events]


def test_a_watch_from_a_list_sees_each_later_change_once_and_in_order(cluster):
    cluster.config_map("before")
    revision = cluster.get(PATH).json()["metadata"]["resourceVersion"]
    with cluster.watch(PATH, resourceVersion=revision) as events:
        created = cluster.config_map("a", data={"k": "1"})
        patched = cluster.patch(f"{PATH}/a", {"data": {"k": "2"}}).json()
        cluster.delete(f"{PATH}/a")
        seen = events.take(3)
    assert _names(seen) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    assert seen[0]["object"] == created
    assert seen[1]["object"] == patched
    revisions = [int(event["object"]["metadata"]["resourceVersion"]) for event in seen]
    assert revisions == sorted(set(revisions))
    assert revisions[0] > int(revision)


@pytest.mark.parametrize("revision", ["", "0"])
def test_a_watch_without_a_version_starts_with_what_is_there(cluster, revision):
    cluster.config_map("a")
    cluster.config_map("b")
    with cluster.watch(PATH, resourceVersion=revision) as events:
        assert _names(events.take(2)) == [("ADDED", "a"), ("ADDED", "b")]


def test_a_watch_list_ends_its_first_part_with_one_marked_bookmark(cluster):
    cluster.config_map("a")
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    with cluster.watch(PATH, **query) as events:
        added, bookmark = events.take(2)
        later = cluster.config_map("b")
        assert events.next() == {"type": "ADDED", "object": later}
    assert added["type"] == "ADDED"
    assert bookmark["type"] == "BOOKMARK"
    assert bookmark["object"]["kind"] == "ConfigMap"
    assert bookmark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert int(bookmark["object"]["metadata"]["resourceVersion"]) >= int(added["object"]["metadata"]["resourceVersion"])


def test_a_watch_list_of_nothing_still_has_its_bookmark(cluster):
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    with cluster.watch(PATH, **query) as events:
        assert events.next()["type"] == "BOOKMARK"


@pytest.mark.parametrize(
    ("query", "fault"),
    [
        ({"sendInitialEvents": "true"}, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"),
        (
            {"resourceVersionMatch": "NotOlderThan", "resourceVersion": "1"},
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        ),
    ],
)
def test_parameters_that_exclude_each_other_are_422(cluster, query, fault):
    answer = cluster.get(PATH, watch="true", **query)
    assert answer.status_code == 422
    assert fault in answer.json()["message"]


def test_a_version_that_was_compacted_is_one_410_event_within_a_200_and_the_end(serve):
    cluster = serve().cluster()
    cluster.config_map("a")
    old = cluster.config_map("b")["metadata"]["resourceVersion"]
    for value in range(3):
        cluster.patch(f"{PATH}/a", {"data": {"k": str(value)}})
    server = cluster.server
    newest = server.call(server.connection.engine.revision())
    server.call(server.connection.compact(newest))
    with cluster.watch(PATH, resourceVersion=old) as events:
        (event,) = events.rest()
    assert event["type"] == "ERROR"
    assert event["object"]["code"] == 410
    assert event["object"]["reason"] == "Expired"
    assert event["object"]["kind"] == "Status"


def test_timeout_seconds_ends_a_watch_cleanly_with_a_last_bookmark(cluster):
    """It comes two seconds before the end, in a bucket of one second."""
    started = time.monotonic()
    revision = cluster.config_map("a")["metadata"]["resourceVersion"]
    with cluster.watch(PATH, timeoutSeconds=3, allowWatchBookmarks="true", resourceVersion=revision) as events:
        seen = events.rest()
    assert 2.9 < time.monotonic() - started < 6
    assert [event["type"] for event in seen] == ["BOOKMARK"]
    assert int(seen[0]["object"]["metadata"]["resourceVersion"]) >= int(revision)
    assert "annotations" not in seen[0]["object"]["metadata"]


def test_a_watch_too_short_for_a_bookmark_ends_without_one(cluster):
    revision = cluster.config_map("a")["metadata"]["resourceVersion"]
    with cluster.watch(PATH, timeoutSeconds=1, allowWatchBookmarks="true", resourceVersion=revision) as events:
        assert events.rest() == []


def test_bookmarks_come_at_their_interval_and_only_to_those_that_allow_them(serve):
    cluster = serve(bookmark_interval=1.0).cluster()
    revision = cluster.get("/api/v1/configmaps").json()["metadata"]["resourceVersion"]
    cluster.config_map("a")
    query = {"resourceVersion": revision, "timeoutSeconds": 4}
    with (
        cluster.watch("/api/v1/configmaps", allowWatchBookmarks="true", **query) as with_,
        cluster.watch("/api/v1/configmaps", **query) as without,
    ):
        kinds = [event["type"] for event in with_.rest()]
        assert kinds[0] == "ADDED"
        assert 1 <= kinds.count("BOOKMARK") <= 4
        assert [event["type"] for event in without.rest()] == ["ADDED"]


def test_a_backend_that_tells_its_progress_often_does_not_make_more_bookmarks(serve):
    cluster = serve(engine=MemoryEngine(progress_interval=0.02)).cluster()
    cluster.config_map("a")
    with cluster.watch(PATH, allowWatchBookmarks="true", timeoutSeconds=1) as events:
        assert [event["type"] for event in events.rest()] == ["ADDED"]


def test_a_stalled_reader_holds_up_nobody(cluster):
    revision = cluster.get(PATH).json()["metadata"]["resourceVersion"]
    with cluster.watch(PATH, resourceVersion=revision) as stalled, cluster.watch(PATH, resourceVersion=revision) as ok:
        names = [f"n{number}" for number in range(30)]
        for name in names:
            cluster.config_map(name, data={"k": "x" * 500_000})
        assert [name for _, name in _names(ok.take(30))] == names
        assert [name for _, name in _names(stalled.take(30))] == names


def test_selectors_turn_what_enters_and_leaves_into_added_and_deleted(cluster):
    revision = cluster.config_map("a")["metadata"]["resourceVersion"]
    with cluster.watch(PATH, labelSelector="on=yes", resourceVersion=revision) as events:
        cluster.patch(f"{PATH}/a", {"metadata": {"labels": {"on": "yes"}}})
        cluster.config_map("other")
        cluster.patch(f"{PATH}/a", {"metadata": {"labels": {"on": "no"}}})
        seen = events.take(2)
    assert _names(seen) == [("ADDED", "a"), ("DELETED", "a")]
    assert seen[1]["object"]["metadata"]["labels"] == {"on": "yes"}


@pytest.mark.parametrize("one", [(f"{PATH}/b", {}), (PATH, {"fieldSelector": "metadata.name=b"})])
def test_one_object_is_watched_by_its_path_or_by_its_name(cluster, one):
    path, query = one
    cluster.config_map("a")
    cluster.config_map("b")
    with cluster.watch(path, **query) as events:
        cluster.patch(f"{PATH}/a", {"data": {"k": "1"}})
        cluster.delete(f"{PATH}/b")
        assert _names(events.take(2)) == [("ADDED", "b"), ("DELETED", "b")]


def test_a_watch_over_all_namespaces_sees_only_its_own_cluster(live):
    one, ten = live.cluster("w1"), live.cluster("w10")
    revision = one.get("/api/v1/configmaps").json()["metadata"]["resourceVersion"]
    with one.watch("/api/v1/configmaps", resourceVersion=revision) as events:
        ten.config_map("theirs")
        one.config_map("mine")
        event = events.next()
    assert event["object"]["metadata"]["name"] == "mine"


def test_a_table_watch_describes_its_columns_once(cluster):
    accept = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
    cluster.config_map("a")
    cluster.config_map("b")
    with cluster.watch(PATH, headers=accept) as events:
        first, second = events.take(2)
    assert first["object"]["kind"] == second["object"]["kind"] == "Table"
    assert first["object"]["columnDefinitions"]
    assert not second["object"]["columnDefinitions"]
    assert second["object"]["rows"][0]["cells"][0] == "b"


def test_a_metadata_watch_carries_metadata_alone(cluster):
    accept = {"accept": "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"}
    created = cluster.config_map("a", data={"k": "v"})
    with cluster.watch(PATH, headers=accept) as events:
        event = events.next()
    assert event["object"] == {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": created["metadata"],
    }


def test_clients_that_go_away_leave_nothing_behind(serve):
    server = serve()
    cluster = server.cluster()
    revision = cluster.get(PATH).json()["metadata"]["resourceVersion"]
    base = server.tasks()
    for _ in range(20):
        with cluster.watch(PATH, resourceVersion=revision):
            assert len(server.api.watches) >= 1
    deadline = time.monotonic() + 5
    while (len(server.api.watches) or server.tasks() > base) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(server.api.watches) == 0
    assert server.tasks() <= base


def test_drain_ends_watches_cleanly_and_takes_no_new_ones(serve):
    server = serve()
    cluster = server.cluster()
    cluster.config_map("a")
    with cluster.watch(PATH) as events:
        assert events.next()["type"] == "ADDED"
        started = time.monotonic()
        server.call(server.api.drain())
        assert events.rest() == []
    assert time.monotonic() - started < 2
    answer = cluster.get(PATH, watch="true")
    assert answer.status_code == 503
    assert cluster.get(PATH).status_code == 200


def test_a_large_burst_arrives_whole(cluster):
    revision = cluster.get(PATH).json()["metadata"]["resourceVersion"]
    with cluster.watch(PATH, resourceVersion=revision) as events:
        for number in range(300):
            cluster.config_map(f"n{number}", data={"k": "x" * 1000})
        seen = events.take(300)
    assert [event["object"]["metadata"]["name"] for event in seen] == [f"n{number}" for number in range(300)]
