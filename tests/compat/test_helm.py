"""A chart's whole life, with both supported majors of helm."""

import json

import pytest


@pytest.fixture(params=("helm-3", "helm-4"))
def helm(request, program, cluster):
    return program(request.param, cluster.kubeconfig)


def test_chart(helm, cluster, secured, examples):
    """install, list, status, upgrade, history, rollback, uninstall"""
    chart = examples / "charts" / "parrot"

    def colour():
        answer = cluster.request("GET", "/api/v1/namespaces/default/configmaps/polly")
        return answer.json()["data"]["colour"] if answer.status == 200 else None

    helm("install", "polly", chart)
    assert colour() == "green"
    assert [release["name"] for release in json.loads(helm("list", "-o", "json"))] == ["polly"]
    helm("upgrade", "polly", chart, "--set", "colour=red", "--set", "replicas=3")
    assert colour() == "red"
    deployment = cluster.request("GET", "/apis/apps/v1/namespaces/default/deployments/polly").json()
    assert deployment["spec"]["replicas"] == 3
    assert json.loads(helm("status", "polly", "-o", "json"))["version"] == 2
    helm("rollback", "polly", "1")
    assert colour() == "green"
    assert len(json.loads(helm("history", "polly", "-o", "json"))) == 3
    if secured:  # who installs a chart can give no more than he has
        refused = helm("upgrade", "polly", chart, "--set", "reads=nodes", codes=(1,))
        assert "attempting to grant RBAC permissions not currently held" in refused
        role = cluster.request("GET", "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles/polly").json()
        assert role["rules"][0]["resources"] == ["configmaps"]
    helm("uninstall", "polly")
    assert colour() is None
    assert cluster.request("GET", "/api/v1/secrets").json()["items"] == []
