"""The commands that people type, with the oldest to the newest supported kubectl."""

import json
from pathlib import Path
from urllib.parse import urlsplit

import pytest

DATA = Path(__file__).parent / "data"

pytestmark = pytest.mark.kubectl

# Releases before 1.34 send what follows --raw to the address without its path (kubernetes/kubernetes#131165).
RAW_FROM_THE_ROOT = ("kubectl-1.29", "kubectl-1.32")
POLLY = "/apis/example.org/v1/namespaces/default/parrots/polly"
RELEASES = ("kubectl-1.29", "kubectl-1.32", "kubectl-1.35", "kubectl-1.37")


@pytest.fixture
def rights():
    return DATA / "rights-of-kubectl.yaml"


@pytest.fixture(params=RELEASES)
def kubectl(request, program, cluster, secured):
    """A kubectl; where there are users, with the context that `kplane token create --add-context` wrote."""
    if not secured:
        return program(request.param, cluster.kubeconfig)
    found = program(request.param, cluster.shared_kubeconfig)
    return lambda *arguments, **given: found("--context", cluster.context, *arguments, **given)


def test_workloads(kubectl, cluster):
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
    assert cluster.request("GET", "/api/v1/namespaces/shop").status == 404


@pytest.fixture
def raw(request, cluster):
    """A function that returns what to give this release for a path of the cluster."""
    old = request.node.callspec.params["kubectl"] in RAW_FROM_THE_ROOT
    return lambda path: f"{urlsplit(cluster.url).path if old else ''}{path}"


def test_apply(kubectl, raw, secured, examples):
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
    assert "red" in kubectl("get", "--raw", raw(POLLY))
    kubectl("get", "events")
    assert "yes" in kubectl("auth", "can-i", "create", "pods")
    if secured:
        assert "no" in kubectl("auth", "can-i", "create", "nodes", codes=(1,))
        assert 'User "alice" cannot list resource "nodes"' in kubectl("get", "nodes", codes=(1,))
    assert ("alice" in kubectl("auth", "whoami")) is secured
    kubectl("delete", "-f", examples / "parrot-crd.yaml")
