"""A virtual cluster in the hands of a test, for synchronous and for asynchronous tests."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import attrs

from kplane_apiserver.credentials.kubeconfig import USER, cluster_url, context_name
from kplane_apiserver.testing.actions import Actions
from kplane_apiserver.testing.calls import Answer
from kplane_apiserver.testing.clients import make_client
from kplane_apiserver.testing.faults import Fault
from kplane_apiserver.testing.manifests import Document, load_manifests
from kplane_apiserver.testing.requests import RequestLog
from kplane_apiserver.testing.states import Snapshot

if TYPE_CHECKING:
    from kplane_apiserver.testing.server import Server


@attrs.frozen
class RestConfig:
    """How a client reaches a cluster.

    Attributes:
        host: the cluster's address.
        namespace: the namespace to use unless another is named.
    """

    host: str
    namespace: str = "default"


class _Face:
    """What a cluster offers without waiting for the server.

    Attributes:
        name: the cluster's name.
        url: its address; clients put `/api/...` behind it.
        rest_config: the same for clients that are configured by hand.
        requests: what it was asked so far.
    """

    def __init__(self, server: "Server", actions: Actions) -> None:
        self._server = server
        self._actions = actions
        self._closers: list[Callable[[], object]] = []
        self.name = actions.cluster
        self.url = cluster_url(server.url, self.name)
        self.rest_config = RestConfig(self.url)
        self.requests: RequestLog = actions.controls.requests

    def __repr__(self) -> str:
        return f"<cluster {self.name} at {self.url}>"

    @property
    def kubeconfig(self) -> Path:
        """A kubeconfig file whose current context is this cluster; written when first asked for."""
        path = self._server.folder / f"{self.name}.kubeconfig"
        if not path.exists():
            path.write_text(json.dumps(self.kubeconfig_document()), encoding="utf-8")
            path.chmod(0o600)
        return path

    def kubeconfig_document(self) -> Document:
        """Return what stands in the kubeconfig file."""
        name = context_name(self.name)
        context = {"cluster": name, "user": USER, "namespace": "default"}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": {"server": self.url}}],
            "contexts": [{"name": name, "context": context}],
            "users": [{"name": USER, "user": {}}],
            "current-context": name,
        }

    def client(self, library: str = "kubernetes") -> Any:
        """Return a ready client of an installed library.

        Args:
            library: `kubernetes` or `kubernetes_asyncio` for an `ApiClient`, `kr8s` for what `kr8s.api()` returns,
                `lightkube` for a `Client`. Those that must be awaited to close are yours to close.

        Raises:
            UsageError: there is no helper for it, or it is not installed.
        """
        client, close = make_client(library, self.url, lambda: self.kubeconfig)
        if close is not None:
            self._closers.append(close)
        return client

    def fail(
        self,
        verb: str,
        resource: str,
        status: int,
        times: int = 1,
        *,
        name: str = "",
        retry_after: int | None = None,
        message: str = "",
    ) -> Fault:
        """Let the next requests of a kind fail; they do not reach the storage.

        Args:
            verb: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`, or `*`.
            resource: `pods`, `deployments.apps`, `pods/status`, or `*` for every path.
            status: the status code: 409, 410, 422, 429, 500, 503...
            times: how many requests fail; 0 for all.
            name: only requests about this object.
            retry_after: what the Retry-After header says; by default 1 with 429 and 503, and none otherwise. With 0
                there is none.
            message: the message of the Status.

        Returns:
            What counts the requests that failed, and can be cancelled.

        Raises:
            UsageError: there is no such verb, or the status is none of a failure.
        """
        return self._add(
            Fault(verb, resource, status=status, times=times, name=name, retry_after=retry_after, message=message)
        )

    def slow(self, verb: str, resource: str, seconds: float, times: int = 1, *, name: str = "") -> Fault:
        """Let the next requests of a kind wait before they are served; see `fail`."""
        return self._add(Fault(verb, resource, seconds=seconds, times=times, name=name))

    def _add(self, fault: Fault) -> Fault:
        self._actions.controls.faults.append(fault)
        return fault

    def _close_clients(self) -> None:
        while self._closers:
            self._closers.pop()()


class AsyncCluster(_Face):
    """A virtual cluster for asynchronous tests: what `Cluster` offers, without blocking the test's event loop.

    Args:
        server: the server.
        actions: what can be done to the cluster.
    """

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    async def request(
        self, method: str, path: str, document: Any = None, *, content_type: str = "application/json"
    ) -> Answer:
        """Send a request without a client; see `Cluster.request`."""
        return await self._server.arun(self._actions.request(method, path, document, content_type))

    async def create(self, *documents: Document) -> list[Document]:
        """Create objects; see `Cluster.create`."""
        return await self._server.arun(self._actions.create(documents))

    async def load(self, *paths: str | os.PathLike[str]) -> list[Document]:
        """Create the objects in files and folders; see `Cluster.load`."""
        return await self._server.arun(self._actions.create(load_manifests(paths)))

    async def compact(self) -> int:
        """Forget the history; see `Cluster.compact`."""
        return await self._server.arun(self._actions.compact())

    async def expire_watches(self, resource: str = "*") -> int:
        """End the open watches with status 410; see `Cluster.expire_watches`."""
        return await self._server.arun(self._actions.end_watches(resource, expired=True))

    async def close_watches(self, resource: str = "*") -> int:
        """End the open watches as if their time were over; see `Cluster.close_watches`."""
        return await self._server.arun(self._actions.end_watches(resource, expired=False))

    async def advance(self, seconds: float) -> None:
        """Turn the server's clock forward; see `Cluster.advance`."""
        await self._server.arun(self._actions.advance(seconds))

    async def snapshot(self) -> Snapshot:
        """Return the cluster's objects as they are now."""
        return await self._server.arun(self._actions.snapshot())

    async def reset(self, snapshot: Snapshot | None = None) -> None:
        """Give the cluster the objects of a snapshot again; see `Cluster.reset`."""
        await self._server.arun(self._actions.reset(snapshot))

    async def aclose(self) -> None:
        """Close the clients made here that need no await, end the watches and delete the cluster; idempotent."""
        self._close_clients()
        await self._server.arun(self._actions.close())


class Cluster(_Face):
    """A virtual cluster of a server under test; `close` deletes it.

    Args:
        server: the server.
        actions: what can be done to the cluster.
    """

    def as_async(self) -> AsyncCluster:
        """Return the same cluster for asynchronous use; whoever made this one closes it."""
        return AsyncCluster(self._server, self._actions)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def request(
        self, method: str, path: str, document: Any = None, *, content_type: str = "application/json"
    ) -> Answer:
        """Send a request without a client, past the spy and the faults; not for watches, which have no end."""
        return self._server.run(self._actions.request(method, path, document, content_type))

    def create(self, *documents: Document) -> list[Document]:
        """Create objects, in the namespace default unless they name another, and return them as stored.

        Raises:
            UsageError: an object is of a kind that is not served here, or is refused.
        """
        return self._server.run(self._actions.create(documents))

    def load(self, *paths: str | os.PathLike[str]) -> list[Document]:
        """Create the objects in files and folders; see `create`."""
        return self._server.run(self._actions.create(load_manifests(paths)))

    def compact(self) -> int:
        """Forget the history: whoever goes on from an older resourceVersion or continue token gets 410.

        The storage has one history, so this is felt in all clusters of the server.

        Returns:
            The oldest resourceVersion that can still be read and watched from.
        """
        return self._server.run(self._actions.compact())

    def expire_watches(self, resource: str = "*") -> int:
        """End the open watches with an ERROR event of status 410, after which clients have to list again.

        Args:
            resource: only the watches of this plural.

        Returns:
            How many there were.
        """
        return self._server.run(self._actions.end_watches(resource, expired=True))

    def close_watches(self, resource: str = "*") -> int:
        """End the open watches as if their time were over; see `expire_watches`."""
        return self._server.run(self._actions.end_watches(resource, expired=False))

    def advance(self, seconds: float) -> None:
        """Turn the server's clock forward: what has a time to live expires. Felt in all clusters of the server."""
        self._server.run(self._actions.advance(seconds))

    def snapshot(self) -> Snapshot:
        """Return the cluster's objects as they are now."""
        return self._server.run(self._actions.snapshot())

    def reset(self, snapshot: Snapshot | None = None) -> None:
        """Give the cluster the objects of a snapshot again, by default those that it began with, and no others.

        Faults and recorded requests are forgotten.

        Raises:
            UsageError: what it began with is no longer in the history of the storage.
        """
        self._server.run(self._actions.reset(snapshot))

    def close(self) -> None:
        """Close the clients made here, end the watches and delete the cluster; idempotent."""
        self._close_clients()
        self._server.run(self._actions.close())
