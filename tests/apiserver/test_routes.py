"""Paths: what each asks for, and that none can climb out of its cluster."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kplane_apiserver.wire.routes import MAX_PATH, Route, Router, parse
from kplane_core.errors import ApiError, KplaneError

C1 = "/clusters/c1/control-plane"


def _route(path: str) -> Route:
    return parse(path.encode(), "root")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/", ("root", "", "", "", "", "", "")),
        ("/api/v1", ("root", "", "", "", "", "", "")),
        ("/api/v1/pods", ("root", "", "v1", "pods", "", "", "")),
        (C1, ("c1", "", "", "", "", "", "")),
        ("/clusters/c1", ("c1", "", "", "", "", "", "")),
        (f"{C1}/api/v1/pods/", ("c1", "", "v1", "pods", "", "", "")),
        (f"{C1}/api/v1/namespaces", ("c1", "", "v1", "namespaces", "", "", "")),
        (f"{C1}/api/v1/namespaces/n", ("c1", "", "v1", "namespaces", "", "n", "")),
        (f"{C1}/api/v1/namespaces/n/status", ("c1", "", "v1", "namespaces", "", "n", "status")),
        (f"{C1}/api/v1/namespaces/n/finalize", ("c1", "", "v1", "namespaces", "", "n", "finalize")),
        (f"{C1}/api/v1/namespaces/n/pods", ("c1", "", "v1", "pods", "n", "", "")),
        (f"{C1}/api/v1/namespaces/n/pods/p", ("c1", "", "v1", "pods", "n", "p", "")),
        (f"{C1}/api/v1/namespaces/n/pods/p/status", ("c1", "", "v1", "pods", "n", "p", "status")),
        (f"{C1}/apis/apps/v1/deployments", ("c1", "apps", "v1", "deployments", "", "", "")),
        (f"{C1}/apis/apps/v1/namespaces/n/status", ("c1", "apps", "v1", "status", "n", "", "")),
        (f"{C1}/apis/kplane.dev/v1/clusters/clusters", ("c1", "kplane.dev", "v1", "clusters", "", "clusters", "")),
        (f"{C1}{C1}/api/v1/pods", ("c1", "", "v1", "pods", "", "", "")),
        (f"{C1}/api/v1/nodes/a%3Ab", ("c1", "", "v1", "nodes", "", "a:b", "")),
    ],
)
def test_a_path_names_a_cluster_and_a_resource(path, expected):
    route = _route(path)
    found = (route.cluster, route.group, route.version, route.resource, route.namespace, route.name, route.subresource)
    assert found == expected


def test_a_foreign_prefix_is_not_taken_for_the_own_one_doubled():
    route = _route(f"{C1}/clusters/c2/control-plane/api/v1/pods")
    assert route.cluster == "c1"
    assert not route.resource


@pytest.mark.parametrize(
    "path",
    [
        "/clusters/../control-plane/api",
        "/clusters/%2e%2e/control-plane/api",
        "/clusters/a%2fb/control-plane/api",
        f"/clusters/{'a' * 64}/control-plane/api",
        "/clusters//control-plane/api",
        f"{C1}/api/v1/namespaces/%2e%2e/pods",
        f"{C1}/api/v1/namespaces/n/pods/..",
        f"{C1}/api/v1/namespaces/n/pods/a%2Fb",
        f"{C1}/api/v1/namespaces/n/pods/a%252Fb",
        f"{C1}/api/v1/namespaces/n/pods/%00",
        f"{C1}/api/v1/namespaces/n/pods/a%0Ab",
        f"{C1}/api/v1/namespaces/n/pods/%ff",
        f"{C1}/api/v1/namespaces/n/pods/%",
        f"{C1}/api/v1/namespaces//pods",
    ],
)
def test_segments_that_climb_hide_or_are_empty_are_400(path):
    with pytest.raises(KplaneError) as caught:
        _route(path)
    assert caught.value.status().code == 400


def test_an_endless_path_is_414():
    with pytest.raises(ApiError) as caught:
        _route("/" + "a" * MAX_PATH)
    assert caught.value.status().code == 414


@given(st.binary(max_size=80).map(lambda tail: b"/clusters/c1/control-plane/api/v1/" + tail))
@example(b"/clusters/c1/control-plane/api/v1/namespaces/a/%2E%2E/%2e")
@example(b"/clusters/c1/control-plane/clusters/c1/control-plane/clusters/c2/control-plane/api/v1/pods")
def test_whatever_the_path_it_stays_in_its_cluster_or_is_refused(raw):
    try:
        route = parse(raw, "root")
    except KplaneError as error:
        refused = error.status().code
    else:
        refused = 0
    if refused:
        assert refused in {400, 404, 414}
        return
    assert route.cluster == "c1"
    for segment in route.path:
        assert segment
        assert segment not in {".", ".."}
        assert not set(segment) & set("/%\0\n")


def test_a_router_remembers_a_bounded_number_of_paths():
    router = Router("root")
    for number in range(10_000):
        router.route(f"/api/v1/namespaces/n{number}".encode())
    assert len(router._recent) <= 4096
    first = router.route(b"/api/v1/pods")
    assert router.route(b"/api/v1/pods") is first
