"""A CustomResourceDefinition is completed, judged and read as a Kubernetes API server does it."""

import copy
import os
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from kplane_apiserver.definitions.crd_names import NamesInUse
from kplane_apiserver.definitions.crds import is_established, kinds_of_crd, prepare_crd, version_priority
from kplane_apiserver.kinds import PrinterColumn
from kplane_core.errors import BadRequest, InvalidError

NOW = "2026-03-01T12:00:00Z"
LATER = "2026-03-02T12:00:00Z"


def crd(**changes: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "things", "kind": "Thing"},
        "versions": [version("v1", storage=True)],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": spec | changes,
    }


def version(name: str, *, served: bool = True, storage: bool = False, **fields: Any) -> dict[str, Any]:
    schema = {"openAPIV3Schema": {"type": "object"}}
    return {"name": name, "served": served, "storage": storage, "schema": schema} | fields


def with_column(column: dict[str, Any]) -> dict[str, Any]:
    return crd(versions=[version("v1", storage=True, additionalPrinterColumns=[column])])


def condition(document: dict[str, Any], kind: str) -> dict[str, Any]:
    return next(entry for entry in document["status"]["conditions"] if entry["type"] == kind)


def faults(document: dict[str, Any], old: dict[str, Any] | None = None) -> dict[str, str]:
    """What the server says of a bad definition: field -> message."""
    with pytest.raises(InvalidError) as caught:
        prepare_crd(document, old, NOW)
    status = caught.value.status()
    assert (status.code, status.reason) == (422, "Invalid")
    assert status.message.startswith('CustomResourceDefinition.apiextensions.k8s.io "things.example.com" is invalid: ')
    return {cause.field: cause.message for cause in status.causes}


# --- completing -------------------------------------------------------------------------------------------------------


def test_defaults_are_filled_in_and_the_clients_object_is_left_alone() -> None:
    given = crd()
    before = copy.deepcopy(given)
    prepared = prepare_crd(given, None, NOW)
    assert given == before
    assert prepared["spec"]["names"] == {
        "plural": "things",
        "kind": "Thing",
        "singular": "thing",
        "listKind": "ThingList",
    }
    assert prepared["spec"]["conversion"] == {"strategy": "None"}


def test_a_new_definition_is_established_at_once() -> None:
    status = prepare_crd(crd(), None, NOW)["status"]
    assert status == {
        "acceptedNames": {"kind": "Thing", "listKind": "ThingList", "plural": "things", "singular": "thing"},
        "storedVersions": ["v1"],
        "conditions": [
            {
                "type": "NamesAccepted",
                "status": "True",
                "reason": "NoConflicts",
                "message": "no conflicts found",
                "lastTransitionTime": NOW,
            },
            {
                "type": "Established",
                "status": "True",
                "reason": "InitialNamesAccepted",
                "message": "the initial names have been accepted",
                "lastTransitionTime": NOW,
            },
        ],
    }


def test_the_status_that_a_client_sends_is_ignored() -> None:
    given = crd() | {"status": {"storedVersions": ["v9"], "conditions": [{"type": "Established", "status": "False"}]}}
    assert prepare_crd(given, None, NOW)["status"] == prepare_crd(crd(), None, NOW)["status"]


def test_an_update_keeps_the_times_of_conditions_that_did_not_change_and_those_of_others() -> None:
    old = prepare_crd(crd(), None, NOW)
    foreign = {"type": "Mine", "status": "True"}
    old["status"]["conditions"].append(foreign)
    new = prepare_crd(crd(versions=[version("v1"), version("v2", storage=True)]), old, LATER)
    assert {entry["lastTransitionTime"] for entry in new["status"]["conditions"][:2]} == {NOW}
    assert new["status"]["conditions"][2] == foreign
    assert new["status"]["storedVersions"] == ["v1", "v2"]


def test_preparing_again_changes_nothing() -> None:
    once = prepare_crd(crd(), None, NOW)
    assert prepare_crd(once, once, LATER) == once


@pytest.mark.parametrize("nonsense", [{"acceptedNames": 7}, {"storedVersions": 7}, {"conditions": [3]}])
def test_nonsense_that_somebody_wrote_into_the_status_is_replaced(nonsense: dict[str, Any]) -> None:
    old = prepare_crd(crd(), None, NOW)
    old["status"] = old["status"] | nonsense
    assert is_established(prepare_crd(crd(), old, LATER))


# --- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("in_use", "reason", "message"),
    [
        (NamesInUse(resources=frozenset({"things"})), "PluralConflict", '"things" is already in use'),
        (NamesInUse(resources=frozenset({"thing"})), "SingularConflict", '"thing" is already in use'),
        (
            NamesInUse(resources=frozenset({"th", "tg"})),
            "ShortNamesConflict",
            '["th" is already in use, "tg" is already in use]',
        ),
        (NamesInUse(kinds=frozenset({"Thing"})), "KindConflict", '"Thing" is already in use'),
        (NamesInUse(kinds=frozenset({"ThingList"})), "ListKindConflict", '"ThingList" is already in use'),
    ],
)
def test_a_definition_that_wants_a_taken_name_is_stored_and_not_served(
    in_use: NamesInUse, reason: str, message: str
) -> None:
    wanted = crd(names={"plural": "things", "kind": "Thing", "shortNames": ["th", "tg"]})
    prepared = prepare_crd(wanted, None, NOW, in_use=in_use)
    names = condition(prepared, "NamesAccepted")
    assert (names["status"], names["reason"], names["message"]) == ("False", reason, message)
    established = condition(prepared, "Established")
    assert (established["status"], established["reason"]) == ("False", "NotAccepted")
    assert not is_established(prepared)
    assert kinds_of_crd(prepared) == ()


def test_a_name_that_became_free_establishes_the_definition() -> None:
    waiting = prepare_crd(crd(), None, NOW, in_use=NamesInUse(kinds=frozenset({"Thing"})))
    assert "kind" not in waiting["status"]["acceptedNames"]
    prepared = prepare_crd(waiting, waiting, LATER)
    assert is_established(prepared)
    assert condition(prepared, "Established")["lastTransitionTime"] == LATER


def test_an_established_definition_that_asks_for_a_taken_short_name_goes_on_with_the_old_ones() -> None:
    old = prepare_crd(crd(), None, NOW)
    wanted = crd(names={"plural": "things", "kind": "Thing", "shortNames": ["th"]})
    new = prepare_crd(wanted, old, LATER, in_use=NamesInUse(resources=frozenset({"th"})))
    assert condition(new, "NamesAccepted")["status"] == "False"
    assert is_established(new)
    assert kinds_of_crd(new)[0].short_names == ()


def test_a_definitions_own_names_are_never_in_its_way() -> None:
    old = prepare_crd(crd(names={"plural": "things", "kind": "Thing", "shortNames": ["th"]}), None, NOW)
    taken = NamesInUse(frozenset({"things", "thing", "th"}), frozenset({"Thing", "ThingList"}))
    assert condition(prepare_crd(old, old, LATER, in_use=taken), "NamesAccepted")["status"] == "True"


# --- refusing ---------------------------------------------------------------------------------------------------------


def schema(**fields: Any) -> dict[str, Any]:
    return crd(versions=[version("v1", storage=True, schema={"openAPIV3Schema": fields})])


ROOT = "spec.versions[0].schema.openAPIV3Schema"


@pytest.mark.parametrize(
    ("document", "field", "message"),
    [
        (
            crd(group="other.com"),
            "metadata.name",
            'Invalid value: "things.example.com": must be spec.names.plural+"."+spec.group',
        ),
        (crd(group=""), "spec.group", "Required value"),
        (crd(group="nodots"), "spec.group", 'Invalid value: "nodots": should be a domain with at least one dot'),
        (crd(group="Bad.Group"), "spec.group", 'Invalid value: "Bad.Group": a lowercase RFC 1123 subdomain must'),
        (crd(scope=""), "spec.scope", "Required value"),
        (crd(scope="Galaxy"), "spec.scope", 'Unsupported value: "Galaxy": supported values: "Cluster", "Namespaced"'),
        (crd(names={"plural": "things"}), "spec.names.kind", "Required value"),
        (crd(names={"kind": "Thing"}), "spec.names.plural", "Required value"),
        (
            crd(names={"plural": "things", "kind": "Thing", "listKind": "Thing"}),
            "spec.names.listKind",
            'Invalid value: "Thing": kind and listKind may not be the same',
        ),
        (
            crd(names={"plural": "things", "kind": "Bad_Kind"}),
            "spec.names.kind",
            'Invalid value: "Bad_Kind": may have mixed case, but should otherwise match: a DNS-1035 label must',
        ),
        (
            crd(names={"plural": "things", "kind": "Thing", "shortNames": ["ok", "Not"]}),
            "spec.names.shortNames[1]",
            'Invalid value: "Not": a DNS-1035 label must',
        ),
        (crd(versions=[]), "spec.versions", "Required value"),
        (crd(versions=[version("v1")]), "spec.versions", 'Invalid value: ["v1"]: must have exactly one version'),
        (
            crd(versions=[version("v1", storage=True), version("v2", storage=True)]),
            "spec.versions",
            'Invalid value: ["v1","v2"]: must have exactly one version marked as storage version',
        ),
        (
            crd(versions=[version("v1", storage=True), version("v1")]),
            "spec.versions",
            'Invalid value: ["v1","v1"]: must contain unique version names',
        ),
        (crd(versions=[version("V1", storage=True)]), "spec.versions[0].name", 'Invalid value: "V1": a DNS-1035 label'),
        (crd(versions=[version("v1", storage=True, schema=None)]), ROOT, "Required value: schemas are required"),
        (schema(properties={}), f"{ROOT}.type", "Required value: must not be empty at the root"),
        (schema(type="string"), f"{ROOT}.type", 'Invalid value: "string": must be object at the root'),
        (
            schema(type="object", properties={"spec": {"properties": {}}}),
            f"{ROOT}.properties[spec].type",
            "Required value: must not be empty for specified object fields",
        ),
        (
            schema(type="object", properties={"spec": {"type": "array"}}),
            f"{ROOT}.properties[spec].items",
            "Required value: must be specified",
        ),
        (
            schema(type="object", properties={"spec": {"type": "array", "items": {}}}),
            f"{ROOT}.properties[spec].items.type",
            "Required value: must not be empty for specified array items",
        ),
        (
            schema(type="object", properties={"spec": {"type": "array", "items": {"nullable": True}}}),
            f"{ROOT}.properties[spec].items.type",
            "Required value: must not be empty for specified array items",
        ),
        (
            schema(type="object", properties={"spec": {"type": "text"}}),
            f"{ROOT}.properties[spec].type",
            'Unsupported value: "text": supported values: "array", "boolean", "integer", "number", "object", "string"',
        ),
        (schema(type="object", **{"$ref": "#/x"}), f"{ROOT}.$ref", "Forbidden: $ref is not supported"),
        (
            schema(type="object", properties={"a": {"type": "string"}}, additionalProperties={"type": "string"}),
            f"{ROOT}.additionalProperties",
            "Forbidden: additionalProperties and properties are mutual exclusive",
        ),
        (
            schema(type="object", allOf=[{"properties": {"a": {"type": "null"}}}]),
            f"{ROOT}.allOf[0].properties[a].type",
            "Forbidden: type cannot be set to null, use nullable as an alternative",
        ),
        (
            with_column({"name": "a", "type": "x", "jsonPath": ".a"}),
            "spec.versions[0].additionalPrinterColumns[0].type",
            'Unsupported value: "x": supported values: "boolean", "date", "integer", "number", "string"',
        ),
        (
            with_column({"name": "a", "type": "date", "jsonPath": ".a["}),
            "spec.versions[0].additionalPrinterColumns[0].jsonPath",
            'Invalid value: ".a[": JSONPath',
        ),
        (
            crd(versions=[version("v1", storage=True, subresources={"scale": {"specReplicasPath": ".replicas"}})]),
            "spec.versions[0].subresources.scale.specReplicasPath",
            'Invalid value: ".replicas": should be a json path under .spec',
        ),
        (
            crd(versions=[version("v1", storage=True, subresources={"scale": {}})]),
            "spec.versions[0].subresources.scale.statusReplicasPath",
            "Required value",
        ),
        (crd(preserveUnknownFields=True), "spec.preserveUnknownFields", "Invalid value: true: cannot set to true"),
    ],
)  # fmt: skip
def test_a_bad_definition_is_refused_naming_the_field(document: dict[str, Any], field: str, message: str) -> None:
    found = faults(document)
    assert found[field].startswith(message)


def test_a_group_of_kubernetes_needs_its_approval() -> None:
    document = crd(group="gateway.networking.k8s.io")
    document["metadata"] = {"name": "things.gateway.networking.k8s.io"}
    with pytest.raises(InvalidError, match="protected groups must have approval annotation"):
        prepare_crd(document, None, NOW)
    document["metadata"]["annotations"] = {"api-approved.kubernetes.io": "https://example.com/pull/1"}
    prepare_crd(document, None, NOW)
    prepare_crd(crd(group="x-k8s.io") | {"metadata": {"name": "things.x-k8s.io"}}, None, NOW)


@pytest.mark.parametrize(
    "fields",
    [
        {"x-kubernetes-int-or-string": True},
        {"x-kubernetes-preserve-unknown-fields": True},
        {
            "type": "object",
            "properties": {"a": {"type": "integer"}},
            "anyOf": [{"required": ["a"]}, {"properties": {"a": {"minimum": 1}}}],
        },
        {"type": "object", "additionalProperties": {"type": "string"}},
        {"type": "object", "not": {"required": ["a"]}},
    ],
)
def test_what_needs_no_type_is_accepted_without_one(fields: dict[str, Any]) -> None:
    prepare_crd(schema(type="object", properties={"spec": fields}), None, NOW)


@pytest.mark.parametrize(
    "spec",
    [
        {"versions": "v1"},
        {"versions": [{"name": 3}]},
        {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": []}}]},
        {"names": {"plural": ["things"]}},
        {"names": {"plural": "things", "shortNames": "th"}},
        {"scope": 3},
    ],
)
def test_a_field_of_a_wrong_type_is_a_bad_request_naming_it(spec: dict[str, Any]) -> None:
    with pytest.raises(BadRequest, match=r"cannot be handled as a CustomResourceDefinition: .*spec\."):
        prepare_crd(crd(**spec), None, NOW)


@pytest.mark.parametrize("spec", [None, [], "x", {}])
def test_a_definition_without_a_spec_is_refused(spec: Any) -> None:
    assert faults(crd() | {"spec": spec})["spec.group"] == "Required value"


def test_what_decides_about_stored_objects_cannot_change() -> None:
    old = prepare_crd(crd(), None, NOW)
    changed = faults(crd(scope="Cluster", names={"plural": "things", "kind": "Other"}), old)
    assert changed == {
        "spec.scope": 'Invalid value: "Cluster": field is immutable',
        "spec.names.kind": 'Invalid value: "Other": field is immutable',
    }
    gone = faults(crd(versions=[version("v2", storage=True)]), old)
    assert gone["status.storedVersions[0]"].startswith('Invalid value: "v1": missing from spec.versions')


# --- reading ----------------------------------------------------------------------------------------------------------


def test_each_served_version_makes_a_kind_the_most_preferred_first() -> None:
    columns = [{"name": "Size", "type": "integer", "jsonPath": ".spec.size", "priority": 1}]
    prepared = prepare_crd(
        crd(
            scope="Cluster",
            names={"plural": "things", "kind": "Thing", "shortNames": ["th"], "categories": ["all"]},
            versions=[
                version("v1alpha1", storage=True, subresources={"status": {}}),
                version("v1beta1", served=False),
                version("v1", additionalPrinterColumns=columns, subresources={"status": {}, "scale": {
                    "specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}}),
            ],
        ),
        None,
        NOW,
    )  # fmt: skip
    first, second = kinds_of_crd(prepared)
    assert (first.version, first.preferred, first.storage_version) == ("v1", True, "v1alpha1")
    assert (second.version, second.preferred) == ("v1alpha1", False)
    assert first.group_resource == "things.example.com"
    assert (first.kind, first.list_kind, first.singular) == ("Thing", "ThingList", "thing")
    assert (first.short_names, first.categories, first.namespaced) == (("th",), ("all",), False)
    assert first.subresources == {"status", "scale"}
    assert second.subresources == {"status"}
    assert first.custom is not None
    assert first.custom.printer_columns == (PrinterColumn("Size", "integer", ".spec.size", priority=1),)
    assert first.custom.served_versions == ("v1", "v1alpha1")
    assert first.custom.stored_versions == ("v1alpha1",)
    assert first.custom.scale == {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"} | {
        "labelSelectorPath": ""
    }


def test_versions_sort_as_kubernetes_sorts_them() -> None:
    names = ["foo1", "v1alpha1", "v10", "v11beta2", "v2", "v11alpha2", "v12alpha1", "v3beta1", "foo10", "v1"]
    assert sorted(names, key=version_priority) == [
        "v10", "v2", "v1", "v11beta2", "v3beta1", "v12alpha1", "v11alpha2", "v1alpha1", "foo1", "foo10",
    ]  # fmt: skip


# --- real definitions -------------------------------------------------------------------------------------------------


def find_manifests() -> Path | None:
    if named := os.environ.get("KPLANE_MANIFESTS"):
        return Path(named)
    for folder in Path(__file__).resolve().parents:
        found = folder.parent / "shared" / "data" / "manifests"
        if found.is_dir():
            return found
    return None


MANIFESTS = find_manifests()
REAL = sorted(MANIFESTS.rglob("*.yaml")) if MANIFESTS else []


def definitions(path: Path) -> list[dict[str, Any]]:
    documents = yaml.load_all(path.read_text(), yaml.CSafeLoader)
    return [found for found in documents if found and found["kind"] == "CustomResourceDefinition"]


@pytest.mark.skipif(not REAL, reason="no manifests: set KPLANE_MANIFESTS to a folder of real ones")
def test_real_definitions_are_accepted_quickly() -> None:
    """The 334 KB ones of cert-manager and the 660 KB ones of argo-rollouts among them."""
    slowest = 0.0
    names = set()
    for path in REAL:
        for document in definitions(path):
            started = time.perf_counter()
            kinds = kinds_of_crd(prepare_crd(document, None, NOW))
            slowest = max(slowest, time.perf_counter() - started)
            names.update(kind.group_resource for kind in kinds)
    assert {"clusterissuers.cert-manager.io", "clusters.cluster.x-k8s.io", "kopfexamples.kopf.dev"} <= names
    assert "rollouts.argoproj.io" in names
    # A generous bound for busy machines; it takes a few milliseconds.
    assert slowest < 0.2
