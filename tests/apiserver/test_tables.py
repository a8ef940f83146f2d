"""Tables show what kubectl users expect, from stored bytes, whatever the objects look like."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
import pytest

from kplane_apiserver.kinds import CustomKind, Kind, PrinterColumn, builtin_kinds
from kplane_apiserver.printers.tables import (
    parse_include_object,
    partial_metadata,
    partial_metadata_list,
    table_for_list,
    table_for_object,
)
from kplane_core.errors import BadRequest, DecodeError
from kplane_core.storage.codec import encode_object
from kplane_core.storage.interface import ObjectList, StoredObject

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


# --- custom kinds -----------------------------------------------------------------------------------------------------

CUSTOM = attrs.evolve(
    builtin("coordination.k8s.io", "v1", "leases"), group="example.com", kind="Thing", plural="things"
)


def custom(*columns: PrinterColumn) -> Kind:
    return attrs.evolve(CUSTOM, custom=CustomKind(printer_columns=columns))


def test_a_custom_kind_shows_its_own_columns() -> None:
    kind = custom(
        PrinterColumn("Ready", "string", '.status.conditions[?(@.type == "Ready")].status'),
        PrinterColumn("Size", "integer", ".spec.size", priority=1, description="how big"),
        PrinterColumn("Hosts", "string", ".spec.hosts"),
        PrinterColumn("On", "boolean", ".spec.on"),
        PrinterColumn("Ratio", "number", ".spec.ratio"),
        PrinterColumn("Since", "date", ".status.since"),
        PrinterColumn("Gone", "string", ".spec.gone"),
        PrinterColumn("Null", "string", ".spec.null"),
    )
    document = named(
        "t",
        spec={"size": 3.0, "hosts": ["a", "b"], "on": True, "ratio": 0.5, "null": None},
        status={"conditions": [{"type": "Ready", "status": "True"}], "since": "2026-03-01T11:59:00Z"},
    )
    assert row(kind, document, wide=True) == {
        "Name": "t",
        "Ready": "True",
        "Size": 3,
        "Hosts": '["a","b"]',
        "On": True,
        "Ratio": 0.5,
        "Since": "60s",
        "Gone": None,
        "Null": None,
    }
    table = json.loads(table_for_object(kind, stored(document), now=NOW))
    assert table["columnDefinitions"][2] == {
        "name": "Size",
        "type": "integer",
        "format": "",
        "description": "how big",
        "priority": 1,
    }


def test_a_cell_whose_value_does_not_fit_its_type_stays_empty() -> None:
    kind = custom(
        PrinterColumn("Size", "integer", ".spec.size"),
        PrinterColumn("On", "boolean", ".spec.size"),
        PrinterColumn("Since", "date", ".spec.number"),
        PrinterColumn("When", "date", ".spec.when"),
        PrinterColumn("Broken", "string", ".spec["),
    )
    shown = row(kind, named("t", spec={"size": "large", "when": "soon", "number": 4}))
    assert shown == {"Name": "t", "Size": None, "On": None, "Since": None, "When": "<invalid>", "Broken": None}


def test_a_custom_kind_without_columns_shows_its_age() -> None:
    assert row(custom(), named("t")) == {"Name": "t", "Age": "3m"}


# --- the table itself -------------------------------------------------------------------------------------------------


def test_a_list_becomes_a_table_with_its_paging_and_metadata_only_rows() -> None:
    page = ObjectList(
        (stored(named("a", data={"k": "v"}), 3), stored(named("b"), 5)), 9, continue_token="next", remaining=4
    )
    table = json.loads(table_for_list(builtin("", "v1", "configmaps"), page, now=NOW))
    assert table["kind"] == "Table"
    assert table["apiVersion"] == "meta.k8s.io/v1"
    assert table["metadata"] == {"resourceVersion": "9", "continue": "next", "remainingItemCount": 4}
    assert [line["cells"] for line in table["rows"]] == [["a", 1, "3m"], ["b", 0, "3m"]]
    assert table["rows"][0]["object"] == {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"name": "a", "creationTimestamp": MADE, "resourceVersion": "3"},
    }


def test_rows_carry_what_was_asked_for() -> None:
    kind, one = builtin("", "v1", "configmaps"), stored(named("a", data={"k": "v"}))
    whole = json.loads(table_for_object(kind, one, "Object", now=NOW))["rows"][0]["object"]
    assert whole["data"] == {"k": "v"}
    assert whole["metadata"]["resourceVersion"] == "7"
    assert "object" not in json.loads(table_for_object(kind, one, "None", now=NOW))["rows"][0]
    other = json.loads(table_for_object(kind, one, "Object", now=NOW, object_bytes=lambda _: b'{"kind":"Other"}'))
    assert other["rows"][0]["object"] == {"kind": "Other"}


def test_an_empty_list_is_a_table_without_rows() -> None:
    table = json.loads(table_for_list(builtin("", "v1", "pods"), ObjectList((), 4), now=NOW))
    assert table["rows"] == []
    assert len(table["columnDefinitions"]) == 9


def test_only_the_first_event_of_a_watch_describes_the_columns() -> None:
    kind, one = builtin("", "v1", "configmaps"), stored(named("a"))
    assert json.loads(table_for_object(kind, one, with_columns=False, now=NOW))["columnDefinitions"] is None
    assert json.loads(table_for_object(kind, one, now=NOW))["metadata"] == {"resourceVersion": "7"}


def test_a_bookmark_becomes_a_row_that_carries_its_annotations() -> None:
    bookmark = stored({"metadata": {"annotations": {"k8s.io/initial-events-end": "true"}}}, 12)
    table = json.loads(table_for_object(builtin("", "v1", "pods"), bookmark, now=NOW))
    assert table["rows"][0]["object"]["metadata"] == {
        "resourceVersion": "12",
        "annotations": {"k8s.io/initial-events-end": "true"},
    }


def test_metadata_alone_can_be_asked_for() -> None:
    document = json.loads(partial_metadata(stored(named("a", data={"k": "v"}))))
    assert set(document) == {"kind", "apiVersion", "metadata"}
    page = json.loads(partial_metadata_list(ObjectList((stored(named("a")),), 9)))
    assert page["kind"] == "PartialObjectMetadataList"
    assert page["metadata"] == {"resourceVersion": "9"}
    assert page["items"][0]["metadata"]["name"] == "a"


def test_include_object_takes_its_three_values_and_no_other() -> None:
    assert [parse_include_object(text) for text in ("", "Metadata", "Object", "None")] == [
        "Metadata",
        "Metadata",
        "Object",
        "None",
    ]
    with pytest.raises(BadRequest, match="includeObject"):
        parse_include_object("Everything")


def test_stored_data_that_is_no_object_is_reported_and_not_shown() -> None:
    with pytest.raises(DecodeError):
        table_for_object(builtin("", "v1", "pods"), StoredObject("/any", 1, b"[1"), now=NOW)


def test_ages_are_those_of_the_moment_when_no_clock_is_given() -> None:
    made = (datetime.now(UTC) - timedelta(days=4)).strftime("%Y-%m-%dT%H:%M:%SZ")
    document = {"metadata": {"name": "a", "creationTimestamp": made}}
    table = json.loads(table_for_object(builtin("", "v1", "configmaps"), stored(document)))
    assert table["rows"][0]["cells"][-1] == "4d"
