"""The current objects, in key order, with the attributes and indexes that reads need."""

from collections.abc import Callable, Mapping, Sequence

from kplane_core.cacher.history import Lane
from kplane_core.errors import DecodeError
from kplane_core.ordered import SortedKeys
from kplane_core.storage.interface import StoredObject
from kplane_core.storage.keys import prefix_end
from kplane_core.storage.selection import AttributeFunc, Attributes, Predicate

_LABEL_SETS = 10_000

IndexKey = tuple[str, str, str]
"""Cluster, field, value: the cluster comes first, so that equal values in two clusters never meet."""


class State:
    """The objects of one resource.

    Args:
        attributes: how selectors see an object.
        indexed_fields: fields whose exact values are looked up instead of scanned for.
    """

    def __init__(self, attributes: AttributeFunc, indexed_fields: Sequence[str] = ()) -> None:
        self._objects: dict[str, StoredObject] = {}
        self._keys = SortedKeys()
        self._extract = attributes
        self._attributes: dict[str, Attributes | None] = {}
        self._label_sets: dict[tuple[tuple[str, str], ...], Mapping[str, str]] = {}
        self._indexed_fields = tuple(indexed_fields)
        self._index: dict[IndexKey, set[str]] = {}

    def __len__(self) -> int:
        return len(self._objects)

    def get(self, key: str) -> StoredObject | None:
        """Return the object of `key`."""
        return self._objects.get(key)

    def keys(self) -> list[str]:
        """Return all keys in order."""
        return self._keys.all()

    def everything(self) -> list[StoredObject]:
        """Return all objects in key order."""
        return list(map(self._objects.__getitem__, self._keys.all()))

    def put(self, found: StoredObject, cluster: str) -> StoredObject | None:
        """Store an object and return the one it replaces."""
        old = self._objects.get(found.key)
        if old is None:
            self._keys.add(found.key)
        elif self._indexed_fields:
            self._unindex(old, cluster)
        self._objects[found.key] = found
        self._attributes.pop(found.key, None)
        if self._indexed_fields:
            for entry in self._entries(found, cluster):
                self._index.setdefault(entry, set()).add(found.key)
        return old

    def remove(self, key: str, cluster: str) -> StoredObject | None:
        """Remove an object and return it; None when there is none."""
        old = self._objects.get(key)
        if old is None:
            return None
        if self._indexed_fields:
            self._unindex(old, cluster)
        del self._objects[key]
        self._keys.remove(key)
        self._attributes.pop(key, None)
        return old

    def attributes_of(self, found: StoredObject) -> Attributes | None:
        """Return an object's attributes, or None when they cannot be read; extracted once per version."""
        live = self._objects.get(found.key) is found
        if live and found.key in self._attributes:
            return self._attributes[found.key]
        try:
            attributes: Attributes | None = self._shared(self._extract(found.raw))
        except DecodeError:
            attributes = None
        if live:
            self._attributes[found.key] = attributes
        return attributes

    def _shared(self, found: Attributes) -> Attributes:
        """Let objects with equal labels share them: thousands of objects have a handful of label sets."""
        if len(self._label_sets) >= _LABEL_SETS:
            self._label_sets.clear()
        labels = self._label_sets.setdefault(tuple(found.labels.items()), found.labels)
        return Attributes(labels, found.fields)

    def selector(self, predicate: Predicate) -> Callable[[StoredObject], bool] | None:
        """Return the test that a predicate makes of an object, or None when everything is selected."""
        if predicate.empty:
            return None
        if predicate.attributes not in (None, self._extract):
            matches = predicate.matcher(self._extract)
            assert matches is not None
            return lambda found: matches(found.raw)
        labels, fields, attributes_of = predicate.labels, predicate.fields, self.attributes_of

        def selects(found: StoredObject) -> bool:
            attributes = attributes_of(found)
            return attributes is not None and labels.matches(attributes.labels) and fields.matches(attributes.fields)

        return selects

    def scan(self, start: str, end: str) -> list[StoredObject]:
        """Return the objects with start <= key < end, in key order."""
        return list(map(self._objects.__getitem__, self._keys.between(start, end)))

    def indexed(self, prefix: str, cluster: str | None, predicate: Predicate) -> list[StoredObject] | None:
        """Return the objects below `prefix` that an index says may match, in key order; None without an index.

        Args:
            prefix: the directory that is read.
            cluster: whose directory it is; an index is of no use over all clusters.
            predicate: the selector; to be applied to the answer.
        """
        if cluster is None or predicate.attributes not in (None, self._extract):
            return None  # the index knows what the resource's own fields are, not what somebody else calls so
        for field in self._indexed_fields:
            value = predicate.fields.exact(field)
            if value is not None:
                keys = sorted(key for key in self._index.get((cluster, field, value), ()) if key.startswith(prefix))
                return [self._objects[key] for key in keys]
        return None

    def at(self, prefix: str, revision: int, lane: Lane) -> list[StoredObject]:
        """Return the objects below `prefix` as they were at `revision`, in key order.

        The live objects are read and every later change is undone: nothing is copied when a change comes in.

        Args:
            prefix: the directory that is read.
            revision: not below the lane's floor.
            lane: a history that covers the prefix.
        """
        undone: dict[str, StoredObject | None] = {}
        for event in lane.newest_first():
            if event.revision <= revision:
                break
            if event.key.startswith(prefix):
                undone[event.key] = event.old
        live = self.scan(prefix, prefix_end(prefix))
        if not undone:
            return live
        past = [found for found in live if found.key not in undone]
        past += [found for found in undone.values() if found is not None]
        past.sort(key=_key_of)
        return past

    def _entries(self, found: StoredObject, cluster: str) -> list[IndexKey]:
        attributes = self.attributes_of(found)
        if attributes is None:
            return []
        return [(cluster, field, attributes.fields.get(field, "")) for field in self._indexed_fields]

    def _unindex(self, old: StoredObject, cluster: str) -> None:
        for entry in self._entries(old, cluster):
            filed = self._index.get(entry)
            if filed is not None:
                filed.discard(old.key)
                if not filed:
                    del self._index[entry]


def _key_of(found: StoredObject) -> str:
    return found.key
