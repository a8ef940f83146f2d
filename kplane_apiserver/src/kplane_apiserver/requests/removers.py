"""Deleting one object or a collection; finalizers hold an object until they are gone."""

import asyncio
from typing import Any

import msgspec

from kplane_apiserver.apierrors import field_invalid, forbidden, invalid
from kplane_apiserver.clusters.admission import has_finalizers, is_deleting, prepare_deletion
from kplane_apiserver.clusters.garbage import FOREGROUND, ORPHAN
from kplane_apiserver.clusters.namespaces import IMMORTAL
from kplane_apiserver.clusters.registry import CLUSTER_KEY, CONTENT_FINALIZER, NAMESPACE_KEY
from kplane_apiserver.kinds import KindKey
from kplane_apiserver.requests.params import META_GROUP, RemoveOptions, remove_options, selection
from kplane_apiserver.requests.readers import list_response, object_response
from kplane_apiserver.services import DEFINITION_KEY, Services
from kplane_apiserver.storing.stores import Served
from kplane_apiserver.wire.bodies import decode_body
from kplane_apiserver.wire.http import Request, Response, json_response
from kplane_apiserver.wire.negotiate import Form, negotiate
from kplane_core.errors import KeyNotFound
from kplane_core.storage.interface import ListOptions, ObjectList, ResponseMeta, StoredObject, UpdateResult

Document = dict[str, Any]

DEFINITION_FINALIZER = "customresourcecleanup.apiextensions.k8s.io"

# What the server itself still has to remove before the object may go.
_OWN_FINALIZERS: dict[KindKey, str] = {CLUSTER_KEY: CONTENT_FINALIZER, DEFINITION_KEY: DEFINITION_FINALIZER}

# What these own stays when nobody says otherwise, as it was when their controllers were new.
_ORPHANING = frozenset({"jobs.batch", "replicationcontrollers"})

# Upstream answers a delete with the deleted object for these, and with a Status for all others.
_ANSWERED_WITH_OBJECT = frozenset(
    {
        "pods",
        "services",
        "serviceaccounts",
        "podtemplates",
        "resourcequotas",
        "persistentvolumes",
        "persistentvolumeclaims",
    }
)


class _Metadata(msgspec.Struct):
    uid: str = ""
    finalizers: list[str] | None = None


class _Probe(msgspec.Struct):
    metadata: _Metadata


_PROBE = msgspec.json.Decoder(_Probe)


class _HeldError(Exception):
    """The object has finalizers: it is marked instead of deleted."""


async def delete(services: Services, request: Request, served: Served) -> Response:
    """Delete one object.

    Raises:
        KplaneError: as `Store.delete` does; 403 for a namespace that cannot be deleted.
    """
    form = negotiate(request.header(b"accept"))
    route = request.route
    options = remove_options(request, await _options_body(request))
    if served.kind.key == NAMESPACE_KEY and route.name in IMMORTAL:
        raise forbidden(served.subject(route.name), "this namespace may not be deleted")
    removal = Removal(services, served, route.cluster, options)
    stored = await removal.run(served.key(route.cluster, route.namespace, route.name), route.namespace)
    if removal.held or served.kind.group_resource in _ANSWERED_WITH_OBJECT:
        return object_response(request, served, stored, form)
    return _success(served, route.name, _PROBE.decode(stored.raw).metadata.uid)


async def delete_collection(services: Services, request: Request, served: Served) -> Response:
    """Delete the objects that the selectors choose, and answer with the list of them.

    Raises:
        KplaneError: as `Store.get_list` and `Store.delete` do.
    """
    form = negotiate(request.header(b"accept"))
    options = remove_options(request, await _options_body(request))
    route = request.route
    chosen = await served.store.get_list(
        served.prefix(route.cluster, route.namespace), ListOptions(predicate=selection(request, served))
    )
    removed: list[StoredObject] = []
    for stored in chosen.items:
        await asyncio.sleep(0)  # a store in memory never waits, and everybody else's requests must not
        namespace = served.layout.relative(stored.key).namespace
        try:
            removed.append(await Removal(services, served, route.cluster, options).run(stored.key, namespace))
        except KeyNotFound:
            continue  # somebody else was faster
    answer_form = Form.OBJECT if form is Form.TABLE else form
    return list_response(request, served, ObjectList(tuple(removed), chosen.revision), answer_form)


class Removal:
    """One deletion on its way.

    Args:
        services: the server's parts.
        served: the kind.
        cluster: the cluster.
        options: how to delete.

    Attributes:
        held: whether finalizers hold the object, so that it was marked and not deleted.
    """

    def __init__(self, services: Services, served: Served, cluster: str, options: RemoveOptions) -> None:
        self._services = services
        self._served = served
        self._cluster = cluster
        self._options = options
        self._finalizer = _OWN_FINALIZERS.get(served.kind.key, "")
        orphans = served.kind.group_resource in _ORPHANING
        # A delete that says nothing of dependents and finds no finalizer: the one that must not cost anything.
        self._plain = not orphans if not options.propagation else options.propagation == "Background"
        self.held = False

    async def run(self, key: str, namespace: str) -> StoredObject:
        """Delete the object, or mark it when something holds it; return its last state.

        Raises:
            KplaneError: as `Store.delete` does.
        """
        if self._options.dry_run:
            return await self._as_if(key)
        store, preconditions = self._served.store, self._options.preconditions
        while True:
            try:
                deleted = await store.delete(key, preconditions=preconditions, validate=self._refuse_held)
            except _HeldError:
                self.held = True
            else:
                self.held = False
                self._services.removed(self._served, self._cluster, namespace, deleted)
                return deleted
            mark = self._served.renewing(self._mark)
            stored = await store.guaranteed_update(key, mark, preconditions=preconditions)
            if self.held:
                self._services.wrote(self._served, self._cluster, stored)
                return stored

    def _refuse_held(self, stored: StoredObject | None) -> None:
        if stored is None:
            return
        if self._finalizer or self._served.kind.key == NAMESPACE_KEY:
            document = stored.decode()
            self._set_finalizers(document["metadata"])
            held = has_finalizers(document) or (bool(self._finalizer) and not is_deleting(document))
        else:
            held = not self._plain or b'"finalizers"' in stored.raw
            held = held and bool(self._finalizers(_PROBE.decode(stored.raw).metadata.finalizers or []))
        if held:
            raise _HeldError

    def _mark(self, old: Document, _meta: ResponseMeta) -> UpdateResult:
        metadata = old["metadata"]
        self._set_finalizers(metadata)
        if is_deleting(old):
            self.held = has_finalizers(old)
            return old, None
        if self._finalizer and self._finalizer not in metadata.get("finalizers", ()):
            metadata["finalizers"] = [*metadata.get("finalizers", ()), self._finalizer]
        self.held = has_finalizers(old)
        if self.held:
            prepare_deletion(self._served.kind, old, self._services.now())
        return old, None

    def _finalizers(self, present: list[str]) -> list[str]:
        """Return an object's finalizers once it is being deleted, as its dependents demand."""
        policy = self._options.propagation
        if not policy:
            given = next((name for name in present if name in {ORPHAN, FOREGROUND}), "")
            policy = {ORPHAN: "Orphan", FOREGROUND: "Foreground"}.get(given, "" if self._plain else "Orphan")
        wanted = {"Orphan": ORPHAN, "Foreground": FOREGROUND}.get(policy, "")
        kept = [name for name in present if name == wanted or name not in {ORPHAN, FOREGROUND}]
        return [*kept, wanted] if wanted and wanted not in kept else kept

    def _set_finalizers(self, metadata: Document) -> None:
        finalizers = self._finalizers(metadata.get("finalizers") or [])
        if finalizers:
            metadata["finalizers"] = finalizers
        else:
            metadata.pop("finalizers", None)

    async def _as_if(self, key: str) -> StoredObject:
        stored = await self._served.store.get(key)
        document = stored.decode()
        if self._options.preconditions is not None:
            self._options.preconditions.check(key, document)
        self._set_finalizers(document["metadata"])
        self.held = has_finalizers(document)
        return stored


async def _options_body(request: Request) -> Document:
    body = await request.body()
    if not body:
        return {}
    options = decode_body(request.content_type, body)
    orphan = options.pop("orphanDependents", None)
    if orphan is None:
        return options
    if options.get("propagationPolicy"):
        detail = "orphanDependents and deletionPropagation cannot be both set"
        cause = field_invalid("propagationPolicy", options["propagationPolicy"], detail)
        raise invalid([cause], kind="DeleteOptions", name="", group=META_GROUP)
    return {**options, "propagationPolicy": "Orphan" if orphan else "Background"}


def _success(served: Served, name: str, uid: str) -> Response:
    details = {"name": name, "group": served.kind.group, "kind": served.kind.plural, "uid": uid}
    return json_response(
        {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "details": {key: value for key, value in details.items() if value},
        }
    )
