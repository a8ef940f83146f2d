"""The key layout: a cluster is read from its place in the key, and never searched for."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kplane_core.errors import InvalidKey, UsageError
from kplane_core.multicluster import InvalidClusterId, KeyLayout, ObjectPath, validate_cluster_id

# A busy machine is no failure.
PATIENT = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])

PODS = KeyLayout("/pods")
NODES = KeyLayout("/nodes", namespaced=False)


def test_keys_and_prefixes_have_the_fixed_form():
    assert PODS.kind_root_prefix() == "/pods/clusters/"
    assert PODS.per_cluster_prefix("c1") == "/pods/clusters/c1/"
    assert PODS.namespace_prefix("c1", "ns") == "/pods/clusters/c1/ns/"
    assert PODS.key("c1", "ns", "a") == "/pods/clusters/c1/ns/a"
    assert NODES.key("c1", "", "a") == "/nodes/clusters/c1/a"
    assert NODES.key("c1", "ignored", "a") == "/nodes/clusters/c1/a"
    assert KeyLayout("/apps/deployments/").key("c1", "ns", "a") == "/apps/deployments/clusters/c1/ns/a"
    assert PODS.namespaced
    assert not NODES.namespaced


@pytest.mark.parametrize(
    ("layout", "key", "path"),
    [
        (PODS, "/pods/clusters/c1/ns/a", ObjectPath("c1", "ns", "a")),
        (NODES, "/nodes/clusters/c1/a", ObjectPath("c1", "", "a")),
        # A resource whose plural is `clusters`, and namespaces, names and clusters of that name.
        (KeyLayout("/clusters"), "/clusters/clusters/c1/ns/a", ObjectPath("c1", "ns", "a")),
        (KeyLayout("/clusters", namespaced=False), "/clusters/clusters/c1/a", ObjectPath("c1", "", "a")),
        (KeyLayout("/x.io/clusters"), "/x.io/clusters/clusters/clusters/ns/a", ObjectPath("clusters", "ns", "a")),
        (PODS, "/pods/clusters/c1/clusters/a", ObjectPath("c1", "clusters", "a")),
        (PODS, "/pods/clusters/clusters/clusters/clusters", ObjectPath("clusters", "clusters", "clusters")),
    ],
)
def test_a_key_is_taken_apart_by_position(layout, key, path):
    assert layout.relative(key) == path
    assert layout.cluster_from_key(key) == path.cluster
    assert layout.key(path.cluster, path.namespace, path.name) == key


@pytest.mark.parametrize(
    "key",
    [
        "",
        "/",
        "/pods",
        "/pods/clusters/",
        "/pods/clusters/c1",
        "/pods/clusters//ns/a",
        "/pods/c1/ns/a",
        "/nodes/clusters/c1/a",
    ],
)
def test_a_key_of_no_cluster_is_refused(key):
    with pytest.raises(InvalidKey, match="invalid key"):
        PODS.cluster_from_key(key)


@pytest.mark.parametrize(
    ("layout", "key"),
    [
        (PODS, "/pods/clusters/c1/"),
        (PODS, "/pods/clusters/c1/a"),
        (PODS, "/pods/clusters/c1/ns/"),
        (PODS, "/pods/clusters/c1//a"),
        (PODS, "/pods/clusters/c1/ns/a/b"),
        (NODES, "/nodes/clusters/c1/"),
        (NODES, "/nodes/clusters/c1/ns/a"),
    ],
)
def test_a_key_that_names_no_object_has_a_cluster_but_no_parts(layout, key):
    assert layout.cluster_from_key(key) == "c1"
    with pytest.raises(InvalidKey, match="does not name an object"):
        layout.relative(key)


@pytest.mark.parametrize("part", ["", ".", "..", "a/b", "/", "a%b"])
def test_namespace_and_name_are_one_segment_each(part):
    with pytest.raises(InvalidKey, match="name"):
        PODS.key("c1", "ns", part)
    with pytest.raises(InvalidKey, match="namespace"):
        PODS.key("c1", part, "a")
    with pytest.raises(InvalidKey, match="name"):
        NODES.key("c1", "", part)


def test_a_layout_needs_a_resource():
    with pytest.raises(UsageError, match="resource prefix"):
        KeyLayout("pods")


CLUSTERS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", fullmatch=True).filter(lambda text: ".." not in text)
SEGMENTS = st.text(st.characters(codec="utf-8", exclude_characters="/%\0"), min_size=1, max_size=10).filter(
    lambda text: text not in {".", ".."}
)


@PATIENT
@given(CLUSTERS, SEGMENTS, SEGMENTS)
def test_every_object_is_found_again_from_its_key(cluster, namespace, name):
    assert validate_cluster_id(cluster) == cluster
    key = PODS.key(cluster, namespace, name)
    assert PODS.relative(key) == ObjectPath(cluster, namespace, name)
    assert key.startswith(PODS.namespace_prefix(cluster, namespace))
    assert NODES.relative(NODES.key(cluster, "", name)) == ObjectPath(cluster, "", name)


@PATIENT
@given(CLUSTERS, CLUSTERS, SEGMENTS, SEGMENTS)
def test_no_clusters_directory_holds_anothers_object(cluster, other, namespace, name):
    for one, two in ((cluster, other), (cluster, cluster + "0"), ("c1", "c10")):
        inside = PODS.key(two, namespace, name).startswith(PODS.per_cluster_prefix(one))
        assert inside == (one == two)


@pytest.mark.parametrize("text", ["a", "0", "C1", "a.b", "a-b_c", "root", "x" * 63, "a-", "a."])
def test_cluster_ids(text):
    assert validate_cluster_id(text) == text


@pytest.mark.parametrize(
    "text", ["", ".", "..", "a..b", "-a", "_a", ".a", "a/b", "a b", "a%2fb", "é", "a\n", "a\0", "*", "x" * 64]
)
def test_what_cannot_be_a_cluster_id_is_a_422_that_says_the_rule(text):
    with pytest.raises(InvalidClusterId) as caught:
        validate_cluster_id(text)
    status = caught.value.status()
    assert (status.code, status.reason) == (422, "Invalid")
    assert "1 to 63" in status.message
    assert status.causes[0].field == "cluster"
