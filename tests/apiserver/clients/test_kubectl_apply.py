"""A real kubectl applies on the server's side: migration, conflicts, removal, diff and validation."""

import pytest

pytestmark = pytest.mark.kubectl

WEB = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: c, image: "nginx:1", ports: [{containerPort: 80}], env: [{name: A, value: "1"}]}
"""
NEWER = WEB.replace("nginx:1", "nginx:2").replace(', env: [{name: A, value: "1"}]', "")
APPLY = ("apply", "--server-side", "-f", "-")


def owners(kubectl):
    entries = kubectl.json("get", "deployment", "web", "--show-managed-fields")["metadata"]["managedFields"]
    return {(entry["manager"], entry["operation"], entry.get("subresource", "")) for entry in entries}


def test_it_takes_over_from_the_client_side_and_removes_what_the_manifest_dropped(kubectl):
    kubectl("apply", "-f", "-", stdin=WEB)
    assert owners(kubectl) == {("kubectl-client-side-apply", "Update", "")}
    kubectl(*APPLY, stdin=NEWER)
    (container,) = kubectl.json("get", "deployment", "web")["spec"]["template"]["spec"]["containers"]
    assert container == {"name": "c", "image": "nginx:2", "ports": [{"containerPort": 80}]}
    assert ("kubectl", "Apply", "") in owners(kubectl)
    version = kubectl.json("get", "deployment", "web")["metadata"]["resourceVersion"]
    kubectl(*APPLY, stdin=NEWER)
    assert kubectl.json("get", "deployment", "web")["metadata"]["resourceVersion"] == version
    assert kubectl("diff", "--server-side", "-f", "-", stdin=NEWER) == ""


def test_others_are_protected_until_it_forces(kubectl):
    kubectl(*APPLY, stdin=WEB)
    kubectl("scale", "deployment", "web", "--replicas=5")
    refused = kubectl(*APPLY, stdin=WEB, ok=False)
    assert 'conflict with "kubectl" with subresource "scale" using apps/v1: .spec.replicas' in refused
    kubectl(*APPLY, "--force-conflicts", stdin=WEB)
    assert kubectl.json("get", "deployment", "web")["spec"]["replicas"] == 2


def test_it_is_told_of_fields_that_do_not_exist(kubectl):
    wrong = WEB.replace("  replicas: 2", "  replicas: 2\n  foo: 1")
    assert 'unknown field "spec.foo"' in kubectl("create", "-f", "-", stdin=wrong, ok=False)
    kubectl("create", "--validate=warn", "-f", "-", stdin=wrong)
    assert "foo" not in kubectl.json("get", "deployment", "web")["spec"]
    assert ".spec.foo: field not declared in schema" in kubectl(*APPLY, stdin=wrong, ok=False)
