"""A real kubectl reads Events and autoscalers in each of their forms."""

import pytest

pytestmark = pytest.mark.kubectl

EVENT = """
apiVersion: events.k8s.io/v1
kind: Event
metadata: {name: e, namespace: default}
regarding: {apiVersion: v1, kind: ConfigMap, name: settings, namespace: default, uid: "@uid"}
eventTime: "2026-01-01T00:00:01.000000Z"
reason: Loaded
action: Load
note: the settings were loaded
type: Normal
reportingController: example.org/loader
reportingInstance: loader-1
"""


def test_an_event_is_shown_whichever_group_is_asked(kubectl):
    kubectl("create", "configmap", "settings")
    uid = kubectl.json("get", "configmap", "settings")["metadata"]["uid"]
    kubectl("create", "-f", "-", stdin=EVENT.replace("@uid", uid))
    for resource in ("events", "events.events.k8s.io"):
        assert "the settings were loaded" in kubectl("get", resource)
    assert "configmap/settings" in kubectl("get", "events", "--field-selector=involvedObject.name=settings")
    assert "configmap/settings" in kubectl("get", "events.events.k8s.io", "--field-selector=regarding.name=settings")
    assert "the settings were loaded" in kubectl("events")
    assert "the settings were loaded" in kubectl("describe", "configmap", "settings")
    kubectl("delete", "event", "e")
    assert kubectl.names("events.events.k8s.io") == []


AUTOSCALER = """
apiVersion: autoscaling/v1
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  maxReplicas: 5
  targetCPUUtilizationPercentage: 70
"""
HPA = "horizontalpodautoscalers"


def test_an_autoscaler_is_applied_and_shown_in_both_versions(kubectl):
    kubectl("apply", "-f", "-", stdin=AUTOSCALER)
    assert "unchanged" in kubectl("apply", "-f", "-", stdin=AUTOSCALER)
    old, new = (kubectl.json("get", f"{HPA}.{version}.autoscaling", "web") for version in ("v1", "v2"))
    assert old["spec"]["targetCPUUtilizationPercentage"] == 70
    target = {"type": "Utilization", "averageUtilization": 70}
    assert new["spec"]["metrics"] == [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    kubectl("patch", f"{HPA}.v1.autoscaling", "web", "-p", '{"spec":{"targetCPUUtilizationPercentage":60}}')
    changed = kubectl.json("get", f"{HPA}.v2.autoscaling", "web")
    assert changed["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"] == 60
    assert "70%" not in kubectl("get", "hpa")
