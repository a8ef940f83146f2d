"""Preconditions: uid first, then resourceVersion, compared as they stand."""

import pytest

from kplane_core.errors import InternalError, InvalidObj
from kplane_core.storage import Preconditions

POD = {"metadata": {"uid": "A", "resourceVersion": "7"}}


@pytest.mark.parametrize(
    "preconditions",
    [
        Preconditions(),
        Preconditions(uid="A"),
        Preconditions(resource_version="7"),
        Preconditions(uid="A", resource_version="7"),
    ],
)
def test_what_holds_passes(preconditions):
    preconditions.check("/pods/a", POD)


@pytest.mark.parametrize(
    ("preconditions", "message"),
    [
        (Preconditions(uid="B"), "Precondition failed: UID in precondition: B, UID in object meta: A"),
        (
            Preconditions(resource_version="8"),
            "Precondition failed: ResourceVersion in precondition: 8, ResourceVersion in object meta: 7",
        ),
        (
            Preconditions(uid="B", resource_version="8"),
            "Precondition failed: UID in precondition: B, UID in object meta: A",
        ),
        (
            Preconditions(resource_version="07"),
            "Precondition failed: ResourceVersion in precondition: 07, ResourceVersion in object meta: 7",
        ),
        (Preconditions(uid=""), "Precondition failed: UID in precondition: , UID in object meta: A"),
    ],
)
def test_what_does_not_hold_is_an_invalid_object_that_says_why(preconditions, message):
    with pytest.raises(InvalidObj) as caught:
        preconditions.check("/pods/a", POD)
    assert caught.value.detail == message
    assert caught.value.key == "/pods/a"


def test_an_absent_object_has_no_uid_to_match():
    Preconditions(uid="").check("/pods/a", {})
    with pytest.raises(InvalidObj):
        Preconditions(uid="A").check("/pods/a", {})


@pytest.mark.parametrize("metadata", [None, [], "x"])
def test_an_object_without_metadata_is_an_internal_error(metadata):
    with pytest.raises(InternalError, match=r"^can't enforce preconditions"):
        Preconditions(uid="A").check("/pods/a", {"metadata": metadata})


def test_nothing_asked_looks_at_nothing():
    Preconditions().check("/pods/a", {"metadata": None})
