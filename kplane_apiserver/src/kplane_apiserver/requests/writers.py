"""Creating and updating: one decode on the way in, one encode on the way to the store and to the client."""

from collections.abc import Callable
from typing import Any, Protocol

from kplane_apiserver.apierrors import cannot_be_handled, field_invalid, generate_name_conflict, invalid, json_type
from kplane_apiserver.apply import Applying, Tracking, manager_name
from kplane_apiserver.authorization.questions import check_create
from kplane_apiserver.authorization.rbac import RBAC_GROUP
from kplane_apiserver.checks.fieldvalidation import check_sent, repeated_fields
from kplane_apiserver.clusters.admission import (
    MODIFIED,
    has_finalizers,
    is_deleting,
    metadata_of,
    prepare_create,
    prepare_finalize,
    prepare_status,
    prepare_update,
    without_nulls,
)
from kplane_apiserver.conversion import in_version, stored_form
from kplane_apiserver.kinds import EVENTS, Kind
from kplane_apiserver.patches import APPLY_PATCH, apply_patch
from kplane_apiserver.requests.params import WriteOptions, write_options
from kplane_apiserver.requests.readers import object_response
from kplane_apiserver.schemas import Guard, guard_for
from kplane_apiserver.services import Services
from kplane_apiserver.storing.stores import Served
from kplane_apiserver.wire.bodies import decode_body, media_type
from kplane_apiserver.wire.http import Request, Response
from kplane_apiserver.wire.negotiate import Form, negotiate
from kplane_core.chance import CHANCE
from kplane_core.errors import BadRequest, InvalidObj, KeyExists, KeyNotFound, already_exists, conflict
from kplane_core.storage.codec import encode_object
from kplane_core.storage.interface import GetOptions, ResponseMeta, StoredObject, UpdateResult
from kplane_core.storage.preconditions import Preconditions

Document = dict[str, Any]
Change = Callable[[Document], Document]
"""Makes the new state of an object from its old one, in the version that was asked for; may run several times."""

_SPEC_AND_STATUS = ("spec", "status")
_OBJECTS = {"configmaps": ("data", "binaryData"), "secrets": ("data", "stringData")}
_MAYBE_ABSENT = GetOptions(ignore_not_found=True)
_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # no vowels: a random name must not spell a word
_SUFFIX_LENGTH = 5
_GENERATED_LENGTH = 63
_GENERATE_ATTEMPTS = 8


# --- create -----------------------------------------------------------------------------------------------------------


async def create(services: Services, request: Request, served: Served) -> Response:
    """Create the object in the body and answer with it as it was stored.

    Raises:
        KplaneError: as `Store.create` does; BadRequest and InvalidError for a body that cannot be stored.
    """
    form = negotiate(request.header(b"accept"))
    options = write_options(request, "CreateOptions")
    document = await read_object(request, served, options)
    metadata = metadata_of(document)
    namespace = request.route.namespace
    if namespace and metadata.get("namespace") not in (None, "", namespace):
        raise BadRequest("the namespace of the provided object does not match the namespace sent on the request")
    if metadata.get("resourceVersion") not in (None, "", "0"):
        raise BadRequest("resourceVersion should not be set on objects to be created")
    stored = await _create_named(services, request, served, document, options)
    return object_response(request, served, stored, form, 201)


async def _create_named(
    services: Services, request: Request, served: Served, document: Document, options: WriteOptions
) -> StoredObject:
    metadata = document["metadata"]
    base = metadata.get("generateName")
    if metadata.get("name") or not base or not isinstance(base, str):
        try:
            return await store_new(services, request, served, document, options)
        except KeyExists:
            raise already_exists(served.subject(metadata["name"])) from None
    for _ in range(_GENERATE_ATTEMPTS):
        metadata["name"] = generated_name(base)
        try:
            return await store_new(services, request, served, document, options)
        except KeyExists:
            continue
    raise generate_name_conflict(served.subject(metadata["name"]))


def generated_name(base: str) -> str:
    """Return `base`, shortened if it must be, with five random letters behind it."""
    suffix = "".join(CHANCE.choices(_SUFFIX_LETTERS, k=_SUFFIX_LENGTH))
    return base[: _GENERATED_LENGTH - _SUFFIX_LENGTH] + suffix


async def store_new(
    services: Services,
    request: Request,
    served: Served,
    document: Document,
    options: WriteOptions,
    tracking: Tracking | None = None,
) -> StoredObject:
    """Store a new object whose metadata has a name.

    Args:
        services: the server's parts.
        request: the request.
        served: the kind.
        document: the object.
        options: how to write.
        tracking: records who owns its fields; made from the request if it is not given.

    Raises:
        KplaneError: as `Store.create` does; InvalidError for an object that may not be stored.
    """
    kind, route = served.kind, request.route
    cluster, namespace = route.cluster, route.namespace
    if services.rbac is not None and kind.group == RBAC_GROUP:
        services.rbac.escalation.check(request, kind, document, None)
    guard = guard_for(kind, options.field_validation, request.warnings)
    guard.fit(document)
    now = services.now()
    prepare_create(kind, document, namespace, now)
    document = services.complete(served, cluster, document, None)
    guard.check(document, None)
    (tracking or _tracking(request, kind, options, now)).created(document)
    name = document["metadata"]["name"]
    key = served.key(cluster, namespace, name)
    if options.dry_run:
        services.check_new(served, name)
        return await _as_if_created(services, served, key, document, namespace)
    await services.admit(served, cluster, namespace, name)
    document = stored_form(kind, document)
    ttl = services.settings.event_ttl if kind.storage_resource == EVENTS else 0
    stored = await served.store.create(key, document, ttl=ttl)
    services.wrote(served, cluster, stored)
    return stored


async def _as_if_created(
    services: Services, served: Served, key: str, document: Document, namespace: str
) -> StoredObject:
    if namespace:
        cluster = served.layout.cluster_from_key(key)
        if not services.namespaces.accepts(cluster, namespace):
            await services.namespaces.check(cluster, namespace, served.subject(document["metadata"]["name"]))
    found = await served.store.get(key, _MAYBE_ABSENT)
    if found.exists:
        raise KeyExists(key)
    return StoredObject(key, 0, encode_object(document))


# --- update and patch -------------------------------------------------------------------------------------------------


async def update(services: Services, request: Request, served: Served) -> Response:
    """Replace an object by the one in the body and answer with it as it was stored.

    Raises:
        KplaneError: as `Store.guaranteed_update` does; 409 when the body is of an older version.
    """
    form = negotiate(request.header(b"accept"))
    options = write_options(request, "UpdateOptions")
    document = await read_object(request, served, options)
    check_names(request, metadata_of(document))
    _check_update_version(served, document)

    def change(_old: Document) -> Document:
        return {**document, "metadata": dict(document["metadata"])}

    stored = await write_change(services, request, served, change, options, subresource=request.route.subresource)
    return object_response(request, served, stored, form)


async def patch(services: Services, request: Request, served: Served) -> Response:
    """Patch an object and answer with it as it was stored; a server-side apply creates an absent one.

    Raises:
        KplaneError: as `Store.guaranteed_update` does; 409 when the patch names an older version, and what
            `apply_patch` raises.
    """
    form = negotiate(request.header(b"accept"))
    content_type = media_type(request.content_type)
    applying = content_type == APPLY_PATCH
    options = write_options(request, "PatchOptions", apply=applying)
    body = await request.body()
    if applying:
        return await _apply(services, request, served, body, options, form)

    def change(old: Document) -> Document:
        new = apply_patch(served.kind, content_type, body, old)
        check_kind(served.kind, new)
        check_names(request, metadata_of(new))
        return new

    stored = await write_change(services, request, served, change, options, subresource=request.route.subresource)
    return object_response(request, served, stored, form)


async def _apply(
    services: Services, request: Request, served: Served, body: bytes, options: WriteOptions, form: Form
) -> Response:
    manifest = without_nulls(decode_body("application/yaml", body))
    check_names(request, metadata_of(manifest))
    manager = manager_name(options.field_manager, "")
    subresource, now = request.route.subresource, services.now()
    applying = Applying(served.kind, manager, subresource, now, manifest, force=options.force)
    while True:
        try:
            stored = await write_change(
                services, request, served, applying.change, options, subresource=subresource, tracking=applying
            )
            return object_response(request, served, stored, form)
        except KeyNotFound:
            if subresource:
                raise
        check_create(services.authorizer, request)
        document = applying.new()
        check_kind(served.kind, document)
        document["metadata"]["name"] = request.route.name
        try:
            stored = await store_new(services, request, served, document, options, applying)
            return object_response(request, served, stored, form, 201)
        except KeyExists:
            continue  # somebody else created it meanwhile: there is something to apply to now


def _tracking(request: Request, kind: Kind, options: WriteOptions, now: str) -> Tracking:
    manager = manager_name(options.field_manager, "" if options.field_manager else request.user_agent)
    return Tracking(kind, manager, request.route.subresource, now)


async def write_change(
    services: Services,
    request: Request,
    served: Served,
    change: Change,
    options: WriteOptions,
    *,
    subresource: str,
    tracking: Tracking | None = None,
) -> StoredObject:
    """Store what `change` makes of the object that the URL names.

    Args:
        services: the server's parts.
        request: the request.
        served: the kind.
        change: makes the new state.
        options: how to write.
        subresource: which part may change: `status`, `finalize`, or empty for the object's main part.
        tracking: records who owns its fields; made from the request if it is not given.

    Returns:
        The object as stored, or as it would be stored.

    Raises:
        KplaneError: as `Store.guaranteed_update` does, and what `change` raises.
    """
    route = request.route
    key = served.key(route.cluster, route.namespace, route.name)
    tracking = tracking or _tracking(request, served.kind, options, services.now())
    if services.rbac is not None and served.kind.group == RBAC_GROUP:
        change = services.rbac.escalation.guarded(request, served.kind, change)
    # Who applies to a builtin kind was refused the fields that it does not have, and what is stored has none.
    patched = request.method == "PATCH" and (served.kind.custom is not None or not isinstance(tracking, Applying))
    guard = guard_for(served.kind, options.field_validation, request.warnings, patched=patched)
    attempt = _Attempt(services, served, route.cluster, subresource, change, tracking, guard)
    if options.dry_run:
        found = await served.store.get(key)
        new = attempt.state(found.decode(), found.revision)
        return StoredObject(key, found.revision, encode_object(new))
    return await store_change(services, served, route.cluster, route.namespace, key, attempt)


class ReleasingUpdate(Protocol):
    """An update function that may find that nothing holds an object any more that is being deleted.

    Attributes:
        released: the object's last state in that case, for which the function returned the old one; otherwise None.
    """

    released: Document | None

    def __call__(self, old: Document, meta: ResponseMeta, /) -> UpdateResult:
        """Return the new state and its time to live."""
        ...


async def store_change(
    services: Services, served: Served, cluster: str, namespace: str, key: str, attempt: ReleasingUpdate
) -> StoredObject:
    """Update an object, or delete it when the update takes away the last thing that held it.

    Raises:
        KplaneError: as `Store.guaranteed_update` and `Store.delete` do.
    """
    while True:
        stored = await served.store.guaranteed_update(key, served.renewing(attempt))
        if attempt.released is None:
            services.wrote(served, cluster, stored)
            return stored
        try:
            deleted = await served.store.delete(
                key, preconditions=Preconditions(resource_version=str(stored.revision)), suggestion=stored
            )
        except InvalidObj:
            continue  # it changed meanwhile
        services.removed(served, cluster, namespace, deleted)
        return StoredObject(key, deleted.revision, encode_object(attempt.released))


class _Attempt:
    """The function that `guaranteed_update` runs, once or more often.

    Args:
        services: the server's parts.
        served: the kind.
        cluster: the cluster.
        subresource: which part of the object changes; empty for the whole.
        change: what the client wants.
        tracking: records who owns the fields.
        guard: holds the object to its schema.
    """

    def __init__(
        self,
        services: Services,
        served: Served,
        cluster: str,
        subresource: str,
        change: Change,
        tracking: Tracking,
        guard: Guard,
    ) -> None:
        self._services = services
        self._served = served
        self._cluster = cluster
        self._subresource = subresource
        self._change = change
        self._tracking = tracking
        self._guard = guard
        self.released: Document | None = None
        """The object's last state, when nothing holds it any more."""

    def __call__(self, old: Document, meta: ResponseMeta) -> UpdateResult:
        stored_version = old.get("apiVersion")
        new = self.state(old, meta.resource_version)
        if is_deleting(new) and not has_finalizers(new):
            self.released = new
            old["apiVersion"] = stored_version
            return old, None
        self.released = None
        return new, self._services.settings.event_ttl if self._served.kind.storage_resource == EVENTS else None

    def state(self, old: Document, revision: int) -> Document:
        """Return the object's new state, in the version in which it is stored.

        Raises:
            KplaneError: the change cannot be made.
        """
        kind = self._served.kind
        old = in_version(kind, old)
        self._guard.fit_old(old)
        new = self._change(old)
        self._guard.fit(new)
        metadata = new["metadata"]
        if metadata.get("resourceVersion") not in (None, "", str(revision)):
            raise conflict(self._served.subject(old["metadata"]["name"]), MODIFIED)
        # The identity is the stored one's, whatever the client left out.
        for field in ("name", "namespace"):
            if field in old["metadata"]:
                metadata[field] = old["metadata"][field]
        given = metadata.get("managedFields")
        match self._subresource:
            case "status":
                new = prepare_status(kind, new, old)
            case "finalize":
                new = prepare_finalize(new, old)
            case _:
                prepare_update(kind, new, old)
                new = self._services.complete(self._served, self._cluster, new, old)
        self._guard.check(new, old)
        self._tracking.updated(new, old, given)
        return stored_form(kind, new)


# --- what the body must say -------------------------------------------------------------------------------------------


async def read_object(request: Request, served: Served, options: WriteOptions) -> Document:
    """Return the object in the body; a kind or version that it leaves out is taken from the URL.

    Args:
        request: the request.
        served: the kind.
        options: how to write; they say what becomes of fields that the kind does not have.

    Raises:
        BadRequest: the body is not an object of this kind.
        ApiError: 413 or 415.
    """
    body = await request.body()
    content_type, validation = request.content_type, options.field_validation
    document = decode_body(content_type, body)
    repeated = repeated_fields(document, content_type, body, validation)
    if served.kind.custom is None and b"null" in body:
        document = without_nulls(document)
    check_kind(served.kind, document)
    check_sent(served.kind, document, repeated, validation, request.warnings)
    return document


def check_kind(kind: Kind, document: Document) -> None:
    """Return when the document is of the kind and version; what it leaves out is filled in.

    Raises:
        BadRequest: it is not.
    """
    found_version, found_kind = document.get("apiVersion"), document.get("kind")
    if found_version and found_version != kind.api_version:
        raise BadRequest(
            f"the API version in the data ({found_version}) does not match the expected API version "
            f"({kind.api_version})"
        )
    if found_kind and found_kind != kind.kind:
        words = f"the URL names {kind.plural}, whose kind is {kind.kind}"
        raise cannot_be_handled(kind.kind, kind.version, words, found=found_kind)
    document["apiVersion"], document["kind"] = kind.api_version, kind.kind
    if kind.custom is None:
        _check_shape(kind, document)


def _check_shape(kind: Kind, document: Document) -> None:
    """Refuse what no builtin kind has, so that nothing further on need look twice."""
    for field in _OBJECTS.get(kind.group_resource, _SPEC_AND_STATUS):
        value = document.get(field)
        if value is not None and not isinstance(value, dict):
            words = f"{field} must be an object, not {json_type(value)}"
            raise cannot_be_handled(kind.kind, kind.version, words)


def check_names(request: Request, metadata: Document) -> None:
    """Return when the object is the one that the URL names.

    Raises:
        BadRequest: it is another one.
    """
    route = request.route
    name, namespace = metadata.get("name"), metadata.get("namespace")
    if name and name != route.name:
        raise BadRequest(f"the name of the object ({name}) does not match the name on the URL ({route.name})")
    if namespace and route.namespace and namespace != route.namespace:
        raise BadRequest(
            f"the namespace of the object ({namespace}) does not match the namespace on the request ({route.namespace})"
        )


def _check_update_version(served: Served, document: Document) -> None:
    metadata = document["metadata"]
    if served.kind.custom is not None and not metadata.get("resourceVersion"):
        cause = field_invalid("metadata.resourceVersion", 0, "must be specified for an update")
        raise invalid([cause], kind=served.kind.kind, name=metadata.get("name", ""), group=served.kind.group)
