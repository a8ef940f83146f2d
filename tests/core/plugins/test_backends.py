"""The registry of backends, and what a backend must declare."""

from typing import Any

import attrs
import pytest

from kplane_core.plugins.backends import PLUGIN_API, Backend, Backends
from kplane_core.plugins.capabilities import Capability, Supported, Unsupported
from kplane_core.plugins.errors import (
    BrokenPlugin,
    DuplicateBackend,
    FlagConflict,
    IncompatiblePlugin,
    InvalidPlugin,
    UnknownBackend,
)
from kplane_core.plugins.flags import Flags, option

ALL = {capability: Supported() for capability in Capability}


@attrs.frozen
class Options:
    limit: int = option(1, help="how many")


async def _connect(_options: object) -> Any:
    raise AssertionError("nobody connects here")


def _backend(name: str, **changes: Any) -> Backend:
    values = {"summary": "for tests", "options": Options, "capabilities": ALL, "connect": _connect, **changes}
    return Backend(name=name, **values)


def test_a_backend_is_found_by_name_and_by_alias() -> None:
    registry = Backends("kplane-etcd 1")
    etcd = _backend("etcd", aliases=("etcd3",))
    registry.register(etcd)
    assert registry.get("etcd") is registry.get("etcd3") is etcd
    assert registry.names() == ("etcd",)
    assert registry.claimed() == ("etcd", "etcd3")
    assert registry.owner("etcd3") == "kplane-etcd 1"


@pytest.mark.parametrize("second", [_backend("etcd"), _backend("etcd3"), _backend("other", aliases=("etcd3",))])
def test_a_name_taken_twice_names_both_distributions_and_registers_nothing(second: Backend) -> None:
    registry = Backends()
    registry.register(_backend("etcd", aliases=("etcd3",)), distribution="kplane-etcd 1.0")
    with pytest.raises(DuplicateBackend, match=r"kplane-etcd 1\.0 and copycat 2\.0"):
        registry.register(second, distribution="copycat 2.0")
    assert registry.claimed() == ("etcd", "etcd3")


def test_an_unknown_name_lists_what_is_installed_and_the_nearest() -> None:
    registry = Backends()
    registry.register(_backend("etcd"))
    registry.register(_backend("memory"))
    with pytest.raises(UnknownBackend) as caught:
        registry.get("etdc")
    assert str(caught.value) == "unknown storage backend 'etdc'; installed: etcd, memory. Did you mean 'etcd'?"
    with pytest.raises(UnknownBackend) as caught:
        registry.get("zzz")
    assert str(caught.value) == "unknown storage backend 'zzz'; installed: etcd, memory"


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("etcd", "kplane-etcd"),
        ("etcd3", "kplane-etcd"),
        ("spanner", "kplane-spanner"),
        ("sqlite", "kplane-sqlite"),
        ("memory", "kplane-memory"),
    ],
)
def test_a_known_backend_that_is_not_installed_says_how_to_install_it(name: str, package: str) -> None:
    with pytest.raises(UnknownBackend, match=f"pip install {package}$"):
        Backends().get(name)


def test_a_failed_backend_raises_its_own_error_and_leaves_the_registry() -> None:
    registry = Backends("kplane-etcd 1")
    registry.register(_backend("etcd", aliases=("etcd3",)))
    registry.fail("etcd", BrokenPlugin("etcd", "kplane-etcd 1", "ValueError: no"), distribution="kplane-etcd 1")
    with pytest.raises(BrokenPlugin, match="kplane-etcd 1 failed to load: ValueError: no"):
        registry.get("etcd")
    assert registry.claimed() == ()


def test_a_failure_of_one_distribution_keeps_what_another_registered() -> None:
    registry = Backends("kplane-etcd 1")
    registry.register(_backend("etcd"))
    registry.fail("etcd", BrokenPlugin("etcd", "copycat 2", "no"), distribution="copycat 2")
    assert registry.get("etcd").name == "etcd"


def test_undeclared_capabilities_are_refused_and_listed() -> None:
    partial = {Capability.TTL: Supported(), Capability.PERSISTENCE: Unsupported("lives in memory")}
    with pytest.raises(InvalidPlugin) as caught:
        Backends().register(_backend("half", capabilities=partial))
    listed = str(caught.value)
    assert "'half' does not declare" in listed
    for capability in Capability:
        assert (capability.value in listed) == (capability not in partial)


def test_an_unknown_or_malformed_capability_is_refused() -> None:
    with pytest.raises(InvalidPlugin, match="declares teleport"):
        Backends().register(_backend("odd", capabilities={**ALL, "teleport": Supported()}))
    with pytest.raises(InvalidPlugin, match=r"declares ttl as True: say Supported"):
        Backends().register(_backend("odd", capabilities={**ALL, Capability.TTL: True}))


def test_an_unsupported_capability_needs_a_reason() -> None:
    with pytest.raises(ValueError, match="reason"):
        Unsupported("")


def test_there_are_at_most_twelve_capabilities_and_each_is_documented() -> None:
    assert len(Capability) <= 12
    source = __import__("inspect").getsource(Capability)
    assert source.count('"""') == 2 * (len(Capability) + 1)


@pytest.mark.parametrize(("api", "remedy"), [(PLUGIN_API - 1, "-U kplane-old"), (PLUGIN_API + 1, "-U kplane-core")])
def test_another_plugin_api_is_incompatible_and_says_which_side_to_upgrade(api: int, remedy: str) -> None:
    with pytest.raises(IncompatiblePlugin, match=f"speaks plugin API {api}.*pip install {remedy}$"):
        Backends("kplane-old 1").register(_backend("old", api=api))


@pytest.mark.parametrize("name", ["", "Etcd", "my_db", "a--b", "-a", "a-", "1a", "a b"])
def test_a_name_that_cannot_be_a_flag_prefix_is_refused(name: str) -> None:
    with pytest.raises(InvalidPlugin, match="lower-case letters"):
        _backend(name)


def test_what_is_no_backend_is_refused() -> None:
    with pytest.raises(InvalidPlugin, match="kplane-x 1 registers a dict"):
        Backends("kplane-x 1").register({"name": "x"})  # type: ignore[arg-type]


def test_merge_takes_all_or_nothing() -> None:
    registry = Backends()
    registry.register(_backend("b"), distribution="first 1")
    staged = Backends("second 1")
    staged.register(_backend("a"))
    staged.register(_backend("b"))
    with pytest.raises(DuplicateBackend):
        registry.merge(staged)
    assert registry.names() == ("b",)


def test_each_backend_contributes_its_flags_under_its_own_heading() -> None:
    registry = Backends()
    registry.register(_backend("one"), distribution="kplane-one 1.0")
    registry.register(_backend("two"), distribution="kplane-two 2.0")
    flags = Flags()
    registry.add_flags(flags)
    assert [section.title for section in flags.sections] == [
        "one storage backend (kplane-one 1.0)",
        "two storage backend (kplane-two 2.0)",
    ]
    assert [section.settings[0].flag for section in flags.sections] == ["--one-limit", "--two-limit"]


def test_a_flag_claimed_twice_names_both_owners() -> None:
    registry = Backends()
    registry.register(_backend("one"), distribution="kplane-one 1.0")
    flags = Flags()
    registry.add_flags(flags)
    with pytest.raises(FlagConflict, match=r"--one-limit is contributed by kplane-one 1\.0 and by rival 2\.0"):
        flags.owned_by("rival 2.0").add("one", Options)
    assert len(flags.sections) == 1
