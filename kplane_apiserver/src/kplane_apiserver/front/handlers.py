"""Which part of the server answers a request."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from types import MappingProxyType

from kplane_apiserver.apierrors import MethodNotAllowed, path_not_found, service_unavailable
from kplane_apiserver.kinds import Kind
from kplane_apiserver.requests import discovery, openapi, readers, removers, reviews, scales, writers
from kplane_apiserver.requests.health import PATHS as HEALTH_PATHS
from kplane_apiserver.requests.health import Health
from kplane_apiserver.requests.metrics import Metrics
from kplane_apiserver.requests.watches import Watches
from kplane_apiserver.services import Services
from kplane_apiserver.settings import version_document
from kplane_apiserver.storing.stores import Served
from kplane_apiserver.upkeep import snapshots, snapshots_restore
from kplane_apiserver.wire.http import Request, Response, StreamResponse, json_response, warning_headers
from kplane_apiserver.wire.routes import Route

Handler = Callable[[Services, Request, Served], Awaitable[Response]]

_WRITES = ("POST", "PUT", "PATCH", "DELETE")
_READ = ("GET", "HEAD")
_ROOT_PATHS = ("/api", "/apis", "/healthz", "/livez", "/metrics", "/openapi/v3", "/readyz", "/version")


class Handlers:
    """Answers requests whose cluster exists.

    Args:
        services: the server's parts.
        watches: opens watches.
        health: answers the health paths.
        metrics: answers `/metrics`.
    """

    def __init__(self, services: Services, watches: Watches, health: Health, metrics: Metrics) -> None:
        self._services = services
        self._watches = watches
        self._health = health
        self._metrics = metrics
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
        if kind.namespaced and not route.namespace and route.name:
            raise path_not_found()
        request.kind = kind
        served = self._services.stores.serve(kind)
        methods = _methods(kind, route)
        if request.method not in methods:
            raise MethodNotAllowed([method for method in ("GET", "HEAD", *_WRITES) if method in methods])
        if request.method == "GET":
            asked = request.scope
            if asked["query_string"] and asked["method"] == "GET" and not route.subresource and request.flag("watch"):
                return await self._watch(request, served)
        response = await methods[request.method](self._services, request, served)
        if kind.custom is not None and kind.custom.deprecated:
            words = kind.custom.deprecation_warning or f"{kind.api_version} {kind.kind} is deprecated"
            request.warnings.insert(0, words)
        if request.warnings:
            response.headers = (*response.headers, *warning_headers(request.warnings))
        return response

    async def _watch(self, request: Request, served: Served) -> StreamResponse:
        if "watch" not in served.kind.verbs:
            raise MethodNotAllowed(_READ)
        if self._watches.draining:
            raise service_unavailable("the server is shutting down", retry_after=1)
        return await self._watches.open(request, served)

    async def _path(self, request: Request) -> Response:
        path = request.route.path
        if request.method != "GET":
            raise MethodNotAllowed(_READ)
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
                cluster = request.route.cluster
                response = openapi.respond(self._services.catalog, cluster, path, query_hash, known, accept=accept)
            case "metrics" if len(path) == 1 and self._services.catalog.is_root(request.route.cluster):
                response = self._metrics.respond()
            case "snapshot" if len(path) == 1:
                response = await snapshots.of_path(self._services, request)
            case _ if head in HEALTH_PATHS:
                response = await self._health.respond(request)
        if response is None:
            raise path_not_found()
        return response


def _methods(kind: Kind, route: Route) -> Mapping[str, Handler]:
    """Return what a path of this kind can be asked.

    Raises:
        ApiError: 404; the kind has no such subresource.
    """
    if kind.create_only:
        if route.name or (kind.namespaced and not route.namespace):
            raise path_not_found()
        return _REVIEW
    if not route.subresource:
        where = "object" if route.name else "namespace" if route.namespace or not kind.namespaced else "everywhere"
        return _main_methods(kind.verbs, where)
    methods = _SUBRESOURCES.get(route.subresource)
    if methods is None or route.subresource not in kind.subresources:
        raise path_not_found()
    return methods


@cache
def _main_methods(verbs: tuple[str, ...], where: str) -> Mapping[str, Handler]:
    offered = {method: handler for verb, method, handler in _MAIN if verb in verbs and where in _WHERE[verb]}
    return MappingProxyType({**offered, "HEAD": offered["GET"]} if "GET" in offered else offered)


async def _get(_services: Services, request: Request, served: Served) -> Response:
    return await readers.get(request, served)


async def _list(_services: Services, request: Request, served: Served) -> Response:
    return await readers.get_list(request, served)


_MAIN: Sequence[tuple[str, str, Handler]] = (
    ("get", "GET", _get),
    ("list", "GET", _list),
    ("create", "POST", writers.create),
    ("update", "PUT", writers.update),
    ("patch", "PATCH", writers.patch),
    ("delete", "DELETE", removers.delete),
    ("deletecollection", "DELETE", removers.delete_collection),
)
# An object of a namespaced kind is created in a namespace; lists and their deletion also reach over all of them.
_WHERE: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "get": ("object",),
        "list": ("namespace", "everywhere"),
        "create": ("namespace",),
        "update": ("object",),
        "patch": ("object",),
        "delete": ("object",),
        "deletecollection": ("namespace",),
    }
)
_REVIEW: Mapping[str, Handler] = MappingProxyType({"POST": reviews.create_review})
_SUBRESOURCES: Mapping[str, Mapping[str, Handler]] = MappingProxyType(
    {
        "status": {"GET": _get, "HEAD": _get, "PUT": writers.update, "PATCH": writers.patch},
        "finalize": {"PUT": writers.update},
        "fork": {"POST": snapshots_restore.fork},
        "restore": {"POST": snapshots_restore.restore},
        "snapshot": {"GET": snapshots.of_object},
        "scale": {
            "GET": scales.get_scale,
            "HEAD": scales.get_scale,
            "PUT": scales.update_scale,
            "PATCH": scales.patch_scale,
        },
    }
)
