"""The official `kubernetes` Python client lists, watches, falls behind and recovers."""

import itertools

import pytest
from kubernetes import client, watch
from kubernetes.client.exceptions import ApiException


@pytest.fixture
def connect():
    """A function that returns the core API of one virtual cluster; its connections are closed after the test."""
    opened = []

    def make(url):
        api_client = client.ApiClient(client.Configuration(host=url))
        opened.append(api_client)
        return client.CoreV1Api(api_client)

    yield make
    for api_client in opened:
        api_client.rest_client.pool_manager.clear()
        api_client.close()


def config_map(name, **data):
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name, labels={"app": "demo"}), data=data)


def events(stream, count):
    """Return type and name of the next events."""
    return [(event["type"], event["object"].metadata.name) for event in itertools.islice(stream, count)]


def test_create_list_patch_delete(server, connect):
    api, other = connect(server.cluster_url("py-1")), connect(server.cluster_url("py-10"))
    created = api.create_namespaced_config_map("default", config_map("settings", colour="blue"))
    assert created.metadata.uid
    listed = api.list_namespaced_config_map("default", label_selector="app=demo")
    assert [one.metadata.name for one in listed.items] == ["settings"]
    assert int(listed.metadata.resource_version) >= int(created.metadata.resource_version)
    assert other.list_config_map_for_all_namespaces(label_selector="app=demo").items == []
    patched = api.patch_namespaced_config_map("settings", "default", {"data": {"size": "big"}})
    assert patched.data == {"colour": "blue", "size": "big"}
    with pytest.raises(ApiException) as conflict:
        api.replace_namespaced_config_map("settings", "default", created)
    assert conflict.value.status == 409
    api.delete_namespaced_config_map("settings", "default")
    with pytest.raises(ApiException) as gone:
        api.read_namespaced_config_map("settings", "default")
    assert gone.value.status == 404


def test_watch_sees_what_is_there_and_every_change(server, connect):
    api, other = connect(server.cluster_url("pyw-1")), connect(server.cluster_url("pyw-10"))
    api.create_namespaced_config_map("default", config_map("first"))
    stream = watch.Watch().stream(
        api.list_namespaced_config_map, "default", label_selector="app=demo", timeout_seconds=20
    )
    assert events(stream, 1) == [("ADDED", "first")]
    other.create_namespaced_config_map("default", config_map("elsewhere"))
    api.create_namespaced_config_map("default", config_map("second"))
    api.patch_namespaced_config_map("first", "default", {"metadata": {"labels": {"app": "other"}}})
    api.delete_namespaced_config_map("second", "default")
    assert events(stream, 3) == [("ADDED", "second"), ("DELETED", "first"), ("DELETED", "second")]
    stream.close()


def test_a_watch_ends_when_its_time_is_over_and_resumes_without_a_gap(server, connect):
    api = connect(server.cluster_url("pyr-1"))
    start = api.list_namespaced_config_map("default").metadata.resource_version
    watcher = watch.Watch()
    assert (
        list(watcher.stream(api.list_namespaced_config_map, "default", resource_version=start, timeout_seconds=1)) == []
    )
    api.create_namespaced_config_map("default", config_map("meanwhile"))
    resumed = watch.Watch().stream(
        api.list_namespaced_config_map, "default", resource_version=start, timeout_seconds=20
    )
    assert events(resumed, 1) == [("ADDED", "meanwhile")]
    resumed.close()


def test_410_after_compaction_and_recovery_by_a_new_list(serve, connect):
    """A client that fell behind the kept history is told so, lists again, and misses nothing from there on."""
    server = serve("--memory-history-limit", "20", "--no-watch-cache")
    api = connect(server.cluster_url("c1"))
    api.create_namespaced_config_map("default", config_map("settings"))
    old = api.list_namespaced_config_map("default").metadata.resource_version
    for number in range(100):
        api.patch_namespaced_config_map("settings", "default", {"data": {"number": str(number)}})
    with pytest.raises(ApiException) as expired:
        list(watch.Watch().stream(api.list_namespaced_config_map, "default", resource_version=old, timeout_seconds=10))
    assert expired.value.status == 410

    fresh = api.list_namespaced_config_map("default", label_selector="app=demo")
    assert [one.data["number"] for one in fresh.items] == ["99"]
    api.patch_namespaced_config_map("settings", "default", {"data": {"number": "100"}})
    stream = watch.Watch().stream(
        api.list_namespaced_config_map,
        "default",
        resource_version=fresh.metadata.resource_version,
        timeout_seconds=20,
    )
    assert events(stream, 1) == [("MODIFIED", "settings")]
    stream.close()


def test_a_page_token_from_before_the_compaction_is_answered_with_410(serve, connect):
    server = serve("--memory-history-limit", "20", "--no-watch-cache")
    api = connect(server.cluster_url("c1"))
    for number in range(6):
        api.create_namespaced_config_map("default", config_map(f"settings-{number}"))
    page = api.list_namespaced_config_map("default", limit=2)
    assert page.metadata._continue
    for number in range(100):
        api.patch_namespaced_config_map("settings-0", "default", {"data": {"number": str(number)}})
    with pytest.raises(ApiException) as expired:
        api.list_namespaced_config_map("default", limit=2, _continue=page.metadata._continue)
    assert expired.value.status == 410
