"""Rows of the kinds that run pods: Deployments, Jobs and their like."""

from typing import Any

from kplane_apiserver.printers.ages import UNKNOWN, age, human_duration, parse_time
from kplane_apiserver.printers.columns import (
    AGE,
    NAME,
    NONE,
    Cells,
    Column,
    Printer,
    age_of,
    condition,
    containers,
    count,
    dig,
    items,
    joined,
    mapping,
    name_of,
    number,
    selector,
    text,
    whole,
    wide,
)

_CONTAINERS = (wide("Containers", "The names of the template's containers."), wide("Images", "Their images."))
_SELECTOR = wide("Selector", "The pods that belong to it.")


def _template(workload: dict[str, Any]) -> list[str]:
    return list(containers(workload, "spec", "template", "spec"))


def _deployment(deployment: dict[str, Any], now: float) -> Cells:
    status = mapping(deployment, "status")
    return [
        name_of(deployment),
        f"{whole(status, 'readyReplicas')}/{whole(deployment, 'spec', 'replicas', default=1)}",
        whole(status, "updatedReplicas"),
        whole(status, "availableReplicas"),
        age_of(deployment, now),
        *_template(deployment),
        selector(deployment, "spec", "selector"),
    ]


DEPLOYMENT = Printer(
    (
        NAME,
        Column("Ready", description="How many of the wanted pods are ready."),
        number("Up-to-date", "How many pods have the newest template."),
        number("Available", "How many pods have been ready for long enough."),
        AGE,
        *_CONTAINERS,
        _SELECTOR,
    ),
    _deployment,
)


def _replica_set(replicas: dict[str, Any], now: float) -> Cells:
    found = dig(replicas, "spec", "selector")
    plain = isinstance(found, dict) and "matchLabels" not in found and "matchExpressions" not in found
    return [
        name_of(replicas),
        whole(replicas, "spec", "replicas", default=1),
        whole(replicas, "status", "replicas"),
        whole(replicas, "status", "readyReplicas"),
        age_of(replicas, now),
        *_template(replicas),
        joined(found) if plain and found else selector(replicas, "spec", "selector"),
    ]


REPLICA_SET = Printer(
    (
        NAME,
        number("Desired", "How many pods are wanted."),
        number("Current", "How many pods exist."),
        number("Ready", "How many pods are ready."),
        AGE,
        *_CONTAINERS,
        _SELECTOR,
    ),
    _replica_set,
)


def _stateful_set(workload: dict[str, Any], now: float) -> Cells:
    wanted = whole(workload, "spec", "replicas", default=1)
    ready = whole(workload, "status", "readyReplicas")
    return [name_of(workload), f"{ready}/{wanted}", age_of(workload, now), *_template(workload)]


STATEFUL_SET = Printer(
    (NAME, Column("Ready", description="How many of the wanted pods are ready."), AGE, *_CONTAINERS), _stateful_set
)


def _daemon_set(workload: dict[str, Any], now: float) -> Cells:
    status = mapping(workload, "status")
    return [
        name_of(workload),
        whole(status, "desiredNumberScheduled"),
        whole(status, "currentNumberScheduled"),
        whole(status, "numberReady"),
        whole(status, "updatedNumberScheduled"),
        whole(status, "numberAvailable"),
        joined(mapping(workload, "spec", "template", "spec", "nodeSelector")),
        age_of(workload, now),
        *_template(workload),
        selector(workload, "spec", "selector"),
    ]


DAEMON_SET = Printer(
    (
        NAME,
        number("Desired", "On how many nodes a pod is wanted."),
        number("Current", "On how many nodes one runs."),
        number("Ready", "How many pods are ready."),
        number("Up-to-date", "How many pods have the newest template."),
        number("Available", "How many pods have been ready for long enough."),
        Column("Node Selector", description="The nodes that get a pod."),
        AGE,
        *_CONTAINERS,
        _SELECTOR,
    ),
    _daemon_set,
)


def _job(job: dict[str, Any], now: float) -> Cells:
    return [
        name_of(job),
        _job_status(job),
        _completions(job),
        _job_duration(job, now),
        age_of(job, now),
        *_template(job),
        selector(job, "spec", "selector"),
    ]


def _job_status(job: dict[str, Any]) -> str:
    for kind, word in (("Complete", "Complete"), ("Failed", "Failed")):
        if condition(job, kind).get("status") == "True":
            return word
    if dig(job, "metadata", "deletionTimestamp"):
        return "Terminating"
    for kind, word in (
        ("Suspended", "Suspended"),
        ("FailureTarget", "FailureTarget"),
        ("SuccessCriteriaMet", "SuccessCriteriaMet"),
    ):
        if condition(job, kind).get("status") == "True":
            return word
    return "Running"


def _completions(job: dict[str, Any]) -> str:
    done = whole(job, "status", "succeeded")
    if dig(job, "spec", "completions") is not None:
        return f"{done}/{whole(job, 'spec', 'completions')}"
    parallel = whole(job, "spec", "parallelism")
    return f"{done}/1 of {parallel}" if parallel > 1 else f"{done}/1"


def _job_duration(job: dict[str, Any], now: float) -> str:
    started = parse_time(dig(job, "status", "startTime"))
    if started is None:
        return ""
    ended = parse_time(dig(job, "status", "completionTime"))
    return human_duration((now if ended is None else ended) - started)


JOB = Printer(
    (
        NAME,
        Column("Status", description="The sum of the job's conditions."),
        Column("Completions", description="How many pods succeeded, of how many."),
        Column("Duration", description="How long the job has been running, or ran."),
        AGE,
        *_CONTAINERS,
        _SELECTOR,
    ),
    _job,
)


def _cron_job(job: dict[str, Any], now: float) -> Cells:
    last = dig(job, "status", "lastScheduleTime")
    names, images = containers(job, "spec", "jobTemplate", "spec", "template", "spec")
    return [
        name_of(job),
        text(job, "spec", "schedule"),
        text(job, "spec", "timeZone", default=NONE),
        "True" if dig(job, "spec", "suspend") is True else "False",
        count(job, "status", "active"),
        age(last, now) if last else NONE,
        age_of(job, now),
        names,
        images,
        selector(job, "spec", "jobTemplate", "spec", "selector"),
    ]


CRON_JOB = Printer(
    (
        NAME,
        Column("Schedule", description="When the job runs, in cron's notation."),
        Column("Timezone", description="The time zone of the schedule."),
        Column("Suspend", description="Whether no further runs are started."),
        number("Active", "How many runs are going on."),
        Column("Last Schedule", description="How long ago the last run was started."),
        AGE,
        *_CONTAINERS,
        _SELECTOR,
    ),
    _cron_job,
)


def _pod_template(template: dict[str, Any], _now: float) -> Cells:
    names, images = containers(template, "template", "spec")
    return [name_of(template), names, images, joined(mapping(template, "template", "metadata", "labels"))]


POD_TEMPLATE = Printer((NAME, Column("Containers"), Column("Images"), Column("Pod Labels")), _pod_template)


def _autoscaler(scaler: dict[str, Any], now: float) -> Cells:
    target = mapping(scaler, "spec", "scaleTargetRef")
    return [
        name_of(scaler),
        f"{text(target, 'kind')}/{text(target, 'name')}",
        _targets(scaler),
        text(scaler, "spec", "minReplicas", default="<unset>"),
        whole(scaler, "spec", "maxReplicas"),
        whole(scaler, "status", "currentReplicas"),
        age_of(scaler, now),
    ]


def _targets(scaler: dict[str, Any]) -> str:
    if (percent := dig(scaler, "spec", "targetCPUUtilizationPercentage")) is not None:
        current = text(scaler, "status", "currentCPUUtilizationPercentage", default=UNKNOWN)
        return f"cpu: {current}{'' if current == UNKNOWN else '%'}/{percent}%"
    current_metrics = list(items(scaler, "status", "currentMetrics"))
    shown = [
        _target(metric, current_metrics[position] if position < len(current_metrics) else {})
        for position, metric in enumerate(items(scaler, "spec", "metrics"))
    ]
    more = f" + {len(shown) - 2} more..." if len(shown) > 2 else ""  # noqa: PLR2004 (kubectl shows two)
    return (", ".join(shown[:2]) + more) or NONE


def _target(metric: dict[str, Any], current: dict[str, Any]) -> str:
    kind = text(metric, "type")
    field = kind[:1].lower() + kind[1:]
    name = text(metric, field, "name")
    label = f"{name}: " if field in ("resource", "containerResource") else ""
    if (wanted := dig(metric, field, "target", "averageUtilization")) is not None:
        found = dig(current, field, "current", "averageUtilization")
        return f"{label}{UNKNOWN if found is None else f'{found}%'}/{wanted}%"
    if value := text(metric, field, "target", "averageValue"):
        return f"{label}{text(current, field, 'current', 'averageValue', default=UNKNOWN)}/{value} (avg)"
    value = text(metric, field, "target", "value")
    return f"{label}{text(current, field, 'current', 'value', default=UNKNOWN)}/{value}"


AUTOSCALER = Printer(
    (
        NAME,
        Column("Reference", description="What is scaled."),
        Column("Targets", description="The measured and the wanted values."),
        Column("MinPods", description="The least number of pods."),
        number("MaxPods", "The greatest number of pods."),
        number("Replicas", "How many pods there are."),
        AGE,
    ),
    _autoscaler,
)


def _disruption_budget(budget: dict[str, Any], now: float) -> Cells:
    return [
        name_of(budget),
        text(budget, "spec", "minAvailable", default="N/A"),
        text(budget, "spec", "maxUnavailable", default="N/A"),
        whole(budget, "status", "disruptionsAllowed"),
        age_of(budget, now),
    ]


DISRUPTION_BUDGET = Printer(
    (NAME, Column("Min Available"), Column("Max Unavailable"), number("Allowed Disruptions"), AGE), _disruption_budget
)


def _controller_revision(revision: dict[str, Any], now: float) -> Cells:
    owner = next((ref for ref in items(revision, "metadata", "ownerReferences") if ref.get("controller") is True), {})
    group = text(owner, "apiVersion").rpartition("/")[0]
    kind = text(owner, "kind").lower()
    shown = f"{kind}{'.' if group else ''}{group}/{text(owner, 'name')}" if owner else NONE
    return [name_of(revision), shown, whole(revision, "revision"), age_of(revision, now)]


CONTROLLER_REVISION = Printer((NAME, Column("Controller"), number("Revision"), AGE), _controller_revision)
