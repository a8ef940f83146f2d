"""What a version of etcd is trusted with."""

import pytest

from kplane_core.plugins.capabilities import Capability, Supported, Unsupported
from kplane_etcd.features import features_of, parse_version
from kplane_etcd.plugin import CAPABILITIES


@pytest.mark.parametrize(
    ("version", "progress", "edge"),
    [
        ("3.4.23", False, False),
        ("3.4.30", False, False),
        ("3.4.31", True, False),
        ("3.4.35", True, False),
        ("3.4.36", True, True),
        ("3.5.0", False, False),
        ("3.5.1", False, False),
        ("3.5.12", False, False),
        ("3.5.13", True, False),
        ("3.5.17", True, False),
        ("3.5.18", True, True),
        ("3.6.0-rc.1", True, True),
        ("3.10.0", True, True),
        ("4.0.0", True, True),
        ("v3.5.13", False, False),
        ("", False, False),
        ("not a version", False, False),
    ],
)
def test_a_version_is_trusted_from_its_fixes_on(version, progress, edge) -> None:
    features = features_of([version])
    assert (features.progress, features.compaction_edge) == (progress, edge)
    assert bool(features.reason) is not progress


def test_the_weakest_member_decides() -> None:
    features = features_of(["3.5.18", "3.5.1", "3.6.0"])
    assert not features.progress
    assert "3.5.1 " in features.reason
    assert not features.compaction_edge


def test_an_unparsable_version_is_none() -> None:
    assert parse_version("3.5") is None
    assert parse_version("3.5.13+git") == (3, 5, 13)


def test_what_the_server_lacks_is_taken_out_of_the_declaration_with_the_reason() -> None:
    old = features_of(["3.5.1"]).capabilities(CAPABILITIES)[Capability.PROGRESS_NOTIFY]
    assert isinstance(old, Unsupported)
    assert "15220" in old.reason
    assert features_of(["3.5.13"]).capabilities(CAPABILITIES)[Capability.PROGRESS_NOTIFY] == Supported()
