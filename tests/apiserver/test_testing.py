"""Clusters in the hands of a test: the context managers, and the controls that a real cluster does not have."""

import asyncio
import json
import threading
import time
from pathlib import Path

import httpx
import pytest
import yaml

from kplane_apiserver import testing
from kplane_core.errors import UsageError

ROOT = Path(__file__).resolve().parents[2]
PARROT_CRD = ROOT / "examples" / "parrot-crd.yaml"
MAPS = "/api/v1/namespaces/default/configmaps"
PARROT = {"apiVersion": "example.org/v1", "kind": "Parrot", "metadata": {"name": "polly"}, "spec": {"colour": "blue"}}


def config_map(name, **data):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


@pytest.fixture(scope="module")
def server():
    with testing.server() as running:
        yield running


@pytest.fixture
def cluster(server):
    with server.cluster() as fresh:
        yield fresh


@pytest.fixture
def http(cluster):
    with httpx.Client(base_url=cluster.url, timeout=10) as client:
        yield client


def first_event(http, version, resource="configmaps"):
    with http.stream("GET", f"/api/v1/namespaces/default/{resource}?watch=true&resourceVersion={version}") as answer:
        return json.loads(next(answer.iter_lines()))


class Watcher(threading.Thread):
    """A client that watches until the server ends the watch."""

    def __init__(self, http, resource):
        super().__init__()
        self.events, self.begun, self._http, self._resource = [], threading.Event(), http, resource
        self.start()
        assert self.begun.wait(5)

    def run(self):
        # sendInitialEvents makes the server speak first, so that it is known to serve the watch.
        path = f"/api/v1/{self._resource}?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
        with self._http.stream("GET", f"{path}&allowWatchBookmarks=true") as answer:
            for line in answer.iter_lines():
                self.events.append(json.loads(line))
                self.begun.set()

    def end(self):
        self.join(5)
        assert not self.is_alive()
        return [event for event in self.events if event["type"] not in {"ADDED", "BOOKMARK"}]


def test_a_server_leaves_no_thread_no_file_and_no_open_port():
    threads = threading.active_count()
    with testing.server() as running:
        with running.cluster() as cluster:
            assert cluster.kubeconfig.exists()
        folder, url = running.folder, running.url
    assert threading.active_count() == threads
    assert not folder.exists()
    with pytest.raises(httpx.ConnectError):
        httpx.get(url)
    with pytest.raises(UsageError, match="was stopped"):
        running.cluster()


def test_a_backend_that_is_not_installed_is_named():
    with pytest.raises(UsageError, match="nosuch"):
        testing.Server("nosuch")


def test_a_kubeconfig_leads_to_the_cluster_and_is_its_owners_alone(cluster):
    document = yaml.safe_load(cluster.kubeconfig.read_text(encoding="utf-8"))
    assert document["clusters"][0]["cluster"]["server"] == cluster.url == cluster.rest_config.host
    assert document["current-context"] == f"kplane-{cluster.name}"
    assert cluster.kubeconfig.stat().st_mode & 0o077 == 0


def test_two_clusters_share_nothing(server):
    with server.cluster() as one, server.cluster() as two:
        one.create(config_map("a"))
        assert one.request("GET", f"{MAPS}/a").status == 200
        assert two.request("GET", f"{MAPS}/a").status == 404


def test_a_cluster_begins_with_the_manifests_of_its_paths(server):
    with server.cluster(crd_paths=[PARROT_CRD]) as cluster:
        (made,) = cluster.create(PARROT)
        assert made["metadata"]["uid"]
        assert cluster.requests == [] or len(cluster.requests) == 0, "what the test itself does is not spied upon"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a: [", "is not YAML"),
        ("- 1", "an object is a mapping"),
        ("kind: Pod\nmetadata: {}", "needs apiVersion and metadata.name"),
        ("apiVersion: v9\nkind: Nothing\nmetadata: {name: a}", "serves no Nothing of v9"),
        ("apiVersion: v1\nkind: Namespace\nmetadata: {name: A_b}", "the server refuses Namespace 'A_b'"),
    ],
)
def test_a_manifest_that_cannot_be_used_is_one_sentence(cluster, tmp_path, text, complaint):
    (tmp_path / "bad.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=complaint):
        cluster.load(tmp_path)


def test_a_path_that_is_not_there_is_named(cluster, tmp_path):
    with pytest.raises(UsageError, match="no such file"):
        cluster.load(tmp_path / "absent.yaml")
    with pytest.raises(UsageError, match="holds no"):
        cluster.load(tmp_path)


# --- requests ---------------------------------------------------------------------------------------------------------


def test_requests_are_written_down_with_what_they_ask_and_how_they_end(cluster, http):
    http.post(MAPS, json={"metadata": {"name": "a"}}, headers={"user-agent": "mine"})
    http.get(f"{MAPS}?labelSelector=x%3Dy")
    http.get(f"{MAPS}/b")
    http.patch("/apis/apps/v1/namespaces/default/deployments/d/status", json={})
    http.delete(MAPS)
    http.get("/version")
    assert [(entry.verb, entry.resource, entry.status) for entry in cluster.requests] == [
        ("create", "configmaps", 201),
        ("list", "configmaps", 200),
        ("get", "configmaps", 404),
        ("patch", "deployments", 404),
        ("deletecollection", "configmaps", 200),
        ("get", "", 200),
    ]
    created, listed, _, patched, _, version = cluster.requests
    assert created.json() == {"metadata": {"name": "a"}}
    assert (created.user_agent, created.namespace) == ("mine", "default")
    assert listed.query == {"labelSelector": "x=y"}
    assert (patched.group, patched.name, patched.subresource) == ("apps", "d", "status")
    assert version.path == "/version"
    assert "create configmaps default -> 201" in repr(cluster.requests)


def test_requests_are_found_by_their_fields_and_forgotten_on_demand(cluster, http):
    http.get(MAPS)
    http.get(f"{MAPS}/a")
    assert [entry.name for entry in cluster.requests.where(verb="get", resource="configmaps")] == ["a"]
    assert len(cluster.requests.where(lambda entry: entry.status < 400)) == 1
    with pytest.raises(UsageError, match="no verv"):
        cluster.requests.where(verv="get")
    cluster.requests.clear()
    assert len(cluster.requests) == 0


# --- faults -----------------------------------------------------------------------------------------------------------


def test_a_fault_meets_so_many_requests_and_nothing_reaches_the_storage(cluster, http):
    fault = cluster.fail("create", "configmaps", 503, times=2, retry_after=7)
    answers = [http.post(MAPS, json={"metadata": {"name": "a"}}) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [503, 503, 201]
    assert answers[0].headers["retry-after"] == "7"
    assert answers[0].json()["reason"] == "ServiceUnavailable"
    assert fault.hits == 2
    assert not fault.active
    assert [entry.status for entry in cluster.requests] == [503, 503, 201]
    assert cluster.requests[0].json() == {"metadata": {"name": "a"}}


@pytest.mark.parametrize(
    ("verb", "resource", "name", "hit"),
    [
        ("get", "configmaps", "", True),
        ("*", "*", "", True),
        ("get", "configmaps", "a", True),
        ("get", "configmaps", "b", False),
        ("list", "configmaps", "", False),
        ("get", "secrets", "", False),
        ("get", "configmaps/status", "", False),
    ],
)
def test_a_fault_meets_only_what_it_names(cluster, http, verb, resource, name, hit):
    cluster.fail(verb, resource, 500, name=name)
    assert http.get(f"{MAPS}/a").status_code == (500 if hit else 404)


def test_a_group_and_a_subresource_can_be_named(cluster, http):
    fault = cluster.fail("patch", "deployments.apps/status", 409)
    path = "/apis/apps/v1/namespaces/default/deployments/d"
    headers = {"content-type": "application/merge-patch+json"}
    assert http.patch(path, content="{}", headers=headers).status_code == 404
    refused = http.patch(f"{path}/status", content="{}", headers=headers)
    assert (refused.status_code, refused.json()["reason"]) == (409, "Conflict")
    assert fault.hits == 1


def test_a_fault_without_end_is_cancelled(cluster, http):
    fault = cluster.fail("list", "configmaps", 429, times=0)
    assert {http.get(MAPS).status_code for _ in range(3)} == {429}
    fault.cancel()
    assert http.get(MAPS).status_code == 200


def test_a_fault_of_one_cluster_is_no_fault_of_another(server, cluster, http):
    cluster.fail("*", "*", 500, times=0)
    with server.cluster() as other:
        assert httpx.get(f"{other.url}/api").status_code == 200
    assert http.get("/api").status_code == 500


def test_a_slow_request_is_served_late(cluster, http):
    cluster.slow("list", "configmaps", 0.2)
    begun = time.monotonic()
    assert http.get(MAPS).status_code == 200
    assert time.monotonic() - begun >= 0.2
    cluster.slow("list", "configmaps", 5)
    with pytest.raises(httpx.ReadTimeout):
        http.get(MAPS, timeout=0.05)


def test_a_slow_request_does_not_hold_up_the_end():
    """It would be waited for: two seconds at the end of every suite that lets a client run into its time limit."""
    with testing.cluster() as cluster:
        cluster.slow("list", "configmaps", 60)
        with pytest.raises(httpx.ReadTimeout):
            httpx.get(cluster.url + MAPS, timeout=0.05)
        (request,) = cluster.requests
        assert not request.status
    assert request.status == 200, "it was cut off, and not let go on"


@pytest.mark.parametrize(("verb", "status"), [("read", 500), ("get", 200), ("get", 600)])
def test_a_fault_that_could_never_happen_is_refused(cluster, verb, status):
    with pytest.raises(UsageError, match=r"verb|failure"):
        cluster.fail(verb, "pods", status)


# --- watches, history and time ----------------------------------------------------------------------------------------


def test_expired_watches_end_with_410_and_only_those_named(cluster, http):
    maps, pods = Watcher(http, "configmaps"), Watcher(http, "pods")
    assert cluster.expire_watches("configmaps") == 1
    (event,) = maps.end()
    assert event["type"] == "ERROR"
    assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")
    assert pods.is_alive()
    assert cluster.close_watches() == 1
    assert pods.end() == []
    assert cluster.expire_watches() == 0


def test_closing_a_cluster_ends_its_watches(server):
    with server.cluster() as cluster, httpx.Client(base_url=cluster.url, timeout=10) as http:
        watcher = Watcher(http, "pods")
        cluster.close()
        assert watcher.end() == []


def test_after_a_compaction_older_versions_are_gone_for_watches_lists_and_pages(cluster, http):
    old = http.get(MAPS).json()["metadata"]["resourceVersion"]
    for name in "abc":
        cluster.create(config_map(name))
    page = http.get(f"{MAPS}?limit=1").json()["metadata"]["continue"]
    cluster.create(config_map("d"))
    assert first_event(http, old)["type"] == "ADDED"
    floor = cluster.compact()
    gone = first_event(http, old)
    assert (gone["type"], gone["object"]["code"]) == ("ERROR", 410)
    assert http.get(f"{MAPS}?resourceVersion={old}&resourceVersionMatch=Exact").status_code == 410
    assert http.get(f"{MAPS}?limit=1&continue={page}").status_code == 410
    cluster.create(config_map("e"))
    assert first_event(http, floor)["object"]["metadata"]["name"] == "e"
    assert cluster.compact() > floor
    assert cluster.compact() == cluster.compact(), "again, with nothing new, is no error"


def test_the_clock_makes_events_expire_and_stamps_new_objects(server, cluster, http):
    event = {"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"}}
    path = "/api/v1/namespaces/default/events"
    assert http.post(path, json=event).status_code == 201
    before = server.clock.now()
    cluster.advance(1800)
    assert http.get(f"{path}/e").status_code == 200
    cluster.advance(1801)
    assert http.get(f"{path}/e").status_code == 404
    assert (server.clock.now() - before).total_seconds() >= 3601
    (made,) = cluster.create(config_map("late"))
    assert made["metadata"]["creationTimestamp"] > before.isoformat()
    with pytest.raises(ValueError, match="forward"):
        cluster.advance(-1)


# --- snapshot and reset -----------------------------------------------------------------------------------------------


def test_reset_gives_back_what_the_test_began_with(server):
    with server.cluster(crd_paths=[PARROT_CRD]) as cluster, httpx.Client(base_url=cluster.url) as http:
        before = cluster.snapshot()
        cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "extra"}}, PARROT)
        cluster.create({**config_map("a"), "metadata": {"name": "a", "namespace": "extra", "finalizers": ["x.org/y"]}})
        http.delete("/api/v1/namespaces/default/serviceaccounts/default")
        http.delete("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/parrots.example.org")
        cluster.fail("*", "*", 500, times=0)
        cluster.compact()
        cluster.reset()
        assert cluster.snapshot().objects == before.objects
        assert len(cluster.requests) == 0
        assert http.get("/api/v1/namespaces/extra").status_code == 404
        assert http.post("/api/v1/namespaces/extra/configmaps", json={"metadata": {"name": "b"}}).status_code == 404
        assert http.post("/apis/example.org/v1/namespaces/default/parrots", json=PARROT).status_code == 201


def test_a_snapshot_is_put_back_with_its_uids_and_new_versions(cluster, http):
    (first,) = cluster.create(config_map("a", of="then"))
    snapshot = cluster.snapshot()
    assert "objects" in repr(snapshot)
    http.put(f"{MAPS}/a", json={"metadata": {"name": "a"}, "data": {"of": "now"}})
    cluster.create(config_map("b"))
    cluster.reset(snapshot)
    (found,) = http.get(MAPS).json()["items"]
    assert found["data"] == {"of": "then"}
    assert found["metadata"]["uid"] == first["metadata"]["uid"]
    assert int(found["metadata"]["resourceVersion"]) > int(first["metadata"]["resourceVersion"])
    cluster.reset(snapshot)
    (again,) = http.get(MAPS).json()["items"]
    assert again == found, "what did not change is not written"


def test_watchers_see_a_reset_as_ordinary_changes(cluster, http):
    version = http.get(MAPS).json()["metadata"]["resourceVersion"]
    cluster.create(config_map("a"))
    cluster.reset()
    with http.stream("GET", f"{MAPS}?watch=true&resourceVersion={version}") as answer:
        lines = answer.iter_lines()
        assert [json.loads(next(lines))["type"] for _ in range(2)] == ["ADDED", "DELETED"]


# --- clients and asynchronous tests -----------------------------------------------------------------------------------


def test_the_official_client_is_ready_and_closed_with_the_cluster(server):
    kubernetes = pytest.importorskip("kubernetes")
    with server.cluster() as cluster:
        api = kubernetes.client.CoreV1Api(cluster.client("kubernetes"))
        api.create_namespaced_config_map("default", config_map("a"))
        assert [found.metadata.name for found in api.list_namespaced_config_map("default").items] == ["a"]


def test_kr8s_is_closed_with_the_cluster(server):
    pytest.importorskip("kr8s", reason="kr8s is not installed; `make compat` brings it")
    with server.cluster() as cluster:
        client = cluster.client("kr8s")
        assert list(client.get("configmaps")) == []
        assert not client._session.is_closed
    assert client._session.is_closed


def test_a_client_library_that_is_unknown_is_named(cluster):
    with pytest.raises(UsageError, match="kubernetes, kubernetes_asyncio, kr8s, lightkube"):
        cluster.client("pykube")


def test_an_asynchronous_test_has_the_same_controls(tmp_path):
    secret = tmp_path / "secret.json"
    secret.write_text(json.dumps({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}), encoding="utf-8")

    async def work():
        async with testing.async_cluster(crd_paths=[PARROT_CRD]) as cluster:
            await cluster.create(PARROT)
            snapshot = await cluster.snapshot()
            async with httpx.AsyncClient(base_url=cluster.url, timeout=10) as http:
                cluster.fail("list", "parrots", 429, retry_after=0)
                path = "/apis/example.org/v1/parrots"
                assert [(await http.get(path)).status_code for _ in range(2)] == [429, 200]
                async with http.stream("GET", f"{path}?watch=true") as answer:
                    lines = answer.aiter_lines()
                    assert json.loads(await anext(lines))["type"] == "ADDED"
                    assert await cluster.expire_watches() == 1
                    assert json.loads(await anext(lines))["object"]["code"] == 410
                await cluster.load(secret)
                await cluster.advance(1)
                await cluster.compact()
                await cluster.reset(snapshot)
                assert await cluster.close_watches() == 0
                assert len((await http.get(path)).json()["items"]) == 1
            assert (await cluster.request("GET", "/version")).status == 200

    asyncio.run(work())
