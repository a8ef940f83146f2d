"""Which part of the server answers a request."""

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType

from kplane_apiserver import discovery, openapi, readers, removers, writers
from kplane_apiserver.apierrors import method_not_allowed, method_not_supported, path_not_found, service_unavailable
from kplane_apiserver.health import PATHS as HEALTH_PATHS
from kplane_apiserver.health import Health
from kplane_apiserver.http import Request, Response, StreamResponse, json_response
from kplane_apiserver.services import Services
from kplane_apiserver.settings import version_document
from kplane_apiserver.stores import Served
from kplane_apiserver.watches import Watches

Handler = Callable[[Services, Request, Served], Awaitable[Response]]

_COLLECTION: Mapping[str, tuple[str, Handler]] = MappingProxyType(
    {"POST": ("create", writers.create), "DELETE": ("deletecollection", removers.delete_collection)}
)
_OBJECT: Mapping[str, tuple[str, Handler]] = MappingProxyType(
    {
        "PUT": ("update", writers.update),
        "PATCH": ("patch", writers.patch),
        "DELETE": ("delete", removers.delete),
    }
)
_SUBRESOURCES: Mapping[str, Mapping[str, tuple[str, Handler]]] = MappingProxyType(
    {
        "status": {"PUT": ("update", writers.update), "PATCH": ("patch", writers.patch)},
        "finalize": {"PUT": ("update", writers.update)},
    }
)
_ROOT_PATHS = ("/api", "/apis", "/healthz", "/livez", "/openapi/v3", "/readyz", "/version")


class Handlers:
    """Answers requests whose cluster exists.

    Args:
        services: the server's parts.
        watches: opens watches.
        health: answers the health paths.
    """

    def __init__(self, services: Services, watches: Watches, health: Health) -> None:
        self._services = services
        self._watches = watches
        self._health = health
        self._version = version_document(services.settings)

    async def respond(self, request: Request) -> Response | StreamResponse:
        """Answer a request.

        Raises:
            KplaneError: the request cannot be fulfilled; its Status is the answer.
        """
        route = request.route
        if not route.resource:
            return await self._path(request)
        kind = self._services.catalog.lookup(route.cluster, route.group, route.version, route.resource)
        if kind is None or (bool(route.namespace) and not kind.namespaced):
            raise path_not_found()
        served = self._services.stores.serve(kind)
        if request.method == "GET" and not route.subresource:
            return await self._read(request, served)
        verb, handler = self._find(request, served)
        if verb not in kind.verbs:
            raise method_not_supported(request.subject, verb)
        return await handler(self._services, request, served)

    async def _read(self, request: Request, served: Served) -> Response | StreamResponse:
        route = request.route
        if route.name and served.kind.namespaced and not route.namespace:
            raise path_not_found()
        verb = "get" if route.name else "list"
        if verb not in served.kind.verbs:
            raise method_not_supported(request.subject, verb)
        if request.scope["query_string"] and request.flag("watch"):
            if self._watches.draining:
                raise service_unavailable("the server is shutting down", retry_after=1)
            return await self._watches.open(request, served)
        return await (readers.get if route.name else readers.get_list)(request, served)

    def _find(self, request: Request, served: Served) -> tuple[str, Handler]:
        route, kind = request.route, served.kind
        methods = _OBJECT if route.name else _COLLECTION
        if route.subresource:
            if route.subresource not in kind.subresources or route.subresource not in _SUBRESOURCES:
                raise path_not_found()
            methods = _SUBRESOURCES[route.subresource]
            if request.method == "GET" and route.subresource == "status":
                return "get", _get_status
        if kind.namespaced and not route.namespace and (route.name or request.method == "POST"):
            raise path_not_found() if route.name else method_not_allowed()
        found = methods.get(request.method)
        if found is None:
            raise method_not_allowed()
        return found

    async def _path(self, request: Request) -> Response:
        path = request.route.path
        if request.method not in {"GET", "HEAD"}:
            raise method_not_allowed()
        head = path[0] if path else ""
        accept, known = request.header(b"accept"), request.header(b"if-none-match")
        response: Response | None = None
        match head:
            case "":
                response = json_response({"paths": _ROOT_PATHS})
            case "version" if len(path) == 1:
                response = json_response(self._version)
            case "api" | "apis":
                response = discovery.respond(self._services.catalog, request.route.cluster, path, accept, known)
            case "openapi":
                query_hash = request.query.get("hash", "")
                response = openapi.respond(self._services.catalog, request.route.cluster, path, query_hash, known)
            case _ if head in HEALTH_PATHS:
                response = await self._health.respond(request)
        if response is None:
            raise path_not_found()
        return response


async def _get_status(_services: Services, request: Request, served: Served) -> Response:
    return await readers.get(request, served)
