"""A real API server inside a test: fresh clusters in a millisecond, and controls over what real clusters do by chance.

    from kplane_apiserver import testing

    with testing.cluster() as cluster:
        api = kubernetes.client.CoreV1Api(cluster.client("kubernetes"))

With pytest the fixtures `kplane_server`, `kplane_cluster`, `kplane_clusters` and `kplane_async_cluster` give the same.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager

from kplane_apiserver.testing.calls import Answer
from kplane_apiserver.testing.clock import Clock
from kplane_apiserver.testing.cluster import AsyncCluster, Cluster, RestConfig
from kplane_apiserver.testing.faults import Fault
from kplane_apiserver.testing.requests import RecordedRequest, RequestLog
from kplane_apiserver.testing.server import Server
from kplane_apiserver.testing.states import Snapshot

__all__ = [
    "Answer",
    "AsyncCluster",
    "Clock",
    "Cluster",
    "Fault",
    "RecordedRequest",
    "RequestLog",
    "RestConfig",
    "Server",
    "Snapshot",
    "async_cluster",
    "async_server",
    "cluster",
    "server",
]

Paths = Iterable[str | os.PathLike[str]]


@contextmanager
def server(backend: str = "memory") -> Iterator[Server]:
    """Run a server as long as the context is open.

    Args:
        backend: the name of an installed storage backend.

    Raises:
        UsageError: the backend is not installed or cannot be connected.
    """
    with Server(backend) as running:
        yield running


@contextmanager
def cluster(*, crd_paths: Paths = (), backend: str = "memory") -> Iterator[Cluster]:
    """Run a server with one fresh cluster as long as the context is open.

    Args:
        crd_paths: files and folders with manifests that it begins with.
        backend: the name of an installed storage backend.

    Raises:
        UsageError: the backend is not installed, or a manifest cannot be used.
    """
    with server(backend) as running, running.cluster(crd_paths=crd_paths) as fresh:
        yield fresh


@asynccontextmanager
async def async_server(backend: str = "memory") -> AsyncIterator[Server]:
    """Run a server as long as the context is open, without blocking the caller's event loop; see `server`."""
    running = await asyncio.to_thread(Server, backend)
    try:
        yield running
    finally:
        await asyncio.to_thread(running.stop)


@asynccontextmanager
async def async_cluster(*, crd_paths: Paths = (), backend: str = "memory") -> AsyncIterator[AsyncCluster]:
    """Run a server with one fresh cluster as long as the context is open; see `cluster`."""
    async with async_server(backend) as running, await running.async_cluster(crd_paths=crd_paths) as fresh:
        yield fresh
