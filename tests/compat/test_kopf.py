"""A real operator: every kind of handler, its events, its finalizer, and its peering."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

DATA = Path(__file__).parent / "data"
CLUSTER_WIDE = "/apis/kopf.dev/v1/clusterkopfpeerings/default"
PARROT = "/apis/example.org/v1/namespaces/default/parrots/polly"


@pytest.fixture
def rights():
    return DATA / "rights-of-an-operator.yaml"


@pytest.fixture
def operator(module, cluster, examples, tmp_path):
    """A running operator in a process of its own; the file with its notes."""
    module("kopf")
    cluster.load(examples / "parrot-crd.yaml", DATA / "kopf-peering.yaml")
    notes = tmp_path / "notes"
    notes.touch()
    env = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig), "OPERATOR_NOTES": str(notes)}
    command = [sys.executable, "-m", "kopf", "run", "--peering=default", "-A", str(DATA / "operator.py")]
    with (tmp_path / "log").open("w", encoding="utf-8") as log:
        process = subprocess.Popen(command, env=env, stdout=log, stderr=log)
    yield notes
    process.send_signal(signal.SIGTERM)
    code = process.wait(20)
    assert code in {0, -signal.SIGTERM}, (tmp_path / "log").read_text(encoding="utf-8")


def test_operator(operator, cluster, secured, wait):
    """create, update, delete, timer, daemon, finalizer, event, peering"""

    def read(path):
        return cluster.request("GET", path).json()

    def status(field):
        return read(PARROT).get("status", {}).get(field)

    wait(lambda: read(CLUSTER_WIDE).get("status"))
    cluster.create(
        {
            "apiVersion": "example.org/v1",
            "kind": "Parrot",
            "metadata": {"name": "polly", "namespace": "default"},
            "spec": {"colour": "green"},
        }
    )
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
