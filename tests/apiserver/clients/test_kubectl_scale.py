"""A real kubectl scales, with what it expects to find."""

import json

import pytest

pytestmark = pytest.mark.kubectl


@pytest.fixture
def web(kubectl):
    kubectl("create", "deployment", "web", "--image=example.org/web:1", "--replicas=2")
    return lambda: kubectl.json("get", "deployment", "web")["spec"]["replicas"]


def test_the_replicas_that_somebody_expects_must_be_there(kubectl, web):
    refused = kubectl("scale", "deployment/web", "--current-replicas=3", "--replicas=5", ok=False)
    assert "Expected replicas to be 3, was 2" in refused
    assert web() == 2
    assert "scaled" in kubectl("scale", "deployment/web", "--current-replicas=2", "--replicas=5")
    assert web() == 5


def test_an_older_version_than_the_newest_is_refused(kubectl, web):
    old = kubectl.json("get", "deployment", "web")["metadata"]["resourceVersion"]
    kubectl("label", "deployment", "web", "a=b")
    refused = kubectl("scale", "deployment/web", f"--resource-version={old}", "--replicas=5", ok=False)
    assert f"Expected resource version to be {old}" in refused
    assert web() == 2
    new = kubectl.json("get", "deployment", "web")["metadata"]["resourceVersion"]
    kubectl("scale", "deployment/web", f"--resource-version={new}", "--replicas=5")
    assert web() == 5


def test_the_scale_subresource_can_be_patched_and_read(kubectl, web):
    kubectl("patch", "deployment", "web", "--subresource=scale", "--type=merge", "-p", '{"spec":{"replicas":4}}')
    scale = json.loads(kubectl("get", "deployment", "web", "--subresource=scale", "-o", "json"))
    assert (scale["kind"], scale["spec"], web()) == ("Scale", {"replicas": 4}, 4)
