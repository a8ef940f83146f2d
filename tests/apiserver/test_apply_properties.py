"""What holds for every apply, and the algebra of sets of fields."""

import copy
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from kplane_apiserver.apply import Applying, Tracking
from kplane_apiserver.apply.fieldsets import difference, intersection, is_valid, paths, union
from kplane_apiserver.kinds import builtin_kinds

SERVICES = builtin_kinds()["", "v1", "services"]
NOW = "2026-01-01T00:00:00Z"

_names = st.sampled_from(["a", "b", "c"])
_texts = st.sampled_from(["1", "2"])
_ports = st.lists(
    st.fixed_dictionaries(
        {"port": st.integers(1, 3)}, optional={"name": _names, "protocol": st.sampled_from(["TCP", "UDP"])}
    ),
    min_size=1,  # nobody owns a list by its keys in which nothing is
    max_size=4,
    unique_by=lambda port: (port["port"], port.get("protocol", "TCP")),
)
_specs = st.fixed_dictionaries(
    {},
    optional={
        "ports": _ports,
        "selector": st.dictionaries(_names, _texts, max_size=2),
        "externalIPs": st.lists(_texts, max_size=2),
        "sessionAffinityConfig": st.fixed_dictionaries({}, optional={"clientIP": st.just({"timeoutSeconds": 1})}),
        "type": _texts,
    },
)
_metadata = st.fixed_dictionaries(
    {"name": st.just("s")},
    optional={
        "labels": st.dictionaries(_names, _texts, max_size=2),
        "finalizers": st.lists(_names, min_size=1, max_size=2, unique=True),
    },
)
_manifests = st.builds(
    lambda metadata, spec: {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec},
    _metadata,
    _specs,
)
_elements = st.sampled_from(["f:a", "f:b", 'k:{"n":1}', 'v:"x"'])
_sets = st.recursive(
    st.just({}), lambda inner: st.dictionaries(st.one_of(_elements, st.just(".")), inner, max_size=3), max_leaves=8
).map(lambda node: _tidy(node) or {})


def _tidy(node: Any) -> Any:
    """Make a set as the server writes it: an only `.` is a leaf, and the root has none."""
    return {name: _inner(one) for name, one in node.items() if name != "."}


def _inner(node: Any) -> Any:
    inner = _tidy(node)
    return {".": {}, **inner} if "." in node and inner else inner


def applied(live: Any, manifest: Any, manager: str, *, force: bool = True) -> Any:
    before = copy.deepcopy(live)
    applying = Applying(SERVICES, manager, "", NOW, copy.deepcopy(manifest), force=force)
    if live is None:
        new = applying.new()
        applying.created(new)
    else:
        new = applying.change(live)
        applying.updated(new, live, None)
    assert live == before
    return new


def content(document: Any) -> Any:
    document = copy.deepcopy(document)
    document["metadata"].pop("managedFields", None)
    return document


@given(_manifests, _manifests)
def test_applying_twice_is_applying_once(stored, manifest):
    Tracking(SERVICES, "u", "", NOW).created(stored)
    once = applied(stored, manifest, "a")
    assert applied(once, manifest, "a") == once


@given(_manifests, _manifests)
def test_after_a_forced_apply_the_manifest_is_in_the_object(stored, manifest):
    Tracking(SERVICES, "u", "", NOW).created(stored)
    once = applied(stored, manifest, "a")
    again = applied(once, manifest, "b", force=False)  # whoever applies the same has no conflict
    assert content(again) == content(once)


@given(_manifests, _manifests)
def test_whoever_lets_go_of_everything_leaves_what_others_own(first, second):
    together = applied(applied(None, first, "a"), second, "b", force=True)
    nothing = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}
    left = applied(together, nothing, "b")
    managers = [entry["manager"] for entry in left["metadata"].get("managedFields", ())]
    assert "b" not in managers
    for field in Applying(SERVICES, "c", "", NOW, content(left), force=True)._fields.get("f:spec", {}):
        owners = [entry["fieldsV1"].get("f:spec", {}) for entry in together["metadata"]["managedFields"]]
        assert any(field in owned for owned in owners)


@given(_manifests)
def test_the_only_owner_of_an_object_can_take_it_all_back(manifest):
    nothing = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}
    left = applied(applied(None, manifest, "a"), nothing, "a")
    assert content(left) in ({**nothing}, {**nothing, "spec": {}})


@given(_sets, _sets)
def test_sets_are_sets(first, second):
    one, two = set(paths(first)), set(paths(second))
    assert set(paths(union(first, second))) == one | two
    assert set(paths(intersection(first, second))) == one & two
    assert set(paths(difference(first, second))) == one - two


@given(_sets)
def test_sets_survive_being_written(fields):
    assert is_valid(fields)
    assert msgspec.json.decode(msgspec.json.encode(fields)) == fields
    assert difference(fields, fields) == {}
    assert union(fields, fields) == fields
