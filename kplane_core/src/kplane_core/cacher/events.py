"""What the cache remembers of one change, with everything derived from it at most once."""

from collections.abc import Callable

import msgspec

from kplane_core.storage.interface import EventType, StoredObject, WatchEvent
from kplane_core.storage.selection import Attributes, Predicate

AttributesOf = Callable[[StoredObject], Attributes | None]
"""Returns an object's attributes, or None when they cannot be read."""


class CacheEvent(msgspec.Struct, gc=False):
    """One change of one object.

    Attributes:
        key: the object's key.
        revision: the revision of the change.
        cluster: whose object it is; empty where there are no clusters.
        new: the object after the change; None for a deletion.
        old: the object before; None for a create.
        time: when the cache learned of it, in seconds of its clock.
        told: the event for a watcher that selects everything; made once and shared.
        new_attributes: of `new`, once somebody asked.
        old_attributes: of `old`, once somebody asked.
    """

    key: str
    revision: int
    cluster: str
    new: StoredObject | None
    old: StoredObject | None
    time: float
    told: WatchEvent
    new_attributes: Attributes | None = None
    old_attributes: Attributes | None = None

    def seen_through(self, predicate: Predicate, attributes_of: AttributesOf) -> WatchEvent | None:
        """Return what a watcher with this selector sees of the change; None when it sees nothing.

        Args:
            predicate: a selector that is not empty.
            attributes_of: how to extract attributes.
        """
        new_matches = old_matches = False
        if self.new is not None:
            if self.new_attributes is None:
                self.new_attributes = attributes_of(self.new)
            new_matches = _matches(predicate, self.new_attributes)
        if self.old is not None:
            if self.old_attributes is None:
                self.old_attributes = attributes_of(self.old)
            old_matches = _matches(predicate, self.old_attributes)
        return self._transition(new_matches=new_matches, old_matches=old_matches)

    def seen_by(self, matches: Callable[[bytes], bool]) -> WatchEvent | None:
        """Return what a watcher sees that looks at attributes of its own; None when it sees nothing."""
        return self._transition(
            new_matches=self.new is not None and matches(self.new.raw),
            old_matches=self.old is not None and matches(self.old.raw),
        )

    def _transition(self, *, new_matches: bool, old_matches: bool) -> WatchEvent | None:
        if new_matches:
            assert self.new is not None
            kind = EventType.MODIFIED if old_matches else EventType.ADDED
            return self.told if self.told.type is kind else WatchEvent(kind, self.new)
        if not old_matches:
            return None
        assert self.old is not None
        if self.new is None:
            return self.told
        return WatchEvent(EventType.DELETED, StoredObject(self.key, self.revision, self.old.raw))


def _matches(predicate: Predicate, found: Attributes | None) -> bool:
    return found is not None and predicate.labels.matches(found.labels) and predicate.fields.matches(found.fields)


def change(
    key: str, revision: int, cluster: str, *, new: StoredObject | None, old: StoredObject | None, time: float
) -> CacheEvent:
    """Return the cache's event for a change; `new` or `old` must be given."""
    if new is None:
        assert old is not None
        told = WatchEvent(EventType.DELETED, StoredObject(key, revision, old.raw))
    else:
        told = WatchEvent(EventType.ADDED if old is None else EventType.MODIFIED, new)
    return CacheEvent(key, revision, cluster, new, old, time, told)
