"""A real operator: every kind of handler, its events, its finalizer, and its peering."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

DATA = Path(__file__).parent / "data"
CLUSTER_WIDE = "/apis/kopf.dev/v1/clusterkopfpeerings/default"
NAMESPACED = "/apis/kopf.dev/v1/namespaces/default/kopfpeerings/default"
PARROT = "/apis/example.org/v1/namespaces/default/parrots/polly"


@pytest.fixture
def everywhere(request):
    """Whether the operator works in all namespaces; else it knows its own only."""
    return request.node.function is test_operator


@pytest.fixture
def rights(everywhere):
    return DATA / ("rights-of-an-operator.yaml" if everywhere else "rights-in-one-namespace.yaml")


@pytest.fixture
def operator(module, cluster, everywhere, examples, tmp_path):
    """A running operator in a process of its own; the file with its notes."""
    module("kopf")
    cluster.load(examples / "parrot-crd.yaml", DATA / "kopf-peering.yaml")
    notes, log = tmp_path / "notes", tmp_path / "log"
    notes.touch()
    scope = "-A" if everywhere else "--namespace=default"
    kubeconfig = {"KUBECONFIG": str(cluster.kubeconfig), "NO_PROXY": "127.0.0.1"}
    env = {**os.environ, **kubeconfig, "OPERATOR_NOTES": str(notes), "OPERATOR_SCOPE": scope}
    command = [sys.executable, "-m", "kopf", "run", "--peering=default", scope, str(DATA / "operator.py")]
    with log.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(command, env=env, stdout=file, stderr=file)
    yield notes
    process.send_signal(signal.SIGTERM)
    code = process.wait(20)
    said = log.read_text(encoding="utf-8")
    assert code in {0, -signal.SIGTERM}, said
    assert "Traceback" not in said, said


def test_operator(operator, cluster, secured, wait):
    """create, update, delete, timer, daemon, finalizer, event, peering"""
    run_through(operator, cluster, secured, wait, CLUSTER_WIDE)


def test_operator_of_a_namespace(operator, cluster, secured, wait):
    """the same in one namespace, with a Role and no ClusterRole"""
    run_through(operator, cluster, secured, wait, NAMESPACED)


def run_through(operator, cluster, secured, wait, peering):
    """A parrot's whole life, as the operator sees it."""

    def read(path):
        return cluster.request("GET", path).json()

    def status(field):
        return read(PARROT).get("status", {}).get(field)

    wait(lambda: read(peering).get("status"))
    polly = {"name": "polly", "namespace": "default"}
    cluster.create({"apiVersion": "example.org/v1", "kind": "Parrot", "metadata": polly, "spec": {"colour": "green"}})
    wait(lambda: status("created"))
    assert any("kopf" in finalizer for finalizer in read(PARROT)["metadata"]["finalizers"])
    wait(lambda: "Hatched" in [event["reason"] for event in read("/api/v1/events")["items"]])
    wait(lambda: "daemon of polly began" in operator.read_text(encoding="utf-8"))
    ticks = wait(lambda: status("ticks"))
    wait(lambda: status("ticks") > ticks)
    patch = {"spec": {"colour": "red"}}
    answer = cluster.request("PATCH", PARROT, patch, content_type="application/merge-patch+json")
    assert answer.status == 200
    assert wait(lambda: status("painted")) == "green to red"
    if not secured:
        # An operator whose watches expire lists and watches again, and goes on.
        watching = len(cluster.requests.where(verb="watch", resource="parrots"))
        assert cluster.expire_watches("parrots") == 1
        wait(lambda: len(cluster.requests.where(verb="watch", resource="parrots")) > watching)
    assert cluster.request("DELETE", PARROT).status == 200
    wait(lambda: cluster.request("GET", PARROT).status == 404)
    assert {"daemon of polly ended", "deleted polly"} <= set(operator.read_text(encoding="utf-8").splitlines())
