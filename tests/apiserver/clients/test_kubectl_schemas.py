"""Schemas as the user of a real kubectl meets them: explained, enforced, defaulted."""

import pytest

pytestmark = pytest.mark.kubectl

CERTIFICATE = """
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: web, namespace: default}
spec:
  secretName: web-tls
  issuerRef: {name: selfsigned}
  %s
"""


def test_builtin_fields_are_explained(kubectl):
    told = kubectl("explain", "pod.spec.containers.livenessProbe.httpGet.port")
    assert "IntOrString" in told
    assert "Name or number of the port to access on the container." in told
    assert "FIELD: replicas <integer>" in kubectl("explain", "deployment.spec.replicas")
    assert "storageClassName" in kubectl("explain", "statefulset.spec.volumeClaimTemplates.spec", "--recursive")


def test_a_custom_kind_is_explained_and_enforced(kubectl, manifests):
    kubectl("apply", "-f", str(manifests / "cert-manager"))
    kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=20s")
    assert "FIELD: secretName <string>" in kubectl("explain", "certificate.spec.secretName")

    refused = kubectl("apply", "-f", "-", stdin=CERTIFICATE % "dnsName: [example.org]", ok=False)
    assert 'strict decoding error: unknown field "spec.dnsName"' in refused
    refused = kubectl("apply", "-f", "-", stdin=CERTIFICATE % "usages: [signing, dancing]", ok=False)
    assert (
        'The Certificate "web" is invalid: spec.usages[1]: Unsupported value: "dancing": supported values: ' in refused
    )
    refused = kubectl("apply", "-f", "-", stdin=CERTIFICATE % "revisionHistoryLimit: many", ok=False)
    assert 'spec.revisionHistoryLimit in body must be of type integer: "string"' in refused

    kubectl("apply", "-f", "-", stdin=CERTIFICATE % "dnsNames: [example.org]")
    assert kubectl.json("get", "certificate", "web")["spec"]["dnsNames"] == ["example.org"]


def test_rules_of_a_real_definition_are_run(kubectl, manifests):
    kubectl("apply", "-f", str(manifests / "cluster-api"))
    kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=20s")
    cluster = """
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: c, namespace: default}
spec:
  topology:
    classRef: {name: quick}
    version: v1.35.0
    controlPlane:
      healthCheck:
        checks: {unhealthyMachineConditions: [{type: %s, status: "False", timeoutSeconds: 60}]}
"""
    refused = kubectl("apply", "-f", "-", stdin=cluster % "Ready", ok=False)
    assert 'Invalid value: "Ready": type must not be one of: Ready, Available' in refused
    kubectl("apply", "-f", "-", stdin=cluster % "NetworkUp")
