"""What a cluster was asked: the requests as tests look at them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, overload

import attrs
import yaml

from kplane_apiserver.wire.http import Scope
from kplane_apiserver.wire.routes import Route
from kplane_core.errors import UsageError

_VERBS: Mapping[str, str] = {"POST": "create", "PUT": "update", "PATCH": "patch"}


@attrs.define
class RecordedRequest:
    """One request that reached the server.

    Attributes:
        verb: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` or `deletecollection`.
        resource: the plural; empty for a path that names none, such as `/version`.
        group: its API group; empty for the core group.
        version: the version within the group.
        namespace: the namespace that the path names.
        name: the object that the path names.
        subresource: what follows the name.
        path: the path below the cluster's address.
        query: the parameters; of a repeated one the first.
        user_agent: what the client calls itself.
        content_type: the form of the body.
        body: the body as far as the server read it.
        status: the status code of the answer; 0 while there is none.
    """

    verb: str
    resource: str
    group: str
    version: str
    namespace: str
    name: str
    subresource: str
    path: str
    query: Mapping[str, str]
    user_agent: str
    content_type: str
    body: bytes = b""
    status: int = 0

    def json(self) -> Any:
        """Return the body's document, from JSON or YAML; None if there is no body."""
        return yaml.safe_load(self.body) if self.body else None

    def __str__(self) -> str:
        place = "/".join(filter(None, (self.namespace, self.name, self.subresource)))
        return " ".join(filter(None, (self.verb, self.resource or self.path, place, f"-> {self.status or '...'}")))


def record(scope: Scope, route: Route, query: Mapping[str, str], *, watches: bool) -> RecordedRequest:
    """Return what is known of a request when it arrives."""
    headers = dict(scope["headers"])
    method: str = scope["method"]
    return RecordedRequest(
        verb=_VERBS.get(method) or _verb(method, route, watches=watches),
        resource=route.resource,
        group=route.group,
        version=route.version,
        namespace=route.namespace,
        name=route.name,
        subresource=route.subresource,
        path="/" + "/".join(route.path),
        query=query,
        user_agent=headers.get(b"user-agent", b"").decode("latin-1"),
        content_type=headers.get(b"content-type", b"").decode("latin-1"),
    )


def _verb(method: str, route: Route, *, watches: bool) -> str:
    if method == "DELETE":
        return "delete" if route.name else "deletecollection"
    if watches:
        return "watch"
    return "list" if route.resource and not route.name else "get"


class RequestLog(Sequence[RecordedRequest]):
    """The requests of a cluster, in the order in which they came: a sequence that grows while clients work."""

    def __init__(self) -> None:
        self._entries: list[RecordedRequest] = []

    def __len__(self) -> int:
        return len(self._entries)

    @overload
    def __getitem__(self, index: int) -> RecordedRequest: ...

    @overload
    def __getitem__(self, index: slice) -> list[RecordedRequest]: ...

    def __getitem__(self, index: int | slice) -> RecordedRequest | list[RecordedRequest]:
        return self._entries[index]

    def __iter__(self) -> Iterator[RecordedRequest]:
        return iter(list(self._entries))  # a copy: the server adds to it from its own thread

    def __repr__(self) -> str:
        return "\n".join(["<requests:", *(f"  {entry}" for entry in self), ">"])

    def add(self, entry: RecordedRequest) -> None:
        """Take a request."""
        self._entries.append(entry)

    def clear(self) -> None:
        """Forget all requests so far."""
        self._entries.clear()

    def where(
        self, predicate: Callable[[RecordedRequest], bool] | None = None, **fields: str | int
    ) -> list[RecordedRequest]:
        """Return the requests whose fields have these values, for example `where(verb="patch", resource="pods")`.

        Args:
            predicate: a condition of your own.
            fields: attributes of RecordedRequest with the values that they must have.

        Raises:
            UsageError: a request has no such field; a misspelled one would find nothing and prove nothing.
        """
        known = {field.name for field in attrs.fields(RecordedRequest)}
        if unknown := sorted(fields.keys() - known):
            raise UsageError(f"a request has no {', '.join(unknown)}; it has {', '.join(sorted(known))}")
        return [
            entry
            for entry in self
            if all(getattr(entry, name) == value for name, value in fields.items())
            and (predicate is None or predicate(entry))
        ]
