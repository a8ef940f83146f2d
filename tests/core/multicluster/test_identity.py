"""The envelope: an object with its cluster, made from the key, never part of the object."""

import pytest

from kplane_core.errors import InvalidKey
from kplane_core.multicluster import (
    KeyLayout,
    ObjectWithClusterIdentity,
    unwrap_cluster_identity,
    with_cluster_identity,
)
from kplane_core.storage import StoredObject, encode_object

LAYOUT = KeyLayout("/pods")
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "a",
        "namespace": "ns",
        "uid": "u",
        "generation": 3,
        "labels": {"x": "1"},
        "annotations": {"y": "2"},
        "finalizers": ["f"],
        "ownerReferences": [{"uid": "o"}],
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "deletionTimestamp": "2026-01-02T00:00:00Z",
    },
}
STORED = StoredObject("/pods/clusters/c1/ns/a", 7, encode_object(POD))


def test_the_envelope_answers_the_usual_questions():
    envelope = with_cluster_identity(LAYOUT, STORED)
    assert envelope.cluster == "c1"
    assert envelope.storage_key == STORED.key
    assert envelope.object is STORED
    assert envelope.name == "a"
    assert envelope.namespace == "ns"
    assert envelope.uid == "u"
    assert envelope.resource_version == "7"
    assert envelope.generation == 3
    assert envelope.labels == {"x": "1"}
    assert envelope.annotations == {"y": "2"}
    assert envelope.finalizers == ("f",)
    assert envelope.owner_references == ({"uid": "o"},)
    assert envelope.creation_timestamp == "2026-01-01T00:00:00Z"
    assert envelope.deletion_timestamp == "2026-01-02T00:00:00Z"
    assert envelope.metadata["resourceVersion"] == "7"
    assert envelope.document["kind"] == "Pod"


@pytest.mark.parametrize(
    "metadata", [{}, {"labels": None, "annotations": None, "finalizers": None, "ownerReferences": None}]
)
def test_what_an_object_does_not_say_is_empty(metadata):
    envelope = with_cluster_identity(
        LAYOUT, StoredObject("/pods/clusters/c1/ns/a", 7, encode_object({"metadata": metadata}))
    )
    assert (envelope.name, envelope.namespace, envelope.uid) == ("", "", "")
    assert envelope.generation == 0
    assert envelope.labels == {}
    assert envelope.annotations == {}
    assert envelope.finalizers == ()
    assert envelope.owner_references == ()
    assert envelope.creation_timestamp == envelope.deletion_timestamp == ""


def test_the_object_is_decoded_at_most_once_and_only_when_asked():
    broken = ObjectWithClusterIdentity("c1", "/k", StoredObject("/k", 7, b"not json"))
    assert broken.cluster == "c1"
    assert broken.resource_version == "7"
    envelope = with_cluster_identity(LAYOUT, STORED)
    assert envelope.document is envelope.document


def test_the_cluster_is_nowhere_in_the_object():
    envelope = with_cluster_identity(LAYOUT, STORED)
    assert b"c1" not in envelope.object.data
    assert "c1" not in str(envelope.document)


def test_unwrapping_gives_the_plain_object_either_way():
    assert unwrap_cluster_identity(with_cluster_identity(LAYOUT, STORED)) is STORED
    assert unwrap_cluster_identity(STORED) is STORED


def test_envelopes_are_equal_when_cluster_key_and_object_are():
    one, two = (with_cluster_identity(LAYOUT, STORED) for _ in range(2))
    assert one.document  # decoding is no difference
    assert one == two
    assert hash(one) == hash(two)
    other = with_cluster_identity(LAYOUT, StoredObject("/pods/clusters/c10/ns/a", 7, STORED.raw))
    assert one != other


def test_the_object_of_another_layout_has_no_cluster_here():
    with pytest.raises(InvalidKey):
        with_cluster_identity(LAYOUT, StoredObject("/nodes/clusters/c1/a", 7, b"{}"))
