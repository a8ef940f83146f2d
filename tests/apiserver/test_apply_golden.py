"""Rows of applies and updates end as upstream's own field manager ended them: object, owners and errors."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from kplane_apiserver.apply import Applying, Tracking
from kplane_apiserver.kinds import CustomKind, Kind
from kplane_core.errors import ApiError, BadRequest

GOLDEN = json.loads((Path(__file__).parent / "data" / "apply" / "golden.json").read_bytes())
WIDGET = Kind(
    "example.com",
    "v1",
    "Widget",
    "widgets",
    "widget",
    "WidgetList",
    True,
    (),
    custom=CustomKind(schema=GOLDEN["schema"]),
)


class Live:
    """An object that applies and updates go to, as a store would hold it."""

    def __init__(self) -> None:
        self.document: dict[str, Any] | None = None

    def take(self, step: dict[str, Any], now: str) -> Exception | None:
        given = copy.deepcopy(step["object"])
        try:
            if step["op"] == "apply":
                self._apply(given, step, now)
            else:
                self._update(given, step["manager"], now)
        except (ApiError, BadRequest) as error:
            return error
        return None

    def _apply(self, given: dict[str, Any], step: dict[str, Any], now: str) -> None:
        applying = Applying(WIDGET, step["manager"], "", now, given, force=step.get("force", False))
        if self.document is None:
            new = applying.new()
            applying.created(new)
        else:
            new = applying.change(self.document)
            applying.updated(new, self.document, None)
        self.document = new

    def _update(self, given: dict[str, Any], manager: str, now: str) -> None:
        tracking = Tracking(WIDGET, manager, "", now)
        if self.document is None:
            tracking.created(given)
        else:
            tracking.updated(given, self.document, None)
        self.document = given

    @property
    def content(self) -> dict[str, Any]:
        document = copy.deepcopy(self.document or {})
        document.get("metadata", {}).pop("managedFields", None)
        return tidy(document)

    @property
    def managed(self) -> list[Any]:
        return entries((self.document or {}).get("metadata", {}).get("managedFields", ()))


def tidy(value: Any) -> Any:
    """Leave out what means nothing: nulls, and objects or lists with nothing in them at the first two levels."""
    return {
        name: {key: inner for key, inner in part.items() if inner not in (None, {}, [])}
        if isinstance(part, dict)
        else part
        for name, part in value.items()
        if part not in (None, {}, [])
    }


def entries(found: Any) -> list[Any]:
    named = [(entry["manager"], entry["operation"], entry["fieldsV1"]) for entry in found]
    return sorted(named, key=lambda entry: entry[:2])


@pytest.mark.parametrize("scenario", GOLDEN["scenarios"], ids=lambda scenario: scenario["name"])
def test_it_ends_as_upstream_ends_it(scenario):
    live = Live()
    for number, (step, outcome) in enumerate(zip(scenario["steps"], scenario["outcomes"], strict=True)):
        error = live.take(step, f"2026-01-01T00:00:{number:02}Z")
        assert (str(error) if error else "") == outcome.get("error", ""), number
        if live.document is None:
            continue  # upstream's test leaves an empty object behind
        if isinstance(error, ApiError) and outcome.get("causes"):
            causes = error.status().causes
            found = sorted((cause.reason, cause.message, cause.field) for cause in causes)
            told = outcome["causes"]
            assert found == sorted((cause["reason"], cause["message"], cause["field"]) for cause in told)
        assert live.content == tidy(outcome["object"] or {}), number
        assert live.managed == entries(outcome["managed"] or ()), number
