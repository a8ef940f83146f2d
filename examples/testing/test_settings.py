import kubernetes
import pytest


def test_a_full_server_is_not_taken_for_an_empty_one(kplane_cluster):
    api = kubernetes.client.CoreV1Api(kplane_cluster.client("kubernetes"))
    api.create_namespaced_config_map("default", {"metadata": {"name": "settings"}, "data": {"colour": "blue"}})

    kplane_cluster.fail("list", "configmaps", 429, retry_after=0)
    with pytest.raises(kubernetes.client.ApiException, match="429"):
        api.list_namespaced_config_map("default")

    listed = api.list_namespaced_config_map("default")
    assert [one.metadata.name for one in listed.items] == ["settings"]
