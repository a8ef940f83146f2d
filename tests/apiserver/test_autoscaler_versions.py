"""HorizontalPodAutoscalers: `autoscaling/v1` and `v2` are two forms of the same objects, and v1 loses nothing."""

import json

import pytest

V1 = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers"
V2 = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
ANNOTATION = "autoscaling.alpha.kubernetes.io/"
TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
SCALE = {"scaleTargetRef": TARGET, "minReplicas": 1, "maxReplicas": 5}


def cpu(utilization):
    target = {"type": "Utilization", "averageUtilization": utilization}
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}


MEMORY = {"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}}
SELECTOR = {"matchLabels": {"a": "b"}}
METRICS = [
    MEMORY,
    {
        "type": "Object",
        "object": {
            "describedObject": TARGET,
            "metric": {"name": "hits", "selector": SELECTOR},
            "target": {"type": "Value", "value": "10k"},
        },
    },
    {
        "type": "Object",
        "object": {
            "describedObject": TARGET,
            "metric": {"name": "mean"},
            "target": {"type": "AverageValue", "averageValue": "3"},
        },
    },
    {"type": "Pods", "pods": {"metric": {"name": "p"}, "target": {"type": "AverageValue", "averageValue": "1"}}},
    {
        "type": "ContainerResource",
        "containerResource": {
            "name": "cpu",
            "container": "app",
            "target": {"type": "Utilization", "averageUtilization": 60},
        },
    },
    {"type": "External", "external": {"metric": {"name": "q"}, "target": {"type": "Value", "value": "30"}}},
    {
        "type": "External",
        "external": {
            "metric": {"name": "r", "selector": SELECTOR},
            "target": {"type": "AverageValue", "averageValue": "3"},
        },
    },
]
BEHAVIOR = {
    "scaleDown": {
        "stabilizationWindowSeconds": 0,
        "selectPolicy": "Min",
        "policies": [{"type": "Pods", "value": 4, "periodSeconds": 60}],
    }
}
CONDITIONS = [{"type": "AbleToScale", "status": "True", "reason": "ReadyForNewScale", "message": "ready"}]
CURRENT = [
    {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 35, "averageValue": "70m"}}},
    {"type": "Pods", "pods": {"metric": {"name": "p"}, "current": {"averageValue": "2"}}},
    {
        "type": "Object",
        "object": {"describedObject": TARGET, "metric": {"name": "hits"}, "current": {"value": "9"}},
    },
    {"type": "External", "external": {"metric": {"name": "q"}, "current": {"value": "1"}}},
]
STATUS = {"currentReplicas": 2, "desiredReplicas": 3, "currentMetrics": CURRENT, "conditions": CONDITIONS}


def v2(**spec):
    return {"metadata": {"name": "h"}, "spec": {**SCALE, **spec}}


def annotations(document):
    return document["metadata"].get("annotations", {})


def carried(document, name):
    return json.loads(annotations(document)[ANNOTATION + name])


def test_the_one_number_of_v1_is_a_metric_of_v2(cluster):
    created = cluster.post(V1, v2(targetCPUUtilizationPercentage=55))
    assert (created.status_code, created.json()["apiVersion"]) == (201, "autoscaling/v1")
    assert created.json()["spec"] == {**SCALE, "targetCPUUtilizationPercentage": 55}
    read = cluster.get(f"{V2}/h").json()
    assert (read["apiVersion"], read["spec"]) == ("autoscaling/v2", {**SCALE, "metrics": [cpu(55)]})
    assert cluster.get(f"{V1}/h").json()["spec"] == {**SCALE, "targetCPUUtilizationPercentage": 55}


def test_without_a_number_v1_means_eighty_percent(cluster):
    cluster.post(V1, v2())
    assert cluster.get(f"{V2}/h").json()["spec"]["metrics"] == [cpu(80)]


def test_other_metrics_travel_in_annotations_in_upstreams_form(cluster):
    cluster.post(V2, v2(metrics=[cpu(55), *METRICS], behavior=BEHAVIOR))
    read = cluster.get(f"{V1}/h").json()
    assert read["spec"] == {**SCALE, "targetCPUUtilizationPercentage": 55}
    metrics = carried(read, "metrics")
    assert [metric["type"] for metric in metrics] == [metric["type"] for metric in METRICS]
    assert metrics[0]["resource"] == {"name": "memory", "targetAverageValue": "1Gi"}
    assert metrics[1]["object"] == {"target": TARGET, "metricName": "hits", "selector": SELECTOR, "targetValue": "10k"}
    assert metrics[2]["object"] == {"target": TARGET, "metricName": "mean", "averageValue": "3"}
    assert metrics[3]["pods"] == {"metricName": "p", "targetAverageValue": "1"}
    container = {"name": "cpu", "container": "app", "targetAverageUtilization": 60}
    assert metrics[4]["containerResource"] == container
    assert metrics[5]["external"] == {"metricName": "q", "targetValue": "30"}
    assert metrics[6]["external"] == {"metricName": "r", "metricSelector": SELECTOR, "targetAverageValue": "3"}
    policies = [{"Type": "Pods", "Value": 4, "PeriodSeconds": 60}]
    down = {"StabilizationWindowSeconds": 0, "SelectPolicy": "Min", "Policies": policies}
    assert carried(read, "behavior") == {"ScaleDown": down}


def test_a_status_of_v2_travels_in_annotations_too(cluster):
    cluster.post(V2, v2(metrics=[cpu(55)]))
    cluster.patch(f"{V2}/h/status", {"status": STATUS})
    read = cluster.get(f"{V1}/h").json()
    counted = {"currentReplicas": 2, "desiredReplicas": 3}
    assert read["status"] == {**counted, "currentCPUUtilizationPercentage": 35}
    assert carried(read, "conditions") == CONDITIONS
    resource = {"name": "cpu", "currentAverageUtilization": 35, "currentAverageValue": "70m"}
    assert carried(read, "current-metrics")[0]["resource"] == resource


@pytest.mark.parametrize("metrics", [[cpu(55), *METRICS], METRICS, [MEMORY]], ids=["all", "no cpu", "memory"])
def test_who_reads_v1_and_writes_it_back_changes_nothing(cluster, metrics):
    cluster.post(V2, v2(metrics=metrics, behavior=BEHAVIOR))
    cluster.patch(f"{V2}/h/status", {"status": STATUS})
    cluster.patch(f"{V2}/h", {"metadata": {"annotations": {"mine": "kept"}}})
    before = cluster.get(f"{V2}/h").json()
    old = cluster.get(f"{V1}/h").json()
    answer = cluster.put(f"{V1}/h", old)
    assert (answer.status_code, answer.json()["spec"]) == (200, old["spec"])
    after = cluster.get(f"{V2}/h").json()
    key = json.dumps
    assert sorted(after["spec"].pop("metrics"), key=key) == sorted(before["spec"].pop("metrics"), key=key)
    assert (after["spec"], after["status"]) == (before["spec"], before["status"])
    assert annotations(after) == {"mine": "kept"}


def test_a_change_through_v1_keeps_what_v1_does_not_know(cluster):
    cluster.post(V2, v2(metrics=[MEMORY, cpu(55)], behavior=BEHAVIOR))
    cluster.patch(f"{V2}/h/status", {"status": STATUS})
    for kind in ("merge-patch+json", "strategic-merge-patch+json"):
        patch = {"spec": {"targetCPUUtilizationPercentage": 70}}
        assert cluster.patch(f"{V1}/h", patch, kind).json()["spec"]["targetCPUUtilizationPercentage"] == 70
    read = cluster.get(f"{V2}/h").json()
    assert read["spec"] == {**SCALE, "metrics": [MEMORY, cpu(70)], "behavior": BEHAVIOR}
    assert read["status"] == STATUS


def test_a_status_set_through_v1_is_one_of_v2(cluster):
    cluster.post(V1, v2(targetCPUUtilizationPercentage=55))
    status = {"currentReplicas": 1, "desiredReplicas": 1, "currentCPUUtilizationPercentage": 20}
    assert cluster.patch(f"{V1}/h/status", {"status": status}).json()["status"] == status
    metrics = [{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 20}}}]
    expected = {"currentReplicas": 1, "desiredReplicas": 1, "currentMetrics": metrics}
    assert cluster.get(f"{V2}/h").json()["status"] == expected


def test_an_annotation_that_cannot_be_read_says_nothing(cluster):
    broken = {ANNOTATION + name: "{" for name in ("metrics", "behavior", "conditions", "current-metrics")}
    document = v2(targetCPUUtilizationPercentage=55)
    document["metadata"]["annotations"] = broken
    assert cluster.post(V1, document).status_code == 201
    read = cluster.get(f"{V2}/h").json()
    assert (read["spec"], annotations(read)) == ({**SCALE, "metrics": [cpu(55)]}, {})


def test_lists_and_watches_show_each_version(cluster):
    with cluster.watch(V1, resourceVersion="0") as old, cluster.watch(V2, resourceVersion="0") as new:
        cluster.post(V2, v2(metrics=[cpu(55)]))
        assert old.next()["object"]["spec"]["targetCPUUtilizationPercentage"] == 55
        assert new.next()["object"]["spec"]["metrics"] == [cpu(55)]
    (item,) = cluster.get(V1).json()["items"]
    assert (item["apiVersion"], item["spec"]["targetCPUUtilizationPercentage"]) == ("autoscaling/v1", 55)


def test_ownership_is_told_in_the_version_of_each_owner(cluster):
    manifest = {
        "apiVersion": "autoscaling/v1",
        "kind": "HorizontalPodAutoscaler",
        **v2(targetCPUUtilizationPercentage=5),
    }
    assert cluster.patch(f"{V1}/h", manifest, "apply-patch+yaml", fieldManager="a").status_code == 201
    changed = cluster.patch(f"{V2}/h", {"spec": {"metrics": [cpu(50)], "maxReplicas": 9}}, fieldManager="b").json()
    owned = {entry["manager"]: entry["fieldsV1"]["f:spec"] for entry in changed["metadata"]["managedFields"]}
    assert owned["b"] == {"f:maxReplicas": {}, "f:metrics": {}}
    assert owned["a"] == {"f:minReplicas": {}, "f:scaleTargetRef": {}}
    refused = cluster.patch(f"{V1}/h", manifest, "apply-patch+yaml", fieldManager="a")
    assert refused.status_code == 409
    assert 'conflicts with "b" using autoscaling/v2:' in refused.json()["message"]
