"""The pod's row: its readiness, restarts and the one word that sums up its containers."""

from collections.abc import Mapping
from typing import Any

from kplane_apiserver.printers.ages import human_duration, parse_time
from kplane_apiserver.printers.columns import (
    AGE,
    NAME,
    NONE,
    Cells,
    Column,
    Printer,
    age_of,
    condition,
    count,
    dig,
    items,
    name_of,
    text,
    whole,
    wide,
)


def pod_cells(pod: dict[str, Any], now: float) -> Cells:
    """Return the cells of a pod."""
    statuses = list(items(pod, "status", "containerStatuses"))
    sidecars = _sidecars(pod)
    initializing = _init_reason(pod, sidecars)
    ready = sum(_is_serving(status) for status in statuses)
    if sidecars:
        ready += sum(
            text(status, "name") in sidecars and status.get("ready") is True
            for status in items(pod, "status", "initContainerStatuses")
        )
    return [
        name_of(pod),
        f"{ready}/{count(pod, 'spec', 'containers') + len(sidecars)}",
        _status(pod, statuses, initializing),
        _restarts(pod, statuses, now, initializing=bool(initializing)),
        age_of(pod, now),
        text(pod, "status", "podIP", default=NONE),
        text(pod, "spec", "nodeName", default=NONE),
        text(pod, "status", "nominatedNodeName", default=NONE),
        _readiness_gates(pod),
    ]


POD = Printer(
    (
        NAME,
        Column("Ready", description="How many of the pod's containers are ready."),
        Column("Status", description="The sum of the states of the pod's containers."),
        Column("Restarts", description="How often the pod's containers were restarted, and when last."),
        AGE,
        wide("IP", "The pod's address."),
        wide("Node", "The node that the pod is bound to."),
        wide("Nominated Node", "The node that the pod is to be bound to after others were evicted."),
        wide("Readiness Gates", "How many of the pod's extra readiness conditions hold."),
    ),
    pod_cells,
)


def _status(pod: dict[str, Any], statuses: list[dict[str, Any]], initializing: str) -> str:
    """Return the word that kubectl prints as a pod's status."""
    reason = text(pod, "status", "reason") or text(pod, "status", "phase")
    if text(condition(pod, "PodScheduled"), "reason") == "SchedulingGated":
        reason = "SchedulingGated"
    if initializing and condition(pod, "Initialized").get("status") != "True":
        reason = initializing
    else:
        reason = _container_reason(pod, statuses, initializing or reason)
    if dig(pod, "metadata", "deletionTimestamp"):
        if text(pod, "status", "reason") == "NodeLost":
            return "Unknown"
        if text(pod, "status", "phase") not in ("Failed", "Succeeded"):
            return "Terminating"
    return reason


def _init_reason(pod: dict[str, Any], sidecars: set[str]) -> str:
    """Return the word for the first init container that holds the pod up; empty when none does."""
    total = count(pod, "spec", "initContainers")
    for position, status in enumerate(items(pod, "status", "initContainerStatuses")):
        terminated, waiting = dig(status, "state", "terminated"), text(status, "state", "waiting", "reason")
        if isinstance(terminated, dict) and whole(terminated, "exitCode") == 0:
            continue
        if text(status, "name") in sidecars and status.get("started") is True:
            continue
        if isinstance(terminated, dict):
            return f"Init:{_ending(terminated)}"
        if waiting and waiting != "PodInitializing":
            return f"Init:{waiting}"
        return f"Init:{position}/{total}"
    return ""


def _container_reason(pod: dict[str, Any], statuses: list[dict[str, Any]], reason: str) -> str:
    running = False
    for status in reversed(statuses):
        terminated = dig(status, "state", "terminated")
        if waiting := text(status, "state", "waiting", "reason"):
            reason = waiting
        elif isinstance(terminated, dict):
            reason = _ending(terminated)
        elif _is_serving(status):
            running = True
    if reason == "Completed" and running:
        return "Running" if condition(pod, "Ready").get("status") == "True" else "NotReady"
    return reason


def _ending(terminated: Mapping[str, Any]) -> str:
    if reason := text(terminated, "reason"):
        return reason
    if signal := whole(terminated, "signal"):
        return f"Signal:{signal}"
    return f"ExitCode:{whole(terminated, 'exitCode')}"


def _is_serving(status: Mapping[str, Any]) -> bool:
    return status.get("ready") is True and isinstance(dig(status, "state", "running"), dict)


def _sidecars(pod: dict[str, Any]) -> set[str]:
    """Return the names of the init containers that keep running beside the others."""
    return {
        text(entry, "name") for entry in items(pod, "spec", "initContainers") if entry.get("restartPolicy") == "Always"
    }


def _restarts(pod: dict[str, Any], statuses: list[dict[str, Any]], now: float, *, initializing: bool) -> str:
    if initializing or not statuses:
        statuses = [*items(pod, "status", "initContainerStatuses"), *statuses]
    total = sum(whole(status, "restartCount") for status in statuses)
    if not total:
        return "0"
    endings = (parse_time(dig(status, "lastState", "terminated", "finishedAt")) for status in statuses)
    last = max((moment for moment in endings if moment is not None), default=None)
    return f"{total} ({human_duration(now - last)} ago)" if last is not None else str(total)


def _readiness_gates(pod: dict[str, Any]) -> str:
    gates = [text(gate, "conditionType") for gate in items(pod, "spec", "readinessGates")]
    if not gates:
        return NONE
    holding = sum(condition(pod, gate).get("status") == "True" for gate in gates)
    return f"{holding}/{len(gates)}"
