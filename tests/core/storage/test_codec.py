"""Objects to bytes and back: one canonical form, and a resourceVersion spliced into it without parsing."""

import copy
import json
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kplane_core.errors import DecodeError
from kplane_core.storage import StoredObject, canonical, decode_object, encode_object, splice_resource_version

# A busy machine is no failure.
PATIENT = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])

TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
# Names that the codec treats specially must turn up at every depth.
NAMES = TEXT | st.sampled_from(["metadata", "kind", "apiVersion", "resourceVersion", "selfLink", 'a"metadata":{'])
SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**66), 2**66) | st.floats(allow_nan=False, allow_infinity=False) | TEXT
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4), max_leaves=8
)
METADATA = st.dictionaries(NAMES, VALUES, max_size=4)
OBJECTS = st.builds(
    lambda rest, metadata: rest | metadata,
    st.dictionaries(NAMES, VALUES, max_size=5).map(lambda found: {k: v for k, v in found.items() if k != "metadata"}),
    st.just({}) | st.fixed_dictionaries({"metadata": METADATA | st.none()}),
)


def stored(document):
    """Return what must come back of a document: metadata always, never a version or a link of its own."""
    metadata = {k: v for k, v in (document.get("metadata") or {}).items() if k not in {"resourceVersion", "selfLink"}}
    return document | {"metadata": metadata}


def shuffled(value, source):
    """Return an equal value whose mappings have another order."""
    if isinstance(value, dict):
        items = [(key, shuffled(inner, source)) for key, inner in value.items()]
        source.shuffle(items)
        return dict(items)
    return [shuffled(inner, source) for inner in value] if isinstance(value, list) else value


@PATIENT
@given(OBJECTS)
def test_decoding_gives_back_what_was_encoded(document):
    assert decode_object(encode_object(document)) == stored(document)


@PATIENT
@given(OBJECTS)
def test_encoding_leaves_the_object_as_it_is(document):
    before = copy.deepcopy(document)
    encode_object(document)
    assert document == before


@PATIENT
@given(OBJECTS, st.randoms(use_true_random=False))
def test_equal_objects_have_equal_bytes(document, source):
    """The no-op rule of guaranteed_update compares bytes."""
    raw = encode_object(document)
    assert encode_object(shuffled(document, source)) == raw
    assert encode_object(decode_object(raw)) == raw
    assert canonical(raw) == raw


@PATIENT
@given(OBJECTS)
def test_the_head_comes_first_and_the_rest_is_sorted_at_every_depth(document):
    def check(pairs):
        names = [name for name, _ in pairs]
        orders.append(names)
        return dict(pairs)

    orders: list[list[str]] = []
    json.loads(encode_object(document), object_pairs_hook=check)
    *inner, top = orders
    for names in inner:
        assert names == sorted(names)
    head = [name for name in ("apiVersion", "kind") if isinstance(document.get(name), str) and document[name]]
    assert top[: len(head) + 1] == [*head, "metadata"]
    assert top[len(head) + 1 :] == sorted(set(top) - {*head, "metadata"})


@PATIENT
@given(OBJECTS, st.integers(1, 2**63 - 1))
def test_splicing_equals_decoding_setting_and_encoding(document, revision):
    """A client must not be able to tell that its object was never parsed."""
    spliced = json.loads(splice_resource_version(encode_object(document), revision))
    expected = stored(document)
    expected["metadata"]["resourceVersion"] = str(revision)
    assert spliced == expected


@PATIENT
@given(OBJECTS, st.randoms(use_true_random=False), st.sampled_from([None, 1]))
def test_data_written_by_others_reads_like_our_own(document, source, indent):
    """Another key order, spaces, escapes, and a stored resourceVersion."""
    foreign = shuffled(document, source)
    if isinstance(foreign.get("metadata"), dict):
        foreign["metadata"] |= {"resourceVersion": "17", "selfLink": "/x"}
    raw = canonical(json.dumps(foreign, indent=indent).encode())
    assert decode_object(raw) == decode_object(encode_object(document))
    assert json.loads(splice_resource_version(raw, 5))["metadata"]["resourceVersion"] == "5"


def test_the_canonical_form_is_what_it_always_was():
    """Stored data outlives a release: a changed form would rewrite every object on its next update."""
    pod = {
        "spec": {"nodeName": "n", "containers": [{"name": "é", "image": "i"}]},
        "kind": "Pod",
        "metadata": {"uid": "u", "name": "a", "resourceVersion": "9", "selfLink": "/s", "labels": {"z": "1", "b": "2"}},
        "apiVersion": "v1",
    }
    assert (
        encode_object(pod)
        == (
            '{"apiVersion":"v1","kind":"Pod","metadata":{"labels":{"b":"2","z":"1"},"name":"a","uid":"u"},'
            '"spec":{"containers":[{"image":"i","name":"é"}],"nodeName":"n"}}'
        ).encode()
    )


def test_canonical_data_is_passed_on_without_a_copy():
    raw = encode_object({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "é"}})
    assert canonical(raw) is raw


@pytest.mark.parametrize("text", ['a"b', "back\\slash", '","metadata":{', "new\nline", '"', "\\"])
def test_quotes_and_escapes_in_the_head_do_not_move_the_splice_point(text):
    raw = encode_object({"apiVersion": text, "kind": text, "metadata": {"name": "a"}})
    spliced = json.loads(splice_resource_version(canonical(raw), 7))
    assert spliced == {"apiVersion": text, "kind": text, "metadata": {"name": "a", "resourceVersion": "7"}}


def test_a_head_that_is_no_text_stands_behind_the_metadata():
    raw = encode_object({"apiVersion": {"metadata": {"a": 1}}, "kind": "", "metadata": {}})
    assert json.loads(splice_resource_version(raw, 7)) == {
        "apiVersion": {"metadata": {"a": 1}},
        "kind": "",
        "metadata": {"resourceVersion": "7"},
    }


def test_only_the_objects_own_metadata_loses_its_version():
    """A pod template's or an owner's resourceVersion is data."""
    document = {"metadata": {}, "spec": {"template": {"metadata": {"resourceVersion": "3", "selfLink": "/x"}}}}
    assert decode_object(encode_object(document)) == document


@pytest.mark.parametrize(
    "raw",
    [
        b'{"metadata":{"resourceVersion":null}}',
        b'{"metadata":{"selfLink":null,"name":"a"}}',
        b'{"metadata":{ }}',
        b'{"metadata":{\n"name":"a"}}',
        b'{"metadata":null}',
        b"{}",
        b' {"metadata":{}}',
        b'{"metadata":{"re\\u0073ourceVersion":"4"}}',
    ],
)
def test_metadata_of_an_odd_form_gets_one_version(raw):
    """The fast path must notice what a splice would damage or contradict."""
    spliced = splice_resource_version(canonical(raw), 5)
    assert json.loads(spliced)["metadata"]["resourceVersion"] == "5"
    assert spliced.count(b"resourceVersion") == 1
    assert b"selfLink" not in spliced


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b"null",
        b"7",
        b'"metadata"',
        b"{",
        b'{"metadata":{}',
        b'{"metadata":{}} x',
        b'{"metadata":[]}',
        b'{"metadata":"x"}',
        b'{"metadata":{},"x":"\xff"}',
        b'{"metadata":{"name":"\xff"}}',
        b"\x00\x01k8s:enc:",
        b'{"metadata":{},"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
    ids=lambda raw: repr(raw[:30]),
)
def test_stored_bytes_that_are_no_object_are_a_decode_error(raw):
    with pytest.raises(DecodeError):
        canonical(raw)


@pytest.mark.parametrize(
    "document",
    [
        {"metadata": [1]},
        {"metadata": "x"},
        {"metadata": 0},
        {"metadata": {}, "x": object},
        {"metadata": {}, "x": "\ud800"},
        {"metadata": {1: 2}},
        {1: 2},
    ],
    ids=repr,
)
def test_what_json_cannot_say_is_a_decode_error(document):
    with pytest.raises(DecodeError):
        encode_object(document)


def test_an_object_that_holds_itself_is_a_decode_error():
    document: dict = {"metadata": {}}
    document["spec"] = document
    with pytest.raises(DecodeError):
        encode_object(document)


def test_revision_zero_and_no_object_are_left_alone():
    raw = encode_object({"kind": "Pod"})
    assert splice_resource_version(raw, 0) is raw
    assert splice_resource_version(b"", 7) == b""


def test_a_stored_object_gives_each_caller_a_copy_of_its_own():
    found = StoredObject("/pods/a", 7, encode_object({"metadata": {"name": "a"}}))
    first = found.decode()
    assert first == json.loads(found.data) == {"metadata": {"name": "a", "resourceVersion": "7"}}
    first["metadata"]["name"] = "b"
    assert found.decode()["metadata"]["name"] == "a"


def test_an_absent_object_decodes_to_nothing():
    absent = StoredObject("/pods/a", 0, b"")
    assert not absent.exists
    assert absent.decode() == {}
    assert absent.data == b""


def test_the_order_of_random_never_shows():
    """Guards the helper above: without a real shuffle the properties say nothing."""
    document = {str(number): number for number in range(20)}
    assert list(shuffled(document, random.Random(1))) != list(document)
