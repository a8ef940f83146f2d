"""What the operator promises, tested against a real API server."""

import kubernetes
import pytest

POLLY = {
    "apiVersion": "example.org/v1",
    "kind": "Parrot",
    "metadata": {"name": "polly"},
    "spec": {"colour": "green"},
}
PATH = "/apis/example.org/v1/namespaces/default/parrots/polly"
MERGE = "application/merge-patch+json"


@pytest.fixture
def api(kplane_cluster):
    return kubernetes.client.CoreV1Api(kplane_cluster.client("kubernetes"))


def colours(api):
    return [found.data["colour"] for found in api.list_namespaced_config_map("default").items]


def test_a_parrot_is_painted(kplane_cluster, operator, api, eventually):
    kplane_cluster.create(POLLY)
    eventually(lambda: colours(api) == ["green"])


def test_an_overloaded_server_is_asked_again(kplane_cluster, operator, api, eventually):
    fault = kplane_cluster.fail("patch", "parrots/status", 503, times=2, retry_after=0)
    kplane_cluster.create(POLLY)
    eventually(lambda: kplane_cluster.request("GET", PATH).json().get("status") == {"painted": "green"})
    assert fault.hits == 2


def test_nothing_is_missed_when_watches_expire(kplane_cluster, operator, api, eventually):
    kplane_cluster.create(POLLY)
    eventually(lambda: colours(api) == ["green"])
    assert kplane_cluster.expire_watches("parrots") == 1
    kplane_cluster.request("PATCH", PATH, {"spec": {"colour": "red"}}, content_type=MERGE)
    eventually(lambda: colours(api) == ["red"])
    assert len(kplane_cluster.requests.where(verb="list", resource="parrots")) == 2
