"""Fleets (`kplane.dev/v1 Fleet`): clusters that are made from one template, as many as are asked for.

A Fleet owns its members by their `ownerReferences`, so deleting it is the garbage collector's work.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kplane_apiserver.clusters.admission import metadata_of, prepare_create
from kplane_apiserver.clusters.fleets_spec import FLEET_LABEL, FleetSpec, member_names, spec_of
from kplane_apiserver.clusters.garbage import metadata_of as metadata_of_stored
from kplane_apiserver.clusters.lifecycle import Owner
from kplane_apiserver.clusters.namespaces import terminating
from kplane_apiserver.clusters.registry import CLUSTER_KEY, pending
from kplane_apiserver.clusters.ttl import end_of
from kplane_apiserver.definitions.crds import kinds_of_crd
from kplane_apiserver.kinds import Kind, builtin_kinds
from kplane_apiserver.requests.params import RemoveOptions
from kplane_apiserver.requests.removers import Removal
from kplane_apiserver.schemas import fit_copied
from kplane_apiserver.services import DEFINITION_KEY, FLEET_KEY, Services
from kplane_apiserver.storing.stores import Served
from kplane_apiserver.upkeep import contents
from kplane_apiserver.upkeep.snapshots import Snapshot, take
from kplane_apiserver.upkeep.snapshots_restore import Seed, copies, make_cluster
from kplane_core.errors import BadRequest, KeyNotFound, KplaneError
from kplane_core.storage.interface import GetOptions, ResponseMeta, StoredObject, UpdateResult

Document = dict[str, Any]

_AT_A_TIME = 8
_PER_TURN = 64  # others wait for the lifecycle's one task too
_MAYBE_ABSENT = GetOptions(ignore_not_found=True)
_PENDING, _READY, _FAILED = "Pending", "Ready", "Failed"

Phase = tuple[str, str]
"""A member's phase, and why."""

_MISSING: Phase = (_PENDING, "the cluster is about to be made")


async def finish(services: Services, owner: Owner) -> bool:
    """Do the lifecycle's work: `contents.finish`, and bringing fleets to what they ask for.

    Returns:
        Whether the work is done.

    Raises:
        KplaneError: the store failed.
    """
    if owner.what != "fleet":
        return await contents.finish(services, owner)
    fleets = services.stores.serve(builtin_kinds()[FLEET_KEY])
    stored = await fleets.store.get(fleets.key(owner.cluster, "", owner.name), _MAYBE_ABSENT)
    if not stored.exists or terminating(stored):
        services.clusters.expiries.put(owner, None)
        return True
    end = end_of(stored)
    if end is not None and end <= services.settings.now():
        await Removal(services, fleets, owner.cluster, RemoveOptions(propagation="Background")).run(stored.key, "")
        return True
    services.clusters.expiries.put(owner, end)
    return await _Fleet(services, fleets, stored).reconcile()


async def enqueue_all(services: Services) -> None:
    """Look at every fleet, once the garbage collector knows all owners.

    Raises:
        KplaneError: the store cannot be listed.
    """
    fleets = services.stores.serve(builtin_kinds()[FLEET_KEY])
    root = services.settings.root_cluster
    async for page in contents.pages(fleets, fleets.prefix(root)):
        for stored in page.items:
            services.lifecycle.enqueue(Owner("fleet", root, fleets.layout.relative(stored.key).name))


class _Fleet:
    """One look at one fleet."""

    def __init__(self, services: Services, fleets: Served, stored: StoredObject) -> None:
        self._services = services
        self._fleets = fleets
        self._stored = stored
        self._clusters = services.stores.serve(builtin_kinds()[CLUSTER_KEY])
        self._root = services.settings.root_cluster
        document = stored.decode()
        self._metadata = document["metadata"]
        self._spec: FleetSpec = spec_of(document)
        self._source: Snapshot | None = None

    async def reconcile(self) -> bool:
        """Make what is missing, delete what is too much, and say so in the status."""
        names = member_names(self._metadata["name"], self._spec)
        await self._delete_surplus(set(names))
        phases = {name: await self._phase_of(name) for name in names}
        missing = [name for name, phase in phases.items() if phase == _MISSING]
        if missing and self._spec.template.source:
            phases.update(await self._take_source(missing))
            missing = [name for name in missing if phases[name] == _MISSING]
        for at in range(0, min(len(missing), _PER_TURN), _AT_A_TIME):
            some = missing[at : at + _AT_A_TIME]
            phases.update(zip(some, await asyncio.gather(*map(self._make, some)), strict=True))
            await asyncio.sleep(0)  # a store in memory never waits, and everybody else's requests must not
        await self._tell(phases)
        if len(missing) > _PER_TURN:
            self._services.lifecycle.enqueue(Owner("fleet", self._root, self._metadata["name"]))
        return all(phase != _FAILED for phase, _ in phases.values())

    async def _take_source(self, missing: Sequence[str]) -> Mapping[str, Phase]:
        source = self._spec.template.source
        if source not in self._services.clusters.known:
            words = f"the cluster {source}, which spec.template.from names, does not exist"
            return dict.fromkeys(missing, (_FAILED, words))
        self._source = await take(self._services, source)
        return {}

    async def _delete_surplus(self, wanted: set[str]) -> None:
        owned = self._services.garbage.index.owned_by((self._root, self._metadata["uid"]))
        members = self._clusters.prefix(self._root)
        for key in owned:
            # Others may name the fleet as their owner too: those are the garbage collector's.
            if key.startswith(members) and self._clusters.layout.relative(key).name not in wanted:
                removal = Removal(self._services, self._clusters, self._root, RemoveOptions(propagation="Background"))
                try:
                    await removal.run(key, "")
                except KeyNotFound:
                    continue

    async def _phase_of(self, name: str) -> Phase:
        stored = await self._clusters.store.get(self._clusters.key(self._root, "", name), _MAYBE_ABSENT)
        return self._judge(stored) if stored.exists else _MISSING

    async def _make(self, name: str) -> Phase:
        try:
            await make_cluster(self._services, self._document(name), lambda: self._seeds(name), {})
        except KplaneError as error:
            return _FAILED, str(error)
        return _READY, ""

    def _judge(self, stored: StoredObject) -> Phase:
        references = metadata_of_stored(stored.raw).owner_references or ()
        if all(reference.uid != self._metadata["uid"] for reference in references):
            return _FAILED, "a cluster of this name exists and is not the fleet's"
        if terminating(stored):
            return _PENDING, "the earlier cluster of this name is being deleted"
        return (_PENDING, "the cluster is being filled") if pending(stored) else (_READY, "")

    def _document(self, name: str) -> Document:
        template, own = self._spec.template, self._metadata
        owner = {
            "apiVersion": self._fleets.kind.api_version,
            "kind": self._fleets.kind.kind,
            "name": own["name"],
            "uid": own["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
        metadata: Document = {
            "name": name,
            "labels": {**template.metadata.labels, FLEET_LABEL: own["name"]},
            "annotations": dict(template.metadata.annotations),
            "ownerReferences": [owner],
        }
        document: Document = {"metadata": metadata}
        if template.spec.ttl_seconds:
            document["spec"] = {"ttlSeconds": template.spec.ttl_seconds}
        return document

    def _seeds(self, name: str) -> Iterator[Seed]:
        custom: dict[tuple[str, str], Kind] = {}
        if self._source is not None:
            custom = {
                (served.kind.api_version, served.kind.kind): served.kind
                for served, _ in self._source.resources
                if served.kind.custom is not None
            }
            yield from copies(self._source)
        # Definitions first: they say what the others are.
        objects = sorted(self._spec.template.objects, key=lambda one: one.get("kind") != "CustomResourceDefinition")
        yield from (self._seed(name, one, custom) for one in objects)

    def _seed(self, cluster: str, given: Mapping[str, Any], custom: dict[tuple[str, str], Kind]) -> Seed:
        document: Document = {**given, "metadata": dict(given.get("metadata") or {})}
        named = (document.get("apiVersion", ""), document.get("kind", ""))
        kind = custom.get(named) or _builtin_by_kind().get(named)
        if kind is None:
            raise BadRequest(f"spec.template.objects: the new cluster serves no {named[1]} of {named[0]}")
        served = self._services.stores.serve(kind)
        namespace = metadata_of(document).get("namespace") or "default" if kind.namespaced else ""
        fit_copied(kind, document)
        prepare_create(kind, document, namespace, self._services.now())
        document = self._services.complete(served, cluster, document, None)
        document["apiVersion"] = kind.storage_api_version
        if kind.key == DEFINITION_KEY:
            custom.update(((one.api_version, one.kind), one) for one in kinds_of_crd(document))
        return Seed(served, document)

    async def _tell(self, phases: Mapping[str, Phase]) -> None:
        now, generation = self._services.now(), self._metadata.get("generation", 1)

        def update(old: Document, _meta: ResponseMeta) -> UpdateResult:
            before = {one["clusterID"]: one for one in (old.get("status") or {}).get("members") or ()}
            members = [_shown(name, phase, before.get(name), now) for name, phase in phases.items()]
            ready = sum(1 for phase, _ in phases.values() if phase == _READY)
            status = {"observedGeneration": generation, "replicas": len(phases), "readyReplicas": ready}
            return {**old, "status": {**status, "members": members}}, None

        try:
            stored = await self._fleets.store.guaranteed_update(self._stored.key, update)
        except KeyNotFound:
            return
        if stored.revision != self._stored.revision:
            self._services.wrote(self._fleets, self._root, stored)


def _shown(name: str, phase: Phase, before: Document | None, now: str) -> Document:
    same = before is not None and before.get("phase") == phase[0]
    since = before.get("lastTransitionTime", now) if same and before is not None else now
    shown: Document = {"clusterID": name, "phase": phase[0], "lastTransitionTime": since}
    return {**shown, "message": phase[1]} if phase[1] else shown


def _builtin_by_kind() -> Mapping[tuple[str, str], Kind]:
    kinds: Sequence[Kind] = tuple(builtin_kinds().values())
    return {(kind.api_version, kind.kind): kind for kind in kinds if not kind.create_only and not kind.root_only}
