"""Lists and watches over all clusters, for administrators: `/clusters/*/control-plane/...`.

They are read from the one cache that serves every cluster anyway. Each object carries the cluster that it belongs to as
an annotation, which exists in these answers only: it is never stored, and no other path shows it.
"""

from typing import Any

import attrs
import msgspec

from kplane_apiserver.apierrors import MethodNotAllowed, forbidden, path_not_found, service_unavailable, unauthorized
from kplane_apiserver.credentials.tokens import AdminTokens
from kplane_apiserver.definitions.catalog import Catalog
from kplane_apiserver.identity import CROSS_CLUSTER_GROUPS, reads_across_clusters
from kplane_apiserver.requests.params import list_options, watch_options
from kplane_apiserver.requests.readers import Mark, list_response
from kplane_apiserver.requests.watches import Watches
from kplane_apiserver.storing.stores import Served, StoreSet
from kplane_apiserver.wire.http import Request, Response, StreamResponse
from kplane_apiserver.wire.negotiate import negotiate
from kplane_core.storage.codec import decode_object, encode_object
from kplane_core.storage.interface import ListOptions, StoredObject
from kplane_core.storage.selection import FieldSelector, FieldTerm

CLUSTER_ANNOTATION = "kplane.dev/cluster"
"""Tells in an answer over all clusters whose an object is."""

_METADATA = b'"metadata":{'
_ANNOTATIONS = b'"annotations":{'
_ONLY_READ = "across clusters, objects can only be listed and watched; address the object's own cluster for all else"


class _Metadata(msgspec.Struct):
    annotations: dict[str, Any] | msgspec.UnsetType | None = msgspec.UNSET


class _Probe(msgspec.Struct):
    metadata: _Metadata


_PROBE = msgspec.json.Decoder(_Probe)


class CrossCluster:
    """Answers requests over all clusters.

    Args:
        catalog: knows each cluster's kinds.
        stores: where objects are.
        watches: opens watches.
        admins: who may ask of a server without authentication; None refuses everybody.
        authenticated: whether the request's user is known, so that its groups decide.
    """

    def __init__(
        self,
        catalog: Catalog,
        stores: StoreSet,
        watches: Watches,
        admins: AdminTokens | None,
        *,
        authenticated: bool = False,
    ) -> None:
        self._catalog = catalog
        self._stores = stores
        self._watches = watches
        self._admins = admins
        self._authenticated = authenticated

    async def respond(self, request: Request) -> Response | StreamResponse:
        """Answer a list or a watch over all clusters.

        Raises:
            KplaneError: 401 or 403 for who may not ask, 403 or 405 for what cannot be asked; else as a list or watch.
        """
        self._authorize(request)
        route = request.route
        if not route.resource:
            raise path_not_found()
        if request.method != "GET":
            raise MethodNotAllowed(("GET", "HEAD"), _ONLY_READ)
        if route.name or route.subresource:
            raise forbidden(request.subject, _ONLY_READ)
        kind = self._catalog.find_anywhere(route.group, route.version, route.resource)
        if kind is None or (route.namespace and not kind.namespaced):
            raise path_not_found()
        served = self._stores.serve(kind)
        request.kind = kind
        if request.scope["method"] == "GET" and request.flag("watch"):
            return await self._watch(request, served)
        return await self._list(request, served)

    def _authorize(self, request: Request) -> None:
        if self._admins is None:
            detail = "the server was started without --allow-cross-cluster-reads and --admin-token-file"
            raise forbidden(request.subject, f"reading across clusters is off: {detail}")
        if self._authenticated:
            if not reads_across_clusters(request.user):
                detail = f'User "{request.user.name}" cannot read across clusters: it is in neither of the groups'
                raise forbidden(request.subject, f"{detail} {', '.join(sorted(CROSS_CLUSTER_GROUPS))}")
            return
        if self._admins.user_of(request.header(b"authorization")) is None:
            raise unauthorized("reading across clusters takes the bearer token of an administrator")

    async def _list(self, request: Request, served: Served) -> Response:
        if "list" not in served.kind.verbs:
            raise MethodNotAllowed(())
        form = negotiate(request.header(b"accept"))
        options = _everywhere(list_options(request, served), request.route.namespace)
        page = await served.store.get_list(served.layout.kind_root_prefix(), options)
        return list_response(request, served, page, form, marker(served))

    async def _watch(self, request: Request, served: Served) -> StreamResponse:
        if "watch" not in served.kind.verbs:
            raise MethodNotAllowed(("GET", "HEAD"))
        if self._watches.draining:
            raise service_unavailable("the server is shutting down", retry_after=1)
        options = _everywhere(watch_options(request, served), request.route.namespace)
        prefix = served.layout.kind_root_prefix()
        return await self._watches.begin(request, served, prefix, options, marker(served))


def _everywhere(options: ListOptions, namespace: str) -> ListOptions:
    """Return options that select a namespace of every cluster, if one was named."""
    if not namespace:
        return options
    predicate = options.predicate
    fields = FieldSelector((*predicate.fields.terms, FieldTerm("metadata.namespace", namespace)))
    return attrs.evolve(options, predicate=attrs.evolve(predicate, fields=fields))


def marker(served: Served) -> Mark:
    """Return what puts the cluster into the annotations of a kind's objects."""
    cluster_of = served.layout.cluster_from_key

    def mark(stored: StoredObject) -> StoredObject:
        return StoredObject(stored.key, stored.revision, with_cluster(stored.raw, cluster_of(stored.key)))

    return mark


def with_cluster(raw: bytes, cluster: str) -> bytes:
    """Return an object's JSON with its cluster among the annotations, over whatever stood there by that name.

    Raises:
        DecodeError: it is not a JSON object.
    """
    entry = b'"%s":"%s"' % (CLUSTER_ANNOTATION.encode(), cluster.encode())  # a cluster's id needs no escapes
    start = raw.find(_METADATA) + len(_METADATA)
    try:
        annotations = _PROBE.decode(raw).metadata.annotations
    except (msgspec.MsgspecError, RecursionError):
        return _decoded_with_cluster(raw, cluster)
    if annotations is msgspec.UNSET and raw.startswith(b'"', start):
        return b"%s%s%s},%s" % (raw[:start], _ANNOTATIONS, entry, raw[start:])
    if annotations and CLUSTER_ANNOTATION not in annotations and raw.startswith(_ANNOTATIONS, start):
        start += len(_ANNOTATIONS)
        return b"%s%s,%s" % (raw[:start], entry, raw[start:])
    return _decoded_with_cluster(raw, cluster)


def _decoded_with_cluster(raw: bytes, cluster: str) -> bytes:
    document = decode_object(raw)
    metadata = document.setdefault("metadata", {})
    metadata["annotations"] = {**(metadata.get("annotations") or {}), CLUSTER_ANNOTATION: cluster}
    return encode_object(document)
