"""Which kinds each cluster serves: the builtin ones, and those of the cluster's own CustomResourceDefinitions.

Thousands of clusters with the same definitions must cost about as much as one. So a parsed definition is shared by its
content, and a cluster's whole set of definitions, its view, is shared with every cluster that has the same set; a
cluster itself holds little more than a dict of references.
"""

import asyncio
import hashlib
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

import attrs
import msgspec

from kplane_apiserver.definitions.crd_names import NamesInUse
from kplane_apiserver.definitions.crds import claims_of_crd, is_established, kinds_of_crd, prepare_crd, version_priority
from kplane_apiserver.kinds import Kind, KindKey, builtin_kinds
from kplane_apiserver.schemas.compiled import compiled
from kplane_apiserver.storing.follow import Follower
from kplane_core.errors import InvalidKey, KeyNotFound, KplaneError
from kplane_core.multicluster.keylayout import KeyLayout
from kplane_core.storage.codec import decode_object
from kplane_core.storage.interface import ResponseMeta, Store, StoredObject, UpdateResult

_log = logging.getLogger(__name__)


@attrs.frozen(eq=False)
class Definition:
    """One CustomResourceDefinition's content, shared by all clusters that have it.

    Attributes:
        digest: tells it from every other definition.
        content: tells its content from every other.
        schemas: tells the schemas of its versions from all others.
        fitted_since: objects of this revision or an older one may have been written by other schemas; 0 for none.
        group: its API group.
        established: whether its kinds are served.
        kinds: one per served version; none while it is not established.
        names: the names that it holds.
    """

    digest: bytes
    content: bytes
    schemas: bytes
    fitted_since: int
    group: str
    established: bool
    kinds: tuple[Kind, ...]
    names: NamesInUse


@attrs.frozen(eq=False)
class View:
    """The custom kinds of a cluster, shared by all clusters with the same definitions.

    Attributes:
        fingerprint: tells it from every other view; empty for the view without custom kinds.
        kinds: by group, the most preferred version first, then by plural.
        index: the same by (group, version, plural).
        memo: what discovery and OpenAPI worked out for it.
    """

    fingerprint: str
    kinds: tuple[Kind, ...]
    index: Mapping[KindKey, Kind]
    memo: dict[Any, Any] = attrs.field(factory=dict, repr=False)


_EMPTY = View("", (), {})


class _Cluster:
    """A cluster's definitions by name, and the view of them, built when somebody looks."""

    __slots__ = ("definitions", "view")

    def __init__(self) -> None:
        self.definitions: dict[str, Definition] = {}
        self.view: View | None = _EMPTY


class Catalog:
    """What every cluster serves.

    Args:
        layout: the keys of the customresourcedefinitions.
        root_cluster: the cluster that serves the kinds about clusters.
    """

    def __init__(self, layout: KeyLayout, *, root_cluster: str = "root") -> None:
        self._layout = layout
        self._root_cluster = root_cluster
        self._builtin = builtin_kinds()
        self._everywhere = tuple(kind for kind in self._builtin.values() if not kind.root_only)
        self._in_root = tuple(self._builtin.values())
        self._clusters: dict[str, _Cluster] = {}
        self._definitions: WeakValueDictionary[bytes, Definition] = WeakValueDictionary()
        self._views: WeakValueDictionary[str, View] = WeakValueDictionary()
        self._store: Store | None = None
        self._follower: Follower | None = None
        self._uses: Counter[str] = Counter()
        self.on_undefined: Callable[[str], None] = _nobody_cares
        """Called with a resource when the last cluster that defined it does so no more."""

    # --- looking ------------------------------------------------------------------------------------------------------

    def lookup(self, cluster: str, group: str, version: str, plural: str) -> Kind | None:
        """Return the kind that a request names; None where the cluster does not serve it."""
        key = (group, version, plural)
        kind = self._builtin.get(key)
        if kind is not None:
            return kind if not kind.root_only or cluster == self._root_cluster else None
        entry = self._clusters.get(cluster)
        if entry is None:
            return None
        return (entry.view or self._build_view(entry)).index.get(key)

    def defined(self, resource: str) -> bool:
        """Return whether any cluster has a definition of a custom resource, such as `widgets.example.com`."""
        return resource in self._uses

    def find_anywhere(self, group: str, version: str, plural: str) -> Kind | None:
        """Return a kind of this name that some cluster serves; None when no cluster does.

        Where clusters define it differently, always the same one of their definitions is taken.
        """
        key = (group, version, plural)
        found = self._builtin.get(key)
        if found is not None:
            return found
        defined = [definition for definition in self._definitions.values() if definition.group == group]
        for definition in sorted(defined, key=_content_order):
            for kind in definition.kinds:
                if kind.key == key:
                    return kind
        return None

    def view(self, cluster: str) -> View:
        """Return the cluster's custom kinds."""
        entry = self._clusters.get(cluster)
        if entry is None:
            return _EMPTY
        return entry.view or self._build_view(entry)

    def is_root(self, cluster: str) -> bool:
        """Return whether it is the root cluster."""
        return cluster == self._root_cluster

    def builtin(self, cluster: str) -> Sequence[Kind]:
        """Return the builtin kinds that a cluster serves, in discovery order."""
        return self._in_root if cluster == self._root_cluster else self._everywhere

    def kinds(self, cluster: str) -> Sequence[Kind]:
        """Return all kinds that a cluster serves: the builtin ones in discovery order, then its own."""
        custom = self.view(cluster).kinds
        return (*self.builtin(cluster), *custom) if custom else self.builtin(cluster)

    def groups(self, cluster: str) -> Sequence[str]:
        """Return the API groups that a cluster serves, the core group (an empty text) first."""
        return tuple(dict.fromkeys(kind.group for kind in self.kinds(cluster)))

    # --- learning -----------------------------------------------------------------------------------------------------

    async def start(self, store: Store) -> None:
        """Learn every cluster's definitions, and follow them from then on with one task.

        Args:
            store: holds the customresourcedefinitions of all clusters.

        Raises:
            KplaneError: the store cannot be listed.
        """
        self._store = store
        prefix = self._layout.kind_root_prefix()
        self._follower = Follower(store, prefix, reset=self._reset, apply=self._apply)
        await self._follower.start()

    def observe(self, cluster: str, stored: StoredObject, *, deleted: bool = False) -> None:  # noqa: ARG002 (the key says it too)
        """Take this process's own write of a definition, so that the next request sees it.

        Args:
            cluster: whose definition it is.
            stored: as the store returned it, with the revision of the change; old news is ignored.
            deleted: whether the change was its deletion.
        """
        if self._follower is not None:
            self._follower.observe(stored, deleted=deleted)

    def wrote(self, cluster: str, kind: Kind, revision: int) -> None:
        """Take note of an object that was written.

        Its kind may have been defined anew while the write was under way; then the object is older than it looks.

        Args:
            cluster: the cluster.
            kind: what the writer took it for.
            revision: the object's.
        """
        current = self.lookup(cluster, *kind.key)
        if current is kind or current is None or current.custom is None or kind.custom is None:
            return
        if compiled(current.custom) is compiled(kind.custom) or current.custom.fitted_since >= revision:
            return
        entry, name = self._clusters[cluster], f"{kind.plural}.{kind.group}"
        entry.definitions[name] = self._since(entry.definitions[name], revision)
        entry.view = None

    async def aclose(self) -> None:
        """Stop following; idempotent."""
        if self._follower is not None:
            await self._follower.aclose()
            self._follower = None

    # --- judging ------------------------------------------------------------------------------------------------------

    def names_in_use(self, cluster: str, crd: dict[str, Any]) -> NamesInUse:
        """Return the names that a cluster's other kinds hold in the group of a definition.

        Args:
            cluster: the cluster.
            crd: the definition; its own names are left out.
        """
        spec, metadata = crd.get("spec"), crd.get("metadata")
        group = spec.get("group") if isinstance(spec, dict) else None
        name = metadata.get("name") if isinstance(metadata, dict) else None
        # Also what the root cluster alone serves: its objects lie in the same place.
        held = [_names_of(kind for kind in self._in_root if kind.group == group)]
        entry = self._clusters.get(cluster)
        for other, definition in entry.definitions.items() if entry else ():
            if other != name and definition.group == group:
                held.append(definition.names)
        return NamesInUse(
            frozenset().union(*(names.resources for names in held)), frozenset().union(*(names.kinds for names in held))
        )

    def prepare(self, cluster: str, new: dict[str, Any], old: dict[str, Any] | None, now: str) -> dict[str, Any]:
        """Return a definition as it is to be stored in a cluster: `crds.prepare_crd` with the cluster's names.

        Raises:
            BadRequest: a field has the wrong type.
            InvalidError: 422 with a cause for each fault.
        """
        return prepare_crd(new, old, now, in_use=self.names_in_use(cluster, new))

    async def reconsider(self, cluster: str, group: str, now: str) -> None:
        """Judge again the definitions that wait for a name, after a definition of their group was deleted or changed.

        Args:
            cluster: the cluster.
            group: the API group whose names may have become free.
            now: the time for conditions that change, in RFC 3339.

        Raises:
            KplaneError: the store failed.
        """
        entry = self._clusters.get(cluster)
        if entry is None or self._store is None:
            return
        waiting = [name for name, found in entry.definitions.items() if found.group == group and not found.established]
        for name in waiting:

            def judge(current: dict[str, Any], _meta: ResponseMeta) -> UpdateResult:
                return self.prepare(cluster, current, current, now), None

            try:
                stored = await self._store.guaranteed_update(self._layout.key(cluster, "", name), judge)
            except KeyNotFound:
                continue
            self.observe(cluster, stored)

    # --- within -------------------------------------------------------------------------------------------------------

    def _reset(self) -> None:
        # The definitions are about to be told anew; most are the same, and are kept from being parsed again.
        kept, uses = list(self._clusters.values()), self._uses
        self._clusters, self._uses = {}, Counter()

        def told() -> None:
            kept.clear()
            for resource in uses:
                if resource not in self._uses:
                    self.on_undefined(resource)

        asyncio.get_running_loop().call_soon(told)

    def _apply(self, stored: StoredObject, deleted: bool) -> None:  # noqa: FBT001 (Follower's callback)
        try:
            path = self._layout.relative(stored.key)
        except InvalidKey as error:
            _log.warning("a record among the CustomResourceDefinitions is ignored: %s", error)
            return
        entry = self._clusters.get(path.cluster)
        if deleted:
            if entry is not None and entry.definitions.pop(path.name, None) is not None:
                self._forget(path.name)
                entry.view = None
                if not entry.definitions:
                    del self._clusters[path.cluster]
            return
        definition = self._define(stored, entry.definitions.get(path.name) if entry is not None else None)
        if entry is None:
            entry = self._clusters[path.cluster] = _Cluster()
        if path.name not in entry.definitions:
            self._uses[path.name] += 1
        if entry.definitions.get(path.name) is not definition:
            entry.definitions[path.name] = definition
            entry.view = None

    def _forget(self, resource: str) -> None:
        self._uses[resource] -= 1
        if not self._uses[resource]:
            del self._uses[resource]
            self.on_undefined(resource)

    def _define(self, stored: StoredObject, before: Definition | None) -> Definition:
        digest, schemas, generation = _digest(stored.raw)
        if before is None:
            # It is not known when its schemas changed last, if ever; but not after this.
            since = stored.revision if generation > 1 else 0
        else:
            since = before.fitted_since if before.schemas == schemas else stored.revision
        definition = self._definitions.get(digest)
        if definition is None:
            definition = self._definitions[digest] = _parse(stored, digest, schemas)
        return self._since(definition, since)

    def _since(self, definition: Definition, revision: int) -> Definition:
        """Return the same definition with another `fitted_since`."""
        if definition.fitted_since == revision:
            return definition
        digest = definition.content + revision.to_bytes(8, "big") if revision else definition.content
        found = self._definitions.get(digest)
        if found is None:
            kinds = tuple(
                attrs.evolve(kind, custom=kind.custom and attrs.evolve(kind.custom, fitted_since=revision))
                for kind in definition.kinds
            )
            found = attrs.evolve(definition, digest=digest, kinds=kinds, fitted_since=revision)
            self._definitions[digest] = found
        return found

    def _build_view(self, entry: _Cluster) -> View:
        established = [definition for definition in entry.definitions.values() if definition.kinds]
        if not established:
            entry.view = _EMPTY
            return _EMPTY
        digests = sorted(definition.digest for definition in established)
        fingerprint = hashlib.blake2b(b"".join(digests), digest_size=16).hexdigest()
        view = self._views.get(fingerprint)
        if view is None:
            found = (kind for definition in established for kind in definition.kinds)
            kinds = tuple(sorted(found, key=_kind_order))
            view = self._views[fingerprint] = View(fingerprint, kinds, {kind.key: kind for kind in kinds})
        entry.view = view
        return view


def _nobody_cares(_resource: str) -> None:
    """Do nothing: who holds no stores has none to let go."""


def _content_order(definition: Definition) -> tuple[bytes, int]:
    return definition.content, -definition.fitted_since


def _kind_order(kind: Kind) -> tuple[str, tuple[int, int, int, str], str]:
    return kind.group, version_priority(kind.version), kind.plural


def _names_of(kinds: Iterable[Kind]) -> NamesInUse:
    resources: set[str] = set()
    names: set[str] = set()
    for kind in kinds:
        resources.update((kind.plural, kind.singular, *kind.short_names))
        names.update((kind.kind, kind.list_kind))
    return NamesInUse(frozenset(resources), frozenset(names))


# --- reading stored definitions ---------------------------------------------------------------------------------------


class _Condition(msgspec.Struct):
    type: str = ""
    status: str = ""


class _Status(msgspec.Struct, rename="camel"):
    accepted_names: msgspec.Raw = msgspec.Raw(b"")
    stored_versions: msgspec.Raw = msgspec.Raw(b"")
    conditions: list[_Condition] | None = None


class _Version(msgspec.Struct):
    name: str = ""
    schema: msgspec.Raw = msgspec.Raw(b"")


class _Spec(msgspec.Struct, rename="camel"):
    versions: list[_Version] | None = None
    preserve_unknown_fields: bool | None = None


class _Metadata(msgspec.Struct):
    generation: int = 1


class _Probe(msgspec.Struct):
    spec: msgspec.Raw = msgspec.Raw(b"")
    status: _Status | None = None
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


_PROBE = msgspec.json.Decoder(_Probe)
_SPEC = msgspec.json.Decoder(_Spec)


def _digest(raw: bytes) -> tuple[bytes, bytes, int]:
    """Return what tells apart the contents that matter for serving, and the schemas in them; and the generation.

    Uids, times and labels do not matter.
    """
    try:
        probe = _PROBE.decode(raw)
        spec = _SPEC.decode(probe.spec) if bytes(probe.spec) else _Spec()
    except (msgspec.DecodeError, RecursionError):
        digest = _hashed(raw)
        return digest, digest, 1
    status = probe.status or _Status()
    parts = (probe.spec, status.accepted_names, status.stored_versions, msgspec.json.encode(status.conditions))
    schemas = [part for version in spec.versions or () for part in (version.name.encode(), version.schema)]
    return _hashed(*parts), _hashed(*schemas, b"%d" % bool(spec.preserve_unknown_fields)), probe.metadata.generation


def _hashed(*parts: bytes | msgspec.Raw) -> bytes:
    hashed = hashlib.blake2b(digest_size=16)
    for part in parts:
        hashed.update(b"%d:" % len(bytes(part)))
        hashed.update(part)
    return hashed.digest()


def _parse(stored: StoredObject, digest: bytes, schemas: bytes) -> Definition:
    try:
        crd = decode_object(stored.raw)
        kinds = kinds_of_crd(crd)
        established = is_established(crd)
        group, names = claims_of_crd(crd)
    except KplaneError as error:
        _log.warning("the CustomResourceDefinition at %s cannot be served: %s", stored.key, error)
        group, established, kinds, names = "", False, (), NamesInUse()
    return Definition(digest, digest, schemas, 0, group, established=established, kinds=kinds, names=names)
