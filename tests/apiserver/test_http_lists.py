"""Reading over HTTP: lists, pages, versions, selectors."""

from urllib.parse import quote

import pytest

MAPS = "/api/v1/namespaces/default/configmaps"


def _names(answer):
    assert answer.status_code == 200, answer.text
    return [item["metadata"]["name"] for item in answer.json()["items"]]


def test_a_list_is_in_order_of_names_and_has_a_version(cluster):
    for name in ("b", "a", "c"):
        cluster.config_map(name)
    answer = cluster.get(MAPS)
    assert _names(answer) == ["a", "b", "c"]
    document = answer.json()
    assert (document["kind"], document["apiVersion"]) == ("ConfigMapList", "v1")
    newest = max(int(item["metadata"]["resourceVersion"]) for item in document["items"])
    assert int(document["metadata"]["resourceVersion"]) >= newest
    assert "continue" not in document["metadata"]


def test_an_empty_list_has_items_and_a_version(cluster):
    document = cluster.get(MAPS).json()
    assert document["items"] == []
    assert int(document["metadata"]["resourceVersion"]) > 0


def test_a_list_over_all_namespaces_and_one_of_a_single_one(cluster):
    cluster.post("/api/v1/namespaces", {"metadata": {"name": "n"}})
    cluster.config_map("a")
    cluster.post("/api/v1/namespaces/n/configmaps", {"metadata": {"name": "b"}})
    assert _names(cluster.get("/api/v1/configmaps")) == ["a", "b"]
    assert _names(cluster.get("/api/v1/namespaces/n/configmaps")) == ["b"]
    assert _names(cluster.get("/api/v1/namespaces/nope/configmaps")) == []


def test_pages_chain_to_the_whole_while_others_write(cluster):
    for number in range(10):
        cluster.config_map(f"n{number}")
    seen, token, versions = [], "", set()
    while True:
        answer = cluster.get(MAPS, limit=3, **({"continue": token} if token else {}))
        metadata = answer.json()["metadata"]
        seen += _names(answer)
        versions.add(metadata["resourceVersion"])
        cluster.config_map(f"later{len(seen)}")
        cluster.delete(f"{MAPS}/n9")
        token = metadata.get("continue", "")
        assert metadata.get("remainingItemCount") == (10 - len(seen) if token else None)
        if not token:
            break
    assert seen == [f"n{number}" for number in range(10)]
    assert len(versions) == 1


def test_a_token_whose_version_was_compacted_is_410_with_a_new_token(serve):
    cluster = serve().cluster()
    for number in range(4):
        cluster.config_map(f"n{number}")
    token = cluster.get(MAPS, limit=2).json()["metadata"]["continue"]
    cluster.config_map("n4")
    server = cluster.server
    server.call(server.connection.compact(server.call(server.connection.engine.revision())))
    expired = cluster.get(MAPS, limit=2, **{"continue": token})
    assert expired.status_code == 410
    assert expired.json()["reason"] == "Expired"
    rest = cluster.get(MAPS, **{"continue": expired.json()["metadata"]["continue"]})
    assert _names(rest) == ["n2", "n3", "n4"]


@pytest.mark.parametrize(
    ("query", "code", "words"),
    [
        ({"resourceVersionMatch": "Exact"}, 422, "forbidden unless resourceVersion is provided"),
        ({"resourceVersionMatch": "Sometimes", "resourceVersion": "1"}, 422, 'Unsupported value: "Sometimes"'),
        ({"resourceVersionMatch": "Exact", "resourceVersion": "0"}, 422, 'forbidden for resourceVersion "0"'),
        (
            {"resourceVersionMatch": "NotOlderThan", "resourceVersion": "1", "continue": "x"},
            422,
            "forbidden when continue is provided",
        ),
        ({"sendInitialEvents": "true"}, 422, "sendInitialEvents is forbidden for list"),
        ({"resourceVersion": "abc"}, 400, "abc"),
        ({"continue": "garbage!"}, 400, "continue"),
        ({"labelSelector": "a in (b"}, 400, "unable to parse requirement"),
        ({"fieldSelector": "nonsense"}, 400, "invalid selector"),
        (
            {"fieldSelector": "data.k=v"},
            400,
            '"data.k" is not a known field selector: only "metadata.name", "metadata.namespace"',
        ),
    ],
)
def test_questions_that_make_no_sense_are_refused(cluster, query, code, words):
    answer = cluster.get(MAPS, **query)
    assert answer.status_code == code
    assert words in answer.json()["message"]


def test_versions_beyond_the_newest_are_504_with_the_cause(cluster):
    for path in (MAPS, f"{MAPS}/a"):
        answer = cluster.get(path, resourceVersion="999999999")
        assert answer.status_code == 504
        assert answer.json()["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


def test_an_exact_version_shows_what_was(cluster):
    old = cluster.config_map("a")["metadata"]["resourceVersion"]
    cluster.config_map("b")
    exact = cluster.get(MAPS, resourceVersion=old, resourceVersionMatch="Exact")
    assert _names(exact) == ["a"]
    assert exact.json()["metadata"]["resourceVersion"] == old
    assert _names(cluster.get(MAPS, resourceVersion=old, resourceVersionMatch="NotOlderThan")) == ["a", "b"]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({"labelSelector": "app=x"}, ["a", "b"]),
        ({"labelSelector": "app==x,tier!=db"}, ["a"]),
        ({"labelSelector": "app in (x,y)"}, ["a", "b", "c"]),
        ({"labelSelector": "!app"}, ["d"]),
        ({"labelSelector": "tier"}, ["b"]),
        ({"fieldSelector": "metadata.name=b"}, ["b"]),
        ({"fieldSelector": "metadata.name!=b"}, ["a", "c", "d"]),
        ({"fieldSelector": "metadata.name=b", "labelSelector": "app=y"}, []),
        ({"fieldSelector": "metadata.name=nope"}, []),
        ({"fieldSelector": "metadata.name=.."}, []),
        ({"fieldSelector": "metadata.namespace=default", "limit": "2"}, ["a", "b"]),
    ],
)
def test_selectors_choose(cluster, query, names):
    for name, labels in {"a": {"app": "x"}, "b": {"app": "x", "tier": "db"}, "c": {"app": "y"}, "d": {}}.items():
        cluster.config_map(name, metadata={"labels": labels})
    assert _names(cluster.get(MAPS, **query)) == names


def test_each_kind_has_its_own_fields(cluster):
    pods = "/api/v1/namespaces/default/pods"
    cluster.post(pods, {"metadata": {"name": "a"}, "spec": {"nodeName": "n1"}})
    cluster.post(pods, {"metadata": {"name": "b"}, "spec": {"nodeName": "n2"}})
    assert _names(cluster.get(pods, fieldSelector="spec.nodeName=n1,status.phase=Pending")) == ["a"]
    events = "/api/v1/namespaces/default/events"
    for name in ("p", "q"):
        cluster.post(
            events,
            {"metadata": {"name": name}, "involvedObject": {"name": name}, "source": {"component": f"c{name}"}},
        )
    assert _names(cluster.get(events, fieldSelector="involvedObject.name=p")) == ["p"]
    assert _names(cluster.get(events, fieldSelector="source=cq")) == ["q"]
    assert _names(cluster.get("/api/v1/namespaces", fieldSelector="status.phase!=Active")) == []
    assert cluster.get("/api/v1/nodes", fieldSelector="metadata.namespace=x").status_code == 400


def test_another_version_of_a_group_answers_in_its_own_name(cluster):
    created = cluster.post("/apis/events.k8s.io/v1/namespaces/default/events", {"metadata": {"name": "e"}})
    assert created.json()["apiVersion"] == "events.k8s.io/v1"


def test_odd_names_survive_the_path(cluster):
    roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles"
    name = "a b:é+&?#"
    assert cluster.post(roles, {"metadata": {"name": name}}).status_code == 201
    assert cluster.get(f"{roles}/{quote(name)}").json()["metadata"]["name"] == name
    assert _names(cluster.get(roles)) == [name]
    assert cluster.delete(f"{roles}/{quote(name)}").status_code == 200


def test_names_with_an_underscore_or_a_percent_are_no_patterns(cluster):
    roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles"
    cluster.post(roles, {"metadata": {"name": "a-b"}})
    assert cluster.get(f"{roles}/a_b").status_code == 404
    assert cluster.get(f"{roles}/a%25").status_code == 400


def test_an_object_of_two_kilobytes_or_a_megabyte_comes_back_whole(cluster):
    for size in (2_000, 1_000_000):
        cluster.config_map(f"s{size}", data={"k": 'é\n"' * (size // 4)})
        assert cluster.get(f"{MAPS}/s{size}").json()["data"]["k"] == 'é\n"' * (size // 4)
