"""Builtin kinds show the columns that kubectl users expect, whatever their objects look like."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kplane_apiserver.kinds import Kind, builtin_kinds
from kplane_apiserver.printers.ages import age, human_duration
from kplane_apiserver.printers.tables import (
    printer_of,
    table_for_object,
)
from kplane_core.storage.codec import encode_object
from kplane_core.storage.interface import StoredObject

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp()
MADE = "2026-03-01T11:57:00Z"


def builtin(group: str, version: str, plural: str) -> Kind:
    return builtin_kinds()[(group, version, plural)]


def stored(document: dict[str, Any], revision: int = 7) -> StoredObject:
    return StoredObject("/any", revision, encode_object(document))


def named(name: str, **fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "creationTimestamp": MADE}, **fields}


def row(kind: Kind, document: dict[str, Any], *, wide: bool = False) -> dict[str, Any]:
    """The object's row as kubectl sees it: heading -> cell."""
    table = json.loads(table_for_object(kind, stored(document), now=NOW))
    cells = zip(table["columnDefinitions"], table["rows"][0]["cells"], strict=True)
    return {column["name"]: cell for column, cell in cells if wide or column["priority"] == 0}


# --- ages -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-5, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (200, "3m20s"),
        (599, "9m59s"),
        (600, "10m"),
        (10799, "179m"),
        (10800, "3h"),
        (12000, "3h20m"),
        (28800, "8h"),
        (172799, "47h"),
        (172800, "2d"),
        (273600, "3d4h"),
        (691200, "8d"),
        (63071999, "729d"),
        (63072000, "2y"),
        (64022400, "2y11d"),
        (252288000, "8y"),
    ],
)
def test_durations_have_at_most_two_units(seconds: int, shown: str) -> None:
    assert human_duration(seconds) == shown


def test_an_age_tells_apart_no_time_and_a_wrong_one() -> None:
    assert age("", NOW) == "<unknown>"
    assert age(None, NOW) == "<unknown>"
    assert age("yesterday", NOW) == "<invalid>"
    assert age("2026-03-01T11:57:00.000000Z", NOW) == "3m"
    assert age("2026-03-01T13:57:00+02:00", NOW) == "3m"


@given(st.datetimes(min_value=datetime(1900, 1, 1), max_value=datetime(2200, 1, 1)))  # noqa: DTZ001 (naive on purpose)
def test_every_time_has_an_age(moment: datetime) -> None:
    assert age(moment.replace(tzinfo=UTC).isoformat(), NOW)


# --- builtin kinds ----------------------------------------------------------------------------------------------------


def test_a_pods_row_sums_up_its_containers() -> None:
    pod = named(
        "web",
        spec={"containers": [{"name": "a"}, {"name": "b"}], "nodeName": "n1"},
        status={
            "phase": "Running",
            "podIP": "10.0.0.1",
            "containerStatuses": [
                {
                    "name": "a",
                    "ready": True,
                    "restartCount": 2,
                    "state": {"running": {}},
                    "lastState": {"terminated": {"finishedAt": "2026-03-01T11:55:00Z"}},
                },
                {"name": "b", "ready": False, "restartCount": 1, "state": {"waiting": {"reason": "CrashLoopBackOff"}}},
            ],
        },
    )
    assert row(builtin("", "v1", "pods"), pod, wide=True) == {
        "Name": "web",
        "Ready": "1/2",
        "Status": "CrashLoopBackOff",
        "Restarts": "3 (5m ago)",
        "Age": "3m",
        "IP": "10.0.0.1",
        "Node": "n1",
        "Nominated Node": "<none>",
        "Readiness Gates": "<none>",
    }


@pytest.mark.parametrize(
    ("spec", "status", "shown"),
    [
        ({}, {}, ""),
        ({}, {"phase": "Pending"}, "Pending"),
        ({}, {"phase": "Failed", "reason": "Evicted"}, "Evicted"),
        ({}, {"conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]}, "SchedulingGated"),
        (
            {"initContainers": [{"name": "i"}, {"name": "j"}]},
            {
                "initContainerStatuses": [
                    {"name": "i", "state": {"terminated": {"exitCode": 0}}},
                    {"name": "j", "state": {"running": {}}},
                ]
            },
            "Init:1/2",
        ),
        (
            {"initContainers": [{"name": "i"}]},
            {"initContainerStatuses": [{"name": "i", "state": {"terminated": {"exitCode": 3}}}]},
            "Init:ExitCode:3",
        ),
        (
            {"initContainers": [{"name": "i"}]},
            {"initContainerStatuses": [{"name": "i", "state": {"waiting": {"reason": "ErrImagePull"}}}]},
            "Init:ErrImagePull",
        ),
        (
            {},
            {"phase": "Succeeded", "containerStatuses": [{"state": {"terminated": {"reason": "Completed"}}}]},
            "Completed",
        ),
        ({}, {"containerStatuses": [{"state": {"terminated": {"signal": 9}}}]}, "Signal:9"),
        (
            {},
            {
                "conditions": [{"type": "Ready", "status": "False"}],
                "containerStatuses": [
                    {"state": {"terminated": {"reason": "Completed"}}},
                    {"ready": True, "state": {"running": {}}},
                ],
            },
            "NotReady",
        ),
    ],
)
def test_a_pods_status_is_one_word(spec: dict[str, Any], status: dict[str, Any], shown: str) -> None:
    assert row(builtin("", "v1", "pods"), named("p", spec=spec, status=status))["Status"] == shown


def test_a_pod_that_is_being_deleted_is_terminating_until_it_has_ended() -> None:
    pod = named("p", status={"phase": "Running"})
    pod["metadata"]["deletionTimestamp"] = MADE
    assert row(builtin("", "v1", "pods"), pod)["Status"] == "Terminating"
    pod["status"]["phase"] = "Succeeded"
    assert row(builtin("", "v1", "pods"), pod)["Status"] == "Succeeded"


def test_a_restartable_init_container_counts_among_the_pods_containers() -> None:
    pod = named(
        "p",
        spec={"containers": [{"name": "a"}], "initContainers": [{"name": "mesh", "restartPolicy": "Always"}]},
        status={"phase": "Running", "initContainerStatuses": [{"name": "mesh", "started": True, "ready": True}]},
    )
    assert row(builtin("", "v1", "pods"), pod) | {"Age": ""} == {
        "Name": "p",
        "Ready": "1/2",
        "Status": "Running",
        "Restarts": "0",
        "Age": "",
    }


TEMPLATE = {"spec": {"containers": [{"name": "a", "image": "img:1"}]}, "metadata": {"labels": {"x": "y"}}}


COLUMNS: list[tuple[tuple[str, str, str], dict[str, Any], dict[str, Any]]] = [
    (
        ("apps", "v1", "deployments"),
        {
            "spec": {"replicas": 3, "template": TEMPLATE, "selector": {"matchLabels": {"x": "y"}}},
            "status": {"readyReplicas": 1, "updatedReplicas": 2, "availableReplicas": 1},
        },
        {"Ready": "1/3", "Up-to-date": 2, "Available": 1, "Containers": "a", "Images": "img:1", "Selector": "x=y"},
    ),
    (
        ("apps", "v1", "deployments"),
        {"spec": {"selector": {"matchExpressions": [{"key": "k", "operator": "NotIn", "values": ["b", "a"]}]}}},
        {
            "Ready": "0/1",
            "Up-to-date": 0,
            "Available": 0,
            "Containers": "",
            "Images": "",
            "Selector": "k notin (a,b)",
        },
    ),
    (
        ("apps", "v1", "statefulsets"),
        {"spec": {"replicas": 2, "template": TEMPLATE}, "status": {"readyReplicas": 2}},
        {"Ready": "2/2", "Containers": "a", "Images": "img:1"},
    ),
    (
        ("apps", "v1", "replicasets"),
        {"spec": {"replicas": 2}, "status": {"replicas": 1}},
        {"Desired": 2, "Current": 1, "Ready": 0, "Containers": "", "Images": "", "Selector": "<none>"},
    ),
    (
        ("", "v1", "replicationcontrollers"),
        {"spec": {"selector": {"app": "a"}}},
        {"Desired": 1, "Current": 0, "Ready": 0, "Containers": "", "Images": "", "Selector": "app=a"},
    ),
    (
        ("apps", "v1", "daemonsets"),
        {"status": {"desiredNumberScheduled": 4, "numberReady": 3}},
        {
            "Desired": 4,
            "Current": 0,
            "Ready": 3,
            "Up-to-date": 0,
            "Available": 0,
            "Node Selector": "<none>",
            "Containers": "",
            "Images": "",
            "Selector": "<none>",
        },
    ),
    (
        ("batch", "v1", "jobs"),
        {
            "spec": {"completions": 3},
            "status": {
                "succeeded": 3,
                "startTime": "2026-03-01T11:58:00Z",
                "completionTime": "2026-03-01T11:58:30Z",
                "conditions": [{"type": "Complete", "status": "True"}],
            },
        },
        {
            "Status": "Complete",
            "Completions": "3/3",
            "Duration": "30s",
            "Containers": "",
            "Images": "",
            "Selector": "<none>",
        },
    ),
    (
        ("batch", "v1", "cronjobs"),
        {"spec": {"schedule": "* * * * *", "suspend": True}, "status": {"active": [{}]}},
        {
            "Schedule": "* * * * *",
            "Timezone": "<none>",
            "Suspend": "True",
            "Active": 1,
            "Last Schedule": "<none>",
            "Containers": "",
            "Images": "",
            "Selector": "<none>",
        },
    ),
    (
        ("", "v1", "services"),
        {
            "spec": {
                "type": "NodePort",
                "clusterIP": "10.0.0.9",
                "selector": {"b": "2", "a": "1"},
                "ports": [{"port": 80, "nodePort": 30080}, {"port": 53, "protocol": "UDP"}],
            }
        },
        {
            "Type": "NodePort",
            "Cluster-IP": "10.0.0.9",
            "External-IP": "<none>",
            "Port(s)": "80:30080/TCP,53/UDP",
            "Selector": "a=1,b=2",
        },
    ),
    (
        ("", "v1", "services"),
        {"spec": {"type": "LoadBalancer"}},
        {
            "Type": "LoadBalancer",
            "Cluster-IP": "<none>",
            "External-IP": "<pending>",
            "Port(s)": "<none>",
            "Selector": "<none>",
        },
    ),
    (("", "v1", "configmaps"), {"data": {"a": "", "b": ""}, "binaryData": {"c": ""}}, {"Data": 3}),
    (("", "v1", "secrets"), {"type": "Opaque", "data": {"a": ""}}, {"Type": "Opaque", "Data": 1}),
    (("", "v1", "serviceaccounts"), {}, {"Secrets": 0}),
    (("", "v1", "namespaces"), {"status": {"phase": "Active"}}, {"Status": "Active"}),
    (("kplane.dev", "v1", "clusters"), {"status": {"phase": "Ready"}}, {"Phase": "Ready"}),
    (("kplane.dev", "v1", "fleets"), {"status": {"replicas": 3, "readyReplicas": 2}}, {"Members": 3, "Ready": 2}),
    (
        ("networking.k8s.io", "v1", "ingresses"),
        {"spec": {"rules": [{"host": "a"}, {"host": "b"}, {"host": "c"}, {"host": "d"}], "tls": [{}]}},
        {"Class": "<none>", "Hosts": "a,b,c + 1 more...", "Address": "", "Ports": "80, 443"},
    ),
    (
        ("", "v1", "endpoints"),
        {"subsets": [{"addresses": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}], "ports": [{"port": 80}]}]},
        {"Endpoints": "10.0.0.1:80,[fd00::1]:80"},
    ),
    (
        ("", "v1", "persistentvolumeclaims"),
        {
            "spec": {"volumeName": "v", "storageClassName": "fast"},
            "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]},
        },
        {
            "Status": "Bound",
            "Volume": "v",
            "Capacity": "1Gi",
            "Access Modes": "RWO",
            "StorageClass": "fast",
            "VolumeAttributesClass": "<unset>",
            "VolumeMode": "<unset>",
        },
    ),
    (
        ("", "v1", "nodes"),
        {
            "metadata": {
                "name": "x",
                "creationTimestamp": MADE,
                "labels": {"node-role.kubernetes.io/control-plane": "", "node-role.kubernetes.io/etcd": ""},
            },
            "spec": {"unschedulable": True},
            "status": {"conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": {"kubeletVersion": "v1"}},
        },
        {
            "Status": "Ready,SchedulingDisabled",
            "Roles": "control-plane,etcd",
            "Version": "v1",
            "Internal-IP": "<none>",
            "External-IP": "<none>",
            "OS-Image": "<unknown>",
            "Kernel-Version": "<unknown>",
            "Container-Runtime": "<unknown>",
        },
    ),
    (("coordination.k8s.io", "v1", "leases"), {"spec": {"holderIdentity": "me"}}, {"Holder": "me"}),
    (
        ("rbac.authorization.k8s.io", "v1", "rolebindings"),
        {
            "roleRef": {"kind": "Role", "name": "r"},
            "subjects": [{"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "name": "s", "namespace": "n"}],
        },
        {"Role": "Role/r", "Users": "u", "Groups": "", "ServiceAccounts": "n/s"},
    ),
    (
        ("autoscaling", "v2", "horizontalpodautoscalers"),
        {
            "spec": {
                "scaleTargetRef": {"kind": "Deployment", "name": "d"},
                "maxReplicas": 5,
                "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": 80}}}],
            }
        },
        {
            "Reference": "Deployment/d",
            "Targets": "cpu: <unknown>/80%",
            "MinPods": "<unset>",
            "MaxPods": 5,
            "Replicas": 0,
        },
    ),
]


@pytest.mark.parametrize(
    ("key", "document", "shown"), COLUMNS, ids=lambda value: value[2] if isinstance(value, tuple) else ""
)
def test_builtin_kinds_have_their_columns(
    key: tuple[str, str, str], document: dict[str, Any], shown: dict[str, Any]
) -> None:
    assert row(builtin(*key), named("x") | document, wide=True) == {"Name": "x", "Age": "3m"} | shown


def test_an_event_shows_when_and_to_what_it_happened() -> None:
    event = named(
        "e",
        type="Warning",
        reason="Failed",
        message=" it broke \n",
        count=4,
        firstTimestamp="2026-03-01T11:00:00Z",
        lastTimestamp="2026-03-01T11:59:30Z",
        involvedObject={"kind": "Pod", "name": "web"},
        source={"component": "kubelet", "host": "n1"},
    )
    assert row(builtin("", "v1", "events"), event, wide=True) == {
        "Last Seen": "30s",
        "Type": "Warning",
        "Reason": "Failed",
        "Object": "pod/web",
        "Subobject": "",
        "Source": "kubelet, n1",
        "Message": "it broke",
        "First Seen": "60m",
        "Count": 4,
        "Name": "e",
    }
    newer = named("e", eventTime="2026-03-01T11:59:00.123456Z", regarding={"kind": "Job", "name": "j"}, note="ok")
    shown = row(builtin("events.k8s.io", "v1", "events"), newer)
    assert (shown["Last Seen"], shown["Object"], shown["Message"]) == ("59s", "job/j", "ok")


POD = {
    "metadata": {"name": "p", "deletionTimestamp": MADE},
    "spec": {
        "containers": [{"name": "a"}],
        "initContainers": [{"name": "i", "restartPolicy": "Always"}],
        "readinessGates": [{"conditionType": "x"}],
    },
    "status": {
        "phase": "Running",
        "conditions": [{"type": "x", "status": "True"}],
        "containerStatuses": [
            {
                "name": "a",
                "ready": True,
                "restartCount": 2,
                "state": {"running": {}, "terminated": {"exitCode": 1}},
                "lastState": {"terminated": {"finishedAt": MADE}},
            },
        ],
        "initContainerStatuses": [{"name": "i", "started": False, "state": {"waiting": {"reason": "x"}}}],
    },
}
STRANGE: tuple[Any, ...] = (
    None,
    True,
    -7,
    0.5,
    "",
    "x",
    [],
    {},
    [None],
    ["x"],
    [[]],
    [{}],
    [{"name": []}],
    {"a": None},
    {"a": {}},
)


def with_each_part_replaced(document: Any) -> Iterator[Any]:
    """The document with every one of its parts, in turn, replaced by each strange value."""
    yield from STRANGE
    if isinstance(document, dict):
        for name, value in document.items():
            yield from ({**document, name: other} for other in with_each_part_replaced(value))
    elif isinstance(document, list):
        for position, value in enumerate(document):
            yield from (
                [*document[:position], other, *document[position + 1 :]] for other in with_each_part_replaced(value)
            )


@pytest.mark.parametrize(
    ("key", "document"),
    [(("", "v1", "pods"), POD), *((key, document) for key, document, _ in COLUMNS)],
    ids=lambda value: value[2] if isinstance(value, tuple) else "",
)
def test_no_object_is_too_strange_to_be_printed(key: tuple[str, str, str], document: dict[str, Any]) -> None:
    """Builtin kinds are stored without a schema check: a field of a wrong type must not break a whole list."""
    printer = printer_of(builtin(*key))
    strange = [found for found in with_each_part_replaced(named("x") | document) if isinstance(found, dict)]
    assert len(strange) > len(STRANGE)
    for found in strange:
        cells = printer.cells(found, NOW)
        assert len(cells) == len(printer.columns)
        assert all(cell is None or isinstance(cell, (str, int, float)) for cell in cells), found


@pytest.mark.parametrize("kind", builtin_kinds().values(), ids=lambda kind: kind.group_resource)
def test_every_kind_can_be_printed_when_all_of_its_fields_are_strange(kind: Kind) -> None:
    fields = (
        "spec",
        "status",
        "data",
        "subjects",
        "roleRef",
        "subsets",
        "template",
        "webhooks",
        "involvedObject",
        "series",
    )
    printer = printer_of(kind)
    for value in STRANGE:
        cells = printer.cells({"metadata": {"name": "x"}} | dict.fromkeys(fields, value), NOW)
        assert len(cells) == len(printer.columns)
