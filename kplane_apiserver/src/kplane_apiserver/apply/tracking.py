"""Field ownership of one write: made before the object is stored, once or, when the store asks again, more often."""

from typing import Any

import msgspec

from kplane_apiserver.apply.fieldsets import FieldSet, difference, intersection, paths, union
from kplane_apiserver.apply.forms import OtherForms, without_gone
from kplane_apiserver.apply.managers import (
    APPLY,
    UPDATE,
    Entry,
    Managed,
    Manager,
    cap_updaters,
    read,
    same_but_for_times,
    write,
)
from kplane_apiserver.apply.schema import Node, root_of
from kplane_apiserver.apply.walks import (
    applied_fields,
    check_elements,
    compare,
    merge,
    remove,
    with_named,
)
from kplane_apiserver.conversion import sibling
from kplane_apiserver.kinds import Kind
from kplane_core.errors import ApiError, BadRequest, Status, StatusCause

Document = dict[str, Any]

BEFORE_FIRST_APPLY = "before-first-apply"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_KUBECTL = "kubectl"

# Nobody owns what tells objects apart and what the server keeps.
_UNOWNED_METADATA = (
    "name",
    "namespace",
    "creationTimestamp",
    "selfLink",
    "uid",
    "clusterName",
    "generation",
    "managedFields",
    "resourceVersion",
)
_UNOWNED: FieldSet = {
    "f:apiVersion": {},
    "f:kind": {},
    "f:metadata": {".": {}, **{f"f:{name}": {} for name in _UNOWNED_METADATA}},
}
# What the server itself sets when an object of these kinds is made.
_SET_BY_SERVER = {"namespaces": "spec"}
_STATUS_OF_CLIENT = frozenset({"nodes"})


class Tracking:
    """Records a create or an update, and knows what every recording needs.

    Args:
        kind: the kind that is written, in the version that the client used.
        manager: who writes.
        subresource: through which subresource; empty for the object itself.
        now: the time, as a Kubernetes timestamp.
    """

    def __init__(self, kind: Kind, manager: str, subresource: str, now: str) -> None:
        self.kind = kind
        self.manager = manager
        self.subresource = subresource
        self.now = now
        self.root = root_of(kind)

    def created(self, document: Document) -> None:
        """Record who made a new object; it has everything that will be stored."""
        owned = owned_part(document)
        if "status" in self.kind.subresources and self.kind.group_resource not in _STATUS_OF_CLIENT:
            owned.pop("status", None)
        owned.pop(_SET_BY_SERVER.get(self.kind.group_resource, ""), None)
        fields = _all_of(owned, self.root)
        managed: Managed = {self._updater(): Entry(self.kind.api_version, fields, self.now)}
        store_entries(document, write(managed))

    def updated(self, document: Document, old: Document, given: Any) -> None:
        """Record who changed an object.

        Args:
            document: the new state, ready to be stored.
            old: the stored state.
            given: the `managedFields` that the client sent, which replace the stored ones if they can be read; an
                empty list, or one with an empty entry, makes an end of all recording.
        """
        managed = self._before(old, given)
        if managed:  # without entries nothing is recorded until the first apply
            self._record(managed, self._compared(owned_part(old), owned_part(document)))
        store_entries(document, write(managed))

    def _before(self, old: Document, given: Any) -> Managed:
        stored = old["metadata"].get("managedFields")
        if not self.subresource and given != stored and given is not None:
            if given in ([], [{}]):
                return {}
            if managed := read(given):
                return managed
        return self._known(read(stored) or {}) if stored else {}

    def _known(self, managed: Managed) -> Managed:
        """Return the entries without those in versions that are no longer served."""
        custom = self.kind.custom
        if custom is None or not custom.served_versions:
            return managed
        group = f"{self.kind.group}/"
        known = {group + version for version in custom.served_versions}
        return {manager: entry for manager, entry in managed.items() if entry.api_version in known}

    def _compared(self, old: Document, new: Document) -> OtherForms:
        return OtherForms(self.kind, old, new, compare(old, new, self.root))

    def _record(self, managed: Managed, forms: OtherForms) -> None:
        for entry in managed.values():
            taken = _without_unowned(forms.changed(entry.api_version))
            entry.fields = difference(difference(entry.fields, taken), forms.removed(entry.api_version))
        changed = _without_unowned(forms.changed(self.kind.api_version))
        if changed:
            updater = self._updater()
            before = managed.get(updater)
            fields = union(changed, before.fields) if before else changed
            managed[updater] = Entry(self.kind.api_version, fields, self.now)
        for manager in [manager for manager, entry in managed.items() if not entry.fields]:
            del managed[manager]
        cap_updaters(managed)

    def _updater(self) -> Manager:
        return Manager(self.manager, UPDATE, self.kind.api_version, self.subresource)


class Applying(Tracking):
    """A server-side apply: what it makes of an object, and who owns what then.

    Args:
        kind: the kind that is written.
        manager: who applies.
        subresource: through which subresource; empty for the object itself.
        now: the time, as a Kubernetes timestamp.
        manifest: what is applied; it belongs to this object from now on.
        force: take over the fields of others.

    Raises:
        BadRequest: the manifest is not one of this kind.
    """

    def __init__(
        self, kind: Kind, manager: str, subresource: str, now: str, manifest: Document, *, force: bool
    ) -> None:
        super().__init__(kind, manager, subresource, now)
        self.force = force
        self.manifest = manifest
        self._applier = Manager(manager, APPLY, "", subresource)
        self._managed: Managed = {}
        self._check()
        self._owned = self._part(owned_part(manifest))
        self._fields = applied_fields(self._owned, self.root)

    def _check(self) -> None:
        manifest, kind = self.manifest, self.kind
        api_version, kind_name = manifest.get("apiVersion") or "", manifest.get("kind") or ""
        if (api_version, kind_name) != (kind.api_version, kind.kind):
            version = api_version if "/" in api_version else f"/{api_version}"
            raise BadRequest(f"invalid object type: {version}, Kind={kind_name}")
        if manifest["metadata"].get("managedFields") is not None:
            raise BadRequest("metadata.managedFields must be nil")
        manifest["metadata"].pop("managedFields", None)
        try:
            check_elements(manifest, self.root, closed=kind.custom is None or not kind.custom.preserve_unknown_fields)
        except BadRequest as error:
            metadata = manifest["metadata"]
            name = "/".join(str(metadata[part]) for part in ("namespace", "name") if metadata.get(part))
            version = api_version if "/" in api_version else f"/{api_version}"
            named = f"({name}; {version}, Kind={kind_name})"
            raise BadRequest(f"failed to create typed patch object {named}: {error}") from None

    def _part(self, document: Document) -> Document:
        """Return the part of an object that can be applied here."""
        if self.subresource == "status":
            return {"metadata": {}, **({"status": document["status"]} if "status" in document else {})}
        if "status" in self.kind.subresources:
            return {name: value for name, value in document.items() if name != "status"}
        return document

    def new(self) -> Document:
        """Return the object as it is when there is none yet."""
        self._managed = {self._applier: Entry(self.kind.api_version, _without_unowned(self._fields), self.now)}
        return copied(self.manifest)

    def created(self, document: Document) -> None:
        """Record who made a new object."""
        store_entries(document, write(self._managed))

    def change(self, live: Document) -> Document:
        """Return what the manifest makes of an object, which stays as it is.

        Raises:
            ApiError: 409; others own fields that it would change, and it may not take them over.
        """
        owned_live = owned_part(live)
        managed = self.managed_of(live)
        if not managed:
            earlier = Manager(BEFORE_FIRST_APPLY, UPDATE, self.kind.api_version, self.subresource)
            fields = _all_of(self._part(owned_live), self.root)
            managed = {earlier: Entry(self.kind.api_version, fields, self.now)}
        last = managed.get(self._applier)
        new = merge(owned_live, self._owned, self.root)
        managed[self._applier] = Entry(self.kind.api_version, self._fields, last.time if last else "")
        if last is not None and last.fields != self._fields:
            new = self._prune(new, last, managed)
        self._take(managed, self._compared(owned_live, new), live)
        if new != owned_live:
            managed[self._applier].time = self.now
        managed[self._applier].fields = _without_unowned(self._fields)
        self._managed = managed
        metadata = {**live["metadata"], **new["metadata"]}
        for name in live["metadata"].keys() - new["metadata"].keys() - set(_UNOWNED_METADATA):
            del metadata[name]
        for name in ("resourceVersion", "uid", "name", "namespace"):
            if name in self.manifest["metadata"]:
                metadata[name] = self.manifest["metadata"][name]
        return copied({**new, "apiVersion": live["apiVersion"], "kind": live["kind"], "metadata": metadata})

    def managed_of(self, live: Document) -> Managed:
        """Return who owns which fields of an object, as far as it says."""
        return self._known(read(live["metadata"].get("managedFields") or []) or {})

    def updated(self, document: Document, old: Document, given: Any) -> None:  # noqa: ARG002 (the manifest has none)
        """Record who applied; when nothing else changes, an old time stays."""
        entries, stored = write(self._managed), old["metadata"].get("managedFields") or []
        if same_but_for_times(entries, stored) and owned_part(document) == owned_part(old):
            entries = stored
        store_entries(document, entries)
        if self.manager == _KUBECTL:
            self._keep_last_applied(document)

    def _prune(self, merged: Document, last: Entry, managed: Managed) -> Document:
        """Remove what this manager applied last time, does not apply now, and nobody else owns."""
        other = sibling(self.kind, last.api_version)  # the last time may have been in another form of the object
        there = other or self.kind
        here: FieldSet = {"f:metadata": {}}  # which every object has
        elsewhere: FieldSet = {"f:metadata": {}}
        for entry in managed.values():
            if other is not None and entry.api_version == other.api_version:
                elsewhere = union(elsewhere, entry.fields)
            else:
                here = union(here, entry.fields)
        root = root_of(there)
        gone = difference(with_named(last.fields, root), with_named(here if other is None else elsewhere, root))
        if not gone:
            return merged
        if other is not None:
            return {"metadata": {}, **without_gone(merged, self.kind, other, gone, here)}
        return {"metadata": {}, **remove(merged, gone, self.root)}

    def _take(self, managed: Managed, forms: OtherForms, live: Document) -> None:
        conflicts: dict[Manager, FieldSet] = {}
        for manager, entry in managed.items():
            if manager != self._applier and (shared := intersection(entry.fields, forms.changed(entry.api_version))):
                conflicts[manager] = shared
        if conflicts and not self.force:
            self._refuse(conflicts, live)
        for manager, entry in list(managed.items()):
            if manager == self._applier:
                continue
            removed = forms.removed(entry.api_version)
            entry.fields = difference(difference(entry.fields, conflicts.get(manager, {})), removed)
            if not entry.fields:
                del managed[manager]

    # --- kubectl's client-side apply ----------------------------------------------------------------------------------

    def _refuse(self, conflicts: dict[Manager, FieldSet], live: Document) -> None:
        """Refuse the conflicts, but for those that kubectl has with its own client-side apply."""
        if self.manager == _KUBECTL and (allowed := self._last_applied(live)):
            if not any(difference(fields, allowed) for fields in conflicts.values()):
                return
            conflicts = {manager: difference(fields, allowed) for manager, fields in conflicts.items()}
        raise conflict_error({manager: fields for manager, fields in conflicts.items() if fields})

    def _last_applied(self, live: Document) -> FieldSet:
        """Return the fields that kubectl applied by itself and that are still as it did."""
        text = (live["metadata"].get("annotations") or {}).get(LAST_APPLIED)
        try:
            last = msgspec.json.decode(text or "null")
        except msgspec.DecodeError:
            return {}
        if not isinstance(last, dict) or last.get("apiVersion") != self.kind.api_version:
            return {}
        if not isinstance(last.get("metadata"), dict):
            return {}
        found = compare(last, live, self.root)
        fields = applied_fields(last, self.root)
        for different in found:
            fields = difference(fields, different)
        return fields

    def _keep_last_applied(self, document: Document) -> None:
        annotations = document["metadata"].get("annotations") or {}
        if not annotations.get(LAST_APPLIED):
            return
        manifest = copied(self.manifest)
        (manifest["metadata"].get("annotations") or {}).pop(LAST_APPLIED, None)
        text = msgspec.json.encode(manifest, order="sorted").decode() + "\n"
        document["metadata"]["annotations"] = {**annotations, LAST_APPLIED: text}


def conflict_error(conflicts: dict[Manager, FieldSet]) -> ApiError:
    """Return the 409 that says which managers own which of the fields."""
    found = [(str(manager), list(paths(fields))) for manager, fields in conflicts.items()]
    found.sort()
    causes = [
        StatusCause("FieldManagerConflict", f"conflict with {manager}", path)
        for manager, named in found
        for path in named
    ]
    if len(causes) == 1:
        words = f"1 conflict: {causes[0].message}: {causes[0].field}"
    else:
        listed = [f"conflicts with {manager}:\n" + "\n".join(f"- {path}" for path in named) for manager, named in found]
        words = f"{len(causes)} conflicts: " + "\n".join(listed)
    return ApiError(Status(409, "Conflict", f"Apply failed with {words}", causes=tuple(causes)))


def copied(document: Document) -> Document:
    """Return a deep copy of what only holds JSON's types."""
    result: Document = msgspec.json.decode(msgspec.json.encode(document))
    return result


def owned_part(document: Document) -> Document:
    """Return an object without what nobody can own."""
    result = {name: value for name, value in document.items() if name not in {"apiVersion", "kind"}}
    metadata = document.get("metadata") or {}
    result["metadata"] = {name: value for name, value in metadata.items() if name not in _UNOWNED_METADATA}
    return result


def _all_of(owned: Document, root: Node) -> FieldSet:
    """Return the fields that come with a new object; a struct that is one piece is there before, and changes."""
    found = compare({}, owned, root)
    return _without_unowned(union(found.modified, found.added))


def _without_unowned(fields: FieldSet) -> FieldSet:
    return difference(fields, _UNOWNED)


def store_entries(document: Document, entries: list[dict[str, Any]]) -> None:
    """Put the entries into an object, in place of those that it has."""
    metadata = document["metadata"] = dict(document["metadata"])
    if entries:
        metadata["managedFields"] = entries
    else:
        metadata.pop("managedFields", None)
