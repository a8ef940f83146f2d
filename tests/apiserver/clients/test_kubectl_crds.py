"""CustomResourceDefinitions of real projects, applied by a real kubectl to one of two virtual clusters."""

import json

import pytest

pytestmark = pytest.mark.kubectl

CLUSTER = """
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: clusters, namespace: default}
spec: {paused: true}
"""

CERTIFICATES = """
apiVersion: cert-manager.io/v1
kind: ClusterIssuer
metadata: {name: selfsigned}
spec: {selfSigned: {}}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: web, namespace: default}
spec:
  secretName: web-tls
  dnsNames: [example.org]
  issuerRef: {name: selfsigned, kind: ClusterIssuer}
"""


def wait_for_crds(kubectl):
    kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=20s")


def test_kopf_resources_are_served_as_soon_as_they_are_defined(kubectl, neighbour, manifests):
    """Defined, used by short name, shown in its columns, changed in its status, removed: in one cluster only."""
    folder = manifests / "kopf"
    kubectl("apply", "-f", str(folder / "crd.yaml"))
    wait_for_crds(kubectl)
    kubectl("apply", "-f", str(folder / "obj.yaml"))
    assert kubectl.names("kex") == ["kopf-example-1"]
    header, row = kubectl("get", "kopfexamples").splitlines()
    assert header.split() == ["NAME", "DURATION", "CHILDREN", "MESSAGE"]
    assert row.split() == ["kopf-example-1", "1m"]
    assert 'resource type "kex"' in neighbour("get", "kex", ok=False)

    kubectl("patch", "kex", "kopf-example-1", "--type=merge", "-p", '{"spec":{"field":"other"},"status":{"x":1}}')
    stored = kubectl.json("get", "kex", "kopf-example-1")
    assert stored["spec"]["field"] == "other"
    assert "status" not in stored, "the main endpoint leaves the status alone"
    status = '{"status":{"create_fn":{"message":"hello"}},"spec":{"field":"ignored"}}'
    kubectl("patch", "kex", "kopf-example-1", "--subresource=status", "--type=merge", "-p", status)
    stored = kubectl.json("get", "kex", "kopf-example-1")
    assert (stored["spec"]["field"], stored["status"]["create_fn"]) == ("other", {"message": "hello"})
    assert "hello" in kubectl("get", "kex")

    kubectl("label", "kex", "kopf-example-1", "somelabel=changed", "--overwrite")
    assert kubectl.names("kex", "-l", "somelabel=changed") == ["kopf-example-1"]
    assert "unchanged" not in kubectl("apply", "-f", str(folder / "obj.yaml")), "the manifest's label comes back"

    kubectl("delete", "crd", "kopfexamples.kopf.dev", "--timeout=20s")
    assert "kopfexamples" in kubectl("get", "kopfexamples", ok=False)


def test_kopf_peerings_in_both_scopes(kubectl, manifests):
    """Two CRDs and objects of them in one file: kubectl knows the new kinds at its second try, here as elsewhere."""
    path = str(manifests / "kopf" / "peering.yaml")
    assert "ensure CRDs are installed first" in kubectl("apply", "-f", path, ok=False)
    kubectl("apply", "-f", path)
    assert kubectl.names("clusterkopfpeerings") == ["default"]
    assert kubectl.names("kopfpeerings", "-A") == ["default"]


def test_a_resource_whose_plural_is_clusters(kubectl, neighbour, manifests):
    """Its keys hold `clusters` twice: /cluster.x-k8s.io/clusters/clusters/c1/default/clusters."""
    for one in (kubectl, neighbour):
        one("apply", "--server-side", "-f", str(manifests / "cluster-api"))
        wait_for_crds(one)
    kubectl("apply", "-f", "-", stdin=CLUSTER)
    assert kubectl.names("clusters.cluster.x-k8s.io", "-A") == ["clusters"]
    assert neighbour.names("clusters.cluster.x-k8s.io", "-A") == []
    old = kubectl.json("get", "clusters.v1beta1.cluster.x-k8s.io", "clusters")
    assert old["apiVersion"] == "cluster.x-k8s.io/v1beta1"
    assert old["spec"]["paused"] is True
    kubectl("delete", "clusters.cluster.x-k8s.io", "clusters", "--timeout=20s")
    assert kubectl.names("clusters.cluster.x-k8s.io", "-A") == []


def test_cert_manager_of_334_kilobytes_server_side(kubectl, neighbour, manifests):
    """Too large for client-side apply, which keeps the manifest in an annotation of at most 256 KiB."""
    applied = kubectl("apply", "--server-side", "-f", str(manifests / "cert-manager")).splitlines()
    assert len(applied) == 6
    wait_for_crds(kubectl)
    kubectl("apply", "-f", "-", stdin=CERTIFICATES)
    kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=CERTIFICATES)
    header, row = kubectl("get", "certificates").splitlines()
    assert header.split()[:3] == ["NAME", "READY", "SECRET"]
    assert row.split()[0] == "web"
    assert "web-tls" in row
    assert kubectl.names("clusterissuers") == ["selfsigned"]
    assert "certificates" not in neighbour("api-resources", "--api-group=cert-manager.io")
    again = kubectl("apply", "--server-side", "-f", str(manifests / "cert-manager"))
    assert len(again.splitlines()) == 6


def test_two_clusters_define_one_kind_differently(kubectl, neighbour):
    """Schemas are per cluster, although one store holds the objects of both."""
    for one, scope, column in ((kubectl, "Namespaced", "Colour"), (neighbour, "Cluster", "Size")):
        one("apply", "-f", "-", stdin=json.dumps(crd(scope, column)))
        wait_for_crds(one)
        thing = {"apiVersion": "demo.example/v1", "kind": "Thing", "metadata": {"name": "one"}, "spec": {"v": "x"}}
        one("apply", "-f", "-", stdin=json.dumps(thing))
        header, _ = one("get", "things").splitlines()
        assert header.split() == ["NAME", column.upper()]
    assert kubectl.json("get", "things", "one")["metadata"]["namespace"] == "default"
    assert "namespace" not in neighbour.json("get", "things", "one")["metadata"]


def crd(scope, column):
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.demo.example"},
        "spec": {
            "group": "demo.example",
            "scope": scope,
            "names": {"kind": "Thing", "plural": "things"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
                    "additionalPrinterColumns": [{"name": column, "type": "string", "jsonPath": ".spec.v"}],
                }
            ],
        },
    }


def test_explain_reads_the_definition(kubectl, manifests):
    kubectl("apply", "--server-side", "-f", str(manifests / "cert-manager" / "cert-manager.io_certificates.yaml"))
    wait_for_crds(kubectl)
    assert "secretName" in kubectl("explain", "certificates.spec")


def test_a_definition_that_contradicts_itself_is_refused_with_every_reason(kubectl):
    wrong = crd("Namespaced", "Colour")
    wrong["metadata"]["name"] = "other.demo.example"
    wrong["spec"]["versions"][0]["storage"] = False
    refused = kubectl("create", "-f", "-", stdin=json.dumps(wrong), ok=False)
    assert "metadata.name" in refused
    assert "spec.versions" in refused
