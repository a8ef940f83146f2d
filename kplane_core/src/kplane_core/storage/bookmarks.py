"""Bookmark events: an empty object of the resource with only a resourceVersion, and perhaps the closing annotation."""

from kplane_core.storage.codec import encode_object
from kplane_core.storage.interface import INITIAL_EVENTS_END, EventType, StoredObject, WatchEvent
from kplane_core.storage.resource import Resource


class Bookmarks:
    """Builds the bookmarks of one resource.

    Args:
        resource: whose.
    """

    def __init__(self, resource: Resource) -> None:
        empty = {"apiVersion": resource.api_version, "kind": resource.kind}
        self._plain = encode_object(empty)
        self._end = encode_object(empty | {"metadata": {"annotations": {INITIAL_EVENTS_END: "true"}}})

    def at(self, revision: int, *, initial_events_end: bool = False) -> WatchEvent:
        """Return a bookmark.

        Args:
            revision: everything up to here was delivered.
            initial_events_end: whether it ends the initial events.
        """
        return WatchEvent(
            EventType.BOOKMARK, StoredObject("", revision, self._end if initial_events_end else self._plain)
        )
