"""Events: `v1` and `events.k8s.io/v1` say the same by other names, and lie in one store as `v1`."""

from typing import Any

Document = dict[str, Any]

# Field of events.k8s.io/v1 -> the same field of v1. All other fields have one name in both.
_CORE_NAMES = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_NAMES = {core: name for name, core in _CORE_NAMES.items()}


def to_core(event: Document) -> Document:
    """Return an Event of events.k8s.io/v1 as one of v1."""
    return {_CORE_NAMES.get(name, name): value for name, value in event.items()}


def from_core(event: Document) -> Document:
    """Return an Event of v1 as one of events.k8s.io/v1."""
    return {_NAMES.get(name, name): value for name, value in event.items()}
