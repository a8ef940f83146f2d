"""Protobuf bodies: real ones become what kubectl's JSON says, broken ones a 400 or 415, never anything else."""

import gzip
import json
import struct
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kplane_apiserver.apierrors import UnsupportedMediaType
from kplane_apiserver.kinds import DATA, builtin_kinds
from kplane_apiserver.wire import protobuf
from kplane_apiserver.wire.protobuf import MAGIC, MAX_DEPTH, MalformedProtobuf, decode

FIXTURES = Path(__file__).parent / "data/protobuf"
RECORDED = sorted(path.stem for path in FIXTURES.glob("*.bin"))
REAL_BODIES = [(FIXTURES / f"{name}.bin").read_bytes() for name in RECORDED]


# --- a small encoder, so that each rule of the wire can be shown alone ------------------------------------------------


def varint(number: int) -> bytes:
    number &= 2**64 - 1
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


def tag(number: int, wire: int) -> bytes:
    return varint(number << 3 | wire)


def integer(number: int, value: int) -> bytes:
    return tag(number, 0) + varint(value)


def nested(number: int, *parts: bytes) -> bytes:
    inner = b"".join(parts)
    return tag(number, 2) + varint(len(inner)) + inner


def text(number: int, value: str) -> bytes:
    return nested(number, value.encode())


def enveloped(api_version: str, kind: str, *parts: bytes) -> bytes:
    return MAGIC + nested(1, text(1, api_version), text(2, kind)) + nested(2, *parts)


def fields_of(api_version: str, kind: str, *parts: bytes) -> dict[str, Any]:
    value = decode(enveloped(api_version, kind, *parts))
    assert value.pop("apiVersion") == api_version
    assert value.pop("kind") == kind
    return value


def pod_spec(*parts: bytes) -> Any:
    return fields_of("v1", "Pod", nested(2, *parts)).get("spec")


def without_empty(value: Any) -> Any:
    """Drop what says nothing in kubectl's JSON: `{}` and `null` (see the head of protobuf.py)."""
    if isinstance(value, dict):
        cleaned = {key: without_empty(inner) for key, inner in value.items()}
        return {key: inner for key, inner in cleaned.items() if inner is not None and inner != {}}
    return [without_empty(item) for item in value] if isinstance(value, list) else value


# --- real bodies ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in RECORDED if name != "token"])
def test_what_kubectl_posts_is_what_its_dry_run_shows(name: str) -> None:
    expected = without_empty(json.loads((FIXTURES / f"{name}.json").read_text()))
    assert decode((FIXTURES / f"{name}.bin").read_bytes()) == expected


def test_a_token_request_is_read() -> None:
    assert decode((FIXTURES / "token.bin").read_bytes()) == {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"audiences": ["me"], "expirationSeconds": 600},
        "status": {"token": ""},
    }


def test_api_version_and_kind_come_first() -> None:
    assert list(decode(REAL_BODIES[0]))[:2] == ["apiVersion", "kind"]


# --- values -----------------------------------------------------------------------------------------------------------


def test_zeros_that_were_set_on_purpose_are_kept() -> None:
    """replicas is a pointer in Go, minReadySeconds is not."""
    spec = nested(2, integer(1, 0), integer(5, 0))
    assert fields_of("apps/v1", "Deployment", spec) == {"spec": {"replicas": 0}}


def test_an_empty_text_behind_a_pointer_is_kept() -> None:
    claim = nested(2, text(5, ""), text(3, ""))  # storageClassName, volumeName
    assert fields_of("v1", "PersistentVolumeClaim", claim) == {"spec": {"storageClassName": ""}}


def test_an_empty_message_is_kept_behind_a_pointer_only() -> None:
    volume = nested(1, text(1, "scratch"), nested(2, nested(2)))  # volumeSource.emptyDir
    container = nested(2, text(1, "main"), nested(8))  # resources
    assert pod_spec(volume, container) == {
        "volumes": [{"name": "scratch", "emptyDir": {}}],
        "containers": [{"name": "main"}],
    }


def test_a_false_behind_a_pointer_is_kept() -> None:
    assert pod_spec(integer(21, 0), integer(11, 0)) == {"automountServiceAccountToken": False}  # and hostNetwork


def test_inlined_messages_are_flattened() -> None:
    probe = nested(10, nested(1, nested(2, text(1, "/healthz"))), integer(4, 5))
    (container,) = pod_spec(nested(2, text(1, "main"), probe))["containers"]
    assert container["livenessProbe"] == {"httpGet": {"path": "/healthz"}, "periodSeconds": 5}


def test_an_ephemeral_container_is_flattened_although_its_tag_has_no_name() -> None:
    (container,) = pod_spec(nested(34, nested(1, text(1, "debug")), text(2, "main")))["ephemeralContainers"]
    assert container == {"name": "debug", "targetContainerName": "main"}


def test_negative_numbers_are_signed() -> None:
    assert fields_of("scheduling.k8s.io/v1", "PriorityClass", integer(2, -5)) == {"value": -5}


def test_a_32_bit_number_is_cut_as_go_cuts_it() -> None:
    assert fields_of("scheduling.k8s.io/v1", "PriorityClass", integer(2, 2**32 + 7)) == {"value": 7}


def test_bytes_become_base64() -> None:
    entry = nested(2, text(1, "password"), nested(2, b"\x00\xff"))
    assert fields_of("v1", "Secret", entry) == {"data": {"password": "AP8="}}


def test_a_map_entry_without_a_key_or_a_value_has_empty_ones() -> None:
    assert fields_of("v1", "ConfigMap", nested(2, text(2, "x")), nested(2, text(1, "k"))) == {
        "data": {"": "x", "k": ""}
    }


def test_times_are_utc_seconds_and_micro_times_have_six_digits() -> None:
    moment = (integer(1, 1_700_000_000), integer(2, 123_456_789))
    assert fields_of("v1", "Pod", nested(1, nested(8, *moment))) == {
        "metadata": {"creationTimestamp": "2023-11-14T22:13:20Z"}
    }
    assert fields_of("coordination.k8s.io/v1", "Lease", nested(2, nested(3, *moment))) == {
        "spec": {"acquireTime": "2023-11-14T22:13:20.123456Z"}
    }


def test_a_time_that_was_never_set_is_left_out() -> None:
    assert fields_of("v1", "Pod", nested(1, text(1, "a"), nested(8), nested(9))) == {"metadata": {"name": "a"}}


def test_an_early_year_keeps_four_digits() -> None:
    year_one = integer(1, -62_135_596_800)
    assert fields_of("v1", "Pod", nested(1, nested(8, year_one))) == {
        "metadata": {"creationTimestamp": "0001-01-01T00:00:00Z"}
    }


def test_int_or_string_and_quantity_take_their_json_forms() -> None:
    ports = [
        nested(1, integer(3, 80), nested(4, *port)) for port in ((integer(2, 8080),), (integer(1, 1), text(3, "web")))
    ]
    spec = fields_of("v1", "Service", nested(2, *ports))["spec"]
    assert [port["targetPort"] for port in spec["ports"]] == [8080, "web"]
    quota = nested(2, nested(1, text(1, "cpu"), nested(2, text(1, "500m"))))
    assert fields_of("v1", "ResourceQuota", quota) == {"spec": {"hard": {"cpu": "500m"}}}


def test_fields_v1_and_raw_extensions_hold_json() -> None:
    entry = nested(17, text(1, "me"), nested(7, nested(1, b'{"f:data":{}}')))
    assert fields_of("v1", "ConfigMap", nested(1, entry)) == {
        "metadata": {"managedFields": [{"manager": "me", "fieldsV1": {"f:data": {}}}]}
    }
    revision = (nested(2, nested(1, b'{"spec":{"a":[1]}}')), integer(3, 4))
    assert fields_of("apps/v1", "ControllerRevision", *revision) == {"data": {"spec": {"a": [1]}}, "revision": 4}


def test_a_raw_extension_may_hold_protobuf_again() -> None:
    inner = enveloped("v1", "ConfigMap", nested(1, text(1, "a")))
    revision = (nested(2, nested(1, inner)), integer(3, 1))
    assert fields_of("apps/v1", "ControllerRevision", *revision)["data"] == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a"},
    }


def test_named_lists_are_plain_lists_in_json() -> None:
    extra = nested(5, text(1, "scopes"), nested(2, text(1, "a"), text(1, "b")))
    review = fields_of("authorization.k8s.io/v1", "SubjectAccessReview", nested(2, extra))
    assert review["spec"] == {"extra": {"scopes": ["a", "b"]}}


def test_packed_numbers_are_read_like_single_ones() -> None:
    single = nested(14, integer(4, 7), integer(4, 9))  # securityContext.supplementalGroups
    packed = nested(14, nested(4, varint(7), varint(9)))
    assert pod_spec(single) == pod_spec(packed) == {"securityContext": {"supplementalGroups": [7, 9]}}


def test_a_field_given_twice_takes_its_last_value() -> None:
    assert fields_of("v1", "ConfigMap", nested(1, text(1, "a"), text(1, "b"), text(3, "x"), text(3, ""))) == {
        "metadata": {"name": "b"}
    }


def test_unknown_fields_of_every_wire_type_are_skipped() -> None:
    unknown = integer(900, 5) + text(901, "x") + tag(902, 1) + b"8bytes.." + tag(903, 5) + b"four"
    assert fields_of("v1", "ConfigMap", unknown, integer(4, 1)) == {"immutable": True}


def test_a_custom_resource_definition_has_its_unions_in_json_form() -> None:
    schema = b"".join(
        (
            nested(24, nested(2, text(5, "string")), nested(2, text(5, "integer"))),  # items: a list of schemas
            nested(30, integer(1, 1)),  # additionalProperties: true
            nested(33, integer(1, 0), nested(2, text(5, "string"))),  # additionalItems: a schema
            nested(32, text(1, "a"), nested(2, text(2, "b"))),  # dependencies: a list of names
            nested(8, nested(1, b"null")),  # default: null says nothing
            nested(36, nested(1, b"[1]")),  # example
            tag(9, 1) + struct.pack("<d", 1.5),  # maximum
        )
    )
    version = nested(7, text(1, "v1"), nested(4, nested(1, schema)))
    value = fields_of("apiextensions.k8s.io/v1", "CustomResourceDefinition", nested(2, version))
    assert value["spec"]["versions"][0]["schema"]["openAPIV3Schema"] == {
        "items": [{"type": "string"}, {"type": "integer"}],
        "additionalProperties": True,
        "additionalItems": {"type": "string"},
        "dependencies": {"a": ["b"]},
        "example": [1],
        "maximum": 1.5,
    }


def test_delete_options_are_read_under_any_api_version() -> None:
    parts = (integer(1, 0), text(4, "Foreground"), text(5, "All"))
    for api_version in ("v1", "apps/v1", "meta.k8s.io/v1"):
        assert fields_of(api_version, "DeleteOptions", *parts) == {
            "gracePeriodSeconds": 0,
            "propagationPolicy": "Foreground",
            "dryRun": ["All"],
        }


# --- broken bodies ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "k8s"),
        (b'{"kind":"Pod"}', "k8s"),
        (b"k8s\x00", "names no kind"),
        (MAGIC + nested(2, text(1, "x")), "names no kind"),
        (MAGIC + nested(1, text(2, "Pod")) + text(3, "gzip"), "contentEncoding 'gzip'"),
        (MAGIC + b"\x80", "ends within a number"),
        (MAGIC + b"\xff" * 11, "longer than 64 bits"),
        (MAGIC + tag(1, 2) + varint(2**62), "are left"),
        (MAGIC + tag(1, 2) + varint(9) + b"short", "9 bytes long, 5 are left"),
        (MAGIC + tag(1, 3), "unknown wire type 3"),
        (MAGIC + tag(900, 7), "unknown wire type 7"),
        (MAGIC + b"\x02\x00", "field 0"),
        (enveloped("v1", "ConfigMap", integer(1, 5)), r"field 1 \(metadata\) has the wire type 0"),
        (enveloped("v1", "ConfigMap", text(4, "x")), r"field 4 \(immutable\) has the wire type 2"),
        (enveloped("v1", "ConfigMap", nested(1, nested(1, b"\xff"))), "not UTF-8"),
        (enveloped("v1", "Pod", nested(1, nested(8, integer(1, 2**62)))), "outside of the years"),
        (enveloped("coordination.k8s.io/v1", "Lease", nested(2, nested(3, integer(2, -1)))), "nanoseconds"),
        (enveloped("apps/v1", "ControllerRevision", nested(2, nested(1, b"{oops"))), "JSON"),
        (enveloped("apps/v1", "ControllerRevision", nested(2, nested(1, b"[" * 100_000))), "JSON"),
    ],
)
def test_a_malformed_body_is_a_bad_request_that_says_what_is_wrong(body: bytes, words: str) -> None:
    with pytest.raises(MalformedProtobuf, match=words) as caught:
        decode(body)
    assert caught.value.status().code == 400


def test_messages_nested_too_deep_are_refused() -> None:
    schema = b""
    for _ in range(MAX_DEPTH + 1):
        schema = nested(28, schema)  # not
    version = nested(7, nested(4, nested(1, schema)))
    with pytest.raises(MalformedProtobuf, match=f"more than {MAX_DEPTH} deep"):
        decode(enveloped("apiextensions.k8s.io/v1", "CustomResourceDefinition", nested(2, version)))


def test_raw_extensions_nested_in_each_other_are_refused() -> None:
    body = enveloped("v1", "ConfigMap")
    for _ in range(MAX_DEPTH):
        body = enveloped("apps/v1", "ControllerRevision", nested(2, nested(1, body)))
    with pytest.raises(MalformedProtobuf, match=f"more than {MAX_DEPTH} deep"):
        decode(body)


def test_a_kind_without_a_protobuf_form_is_an_unsupported_media_type() -> None:
    with pytest.raises(UnsupportedMediaType, match="application/json, application/yaml") as caught:
        decode(enveloped("example.com/v1", "Widget"))
    assert caught.value.status().code == 415


def read_or_refuse(body: bytes) -> None:
    try:
        value = decode(body)
    except (MalformedProtobuf, UnsupportedMediaType):
        return
    msgspec.json.encode(value)  # whatever was read can be stored


@given(st.sampled_from(REAL_BODIES), st.data())
def test_a_real_body_with_broken_bytes_is_read_or_refused(body: bytes, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(body)))
    stop = data.draw(st.integers(start, min(len(body), start + 4)))
    read_or_refuse(body[:start] + data.draw(st.binary(max_size=4)) + body[stop:])


@given(st.sampled_from(REAL_BODIES), st.integers(0, 300))
def test_a_truncated_body_is_read_or_refused(body: bytes, length: int) -> None:
    read_or_refuse(body[:length])


@given(st.sampled_from(sorted(builtin_kinds())), st.binary(max_size=200))
def test_random_bytes_are_read_or_refused_for_every_kind(key: tuple[str, str, str], noise: bytes) -> None:
    kind = builtin_kinds()[key]
    read_or_refuse(enveloped(kind.api_version, kind.kind, noise))


# --- the table --------------------------------------------------------------------------------------------------------


def published_fields() -> dict[str, set[str]]:
    """Return the JSON names of every published definition, by the name that the protobuf table uses."""
    types = json.loads(gzip.decompress((DATA / "merge_keys.json.gz").read_bytes()))["types"]
    return {
        name.replace("apimachinery.pkg.apis.meta", "meta").replace("-", "_"): set(entry["fields"])
        for name, entry in types.items()
    }


def json_names(name: str, messages: dict[str, Any]) -> set[str]:
    """Return a message's JSON names, those of messages that are flattened into it among them."""
    names: set[str] = set()
    for json_name, form, _ in messages[name].values():
        names |= {json_name} if json_name else json_names(form, messages)
    return names


def test_the_json_names_of_every_message_are_those_of_the_published_schemas() -> None:
    """Protobuf names differ (`uID`, `aPIGroup`, `Webhooks`), so both ways are compared: none invented, none missing."""
    messages, published = protobuf._table()["messages"], published_fields()
    type_meta = {"apiVersion", "kind"}  # travel in the envelope, except in references to other objects
    compared = 0
    for name in messages.keys() & published.keys():
        assert json_names(name, messages) | type_meta == published[name] | type_meta, name
        compared += 1
    assert compared > 500


def test_every_builtin_kind_can_be_read_and_every_form_is_known() -> None:
    known = protobuf._table()["kinds"]
    for kind in builtin_kinds().values():
        if kind.group != "kplane.dev":
            assert f"{kind.api_version}/{kind.kind}" in known
    for name in protobuf._table()["messages"]:
        assert protobuf._message(name) is not None
    forms = {
        form.rpartition(":")[2] for fields in protobuf._table()["messages"].values() for _, form, _ in fields.values()
    }
    assert forms <= protobuf._FORMS.keys() | protobuf._table()["messages"].keys()
