"""The model that every backend is compared with: a log of changes, from which each answer follows."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from kplane_core.storage.interface import EventType, StoredObject, WatchEvent

Document = Mapping[str, Any]


@attrs.frozen
class Version:
    """What a key holds.

    Attributes:
        document: the object without its resourceVersion.
        revision: its resourceVersion.
        expires: when it goes, on the model's clock; None for never.
    """

    document: Document
    revision: int
    expires: float | None = None


@attrs.frozen
class Change:
    """One committed change.

    Attributes:
        revision: its resourceVersion.
        key: which key.
        old: the version before; None for a create.
        new: the version after; None for a delete.
    """

    revision: int
    key: str
    old: Version | None
    new: Version | None


@attrs.frozen
class Told:
    """An event, an item of a list or an answer, reduced to what can be compared."""

    kind: str
    key: str
    revision: int
    document: Document


def tell(kind: str, found: StoredObject) -> Told:
    """Return a stored object as the model would tell of it."""
    document = found.decode()
    document.get("metadata", {}).pop("resourceVersion", None)
    return Told(kind, found.key, found.revision, document)


def tell_event(event: WatchEvent) -> Told:
    """Return an event as the model would tell of it."""
    if event.object is None:
        return Told(event.type.value, "", 0, {"error": str(event.error)})
    return tell(event.type.value, event.object)


@attrs.define
class Model:
    """A store, as a log of changes.

    Attributes:
        start: the newest revision before the first change.
        log: every change, in order.
        live: what the keys hold now.
        floor: nothing below it can be read any more.
        now: the clock that TTLs are measured by.
    """

    start: int
    log: list[Change] = attrs.field(factory=list)
    live: dict[str, Version] = attrs.field(factory=dict)
    floor: int = 0
    now: float = 0.0

    @property
    def newest(self) -> int:
        """The revision of the newest change."""
        return self.log[-1].revision if self.log else self.start

    def commit(self, revision: int, key: str, document: Document | None, *, ttl: int | None = None) -> None:
        """Take in a change that the store reports.

        Args:
            revision: must be greater than all before.
            key: which key.
            document: the new object; None for a deletion.
            ttl: as in `UpdateResult`.
        """
        assert revision > self.newest, f"a change got revision {revision}, but {self.newest} was already given"
        old = self.live.pop(key, None)
        new = None
        if document is not None:
            kept = old.expires if old and ttl is None else None
            new = self.live[key] = Version(document, revision, self.now + ttl if ttl else kept)
        self.log.append(Change(revision, key, old, new))

    def due(self) -> Sequence[str]:
        """Return the keys whose time has passed."""
        return [
            key for key, version in self.live.items() if version.expires is not None and version.expires <= self.now
        ]

    def state(self, at: int | None = None) -> Mapping[str, Version]:
        """Return what the keys held at a revision, in key order."""
        held: dict[str, Version] = {}
        for change in self.log:
            if at is not None and change.revision > at:
                break
            held.pop(change.key, None)
            if change.new is not None:
                held[change.key] = change.new
        return dict(sorted(held.items()))

    def items(self, directory: str, label: str, at: int | None = None) -> Sequence[Told]:
        """Return what a list of a directory shows."""
        return [
            Told("", key, version.revision, version.document)
            for key, version in self.state(at).items()
            if key.startswith(directory) and selected(version, label)
        ]

    def events(self, directory: str, label: str, after: int) -> Iterator[Told]:
        """Yield what a watch of a directory that starts after a revision tells."""
        for change in self.log:
            if change.revision > after and change.key.startswith(directory):
                yield from self._transition(change, label)

    def _transition(self, change: Change, label: str) -> Iterator[Told]:
        before, after = selected(change.old, label), selected(change.new, label)
        if after:
            assert change.new is not None
            kind = EventType.MODIFIED if before else EventType.ADDED
            yield Told(kind.value, change.key, change.revision, change.new.document)
        elif before:
            assert change.old is not None
            yield Told(EventType.DELETED.value, change.key, change.revision, change.old.document)


def selected(version: Version | None, label: str) -> bool:
    """Whether a version carries the label `colour` with this value; an empty label selects every version."""
    if version is None:
        return False
    labels = version.document["metadata"].get("labels", {})
    return not label or labels.get("colour") == label
