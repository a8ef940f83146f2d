"""Which watchers an event concerns, found without asking the others.

Watchers are filed by cluster first, then by what they can see at most: one key, one directory, or one value of an
indexed field. An event looks into the few files that can hold an interested watcher; a watcher of another cluster, or
of another namespace, is never touched.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kplane_core.cacher.events import CacheEvent
from kplane_core.cacher.history import Lane
from kplane_core.storage.selection import Attributes

if TYPE_CHECKING:
    from kplane_core.cacher.watching import CacheWatch

Place = tuple[str, ...]
"""Where a watcher is filed within its lane: ("key", k), ("directory", d), or ("field", name, value)."""


class Scopes:
    """The watchers of one lane.

    Attributes:
        scope: the cluster; None for all of them.
        lane: the history that they follow.
    """

    __slots__ = ("_places", "_triggered", "lane", "scope")

    def __init__(self, scope: str | None, lane: Lane) -> None:
        self.scope = scope
        self.lane = lane
        self._places: dict[Place, set[CacheWatch]] = {}
        self._triggered = 0

    def __bool__(self) -> bool:
        return bool(self._places)

    def __len__(self) -> int:
        return sum(map(len, self._places.values()))

    def __iter__(self) -> Iterator["CacheWatch"]:
        for filed in self._places.values():
            yield from filed

    def add(self, watch: "CacheWatch") -> None:
        """File a watcher."""
        self._places.setdefault(watch.place, set()).add(watch)
        self._triggered += watch.place[0] == "field"

    def remove(self, watch: "CacheWatch") -> None:
        """Forget a watcher; idempotent."""
        filed = self._places.get(watch.place)
        if filed is None or watch not in filed:
            return
        filed.remove(watch)
        self._triggered -= watch.place[0] == "field"
        if not filed:
            del self._places[watch.place]

    def offer(self, event: CacheEvent, position: int, indexed: tuple[str, ...]) -> None:
        """Tell the watchers that may see the event where it stands in the lane.

        Args:
            event: the event, already in the lane.
            position: its place in the lane.
            indexed: the fields by whose values watchers are filed. Both the old and the new value count.
        """
        if not self._places:
            return
        key = event.key
        self._tell(("key", key), position)
        cut = key.rfind("/") + 1
        while cut > 0:
            self._tell(("directory", key[:cut]), position)
            cut = key.rfind("/", 0, cut - 1) + 1
        if self._triggered:
            for name in indexed:
                values = {_value(event.new_attributes, name), _value(event.old_attributes, name)}
                for value in values - {None}:
                    self._tell(("field", name, str(value)), position)

    def _tell(self, place: Place, position: int) -> None:
        filed = self._places.get(place)
        if filed is not None:
            for watch in filed:
                watch.offer(position)


def _value(attributes: Attributes | None, field: str) -> str | None:
    return attributes.fields.get(field, "") if attributes is not None else None
