"""Events: one store behind `v1` and `events.k8s.io/v1`; what is written through one is read through the other."""

import pytest

from kplane_apiserver.credentials.tokens import AdminTokens

CORE = "/api/v1/namespaces/default/events"
NEW = "/apis/events.k8s.io/v1/namespaces/default/events"
ABOUT = {"apiVersion": "v1", "kind": "Pod", "name": "web", "namespace": "default", "uid": "u1", "fieldPath": "spec"}
RELATED = {"kind": "Node", "name": "n1"}
SERIES = {"count": 3, "lastObservedTime": "2026-01-01T00:00:05.000000Z"}
COMMON = {
    "reason": "Pulled",
    "type": "Normal",
    "action": "Pulling",
    "eventTime": "2026-01-01T00:00:01.000000Z",
    "reportingInstance": "kubelet-1",
    "related": RELATED,
    "series": SERIES,
}
AS_CORE = {
    "apiVersion": "v1",
    "kind": "Event",
    **COMMON,
    "involvedObject": ABOUT,
    "message": "pulled the image",
    "source": {"component": "kubelet", "host": "n1"},
    "firstTimestamp": "2026-01-01T00:00:00Z",
    "lastTimestamp": "2026-01-01T00:00:09Z",
    "count": 4,
    "reportingComponent": "kubelet",
}
AS_NEW = {
    "apiVersion": "events.k8s.io/v1",
    "kind": "Event",
    **COMMON,
    "regarding": ABOUT,
    "note": "pulled the image",
    "deprecatedSource": {"component": "kubelet", "host": "n1"},
    "deprecatedFirstTimestamp": "2026-01-01T00:00:00Z",
    "deprecatedLastTimestamp": "2026-01-01T00:00:09Z",
    "deprecatedCount": 4,
    "reportingController": "kubelet",
}
BOTH = [(CORE, AS_CORE, NEW, AS_NEW), (NEW, AS_NEW, CORE, AS_CORE)]
there_and_back = pytest.mark.parametrize(("path", "given", "other", "expected"), BOTH, ids=["core", "events.k8s.io"])


def named(form, name="e"):
    return {**form, "metadata": {"name": name}}


def fields(event):
    return {name: value for name, value in event.items() if name != "metadata"}


def version(event):
    return event["metadata"]["resourceVersion"]


@there_and_back
def test_an_event_is_read_through_the_other_group_with_its_fields_renamed(cluster, path, given, other, expected):
    created = cluster.post(path, named(given))
    assert (created.status_code, fields(created.json())) == (201, given)
    assert fields(cluster.get(f"{path}/e").json()) == given
    read = cluster.get(f"{other}/e").json()
    assert fields(read) == expected
    assert read["metadata"] == created.json()["metadata"]
    (item,) = cluster.get(other).json()["items"]
    assert fields(item) == expected
    assert version(item) == version(created.json())
    assert cluster.post(other, named(expected)).status_code == 409


@there_and_back
def test_what_is_stored_is_the_core_form_once(cluster, path, given, other, expected):
    cluster.post(path, named(given, "only"))
    (key,) = cluster.server.keys(f"/{cluster.name}/default/only")
    assert key.endswith(f"/events/clusters/{cluster.name}/default/only")
    assert "events.k8s.io" not in key


@there_and_back
def test_a_watch_tells_of_every_change_in_its_own_form(cluster, path, given, other, expected):
    with cluster.watch(other, resourceVersion="0") as events:
        cluster.post(path, named(given))
        cluster.patch(f"{path}/e", {"type": "Warning"})
        cluster.delete(f"{path}/e")
        seen = events.take(3)
    assert [event["type"] for event in seen] == ["ADDED", "MODIFIED", "DELETED"]
    assert fields(seen[0]["object"]) == expected
    assert fields(seen[2]["object"]) == {**expected, "type": "Warning"}


def test_a_watch_that_starts_with_what_there_is_ends_its_beginning_in_its_own_form(cluster):
    cluster.post(CORE, named(AS_CORE))
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    with cluster.watch(NEW, **query) as events:
        added, bookmark = events.take(2)
    assert fields(added["object"]) == AS_NEW
    assert (bookmark["type"], bookmark["object"]["apiVersion"]) == ("BOOKMARK", "events.k8s.io/v1")


@there_and_back
def test_an_event_is_replaced_through_the_other_group(cluster, path, given, other, expected):
    cluster.post(path, named(given))
    read = cluster.get(f"{other}/e").json()
    changed = {**read, "reason": "Failed"}
    answer = cluster.put(f"{other}/e", changed)
    assert (answer.status_code, fields(answer.json())) == (200, {**expected, "reason": "Failed"})
    assert fields(cluster.get(f"{path}/e").json()) == {**given, "reason": "Failed"}
    assert cluster.put(f"{path}/e", {**named(given), "metadata": read["metadata"]}).status_code == 409


PATCHES = [
    ("merge-patch+json", {"note": "again", "regarding": {"name": "db"}}),
    ("strategic-merge-patch+json", {"note": "again", "regarding": {"name": "db"}}),
    (
        "json-patch+json",
        [
            {"op": "replace", "path": "/note", "value": "again"},
            {"op": "replace", "path": "/regarding/name", "value": "db"},
        ],
    ),
]


@pytest.mark.parametrize(("kind", "patch"), PATCHES, ids=[kind for kind, _ in PATCHES])
def test_a_patch_names_the_fields_of_its_own_group(cluster, kind, patch):
    cluster.post(CORE, named(AS_CORE))
    answer = cluster.patch(f"{NEW}/e", patch, kind)
    assert (answer.status_code, answer.json()["note"]) == (200, "again")
    changed = {**AS_CORE, "message": "again", "involvedObject": {**ABOUT, "name": "db"}}
    assert fields(cluster.get(f"{CORE}/e").json()) == changed


def test_a_field_of_the_other_group_is_unknown(cluster):
    answer = cluster.post(NEW, {**named(AS_NEW), "message": "x"}, fieldValidation="Strict")
    assert answer.status_code == 400
    assert 'unknown field "message"' in answer.json()["message"]


def test_a_dry_run_answers_in_the_form_that_it_was_asked_in(cluster):
    assert fields(cluster.post(NEW, named(AS_NEW), dryRun="All").json()) == AS_NEW
    cluster.post(CORE, named(AS_CORE))
    answer = cluster.patch(f"{NEW}/e", {"note": "dry"}, dryRun="All").json()
    assert fields(answer) == {**AS_NEW, "note": "dry"}
    assert cluster.get(f"{CORE}/e").json()["message"] == "pulled the image"


@pytest.mark.parametrize(
    "selector",
    [
        ("involvedObject.name", "regarding.name", "web"),
        ("involvedObject.kind", "regarding.kind", "Pod"),
        ("involvedObject.fieldPath", "regarding.fieldPath", "spec"),
        ("reportingComponent", "reportingController", "kubelet"),
        ("reason", "reason", "Pulled"),
        ("source", "source", "kubelet"),
        ("type", "type", "Normal"),
    ],
    ids=lambda names: names[1],
)
def test_selectors_have_each_groups_own_names(cluster, selector):
    core, new, value = selector
    cluster.post(CORE, named(AS_CORE))
    other = {name: f"{text}x" for name, text in ABOUT.items()}
    cluster.post(
        NEW,
        {
            **named(AS_NEW, "other"),
            "regarding": {**other, "namespace": "default"},
            "reason": "Killed",
            "type": "Warning",
            "reportingController": "x",
            "deprecatedSource": {"component": "x"},
        },
    )
    for path, field in ((CORE, core), (NEW, new)):
        names = [
            [
                event["metadata"]["name"]
                for event in cluster.get(path, fieldSelector=f"{field}{sign}{value}").json()["items"]
            ]
            for sign in ("=", "!=")
        ]
        assert names == [["e"], ["other"]], field
        with cluster.watch(path, fieldSelector=f"{field}={value}", resourceVersion="0") as events:
            assert events.next()["object"]["metadata"]["name"] == "e"


def test_an_event_without_a_source_comes_from_its_reporter(cluster):
    cluster.post(NEW, {"metadata": {"name": "new"}, "reportingController": "loader"})
    cluster.post(CORE, {"metadata": {"name": "old"}, "source": {"component": "loader"}, "reportingComponent": "x"})
    for path in (CORE, NEW):
        found = cluster.get(path, fieldSelector="source=loader").json()["items"]
        assert [event["metadata"]["name"] for event in found] == ["new", "old"]


def test_a_selector_by_the_other_groups_name_is_refused(cluster):
    for path, field in ((CORE, "regarding.name"), (NEW, "involvedObject.name"), (NEW, "reportingComponent")):
        answer = cluster.get(path, fieldSelector=f"{field}=x")
        assert answer.status_code == 400
        assert f'"{field}" is not a known field selector' in answer.json()["message"]


def test_deleting_through_either_group_deletes_for_both(cluster):
    for name in ("a", "b", "c"):
        cluster.post(CORE, named(AS_CORE, name))
    assert cluster.delete(f"{NEW}/a").status_code == 200
    assert cluster.get(f"{CORE}/a").status_code == 404
    removed = cluster.request("DELETE", NEW, params={"fieldSelector": "regarding.name=web"}).json()
    assert [fields(event) for event in removed["items"]] == [AS_NEW, AS_NEW]
    assert cluster.get(CORE).json()["items"] == []


@pytest.mark.parametrize("path", [CORE, NEW], ids=["core", "events.k8s.io"])
def test_events_live_for_a_while_whichever_group_made_or_changed_them(serve, path):
    given = AS_CORE if path == CORE else AS_NEW
    cluster = serve(event_ttl=1).cluster()
    cluster.post(path, named(given))
    cluster.patch(f"{path}/e", {"type": "Warning"})
    with cluster.watch(CORE, resourceVersion="0") as events:
        assert [event["type"] for event in events.take(2)] == ["ADDED", "DELETED"]


def test_a_table_shows_the_same_through_both_groups(cluster):
    cluster.post(NEW, named(AS_NEW))
    headers = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    shown = [
        cluster.request("GET", path, headers=headers, params={"includeObject": "Object"}).json() for path in (CORE, NEW)
    ]
    cells = [table["rows"][0]["cells"] for table in shown]
    assert cells[0] == cells[1]
    assert "pulled the image" in cells[0]
    assert [fields(table["rows"][0]["object"]) for table in shown] == [AS_CORE, AS_NEW]


# --- beyond single events ---------------------------------------------------------------------------------------------


def test_a_snapshot_holds_an_event_once_and_a_fork_shows_it_in_both_groups(cluster):
    cluster.post(NEW, named(AS_NEW))
    resources = cluster.get("/snapshot").json()["resources"]
    assert [(one["group"], one["itemCount"]) for one in resources if one["resource"] == "events"] == [("", 1)]
    asked = cluster.get("/snapshot", resource="events.events.k8s.io").json()["resources"]
    assert [fields(event) for one in asked for event in one["items"]] == [AS_CORE]
    root = cluster.server.cluster("root")
    clusters = "/apis/kplane.dev/v1/clusters"
    assert root.post(f"{clusters}/{cluster.name}/fork", {"metadata": {"name": f"{cluster.name}-f"}}).status_code == 201
    copy = cluster.server.cluster(f"{cluster.name}-f")
    assert fields(copy.get(f"{NEW}/e").json()) == AS_NEW


def test_a_snapshot_that_names_the_events_by_the_other_group_is_restored(cluster):
    cluster.post(CORE, named(AS_CORE))
    snapshot = cluster.get("/snapshot").json()
    for one in snapshot["resources"]:
        if one["resource"] == "events":
            one["group"] = "events.k8s.io"
            one["items"] = cluster.get(NEW).json()["items"]
    root = cluster.server.cluster("root")
    answer = root.post(f"/apis/kplane.dev/v1/clusters/{cluster.name}-r/restore", snapshot)
    assert answer.status_code == 201, answer.text
    restored = cluster.server.cluster(f"{cluster.name}-r")
    assert fields(restored.get(f"{CORE}/e").json()) == AS_CORE
    assert fields(restored.get(f"{NEW}/e").json()) == AS_NEW


def test_a_namespace_takes_its_events_with_it(cluster):
    cluster.post("/api/v1/namespaces", {"metadata": {"name": "gone"}})
    assert cluster.post(NEW.replace("default", "gone"), named(AS_NEW)).status_code == 201
    with cluster.watch(CORE.replace("default", "gone"), resourceVersion="0") as events:
        assert events.next()["type"] == "ADDED"
        cluster.delete("/api/v1/namespaces/gone")
        assert events.next()["type"] == "DELETED"


# --- who owns which field ---------------------------------------------------------------------------------------------


def owners(event):
    return {
        (entry["manager"], entry["apiVersion"]): entry["fieldsV1"]
        for entry in event["metadata"].get("managedFields", [])
    }


def test_a_change_through_one_group_takes_the_field_from_its_owner_in_the_other(cluster):
    cluster.post(CORE, named(AS_CORE), fieldManager="maker")
    changed = cluster.patch(f"{NEW}/e", {"note": "again"}, fieldManager="other").json()
    assert owners(changed)["other", "events.k8s.io/v1"] == {"f:note": {}}
    kept = owners(changed)["maker", "v1"]
    assert "f:message" not in kept
    assert "f:involvedObject" in kept


def apply(cluster, path, manager, manifest, **query):
    return cluster.patch(
        f"{path}/applied",
        {**manifest, "metadata": {"name": "applied"}},
        "apply-patch+yaml",
        fieldManager=manager,
        **query,
    )


def test_an_apply_through_one_group_conflicts_with_an_apply_through_the_other(cluster):
    core, new = {"apiVersion": "v1", "kind": "Event"}, {"apiVersion": "events.k8s.io/v1", "kind": "Event"}
    assert apply(cluster, CORE, "a", {**core, "message": "m", "reason": "R"}).status_code == 201
    refused = apply(cluster, NEW, "b", {**new, "note": "n"})
    assert refused.status_code == 409
    assert 'conflict with "a": .message' in refused.json()["message"]
    forced = apply(cluster, NEW, "b", {**new, "note": "n"}, force="true")
    assert (forced.status_code, forced.json()["note"]) == (200, "n")
    assert owners(forced.json()) == {("a", "v1"): {"f:reason": {}}, ("b", "events.k8s.io/v1"): {"f:note": {}}}


def test_what_an_apply_no_longer_says_goes_though_it_was_said_through_the_other_group(cluster):
    core, new = {"apiVersion": "v1", "kind": "Event"}, {"apiVersion": "events.k8s.io/v1", "kind": "Event"}
    first = {**core, "message": "m", "reason": "R", "involvedObject": {"name": "web"}}
    assert apply(cluster, CORE, "a", first).status_code == 201
    second = apply(cluster, NEW, "a", {**new, "reason": "R"})
    assert (second.status_code, fields(second.json())) == (200, {**new, "reason": "R"})
    assert owners(second.json()) == {("a", "events.k8s.io/v1"): {"f:reason": {}}}


def test_what_somebody_else_owns_through_the_other_group_stays(cluster):
    core, new = {"apiVersion": "v1", "kind": "Event"}, {"apiVersion": "events.k8s.io/v1", "kind": "Event"}
    apply(cluster, CORE, "a", {**core, "message": "m", "reason": "R"})
    apply(cluster, NEW, "b", {**new, "note": "m"})
    left = apply(cluster, NEW, "a", {**new, "reason": "R"})
    assert (left.status_code, left.json().get("note")) == (200, "m")


# --- across clusters --------------------------------------------------------------------------------------------------


def test_across_clusters_both_groups_show_every_event(serve):
    server = serve(cross_cluster_readers=AdminTokens([("token", "alice")]))
    server.cluster("one").post(CORE, named(AS_CORE))
    server.cluster("two").post(NEW, named(AS_NEW))
    for path, form in ((CORE, AS_CORE), (NEW, AS_NEW)):
        everywhere = "/clusters/*/control-plane" + path.replace("/namespaces/default", "")
        answer = server.client.get(everywhere, headers={"authorization": "Bearer token"})
        items = answer.json()["items"]
        assert [fields(event) for event in items] == [form, form]
        assert [event["metadata"]["annotations"]["kplane.dev/cluster"] for event in items] == ["one", "two"]
