"""HorizontalPodAutoscalers: `autoscaling/v1` knows one metric, the CPU, and carries along what else v2 says.

Those fields travel as annotations of a v1 object, under upstream's names and in upstream's form, so that a client of v1
that reads an object and writes it back loses nothing. They are never stored.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

Document = dict[str, Any]

_PREFIX = "autoscaling.alpha.kubernetes.io/"
_METRICS = _PREFIX + "metrics"
_CURRENT_METRICS = _PREFIX + "current-metrics"
_CONDITIONS = _PREFIX + "conditions"
_BEHAVIOR = _PREFIX + "behavior"
_CARRIED = frozenset({_METRICS, _CURRENT_METRICS, _CONDITIONS, _BEHAVIOR})
_DEFAULT_CPU = 80

# What a metric's source is made of: its field in the annotation -> the path of the same in v2.
_Paths = Mapping[str, tuple[str, ...]]
_METRIC = {"metricName": ("metric", "name"), "selector": ("metric", "selector")}
_EXTERNAL = {"metricName": ("metric", "name"), "metricSelector": ("metric", "selector")}
_DESCRIBED = {"target": ("describedObject",), **_METRIC}
_WANTED_OF_RESOURCE = {
    "targetAverageUtilization": ("target", "averageUtilization"),
    "targetAverageValue": ("target", "averageValue"),
}
_FOUND_OF_RESOURCE = {
    "currentAverageUtilization": ("current", "averageUtilization"),
    "currentAverageValue": ("current", "averageValue"),
}
_RESOURCE = {"name": ("name",)}
_CONTAINER = {"name": ("name",), "container": ("container",)}
_WANTED: Mapping[str, _Paths] = {
    "object": {**_DESCRIBED, "targetValue": ("target", "value"), "averageValue": ("target", "averageValue")},
    "pods": {**_METRIC, "targetAverageValue": ("target", "averageValue")},
    "resource": {**_RESOURCE, **_WANTED_OF_RESOURCE},
    "containerResource": {**_CONTAINER, **_WANTED_OF_RESOURCE},
    "external": {**_EXTERNAL, "targetValue": ("target", "value"), "targetAverageValue": ("target", "averageValue")},
}
_FOUND: Mapping[str, _Paths] = {
    "object": {**_DESCRIBED, "currentValue": ("current", "value"), "averageValue": ("current", "averageValue")},
    "pods": {**_METRIC, "currentAverageValue": ("current", "averageValue")},
    "resource": {**_RESOURCE, **_FOUND_OF_RESOURCE},
    "containerResource": {**_CONTAINER, **_FOUND_OF_RESOURCE},
    "external": {**_EXTERNAL, "currentValue": ("current", "value"), "currentAverageValue": ("current", "averageValue")},
}


# --- from v2 ----------------------------------------------------------------------------------------------------------


def from_v2(scaler: Document) -> Document:
    """Return an autoscaler of v2 as one of v1."""
    result = {**scaler}
    carried: Document = {}
    if isinstance(spec := scaler.get("spec"), dict):
        result["spec"] = _spec_of_v1(spec, carried)
    if isinstance(status := scaler.get("status"), dict):
        result["status"] = _status_of_v1(status, carried)
    return _with_annotations(result, {name: _encode(value) for name, value in carried.items()})


def _spec_of_v1(spec: Document, carried: Document) -> Document:
    metrics = _dicts(spec.get("metrics"))
    result = {name: value for name, value in spec.items() if name not in {"metrics", "behavior"}}
    cpu = next((metric for metric in metrics if _of_cpu(metric)), {})
    utilization = _at(cpu, ("resource", "target", "averageUtilization"))
    if utilization is not None:
        result["targetCPUUtilizationPercentage"] = utilization
    if others := [metric for metric in metrics if not (_of_cpu(metric) and _has_utilization(metric))]:
        carried[_METRICS] = [_renamed(metric, _WANTED, _flat) for metric in others]
    if spec.get("behavior"):
        carried[_BEHAVIOR] = _with_names(spec["behavior"], _capital)
    return result


def _status_of_v1(status: Document, carried: Document) -> Document:
    metrics = _dicts(status.get("currentMetrics"))
    result = {name: value for name, value in status.items() if name not in {"currentMetrics", "conditions"}}
    for metric in metrics:
        utilization = _at(metric, ("resource", "current", "averageUtilization"))
        if _of_cpu(metric) and utilization is not None:
            result["currentCPUUtilizationPercentage"] = utilization
    if metrics:
        carried[_CURRENT_METRICS] = [_renamed(metric, _FOUND, _flat) for metric in metrics]
    if status.get("conditions"):
        carried[_CONDITIONS] = status["conditions"]
    return result


# --- to v2 ------------------------------------------------------------------------------------------------------------


def to_v2(scaler: Document) -> Document:
    """Return an autoscaler of v1 as one of v2; an annotation that cannot be read says nothing, as upstream has it."""
    result = {**scaler}
    metadata = scaler.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    found = annotations if isinstance(annotations, dict) else {}
    carried = {name: _decode(found[name]) for name in _CARRIED if name in found}
    if isinstance(spec := scaler.get("spec"), dict):
        result["spec"] = _spec_of_v2(spec, carried)
    status = scaler.get("status")
    if isinstance(status, dict) or carried.keys() & {_CURRENT_METRICS, _CONDITIONS}:
        result["status"] = _status_of_v2(status if isinstance(status, dict) else {}, carried)
    return _with_annotations(result, {})


def _spec_of_v2(spec: Document, carried: Document) -> Document:
    result = {**spec}
    utilization = result.pop("targetCPUUtilizationPercentage", None)
    metrics = [_renamed(metric, _WANTED, _deep) for metric in _dicts(carried.get(_METRICS))]
    for metric in metrics:
        _name_target(metric)
    if utilization is not None or not metrics:
        target = {"type": "Utilization", "averageUtilization": _DEFAULT_CPU if utilization is None else utilization}
        metrics.append({"type": "Resource", "resource": {"name": "cpu", "target": target}})
    result["metrics"] = metrics
    if isinstance(behavior := carried.get(_BEHAVIOR), dict) and behavior:
        result["behavior"] = _with_names(behavior, _small)
    return result


def _status_of_v2(status: Document, carried: Document) -> Document:
    result = {**status}
    utilization = result.pop("currentCPUUtilizationPercentage", None)
    if utilization is not None:
        resource = {"name": "cpu", "current": {"averageUtilization": utilization}}
        result["currentMetrics"] = [{"type": "Resource", "resource": resource}]
    # What the annotation says of the CPU is more than the one number.
    if metrics := _dicts(carried.get(_CURRENT_METRICS)):
        result["currentMetrics"] = [_renamed(metric, _FOUND, _deep) for metric in metrics]
    if conditions := _dicts(carried.get(_CONDITIONS)):
        result["conditions"] = conditions
    return result


def _name_target(metric: Document) -> None:
    """Say what kind of number a metric's target is; in the annotation it goes without saying."""
    for source in _WANTED:
        if isinstance(found := metric.get(source), dict):
            target = found.setdefault("target", {})
            if "averageUtilization" in target:
                target["type"] = "Utilization"
            elif source == "external" and "value" in target:
                target["type"] = "Value"
            else:
                target["type"] = "Value" if source == "object" and "averageValue" not in target else "AverageValue"


# --- metrics ----------------------------------------------------------------------------------------------------------


def _of_cpu(metric: Document) -> bool:
    return metric.get("type") == "Resource" and _at(metric, ("resource", "name")) == "cpu"


def _has_utilization(metric: Document) -> bool:
    return _at(metric, ("resource", "target", "averageUtilization")) is not None


def _renamed(
    metric: Document, sources: Mapping[str, _Paths], rename: Callable[[Document, _Paths], Document]
) -> Document:
    return {
        name: rename(value, sources[name]) if name in sources and isinstance(value, dict) else value
        for name, value in metric.items()
    }


def _flat(source: Document, paths: _Paths) -> Document:
    found = {name: _at(source, path) for name, path in paths.items()}
    return {name: value for name, value in found.items() if value is not None}


def _deep(source: Document, paths: _Paths) -> Document:
    result: Document = {}
    for name, path in paths.items():
        if source.get(name) is not None:
            inner = result
            for part in path[:-1]:
                inner = inner.setdefault(part, {})
            inner[path[-1]] = source[name]
    return result


def _at(value: Any, path: tuple[str, ...]) -> Any:
    for part in path:
        if not isinstance(value, dict):
            return None
        value = value.get(part)
    return value


def _dicts(value: Any) -> list[Document]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


# --- annotations ------------------------------------------------------------------------------------------------------


def _with_annotations(scaler: Document, added: Mapping[str, str]) -> Document:
    """Return the autoscaler with these annotations in place of those that it carried fields in."""
    metadata = scaler.get("metadata")
    if not isinstance(metadata, dict):
        return scaler
    before = metadata.get("annotations") or {}
    if not isinstance(before, dict) or not (added or before.keys() & _CARRIED):
        return scaler
    kept = {name: text for name, text in before.items() if name not in _CARRIED}
    metadata = {name: value for name, value in metadata.items() if name != "annotations"}
    if kept or added:
        metadata["annotations"] = {**kept, **added}
    return {**scaler, "metadata": metadata}


def _encode(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _decode(text: Any) -> Any:
    try:
        return msgspec.json.decode(text) if isinstance(text, str) else None
    except (msgspec.DecodeError, RecursionError):
        return None


def _with_names(value: Any, spell: Callable[[str], str]) -> Any:
    """Return the value with the names of all its fields spelt otherwise; nulls are left out."""
    if isinstance(value, dict):
        return {spell(name): _with_names(inner, spell) for name, inner in value.items() if inner is not None}
    return [_with_names(item, spell) for item in value] if isinstance(value, list) else value


def _capital(name: str) -> str:
    # Upstream writes this annotation from its internal type, whose fields have Go's names.
    return name[:1].upper() + name[1:]


def _small(name: str) -> str:
    return name[:1].lower() + name[1:]
