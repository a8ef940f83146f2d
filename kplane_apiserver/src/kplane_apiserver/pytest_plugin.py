"""The pytest plugin: fixtures with fresh clusters. Imports only pytest, so that who does not use them pays nothing."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kplane_apiserver.testing import AsyncCluster, Cluster, Server

_MARKER = "kplane_crds"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the settings of the configuration file."""
    parser.addini(
        "kplane_crd_paths", "files and folders with manifests that every fresh cluster begins with", "paths", default=[]
    )
    parser.addini("kplane_storage_backend", "the storage backend of the server for tests", default="memory")


def pytest_configure(config: pytest.Config) -> None:
    """Describe the marker."""
    config.addinivalue_line("markers", f"{_MARKER}(*paths): manifests that the clusters of this test begin with")


@pytest.fixture(scope="session")
def kplane_server(request: pytest.FixtureRequest) -> Iterator["Server"]:
    """A running server: one for the session, and with pytest-xdist one for each worker."""
    from kplane_apiserver.testing import server  # noqa: PLC0415 - see above

    with server(request.config.getini("kplane_storage_backend")) as running:
        yield running


@pytest.fixture
def crd_paths(request: pytest.FixtureRequest) -> list[Path]:
    """Where the manifests are that fresh clusters begin with; override it, or set `kplane_crd_paths`, or mark tests.

    The paths of the marker `kplane_crds` are relative to the folder of the test's file.
    """
    paths: list[Path] = list(request.config.getini("kplane_crd_paths"))
    for marker in reversed(list(request.node.iter_markers(_MARKER))):
        paths += [request.path.parent / path for path in marker.args]
    return paths


@pytest.fixture
def kplane_cluster(kplane_server: "Server", crd_paths: list[Path]) -> Iterator["Cluster"]:
    """A fresh cluster for one test."""
    with kplane_server.cluster(crd_paths=crd_paths) as cluster:
        yield cluster


@pytest.fixture
def kplane_clusters(kplane_server: "Server", crd_paths: list[Path]) -> Iterator[Callable[[int], list["Cluster"]]]:
    """Make several fresh clusters for one test: call it with how many."""
    made: list[Cluster] = []

    def make(count: int) -> list["Cluster"]:
        fresh = [kplane_server.cluster(crd_paths=crd_paths) for _ in range(count)]
        made.extend(fresh)
        return fresh

    yield make
    for cluster in made:
        cluster.close()


@pytest.fixture
def kplane_async_cluster(kplane_server: "Server", crd_paths: list[Path]) -> Iterator["AsyncCluster"]:
    """A fresh cluster for one asynchronous test, under whichever plugin runs it."""
    with kplane_server.cluster(crd_paths=crd_paths) as cluster:
        yield cluster.as_async()
