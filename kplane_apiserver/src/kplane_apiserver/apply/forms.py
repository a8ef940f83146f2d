"""A write as those managers see it whose entries name the fields of another form of the same objects."""

from typing import Any

from kplane_apiserver.apply.fieldsets import FieldSet, difference, union
from kplane_apiserver.apply.schema import root_of
from kplane_apiserver.apply.walks import Comparison, applied_fields, compare, remove, with_named
from kplane_apiserver.conversion import in_version, sibling
from kplane_apiserver.kinds import Kind

Document = dict[str, Any]


class OtherForms:
    """What one write changes, in each form that the object can have.

    Args:
        kind: the kind in the form that the client used.
        old: the part of the stored object that can be owned, in that form.
        new: the same of the new object.
        found: what differs between them.
    """

    def __init__(self, kind: Kind, old: Document, new: Document, found: Comparison) -> None:
        self._kind = kind
        self._old = old
        self._new = new
        own = union(found.modified, found.added), found.removed
        self._known = {kind.api_version: own}
        self._own = own

    def changed(self, api_version: str) -> FieldSet:
        """Return what has another value or is new, by the names of an `apiVersion`."""
        return self._seen(api_version)[0]

    def removed(self, api_version: str) -> FieldSet:
        """Return what only the old object has, by the names of an `apiVersion`."""
        return self._seen(api_version)[1]

    def _seen(self, api_version: str) -> tuple[FieldSet, FieldSet]:
        known = self._known.get(api_version)
        if known is None:
            other = sibling(self._kind, api_version)
            known = self._own if other is None else self._compared(other)
            self._known[api_version] = known
        return known

    def _compared(self, other: Kind) -> tuple[FieldSet, FieldSet]:
        old, new = (converted(one, self._kind, other) for one in (self._old, self._new))
        found = compare(old, new, root_of(other))
        return union(found.modified, found.added), found.removed


def converted(owned: Document, kind: Kind, other: Kind) -> Document:
    """Return the part of an object that can be owned in another form."""
    document = in_version(other, {**owned, "apiVersion": kind.api_version, "kind": kind.kind})
    return {name: value for name, value in document.items() if name not in {"apiVersion", "kind"}}


def without_gone(merged: Document, kind: Kind, other: Kind, gone: FieldSet, owned: FieldSet) -> Document:
    """Return an object without fields that are named in another form.

    Args:
        merged: the part of the object that can be owned, in the form of `kind`.
        kind: the form that it has.
        other: the form that names what goes.
        gone: the fields that go.
        owned: the fields that somebody owns in the form of `kind`; they stay.
    """
    left = remove(converted(merged, kind, other), gone, root_of(other))
    root = root_of(kind)
    back = converted({"metadata": {}, **left}, other, kind)
    removed = difference(applied_fields(merged, root), applied_fields(back, root))
    removed = difference(with_named(removed, root), with_named(owned, root))
    return remove(merged, removed, root) if removed else merged
