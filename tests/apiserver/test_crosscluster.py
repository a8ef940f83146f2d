"""Lists and watches over all clusters: who may, what comes, and that no other path ever shows the annotation."""

import json

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from kplane_apiserver.credentials.tokens import AdminTokens
from kplane_apiserver.requests.crosscluster import CLUSTER_ANNOTATION, with_cluster
from kplane_apiserver.settings import Settings
from kplane_core.storage.codec import decode_object, encode_object

TOKEN = "s3cret-admin-token"
ADMIN = {"authorization": f"Bearer {TOKEN}"}
EVERYWHERE = "/clusters/*/control-plane"
CONFIG_MAPS = f"{EVERYWHERE}/api/v1/configmaps"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


ADMINS = AdminTokens([("other-token", "bob"), (TOKEN, "alice")])


@pytest.fixture
def open_server(serve):
    """A server of one's own, where a test knows all that there is in any cluster."""
    return serve(cross_cluster_readers=ADMINS)


@pytest.fixture(scope="module")
def shared_server(live):
    """One server for all tests that only want to know whether they are let in."""
    with type(live)(Settings(cross_cluster_readers=ADMINS)) as server:
        yield server


def _read(server, path=CONFIG_MAPS, headers=None, **query):
    return server.client.get(path, params=query or None, headers={**ADMIN, **(headers or {})})


def _whose(items):
    return [(item["metadata"]["annotations"][CLUSTER_ANNOTATION], item["metadata"]["name"]) for item in items]


def _definition(plural, group):
    kind = plural.capitalize()
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
    }
    names = {"plural": plural, "singular": plural[:-1], "kind": kind, "listKind": f"{kind}List"}
    return {
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [version]},
    }


# --- who may ----------------------------------------------------------------------------------------------------------


def test_it_is_off_unless_the_server_was_told_otherwise(live):
    answer = live.client.get(CONFIG_MAPS, headers=ADMIN)
    assert answer.status_code == 403
    assert answer.json()["reason"] == "Forbidden"
    assert "--allow-cross-cluster-reads" in answer.json()["message"]


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Bearer",
        "Bearer wrong",
        f"Basic {TOKEN}",
        TOKEN,
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
    ],
)
def test_without_a_token_that_is_known_the_answer_is_401(shared_server, authorization):
    headers = {"authorization": authorization} if authorization is not None else {}
    answer = shared_server.client.get(CONFIG_MAPS, headers=headers)
    assert answer.status_code == 401
    assert answer.json()["reason"] == "Unauthorized"
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert TOKEN not in answer.text


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_each_administrator_is_known_by_his_token(shared_server, scheme):
    for token in (TOKEN, "other-token"):
        answer = shared_server.client.get(CONFIG_MAPS, headers={"authorization": f"{scheme} {token}"})
        assert answer.status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("POST", "/api/v1/namespaces/default/configmaps", 405),
        ("DELETE", "/api/v1/configmaps", 405),
        ("PUT", "/api/v1/namespaces/default/configmaps/a", 405),
        ("PATCH", "/api/v1/namespaces/default/configmaps/a", 405),
        ("GET", "/api/v1/namespaces/default/configmaps/a", 403),
        ("GET", "/api/v1/namespaces/default/configmaps/a/status", 403),
        ("GET", "/api/v1/nonsense", 404),
        ("GET", "/apis", 404),
        ("GET", "/metrics", 404),
    ],
)
def test_only_lists_and_watches_are_answered(shared_server, method, path, code):
    answer = shared_server.client.request(
        method, EVERYWHERE + path, headers=ADMIN, json={} if method != "GET" else None
    )
    assert answer.status_code == code
    status = answer.json()
    assert status["kind"] == "Status"
    if code in {403, 405}:
        assert "only be listed and watched" in status["message"]
    if code == 405:
        assert answer.headers["allow"] == "GET, HEAD"


def test_nothing_is_written_for_a_cluster_of_that_name(shared_server):
    _read(shared_server)
    assert shared_server.keys("/clusters/*/") == []


# --- lists ------------------------------------------------------------------------------------------------------------


def test_a_list_has_the_objects_of_all_clusters_each_with_its_own(open_server):
    one, ten = open_server.cluster("c1"), open_server.cluster("c10")
    mine, theirs = one.config_map("same", data={"k": "1"}), ten.config_map("same", data={"k": "10"})
    answer = _read(open_server).json()
    assert answer["kind"] == "ConfigMapList"
    assert _whose(answer["items"]) == [("c1", "same"), ("c10", "same")]
    for item, original in zip(answer["items"], (mine, theirs), strict=True):
        del item["metadata"]["annotations"]
        assert item == original


def test_selectors_namespaces_and_pages_work_over_all_clusters(open_server):
    for number in range(3):
        cluster = open_server.cluster(f"p{number}")
        cluster.post("/api/v1/namespaces", {"metadata": {"name": "other"}})
        cluster.config_map("a", metadata={"labels": {"app": "x"}})
        cluster.config_map("b")
        cluster.post("/api/v1/namespaces/other/configmaps", {"metadata": {"name": "c"}})
    assert _whose(_read(open_server, labelSelector="app=x").json()["items"]) == [(f"p{n}", "a") for n in range(3)]
    assert _whose(_read(open_server, fieldSelector="metadata.name=b").json()["items"]) == [
        (f"p{n}", "b") for n in range(3)
    ]
    in_other = f"{EVERYWHERE}/api/v1/namespaces/other/configmaps"
    assert _whose(_read(open_server, in_other).json()["items"]) == [(f"p{n}", "c") for n in range(3)]
    found, query, sizes = [], {"limit": 2}, []
    while True:
        page = _read(open_server, **query).json()
        found += _whose(page["items"])
        sizes.append(len(page["items"]))
        if "continue" not in page["metadata"]:
            break
        query = {"limit": 2, "continue": page["metadata"]["continue"]}
    assert sorted(found) == sorted((f"p{n}", name) for n in range(3) for name in "abc")
    assert sizes == [2, 2, 2, 2, 1]


def test_pages_come_from_the_snapshot_of_the_first(open_server):
    cluster = open_server.cluster("c1")
    for name in "abc":
        cluster.config_map(name)
    first = _read(open_server, limit=1).json()
    cluster.delete("/api/v1/namespaces/default/configmaps/c")
    rest = _read(open_server, limit=5, **{"continue": first["metadata"]["continue"]}).json()
    assert _whose(rest["items"]) == [("c1", "b"), ("c1", "c")]
    assert rest["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


def test_a_kind_that_one_cluster_alone_defines_is_listed(open_server):
    definition, only = _definition("widgets", "example.com"), open_server.cluster("only")
    open_server.cluster("without").config_map("x")
    assert only.post(DEFINITIONS, definition).status_code == 201
    widget = {"apiVersion": "example.com/v1", "kind": "Widgets", "metadata": {"name": "w"}, "size": 3}
    assert only.post("/apis/example.com/v1/namespaces/default/widgets", widget).status_code == 201
    answer = _read(open_server, f"{EVERYWHERE}/apis/example.com/v1/widgets")
    assert answer.status_code == 200
    assert _whose(answer.json()["items"]) == [("only", "w")]
    assert answer.json()["kind"] == "WidgetsList"
    only.delete(f"{DEFINITIONS}/widgets.example.com")
    for _ in range(200):
        if _read(open_server, f"{EVERYWHERE}/apis/example.com/v1/widgets").status_code == 404:
            return
    pytest.fail("the kind is still listed although nobody defines it")


def test_each_object_of_a_long_list_carries_its_cluster(open_server):
    for name in ("c1", "c2"):
        cluster = open_server.cluster(name)
        for number in range(3):
            cluster.config_map(f"n{number}", data={"k": "x" * 200_000})
    answer = _read(open_server)
    assert answer.headers["transfer-encoding"] == "chunked"
    assert _whose(answer.json()["items"]) == [(name, f"n{number}") for name in ("c1", "c2") for number in range(3)]


def test_tables_and_metadata_carry_the_annotation_too(open_server):
    open_server.cluster("c1").config_map("a", data={"k": "v"})
    rows = _read(open_server, headers={"accept": TABLE}).json()["rows"]
    assert rows[0]["object"]["metadata"]["annotations"] == {CLUSTER_ANNOTATION: "c1"}
    (item,) = _read(open_server, headers={"accept": PARTIAL_LIST}).json()["items"]
    assert item["metadata"]["annotations"] == {CLUSTER_ANNOTATION: "c1"}
    assert "data" not in item
    head = open_server.client.head(CONFIG_MAPS, headers=ADMIN)
    assert (head.status_code, head.content) == (200, b"")


def test_clients_cannot_pretend_to_be_another_cluster(open_server):
    cluster = open_server.cluster("c1")
    created = cluster.config_map("liar", metadata={"annotations": {CLUSTER_ANNOTATION: "c2", "a": "b"}})
    (item,) = _read(open_server).json()["items"]
    assert item["metadata"]["annotations"] == {CLUSTER_ANNOTATION: "c1", "a": "b"}
    # What a client wrote into its own object stays its own.
    assert cluster.get("/api/v1/namespaces/default/configmaps/liar").json() == created


# --- watches ----------------------------------------------------------------------------------------------------------


def _watch(server, **query):
    cluster = server.cluster("*")
    return cluster.watch("/api/v1/configmaps", headers=ADMIN, **query)


def test_a_watch_tells_of_every_cluster_and_whose_each_object_is(open_server):
    one, ten = open_server.cluster("c1"), open_server.cluster("c10")
    one.config_map("before")
    revision = _read(open_server).json()["metadata"]["resourceVersion"]
    with _watch(open_server, resourceVersion=revision) as events:
        ten.config_map("a", data={"k": "1"})
        one.patch("/api/v1/namespaces/default/configmaps/before", {"data": {"k": "2"}})
        ten.delete("/api/v1/namespaces/default/configmaps/a")
        seen = events.take(3)
    assert [event["type"] for event in seen] == ["ADDED", "MODIFIED", "DELETED"]
    assert _whose(event["object"] for event in seen) == [("c10", "a"), ("c1", "before"), ("c10", "a")]


def test_a_watch_list_ends_its_start_with_a_bookmark_that_carries_no_cluster(open_server):
    open_server.cluster("c1").config_map("a")
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    with _watch(open_server, **query) as events:
        added, bookmark = events.take(2)
    assert _whose([added["object"]]) == [("c1", "a")]
    assert bookmark["type"] == "BOOKMARK"
    assert bookmark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


def test_a_version_that_was_compacted_is_410(open_server):
    server = open_server
    old = server.cluster("c1").config_map("a")["metadata"]["resourceVersion"]
    server.cluster("c2").config_map("b")
    server.call(server.connection.compact(server.call(server.connection.engine.revision())))
    _read(server)
    with _watch(server, resourceVersion=old) as events:
        (event,) = events.rest()
    assert event["type"] == "ERROR"
    assert event["object"]["code"] == 410


def test_a_watch_from_before_the_cache_is_resumed_over_all_clusters(open_server):
    one, ten = open_server.cluster("c1"), open_server.cluster("c10")
    old = one.config_map("a")["metadata"]["resourceVersion"]
    ten.config_map("b")
    _read(open_server)
    with _watch(open_server, resourceVersion=old) as events:
        one.config_map("c")
        assert _whose(event["object"] for event in events.take(2)) == [("c10", "b"), ("c1", "c")]


def test_watchers_of_one_cluster_and_of_all_do_not_share_what_they_see(open_server):
    """Both get the same event of the cache; only one of them may see the annotation."""
    cluster = open_server.cluster("c1")
    path = "/api/v1/configmaps"
    revision = cluster.get(path).json()["metadata"]["resourceVersion"]
    with _watch(open_server, resourceVersion=revision) as all_, cluster.watch(path, resourceVersion=revision) as one:
        created = cluster.config_map("a")
        assert one.next() == {"type": "ADDED", "object": created}
        assert _whose([all_.next()["object"]]) == [("c1", "a")]


# --- never on other paths ---------------------------------------------------------------------------------------------


def test_what_is_served_is_what_is_stored_on_every_other_path(open_server):
    """Field by field: get, list, watch and table against the bytes in the database, before and after admins read."""
    cluster = open_server.cluster("tenant")
    path = "/api/v1/namespaces/default/configmaps"
    cluster.config_map("a", data={"k": "v"}, metadata={"annotations": {"x": "y"}, "labels": {"l": "m"}})
    for _ in range(2):
        (key,) = open_server.keys("/configmaps/clusters/tenant/default/a")
        record = open_server.call(open_server.connection.engine.read(key)).record
        stored = json.loads(record.value)
        stored["metadata"]["resourceVersion"] = str(record.mod_revision)
        assert cluster.get(f"{path}/a").json() == stored
        (item,) = cluster.get(path).json()["items"]
        assert item == stored
        with cluster.watch(path) as events:
            assert events.next() == {"type": "ADDED", "object": stored}
        (row,) = _rows(cluster, path)
        assert row["object"] == stored
        for text in (cluster.get(f"{path}/a").text, cluster.get(path).text):
            assert CLUSTER_ANNOTATION not in text
            assert "tenant" not in text
        assert _whose(_read(open_server).json()["items"]) == [("tenant", "a")]


def _rows(cluster, path):
    return cluster.request("GET", path, params={"includeObject": "Object"}, headers={"accept": TABLE}).json()["rows"]


# --- the annotation ---------------------------------------------------------------------------------------------------

_TEXTS = st.text(max_size=8)


@hypothesis_settings(deadline=None)
@given(
    st.one_of(st.none(), st.dictionaries(st.one_of(_TEXTS, st.just(CLUSTER_ANNOTATION)), _TEXTS, max_size=3)),
    st.dictionaries(_TEXTS, _TEXTS, max_size=2),
    st.booleans(),
)
def test_marking_changes_nothing_but_the_one_annotation(annotations, labels, as_stored):
    metadata = {"name": "a", "labels": labels}
    if annotations is not None:
        metadata["annotations"] = annotations
    document = {
        "apiVersion": "v1",
        "kind": "X",
        "metadata": metadata,
        "spec": {"metadata": {"annotations": {"q": "r"}}},
    }
    raw = encode_object(document) if as_stored else json.dumps(document).encode()
    expected = json.loads(json.dumps(document))
    expected["metadata"]["annotations"] = {**(annotations or {}), CLUSTER_ANNOTATION: "c-1"}
    pairs = []
    json.loads(with_cluster(raw, "c-1"), object_pairs_hook=lambda found: pairs.append([key for key, _ in found]))
    assert all(len(set(names)) == len(names) for names in pairs), "a field is set twice"
    assert decode_object(with_cluster(raw, "c-1")) == expected
