"""One store per resource, shared by all clusters and versions, made when the resource is first touched."""

import contextlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from kplane_apiserver.checks.fields import attributes_for, selectable_fields
from kplane_apiserver.conversion import converts, in_version
from kplane_apiserver.kinds import Kind, builtin_kinds
from kplane_apiserver.schemas import fit_copied, fit_stored, fits_on_read
from kplane_apiserver.settings import Settings
from kplane_apiserver.storing.caches import CacheOnDemand
from kplane_core.errors import InvalidKey, Subject
from kplane_core.multicluster.keylayout import KeyLayout
from kplane_core.storage.codec import decode_object, encode_object, splice_resource_version
from kplane_core.storage.interface import ResponseMeta, Store, StoredObject, UpdateFunc, UpdateResult
from kplane_core.storage.resource import Resource
from kplane_core.storage.selection import AttributeFunc, Predicate, attribute_func

BuildStore = Callable[[Resource], Store]


class _Head(msgspec.Struct):
    apiVersion: str = ""  # noqa: N815 (the field's name in the object)
    kind: str = ""


_HEAD = msgspec.json.Decoder(_Head)
_METADATA = b'"metadata":{'
_NO_HEAD = b"\0"
_REMEMBERED = 2048
_VERSION = b'"metadata":{"resourceVersion":"%d",'


class Served:
    """A kind together with the store that holds its objects, and what every answer about it needs.

    Args:
        kind: what is served.
        store: holds the objects of this resource, of all versions and all clusters.
        layout: where each cluster's objects lie in the store.
        attributes: how selectors see an object of this kind.

    Attributes:
        plain: the store behind the cache, for work that should not fill a cache.
        head: how the JSON of an object of this kind begins.
        splice: the same up to the first name in its metadata, where a resourceVersion goes in without a further look.
        list_head: how the JSON of a list of this kind begins, up to the resourceVersion.
    """

    __slots__ = (
        "_converts",
        "_fits",
        "_remembered",
        "_stale",
        "attributes",
        "head",
        "kind",
        "layout",
        "list_head",
        "plain",
        "splice",
        "store",
    )

    def __init__(self, kind: Kind, store: Store, layout: KeyLayout, attributes: AttributeFunc) -> None:
        self.kind = kind
        self.store = store
        self.plain = store.plain if isinstance(store, CacheOnDemand) else store
        self.layout = layout
        self.attributes = attributes
        names = {"apiVersion": kind.api_version, "kind": kind.kind}
        self.head = msgspec.json.encode(names)[:-1] + b","
        # What may lack defaults or hold another version's fields is looked at closely, so no head lets it pass.
        self._converts = converts(kind)
        self._fits = fits_on_read(kind) or (self._converts and kind.api_version != kind.storage_api_version)
        # The same for objects from before the schema changed: up to this revision.
        self._stale = kind.custom.fitted_since if kind.custom is not None else 0
        self._remembered: dict[bytes, bytes] = {}
        self.splice = _NO_HEAD if self._fits else self.head + _METADATA + b'"'
        listed = {"kind": kind.list_kind, "apiVersion": kind.api_version}
        self.list_head = msgspec.json.encode(listed)[:-1] + b',"metadata":{"resourceVersion":"'

    def key(self, cluster: str, namespace: str, name: str) -> str:
        """Return the key of one object."""
        return self.layout.key(cluster, namespace, name)

    def prefix(self, cluster: str, namespace: str = "") -> str:
        """Return the directory of a cluster's objects, or of those in one namespace."""
        prefix = self.layout.per_cluster_prefix(cluster)
        return f"{prefix}{namespace}/" if namespace else prefix

    def scope(self, cluster: str, namespace: str, predicate: Predicate) -> tuple[str, bool]:
        """Return where a list or watch has to look: a directory and True, or a key and False.

        A selector that pins the name needs one key only, if the namespace is known.
        """
        name = predicate.matches_single()
        if name and (namespace or not self.kind.namespaced):
            with contextlib.suppress(InvalidKey):  # no object has such a name: the selector finds nothing by itself
                return self.layout.key(cluster, namespace, name), False
        return self.prefix(cluster, namespace), True

    def raw(self, stored: StoredObject) -> bytes:
        """Return the object's JSON in this kind's version, without resourceVersion."""
        raw = stored.raw
        return raw if raw.startswith(self.head) and not self._looks(stored) else self._converted(raw, stored.revision)

    def data(self, stored: StoredObject) -> bytes:
        """Return the JSON that clients of this kind receive."""
        raw = stored.raw
        if raw.startswith(self.splice) and stored.revision > self._stale:
            return raw.replace(_METADATA, _VERSION % stored.revision, 1)
        return self._spliced(stored)

    def data_of(self, many: Sequence[StoredObject]) -> list[bytes]:
        """Return `data` of each; for many objects this takes half the time.

        Raises:
            DecodeError: an object cannot be shown in this kind's version.
        """
        splice, spliced, stale = self.splice, self._spliced, self._stale
        return [
            raw.replace(_METADATA, _VERSION % stored.revision, 1)
            if (raw := stored.raw).startswith(splice) and stored.revision > stale
            else spliced(stored)
            for stored in many
        ]

    def decode(self, stored: StoredObject) -> dict[str, Any]:
        """Return a fresh dict of the object in this kind's version, with its resourceVersion."""
        document = stored.decode()
        if document:
            document = in_version(self.kind, document)
            if self._looks(stored):
                fit_stored(self.kind, document)
        return document

    def renewing(self, update: UpdateFunc) -> UpdateFunc:
        """Return an update function that also makes what is stored fit the present schema.

        An update that looks at the metadata alone would otherwise let an old object pass for a new one.
        """
        if not self._stale:
            return update

        def renewed(old: dict[str, Any], meta: ResponseMeta, /) -> UpdateResult | Awaitable[UpdateResult]:
            fit_copied(self.kind, old)
            return update(old, meta)

        return renewed

    def copied(self, stored: StoredObject) -> dict[str, Any]:
        """Return a fresh dict of the object as it is stored, for another cluster with the same definition."""
        document = decode_object(stored.raw)
        if self._stale:
            fit_copied(self.kind, document)
        return document

    def subject(self, name: str) -> Subject:
        """Return what an error about one object is about."""
        return Subject(self.kind.plural, self.kind.group, name)

    def _spliced(self, stored: StoredObject) -> bytes:
        raw = stored.raw
        if self._looks(stored) or not raw.startswith(self.head):
            raw = self._converted(raw, stored.revision)
        return splice_resource_version(raw, stored.revision)

    def _looks(self, stored: StoredObject) -> bool:
        """Return whether an object has to be looked at before it is shown."""
        return self._fits or 0 < stored.revision <= self._stale

    def _converted(self, raw: bytes, revision: int) -> bytes:
        """Give an object that was stored in another version this kind's names, and its fields where those differ."""
        if not raw:
            return raw
        if self._fits or self._converts or 0 < revision <= self._stale:
            return self._fitted(raw)
        found = _HEAD.decode(raw)
        stored_head = msgspec.json.encode({"apiVersion": found.apiVersion, "kind": found.kind})[:-1] + b","
        if raw.startswith(stored_head):
            return self.head + raw[len(stored_head) :]
        document = decode_object(raw)
        document["apiVersion"], document["kind"] = self.kind.api_version, self.kind.kind
        return encode_object(document)

    def _fitted(self, raw: bytes) -> bytes:
        """Return a stored object as this version has it; those last looked at are remembered."""
        found = self._remembered.get(raw)
        if found is None:
            if len(self._remembered) >= _REMEMBERED:
                self._remembered.clear()
            found = self._remembered[raw] = self._fit(raw)
        return found

    def _fit(self, raw: bytes) -> bytes:
        document = in_version(self.kind, decode_object(raw))
        if not fit_stored(self.kind, document) and raw.startswith(self.head):
            return raw
        return encode_object(document)


class StoreSet:
    """The stores of all resources.

    Args:
        build: makes the store of one resource on the connected backend.
        settings: whether and how stores are cached.
    """

    def __init__(self, build: BuildStore, settings: Settings | None = None) -> None:
        self._build = build
        self._settings = settings or Settings()
        self._stores: dict[str, Store] = {}
        self._served: dict[tuple[str, str, str], Served] = {}

    def serve(self, kind: Kind) -> Served:
        """Return the kind with its store, which is made if this is its resource's first use."""
        served = self._served.get(kind.key)
        # Clusters may define the same resource differently, so the remembered one may be of another cluster.
        if served is None or served.kind is not kind:
            served = self._served[kind.key] = self._make(kind)
        return served

    def caches(self) -> Iterator[tuple[str, CacheOnDemand]]:
        """Yield each resource's cache that was asked for, by the resource as whose objects it stores."""
        for group_resource, store in list(self._stores.items()):
            if isinstance(store, CacheOnDemand) and store.started:
                yield group_resource, store

    def has(self, resource: str) -> bool:
        """Return whether there is a store of a resource."""
        return resource in self._stores

    async def let_go(self, resource: str) -> bool:
        """Close a resource's store and forget it; return False when watches are open, and leave it then.

        Raises:
            KplaneError: the store could not be closed.
        """
        store = self._stores.get(resource)
        if store is None or (isinstance(store, CacheOnDemand) and store.watched):
            return False
        del self._stores[resource]
        self._served = {key: one for key, one in self._served.items() if one.store is not store}
        await store.aclose()
        return True

    def _make(self, kind: Kind) -> Served:
        stored = _stored_kind(kind)
        prefix = f"/{stored.group}/{stored.plural}" if stored.group else f"/{stored.plural}"
        layout = KeyLayout(prefix, namespaced=kind.namespaced)
        attributes = _attributes(stored)
        store = self._stores.get(kind.storage_resource)
        if store is None:
            resource = Resource(
                group_resource=kind.storage_resource,
                resource_prefix=layout.kind_root_prefix(),
                api_version=stored.api_version,
                kind=stored.kind,
                attributes=attributes,
            )
            store = self._stores[kind.storage_resource] = self._store(layout, resource)
        return Served(kind, store, layout, attributes)

    def _store(self, layout: KeyLayout, resource: Resource) -> Store:
        if self._settings.watch_cache:
            return CacheOnDemand(layout, resource, self._build, self._settings)
        return self._build(resource)

    async def aclose(self) -> None:
        """Release every store; idempotent."""
        stores = list(self._stores.values())
        self._stores.clear()
        self._served.clear()
        for store in stores:
            await store.aclose()


def _stored_kind(kind: Kind) -> Kind:
    """Return the kind whose form a builtin kind's objects have in the store; a custom kind stands for itself."""
    if kind.custom is not None:
        return kind
    group, _, version = kind.storage_api_version.rpartition("/")
    return builtin_kinds()[group, version, kind.plural]


def _attributes(kind: Kind) -> AttributeFunc:
    """Return how selectors see objects of a kind: one function for all kinds that are alike in this.

    A cache keeps what the function of its resource found, and can use that only for those who ask with the same one.
    """
    shared = _shared_attributes(tuple(selectable_fields(kind).items()), namespaced=kind.namespaced)
    return attributes_for(kind, shared)


@lru_cache(maxsize=4096)
def _shared_attributes(fields: tuple[tuple[str, str], ...], *, namespaced: bool) -> AttributeFunc:
    return attribute_func(dict(fields), namespaced=namespaced)
