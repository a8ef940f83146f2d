"""Field ownership of a Scale, which is not stored: who owns its replicas owns the field of its object that holds them.

So the entries of an object are shown to an apply as those of its Scale, and go back into the object's own.
"""

from typing import Any

from kplane_apiserver.apply.fieldsets import FieldSet, difference
from kplane_apiserver.apply.managers import Entry, Managed, read, same_but_for_times, write
from kplane_apiserver.apply.tracking import Applying, owned_part, store_entries
from kplane_apiserver.kinds import Kind

Document = dict[str, Any]

_SUBRESOURCE = "scale"
_REPLICAS = ("spec", "replicas")


class ApplyingScale(Applying):
    """A server-side apply of a Scale.

    Args:
        scale: the kind Scale.
        kind: the kind whose object is scaled.
        path: where that object holds its replicas.
        manager: who applies.
        now: the time, as a Kubernetes timestamp.
        manifest: the Scale; it belongs to this object from now on.
        force: take over the replicas from others.

    Raises:
        BadRequest: the manifest is no Scale.
    """

    def __init__(
        self,
        scale: Kind,
        kind: Kind,
        path: list[str],
        *,
        manager: str,
        now: str,
        manifest: Document,
        force: bool,
    ) -> None:
        super().__init__(scale, manager, _SUBRESOURCE, now, manifest, force=force)
        self._object = kind
        self._path = path

    def managed_of(self, live: Document) -> Managed:
        """Return the entries of a Scale: those of its object, which stand in it, that own the replicas."""
        return {
            manager: Entry(self.kind.api_version, _field(_REPLICAS), entry.time)
            for manager, entry in super().managed_of(live).items()
            if _owns(entry.fields, self._path)
        }

    def updated(self, document: Document, old: Document, given: Any) -> None:  # noqa: ARG002 (the manifest has none)
        """Record in the object who owns its replicas now."""
        stored = old["metadata"].get("managedFields") or []
        entries = write(self._of_object(read(stored) or {}))
        if same_but_for_times(entries, stored) and owned_part(document) == owned_part(old):
            entries = stored
        store_entries(document, entries)

    def _of_object(self, stored: Managed) -> Managed:
        field = _field(self._path)
        owners = {manager: entry for manager, entry in self._managed.items() if _owns(entry.fields, _REPLICAS)}
        managed: Managed = {}
        for manager, entry in stored.items():
            if _owns(entry.fields, self._path) and owners.pop(manager, None) is None:
                entry.fields = difference(entry.fields, field)
            managed[manager] = entry
        for manager, entry in owners.items():
            managed[manager] = Entry(self._object.api_version, field, entry.time)
        return managed


def _field(path: list[str] | tuple[str, ...]) -> FieldSet:
    fields: FieldSet = {}
    for part in reversed(path):
        fields = {f"f:{part}": fields}
    return fields


def _owns(fields: FieldSet, path: list[str] | tuple[str, ...]) -> bool:
    inner: Any = fields
    for part in path:
        inner = inner.get(f"f:{part}") if isinstance(inner, dict) else None
    return inner is not None
