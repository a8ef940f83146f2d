"""The commands that people type, with the oldest to the newest supported kubectl."""

import json

import pytest

pytestmark = pytest.mark.kubectl

RELEASES = ("kubectl-1.29", "kubectl-1.32", "kubectl-1.35", "kubectl-1.37")


@pytest.fixture(params=RELEASES)
def kubectl(request, program):
    return program(request.param)


def test_workloads(kubectl, kplane_cluster):
    """create, get, set, scale, label, annotate, patch, wait, delete of builtin kinds"""
    assert kubectl("version")
    kubectl("create", "namespace", "shop")
    kubectl("create", "configmap", "settings", "--from-literal=a=b", "-n", "shop")
    kubectl("create", "secret", "generic", "keys", "--from-literal=k=v")
    kubectl("create", "deployment", "web", "--image=example.org/web:1")
    kubectl("run", "once", "--image=example.org/once")
    kubectl("set", "image", "deployment/web", "web=example.org/web:2")
    kubectl("scale", "deployment/web", "--replicas=3")
    kubectl("label", "deployment/web", "tier=front")
    kubectl("annotate", "deployment/web", "note=hello")
    kubectl("patch", "deployment/web", "-p", '{"spec":{"paused":true}}')
    web = json.loads(kubectl("get", "deployment", "web", "-o", "json"))
    assert (web["spec"]["replicas"], web["spec"]["paused"]) == (3, True)
    assert web["spec"]["template"]["spec"]["containers"][0]["image"] == "example.org/web:2"
    assert web["metadata"]["labels"]["tier"] == "front"
    assert "settings" in kubectl("get", "configmaps", "-A")
    assert "once" in kubectl("get", "all", "-l", "run=once")
    assert "example.org/web:2" in kubectl("describe", "deployment", "web")
    kubectl("wait", "deployment/web", "--for=jsonpath={.spec.replicas}=3", "--timeout=10s")
    kubectl("delete", "deployment,pod", "--all")
    kubectl("delete", "namespace", "shop")
    assert kplane_cluster.request("GET", "/api/v1/namespaces/shop").status == 404


def test_apply(kubectl, examples):
    """apply, diff, wait, replace, server-side apply, status, explain, api-resources, raw, events, can-i, whoami"""
    kubectl("apply", "-f", examples / "parrot-crd.yaml")
    kubectl("wait", "crd/parrots.example.org", "--for=condition=Established", "--timeout=10s")
    assert "parrots" in kubectl("api-resources")
    kubectl("apply", "-f", examples / "parrot.yaml")
    changed = (examples / "parrot.yaml").read_text(encoding="utf-8").replace("green", "red")
    assert "red" in kubectl("diff", "-f", "-", codes=(1,), stdin=changed)
    kubectl("apply", "-f", "-", stdin=changed)
    assert "red" in kubectl("get", "parrots")
    kubectl("apply", "--server-side", "--force-conflicts", "-f", examples / "parrot.yaml")
    kubectl("replace", "-f", "-", stdin=changed)
    kubectl("patch", "parrot/polly", "--type=merge", "--subresource=status", "-p", '{"status":{"seen":true}}')
    assert json.loads(kubectl("get", "parrot", "polly", "-o", "json"))["status"] == {"seen": True}
    assert "colour" in kubectl("explain", "parrot.spec")
    assert "replicas" in kubectl("explain", "deployment.spec")
    kubectl("get", "--raw", "/version")
    kubectl("get", "events")
    assert "yes" in kubectl("auth", "can-i", "create", "pods")
    kubectl("auth", "whoami")
    kubectl("delete", "-f", examples / "parrot-crd.yaml")
