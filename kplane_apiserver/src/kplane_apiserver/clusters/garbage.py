"""Who owns whom, in every cluster, and which objects have to be looked at because an owner or a dependent changed.

The index is kept by the server's own writes, completed once at the start by reading what is stored, so a deletion
never searches. Owners that another process deletes are noticed by following their resources.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple

import msgspec

from kplane_apiserver.storing.follow import Follower
from kplane_apiserver.storing.stores import Served
from kplane_core.errors import KplaneError
from kplane_core.storage.interface import StoredObject
from kplane_core.tasks import end_task

_log = logging.getLogger(__name__)

FOREGROUND = "foregroundDeletion"
"""The finalizer of an owner that waits until its dependents are gone."""
ORPHAN = "orphan"
"""The finalizer of an owner whose dependents have to be let go before it goes."""

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 5.0
_AT_A_TIME = 16
_REFERENCES = b'"ownerReferences"'
_DELETION = b'"deletionTimestamp"'
_FINALIZERS = (b'"foregroundDeletion"', b'"orphan"')

OwnerKey = tuple[str, str]
"""(cluster, uid)."""


class Reference(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """One of an object's `ownerReferences`."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    block_owner_deletion: bool | None = None


class Metadata(msgspec.Struct, rename="camel"):
    """What the garbage collector reads of an object's metadata."""

    uid: str = ""
    deletion_timestamp: str | None = None
    finalizers: list[str] | None = None
    owner_references: list[Reference] | None = None


class _Probe(msgspec.Struct):
    metadata: Metadata


_PROBE = msgspec.json.Decoder(_Probe)


def metadata_of(raw: bytes) -> Metadata:
    """Return the part of an object that matters here; an object that cannot be read has no owners."""
    try:
        return _PROBE.decode(raw).metadata
    except msgspec.DecodeError:
        return Metadata()


class Dependent(NamedTuple):
    """An object with owners."""

    served: Served
    cluster: str
    references: tuple[Reference, ...]


class Index:
    """Dependents by their keys, and their keys by the uids of their owners."""

    def __init__(self) -> None:
        self._dependents: dict[str, Dependent] = {}
        self._by_owner: dict[OwnerKey, set[str]] = {}

    def __contains__(self, key: str) -> bool:
        """Whether the object has owners."""
        return key in self._dependents

    def __bool__(self) -> bool:
        """Whether any object has owners."""
        return bool(self._dependents)

    def get(self, key: str) -> Dependent | None:
        """Return what is known of a dependent."""
        return self._dependents.get(key)

    def items(self) -> Iterable[tuple[str, Dependent]]:
        """Return all dependents."""
        return list(self._dependents.items())

    def owned_by(self, owner: OwnerKey) -> list[str]:
        """Return the keys of an owner's dependents, in their order."""
        return sorted(self._by_owner.get(owner, ()))

    def blocking(self, owner: OwnerKey) -> list[str]:
        """Return the keys of those dependents that an owner's foreground deletion waits for."""
        return [
            key
            for key in self.owned_by(owner)
            if any(one.uid == owner[1] and one.block_owner_deletion for one in self._dependents[key].references)
        ]

    def put(self, key: str, dependent: Dependent) -> None:
        """Take a dependent's present owners."""
        self.drop(key)
        if not dependent.references:
            return
        self._dependents[key] = dependent
        for reference in dependent.references:
            self._by_owner.setdefault((dependent.cluster, reference.uid), set()).add(key)

    def drop(self, key: str) -> Dependent | None:
        """Forget a dependent, and return what was known of it."""
        known = self._dependents.pop(key, None)
        if known is not None:
            for owner in {(known.cluster, reference.uid) for reference in known.references}:
                keys = self._by_owner[owner]
                keys.discard(key)
                if not keys:
                    del self._by_owner[owner]
        return known


class _Turn:
    """An object that has to be looked at, and when."""

    __slots__ = ("at", "busy", "pause", "served")

    def __init__(self, served: Served) -> None:
        self.served = served
        self.at = 0.0
        self.pause = _FIRST_PAUSE
        self.busy = False


Process = Callable[[Served, str], Awaitable[bool]]
"""Does what the object at a key needs; False when it has to be looked at again later."""
Scan = Callable[[], Awaitable[None]]
"""Tells `Garbage.wrote` of every stored object."""


class Garbage:
    """The index of owners and the queue of what to look at, worked off by one task."""

    def __init__(self) -> None:
        self.index = Index()
        self.orphaned: set[OwnerKey] = set()
        """Owners that are gone and left their dependents behind on purpose."""
        self._waiting: dict[OwnerKey, tuple[Served, str]] = {}
        self._turns: dict[str, _Turn] = {}
        self._wake = asyncio.Event()
        self._followers: dict[str, Follower] = {}
        self._unfollowed: dict[str, Served] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self, process: Process, scan: Scan) -> None:
        """Read what is stored and then begin to work, with one task."""
        self._task = asyncio.create_task(self._run(process, scan), name="kplane-garbage")

    async def aclose(self) -> None:
        """Stop; what is not finished is found again at the next start. Idempotent."""
        await end_task(self._task)
        self._task = None
        for follower in self._followers.values():
            await follower.aclose()
        self._followers.clear()

    # --- what happens to objects --------------------------------------------------------------------------------------

    def wrote(self, served: Served, cluster: str, stored: StoredObject) -> None:
        """Take note of an object's new state; costs a search in its bytes when it has no owners."""
        raw, key = stored.raw, stored.key
        if _REFERENCES in raw or key in self.index:
            references = tuple(metadata_of(raw).owner_references or ())
            known = self.index.get(key)
            if known is None or known.references != references:
                self.index.put(key, Dependent(served, cluster, references))
                self._wake_owners(known)
                if references:
                    self.look(served, key)
        self._note_deletion(served, stored)

    def refresh(self, served: Served, cluster: str, key: str, metadata: Metadata) -> None:
        """Let the index know an object's owners as they are now; nothing is looked at because of it."""
        references = tuple(metadata.owner_references or ())
        known = self.index.get(key)
        if (known.references if known else ()) != references:
            self.index.put(key, Dependent(served, cluster, references))
            self._wake_owners(known)

    def removed(self, cluster: str, stored: StoredObject) -> None:
        """Take note that an object is gone; `stored` is its last state."""
        if not self.index:
            return
        self._wake_owners(self.index.drop(stored.key))
        metadata = metadata_of(stored.raw)
        owner = (cluster, metadata.uid)
        self._waiting.pop(owner, None)
        dependents = self.index.owned_by(owner)
        if dependents and ORPHAN in (metadata.finalizers or ()):
            self.orphaned.add(owner)
        for key in dependents:
            known = self.index.get(key)
            if known is not None:
                self.look(known.served, key)

    def look(self, served: Served, key: str) -> None:
        """Look at the object soon."""
        turn = self._turns.get(key)
        if turn is None:
            self._turns[key] = _Turn(served)
        else:
            turn.at, turn.pause, turn.busy = 0.0, _FIRST_PAUSE, False
        self._wake.set()

    def wait_for_dependents(self, owner: OwnerKey, served: Served, key: str) -> None:
        """Look at the owner again when one of its dependents changes."""
        self._waiting[owner] = (served, key)

    def waits(self, key: str) -> bool:
        """Whether the object at a key is an owner that waits for its dependents."""
        return any(waiting == key for _, waiting in self._waiting.values())

    def follow(self, served: Served) -> None:
        """Notice from now on when another process deletes objects of this resource."""
        name = served.kind.storage_resource
        if name not in self._followers and name not in self._unfollowed:
            self._unfollowed[name] = served
            self._wake.set()

    async def unfollow(self, resource: str) -> None:
        """Follow a resource no longer; whoever needs it again says so."""
        self._unfollowed.pop(resource, None)
        follower = self._followers.pop(resource, None)
        if follower is not None:
            await follower.aclose()

    def _note_deletion(self, served: Served, stored: StoredObject) -> None:
        raw = stored.raw
        if _DELETION in raw and any(finalizer in raw for finalizer in _FINALIZERS):
            self.look(served, stored.key)

    def _wake_owners(self, dependent: Dependent | None) -> None:
        if dependent is None or not self._waiting:
            return
        for reference in dependent.references:
            waiting = self._waiting.get((dependent.cluster, reference.uid))
            if waiting is not None:
                self.look(*waiting)

    # --- working ------------------------------------------------------------------------------------------------------

    async def _run(self, process: Process, scan: Scan) -> None:
        await self._scan(scan)
        loop = asyncio.get_running_loop()
        while True:
            self._wake.clear()
            await self._start_followers()
            now = loop.time()
            due = [(key, turn) for key, turn in self._turns.items() if turn.at <= now][:_AT_A_TIME]
            if due:
                await asyncio.gather(*(self._take_turn(process, key, turn) for key, turn in due))
                await asyncio.sleep(0)  # a store in memory never waits, and everybody else's requests must not
                continue
            next_turn = min((turn.at for turn in self._turns.values()), default=None)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(next_turn):
                    await self._wake.wait()

    async def _scan(self, scan: Scan) -> None:
        pause = _FIRST_PAUSE
        while True:
            try:
                await scan()
            except KplaneError as error:
                _log.warning("the owners of the stored objects could not be read yet: %s", error)
            else:
                return
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    async def _take_turn(self, process: Process, key: str, turn: _Turn) -> None:
        turn.busy = True  # cleared by whoever asks for another look meanwhile
        try:
            finished = await process(turn.served, key)
        except KplaneError as error:
            finished = False
            _log.info("garbage collection of %s is tried again: %s", key, error)
        if not turn.busy:
            return
        if finished:
            self._turns.pop(key, None)
            return
        turn.at = asyncio.get_running_loop().time() + turn.pause
        turn.pause = min(turn.pause * 2, _LONGEST_PAUSE)

    async def _start_followers(self) -> None:
        for name, served in list(self._unfollowed.items()):
            follower = self._follower(served)
            try:
                await follower.start()
            except KplaneError as error:
                _log.warning("owners among the %s are not followed yet: %s", name, error)
                return
            self._followers[name] = follower
            del self._unfollowed[name]

    def _follower(self, served: Served) -> Follower:
        def reset() -> None:
            # Deletions may have been missed: every owner is verified once more.
            for key, known in self.index.items():
                self.look(known.served, key)

        def apply(stored: StoredObject, deleted: bool) -> None:  # noqa: FBT001 (Follower's callback)
            if deleted:
                self.removed(served.layout.relative(stored.key).cluster, stored)
            else:
                self._note_deletion(served, stored)

        return Follower(served.plain, served.layout.kind_root_prefix(), reset=reset, apply=apply)
