"""The oracle knows what lists and watches must show, and says at which event they did not."""

import asyncio

import pytest

from kplane_conformance.objects import pod
from kplane_conformance.oracle import Change, Oracle, same_events
from kplane_core.storage.codec import encode_object
from kplane_core.storage.interface import EventType, ObjectList, StoredObject, WatchEvent


def stored(revision, name="a", *, node="", namespace="ns"):
    return StoredObject(f"/pods/{namespace}/{name}", revision, encode_object(pod(name, namespace, node=node)))


def on_n1(obj):
    return obj.decode().get("spec", {}).get("nodeName") == "n1"


IN, OUT = stored(1, node="n1"), stored(1)


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        (None, IN, EventType.ADDED),
        (None, OUT, None),
        (IN, IN, EventType.MODIFIED),
        (OUT, IN, EventType.ADDED),
        (IN, OUT, EventType.DELETED),
        (OUT, OUT, None),
        (IN, None, EventType.DELETED),
        (OUT, None, None),
    ],
)
def test_a_change_is_told_as_the_selector_sees_its_two_sides(old, new, kind):
    event = Change(7, IN.key, old, new).event(on_n1)
    assert (event.type if event else None) is kind
    if kind is EventType.DELETED:
        assert event.object == StoredObject(IN.key, 7, IN.raw)


class Deleting:
    """A store that answers deletes as it was told."""

    def __init__(self, answer):
        self.answer = answer

    async def delete(self, key):
        assert key == self.answer.key
        return self.answer


def test_changes_that_are_noted_out_of_order_are_replayed_in_order():
    oracle = Oracle()
    oracle.note(stored(3, node="n1"))
    oracle.note(stored(2))
    oracle.note(stored(2))
    asyncio.run(oracle.delete(Deleting(stored(5, node="n1")), "/pods/ns/a"))
    oracle.note(stored(4, "b", namespace="ns1"))
    assert oracle.newest == 5
    assert [change.revision for change in oracle.log()] == [2, 3, 4, 5]
    assert [event.type.value for event in oracle.events("/pods/ns/", 2)] == ["MODIFIED", "DELETED"]
    assert [event.type.value for event in oracle.events("/pods/ns/", 0, on_n1)] == ["ADDED", "DELETED"]
    assert [event.type.value for event in oracle.events("/pods/ns/a", 2, recursive=False)] == ["MODIFIED", "DELETED"]
    assert oracle.items("/pods/ns/", at=2) == [stored(2)]
    assert oracle.items("/pods/") == [stored(4, "b", namespace="ns1")]


def test_a_list_that_shows_another_state_is_refused():
    oracle = Oracle()
    oracle.note(stored(2))
    oracle.note(stored(3, "b"))
    oracle.check_list(ObjectList((stored(2),), 2), "/pods/")
    with pytest.raises(AssertionError, match="the list of /pods/ at 3"):
        oracle.check_list(ObjectList((stored(2),), 3), "/pods/")


def test_two_changes_with_one_revision_are_refused():
    oracle = Oracle()
    oracle.note(stored(2))
    with pytest.raises(AssertionError, match="two changes got resourceVersion 2"):
        oracle.note(stored(2, "b"))
    with pytest.raises(AssertionError, match="two changes got resourceVersion 2"):
        oracle.note(stored(2, node="n1"))


def test_a_delete_that_returns_something_else_than_was_there_is_refused():
    oracle = Oracle()
    oracle.note(stored(2))
    asyncio.run(oracle.delete(Deleting(stored(3, node="n1")), "/pods/ns/a"))
    with pytest.raises(AssertionError, match="differs from what was there"):
        oracle.log()


ADDED, MODIFIED = WatchEvent(EventType.ADDED, stored(2)), WatchEvent(EventType.MODIFIED, stored(3))


@pytest.mark.parametrize(
    ("got", "complaint"),
    [
        ([ADDED], "2 events were expected, 1 came; first missing: MODIFIED"),
        ([ADDED, MODIFIED, MODIFIED], "2 events were expected, 3 came; first too many: MODIFIED"),
        ([MODIFIED, ADDED], "event 1 of 2 must be ADDED"),
        ([ADDED, WatchEvent(EventType.MODIFIED, stored(4))], "event 2 of 2 must be MODIFIED"),
        ([ADDED, WatchEvent(EventType.MODIFIED, stored(3, node="n1"))], "event 2 of 2 must be MODIFIED"),
    ],
)
def test_the_first_wrong_event_is_named(got, complaint):
    same_events([ADDED, MODIFIED], [ADDED, MODIFIED])
    with pytest.raises(AssertionError, match=complaint):
        same_events(got, [ADDED, MODIFIED])


def test_the_order_of_json_fields_is_no_difference():
    shuffled = StoredObject(
        "/pods/ns/a", 2, b'{"metadata":{"namespace":"ns","name":"a"},"kind":"Pod","apiVersion":"v1"}'
    )
    assert shuffled.raw != stored(2).raw
    same_events([WatchEvent(EventType.ADDED, shuffled)], [ADDED])
