"""The Python clients: create, get, list by label, patch, watch and delete, each in its own words."""

import asyncio
import inspect

import pytest

from kplane_apiserver.testing.clients import make_client

LABELS = {"app": "parrot"}
MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": LABELS}, "data": {"k": "1"}}


@pytest.fixture
def client(cluster, secured, module, monkeypatch):
    """A function that returns a library's client, made as its documentation makes one of a kubeconfig."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    if not secured:
        yield cluster.client
        return
    path = str(cluster.kubeconfig)

    def lightkube():
        config = module("lightkube.config.kubeconfig").KubeConfig.from_file(path)
        return module("lightkube").Client(config=config, namespace="default")

    makers = {
        "kubernetes": lambda: module("kubernetes").config.new_client_from_config(path),
        "kubernetes_asyncio": lambda: module("kubernetes_asyncio").config.new_client_from_config(path),
        "lightkube": lightkube,
    }
    closers = []

    def make(library):
        if library == "kr8s":
            made, close = make_client(library, cluster.url, lambda: path)
        else:
            made = makers[library]()
            close = made.close
        if library != "kubernetes_asyncio":
            closers.append(close)
        return made

    yield make
    for close in closers:
        close()


def test_kubernetes(module, client):
    """create, get, list by label, patch, watch, conflict, delete"""
    kubernetes = module("kubernetes")
    api = kubernetes.client.CoreV1Api(client("kubernetes"))
    made = api.create_namespaced_config_map("default", MAP)
    api.patch_namespaced_config_map("a", "default", {"data": {"k": "2"}})
    watch = kubernetes.watch.Watch()
    version = made.metadata.resource_version
    for event in watch.stream(api.list_namespaced_config_map, "default", resource_version=version, timeout_seconds=5):
        assert (event["type"], event["object"].data) == ("MODIFIED", {"k": "2"})
        watch.stop()
    made.data = {"k": "3"}
    with pytest.raises(kubernetes.client.ApiException, match="409"):
        api.replace_namespaced_config_map("a", "default", made)
    assert len(api.list_namespaced_config_map("default", label_selector="app=parrot").items) == 1
    api.delete_namespaced_config_map("a", "default")
    assert api.list_namespaced_config_map("default").items == []


def test_kubernetes_asyncio(module, client):
    """create, get, list by label, patch, watch, delete"""
    library = module("kubernetes_asyncio")

    async def connected():
        made = client("kubernetes_asyncio")
        return await made if inspect.isawaitable(made) else made

    async def work():
        async with await connected() as connection:
            api = library.client.CoreV1Api(connection)
            made = await api.create_namespaced_config_map("default", MAP)
            await api.patch_namespaced_config_map("a", "default", {"data": {"k": "2"}})
            async with library.watch.Watch() as watch:
                version = made.metadata.resource_version
                async for event in watch.stream(
                    api.list_namespaced_config_map, "default", resource_version=version, timeout_seconds=5
                ):
                    assert (event["type"], event["object"].data) == ("MODIFIED", {"k": "2"})
                    break
            assert len((await api.list_namespaced_config_map("default", label_selector="app=parrot")).items) == 1
            await api.delete_namespaced_config_map("a", "default")
            assert (await api.list_namespaced_config_map("default")).items == []

    asyncio.run(work())


def test_kr8s(module, client):
    """create, get, list by label, patch, watch, delete"""
    module("kr8s")
    objects = module("kr8s.objects")
    api = client("kr8s")
    made = objects.ConfigMap(MAP, api=api)
    made.create()
    made.patch({"data": {"k": "2"}})
    (found,) = api.get("configmaps", namespace="default", label_selector=LABELS)
    assert found.raw["data"] == {"k": "2"}
    watch = api.watch("configmaps", namespace="default")
    kind, first = next(watch)
    watch.close()
    assert (kind, first.name) == ("ADDED", "a")
    made.delete()
    made.wait("delete", timeout=10)
    assert not made.exists()


def test_lightkube(module, client):
    """create, get, list by label, patch, apply, watch, delete"""
    module("lightkube")
    kind = module("lightkube.resources.core_v1").ConfigMap
    meta = module("lightkube.models.meta_v1").ObjectMeta
    api = client("lightkube")
    made = api.create(kind(metadata=meta(name="a", labels=LABELS), data={"k": "1"}))
    api.patch(kind, "a", {"data": {"k": "2"}})
    watch = api.watch(kind, resource_version=made.metadata.resourceVersion)
    operation, first = next(watch)
    watch.close()
    assert (operation, first.data) == ("MODIFIED", {"k": "2"})
    assert [found.metadata.name for found in api.list(kind, labels=LABELS)] == ["a"]
    applied = api.apply(kind(metadata=meta(name="b"), data={"k": "1"}), field_manager="me")
    assert applied.metadata.name == "b"
    api.delete(kind, "a")
    api.delete(kind, "b")
    assert list(api.list(kind)) == []
