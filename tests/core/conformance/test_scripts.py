"""A script says which pods are written and what a watch must tell of each."""

import pytest

from kplane_conformance.objects import pod
from kplane_conformance.scripts import Step, steps
from kplane_core.storage.interface import EventType


def test_a_script_is_read_step_by_step():
    assert steps("foo:A ns2/foo+@bar:M foo~:. -foo:D", "ns1") == [
        Step("foo:A", "ns1", "foo", pod("foo", "ns1"), EventType.ADDED),
        Step(
            "ns2/foo+@bar:M", "ns2", "foo", pod("foo", "ns2", node="bar", labels={"select": "true"}), EventType.MODIFIED
        ),
        Step("foo~:.", "ns1", "foo", pod("foo", "ns1", phase="Running"), None),
        Step("-foo:D", "ns1", "foo", None, EventType.DELETED),
    ]


@pytest.mark.parametrize("text", ["foo", "foo:X", "foo@:A", ":A", "a/b/c:A"])
def test_a_step_that_says_nothing_clear_is_refused(text):
    with pytest.raises(ValueError, match="is not a step of a script"):
        steps(text, "ns1")
