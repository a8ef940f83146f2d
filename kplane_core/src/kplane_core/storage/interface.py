"""The storage contract: what every store promises, whatever lies below it.

This is the Kubernetes apiserver's `storage.Interface`, restated for asyncio: values are returned instead of written
through out-parameters, deadlines are cancellation, and a watch is an async iterator. Behaviour and errors are written
here once; a backend's own documentation says only what differs.

resourceVersion rules that every store keeps:

1. They are positive, fit in an int64, and grow with every committed change on any key of the backend.
2. A change that changes nothing gets none and causes no event.
3. An answer that carries resourceVersion r reflects every change up to r in its range, and none later.
4. Numeric order is commit order is delivery order. They survive restarts and are never reused.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from enum import StrEnum
from typing import Any, Protocol, Self

import attrs
import msgspec

from kplane_core.errors import KplaneError
from kplane_core.storage.codec import decode_object, splice_resource_version
from kplane_core.storage.preconditions import Preconditions
from kplane_core.storage.selection import Predicate

INT64_MAX = 9223372036854775807
INITIAL_EVENTS_END = "k8s.io/initial-events-end"
"""The annotation of the bookmark that ends the initial events of a watch."""


class StoredObject(msgspec.Struct, frozen=True, gc=False):
    """One object as the store holds it: bytes first, decoded only when asked.

    Attributes:
        key: the store key that holds it, without the store's path prefix.
        revision: its resourceVersion; 0 for an object that does not exist (`get` with `ignore_not_found`).
        raw: its JSON without resourceVersion, as it was before the value transformer; empty when it does not exist.
    """

    key: str
    revision: int
    raw: bytes

    @property
    def exists(self) -> bool:
        """Whether an object stands behind this value."""
        return bool(self.raw)

    @property
    def data(self) -> bytes:
        """The JSON that a client receives: `raw` with the resourceVersion in its metadata."""
        return splice_resource_version(self.raw, self.revision)

    def decode(self) -> dict[str, Any]:
        """Return a fresh dict of the object with `metadata.resourceVersion` set.

        Returns:
            The caller's own copy; an empty dict when the object does not exist.

        Raises:
            DecodeError: the bytes are not a JSON object.
        """
        if not self.raw:
            return {}
        document = decode_object(self.raw)
        document.setdefault("metadata", {})["resourceVersion"] = str(self.revision)
        return document


class ObjectList(msgspec.Struct, frozen=True):
    """A page of objects in byte order of their keys.

    Attributes:
        items: the objects; never None.
        revision: the resourceVersion of the snapshot that the page comes from.
        continue_token: where the next page starts; empty on the last page.
        remaining: how many keys follow this page; None when unknown or zero.
    """

    items: tuple[StoredObject, ...]
    revision: int
    continue_token: str = ""
    remaining: int | None = None


class EventType(StrEnum):
    """The kinds of watch events."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"
    ERROR = "ERROR"


class WatchEvent(msgspec.Struct, frozen=True):
    """One event of a watch.

    Attributes:
        type: what happened.
        object: the object after the change; for DELETED its last content with the revision of the deletion; for
            BOOKMARK an empty object of the resource with only its revision (and the end-of-initial-events
            annotation); None for ERROR.
        error: what ended the watch, for ERROR only.
    """

    type: EventType
    object: StoredObject | None = None
    error: KplaneError | None = None


@attrs.frozen
class GetOptions:
    """How to read one object.

    Attributes:
        ignore_not_found: answer an absent key with a StoredObject that does not exist instead of KeyNotFound.
        resource_version: "" for the newest, "0" for any, N for "not older than N". Never an exact read.
    """

    ignore_not_found: bool = False
    resource_version: str = ""


@attrs.frozen
class ListOptions:
    """How to list or watch.

    Attributes:
        resource_version: "" for the newest, "0" for any, or a positive decimal.
        resource_version_match: "" (legacy rules), "Exact" or "NotOlderThan".
        predicate: the selection; carries limit and continue token too.
        recursive: True reads the directory below the key, False exactly the key.
        progress_notify: watch only, for caches: deliver the backend's progress as bookmarks.
        send_initial_events: watch only: None (legacy), True or False, as in WatchList.
        deadline: watch only: loop time at which the caller ends the watch; None for never.
    """

    resource_version: str = ""
    resource_version_match: str = ""
    predicate: Predicate = attrs.field(factory=Predicate)
    recursive: bool = True
    progress_notify: bool = False
    send_initial_events: bool | None = None
    deadline: float | None = None


@attrs.frozen
class DeleteOptions:
    """How to delete.

    Attributes:
        expect_transform_or_decode_error: the unsafe path: delete only a record that cannot be read.
    """

    expect_transform_or_decode_error: bool = False


@attrs.frozen
class ResponseMeta:
    """What the store knows of the object given to an update function.

    Attributes:
        resource_version: its resourceVersion; 0 if it does not exist.
    """

    resource_version: int


UpdateResult = tuple[dict[str, Any], int | None]
"""The new object and its TTL in seconds: None keeps the remaining one, 0 clears it, n sets it."""

UpdateFunc = Callable[[dict[str, Any], ResponseMeta], UpdateResult | Awaitable[UpdateResult]]
"""A function of its input only: it may run several times. Gets a private copy; an empty dict for an absent object."""

ValidateFunc = Callable[[StoredObject | None], Awaitable[None] | None]
"""Raises to refuse a deletion. May run several times; gets None on the unsafe path."""


@attrs.frozen
class Stats:
    """How much a store holds.

    Attributes:
        object_count: records below the resource prefix.
        estimated_average_object_size_bytes: 0 unless size estimation is enabled.
    """

    object_count: int
    estimated_average_object_size_bytes: int = 0


class Watch(Protocol):
    """A running watch: an async iterator of events that ends when the watch does.

    Live events come in strictly increasing revision, each exactly once, none skipped. An ERROR is the last event.
    Cancelling the iterating task, leaving `async with`, or calling `stop` releases everything the watch holds.
    """

    def __aiter__(self) -> AsyncIterator[WatchEvent]:
        """Iterate over the events."""
        ...

    async def __anext__(self) -> WatchEvent:
        """Return the next event; raises StopAsyncIteration once the watch has ended."""
        ...

    async def batch(self) -> Sequence[WatchEvent]:
        """Return at least one event, and all that are ready; an empty sequence once the watch has ended."""
        ...

    def stop(self) -> None:
        """End the watch soon; idempotent. Events already buffered may still be read."""
        ...

    async def __aenter__(self) -> Self:
        """Return the watch itself."""
        ...

    async def __aexit__(self, *exc: object) -> None:
        """Stop the watch and wait until its resources are released."""
        ...


class Store(Protocol):
    """The storage contract for ONE resource.

    Every key starts with the store's resource prefix. All methods raise InvalidKey for a key with `.` or `..`
    segments, an empty one, or one outside the prefix, before anything else happens. A call runs until it ends or its
    task is cancelled; a database that cannot be reached raises Unreachable.
    """

    @property
    def resource_prefix(self) -> str:
        """The directory that holds this store's records, with a trailing slash."""
        ...

    async def create(self, key: str, obj: dict[str, Any], *, ttl: int = 0) -> StoredObject:
        """Store a new object; never reads first and never retries.

        Args:
            key: where.
            obj: the object; left as it is. Its selfLink is not stored.
            ttl: seconds to live; 0 means forever.

        Returns:
            The object as stored, with its resourceVersion.

        Raises:
            KeyExists: the key holds an object.
            RVSetOnCreate: the object carries a resourceVersion other than "" or "0".
            InternalError: the transformer failed.
        """
        ...

    async def delete(
        self,
        key: str,
        *,
        preconditions: Preconditions | None = None,
        validate: ValidateFunc | None = None,
        suggestion: StoredObject | None = None,
        options: DeleteOptions | None = None,
    ) -> StoredObject:
        """Delete an object.

        Args:
            key: which.
            preconditions: what must hold for the stored object; checked before every attempt.
            validate: runs before every attempt, after the preconditions.
            suggestion: what the caller believes is stored; saves a read, and never causes a failure by being stale.
            options: the unsafe path.

        Returns:
            The content that was deleted, with the revision OF THE DELETION. On the unsafe path `raw` is empty.

        Raises:
            KeyNotFound: nothing is stored there.
            InvalidObj: a precondition does not hold; or the unsafe path met a readable object.
            InternalError, DecodeError, CorruptObj: the stored bytes cannot be read.
        """
        ...

    async def get(self, key: str, options: GetOptions | None = None) -> StoredObject:
        """Read one object, linearizably.

        Raises:
            KeyNotFound: nothing is stored there (unless `ignore_not_found`).
            TooLargeResourceVersion: the asked version is newer than the newest; found before existence is looked at.
            BadRequest: the asked version is no number.
            InternalError, DecodeError, CorruptObj: the stored bytes cannot be read.
        """
        ...

    async def get_list(self, key: str, options: ListOptions | None = None) -> ObjectList:
        """List the objects below `key` (or the one at `key` when not recursive), from ONE snapshot.

        Raises:
            BadRequest: a bad version, match or continue token.
            TooLargeResourceVersion, Expired: the asked version lies outside the history.
            InternalError, StoreReadError: items cannot be read; `partial` on the error holds those that could.
        """
        ...

    async def guaranteed_update(
        self,
        key: str,
        try_update: UpdateFunc,
        *,
        ignore_not_found: bool = False,
        preconditions: Preconditions | None = None,
        suggestion: StoredObject | None = None,
    ) -> StoredObject:
        """Apply a function to an object until the result can be stored over what the function saw.

        Args:
            key: which.
            try_update: returns the new object and its TTL (see UpdateResult).
            ignore_not_found: give `try_update` an empty dict when nothing is stored, and create.
            preconditions: checked on every round against that round's object.
            suggestion: what the caller believes is stored. Any failure on it is retried once on fresh data.

        Returns:
            The object as stored. When the canonical bytes did not change, nothing was written and the
            resourceVersion is the old one.

        Raises:
            KeyNotFound: nothing is stored there.
            InvalidObj: a precondition does not hold.
            Exception: whatever `try_update` raised on current data.
            InternalError, DecodeError, CorruptObj: the stored bytes cannot be read.
        """
        ...

    async def watch(self, key: str, options: ListOptions | None = None) -> Watch:
        """Watch the objects below `key` (or the one at `key`).

        With resourceVersion N the first event is the first matching change AFTER N. With "" or "0" and
        send_initial_events None or True, the current objects come first as ADDED, in key order.

        Raises:
            InvalidKey, BadRequest: at once. Everything later arrives as an ERROR event.
        """
        ...

    async def stats(self) -> Stats:
        """Return how much the store holds."""
        ...

    def readiness_check(self) -> None:
        """Return when the store can serve; raises StorageNotReady otherwise."""
        ...

    async def request_watch_progress(self) -> None:
        """Ask that open watches with progress_notify emit a bookmark soon."""
        ...

    async def get_current_resource_version(self) -> int:
        """Return the newest committed revision of the whole backend, linearizably."""
        ...

    def enable_resource_size_estimation(self, keys: Callable[[], Awaitable[Sequence[str]]]) -> None:
        """Let `stats` estimate the average object size.

        Args:
            keys: returns the keys that exist now.

        Raises:
            UsageError: it is already enabled.
        """
        ...

    def compact_revision(self) -> int:
        """Return the newest compaction revision that this process knows of; 0 for none. Never decreases."""
        ...

    async def aclose(self) -> None:
        """Release what the store holds (not the connection it shares); idempotent."""
        ...
