"""The engine: ten methods over etcd's own keys, revisions, transactions and watches."""

import asyncio
from collections.abc import Callable
from typing import Final

from kplane_core.engine.interface import (
    Compacted,
    Conflict,
    EngineUnreachable,
    FutureRevision,
    Page,
    Read,
    Record,
    Written,
)
from kplane_core.errors import InvalidKey, KplaneError
from kplane_etcd import wire
from kplane_etcd.client import COMPACT_REV_KEY, EtcdClient
from kplane_etcd.errors import CompactedRevision, LeaseGone, NotImplementedByServer, RevisionAhead, is_longer_than_max
from kplane_etcd.features import Features
from kplane_etcd.lease import LeaseManager
from kplane_etcd.stream import Span, StreamCompacted, StreamLost, WatchStream, unreachable
from kplane_etcd.watch import EtcdWatch

_CHUNK: Final = 10_000
"""Records in one answer of etcd, at most."""


class EtcdEngine:
    """An `Engine` on an existing etcd.

    Args:
        client: what calls it.
        leases: where writes with a time to live get their lease.
        health_key: the key that `check` reads.
        patience: seconds for which a broken watch tries to go on.
        features: what the server can be trusted with now.
    """

    def __init__(
        self,
        client: EtcdClient,
        leases: LeaseManager,
        *,
        health_key: str = "/registry/health",
        patience: float = 10.0,
        features: Callable[[], Features] = Features,
    ) -> None:
        self._client = client
        self._leases = leases
        self._health_key = health_key.encode()
        self._patience = patience
        self._features = features
        self._watches: set[EtcdWatch] = set()
        self._keeps_leases = True
        self._compacted = 0

    @property
    def watch_progress(self) -> bool:
        """Whether `request_progress` has an effect: not every version of etcd can be trusted with it."""
        return self._features().progress

    # --- reading ------------------------------------------------------------------------------------------------------

    async def read(self, key: str, *, at: int = 0) -> Read:
        """Return the record of `key` and the revision it was read at."""
        try:
            answer = await self._client.get(_bytes(key), at)
        except (CompactedRevision, RevisionAhead) as error:
            raise await self._about(at, error) from error
        found = answer.kvs
        return Read(_record(key, found[0]) if found else None, at or answer.header.revision)

    async def scan(self, start: str, end: str, *, at: int = 0, limit: int = 0, count: bool = False) -> Page:
        """Return the records with start <= key < end, in key order, from one snapshot.

        The total costs nothing extra: etcd always counts.
        """
        if end <= start:
            return Page((), at or await self.revision())
        revision = at
        key, last = _bytes(start) or b"\0", _bytes(end)
        size = min(limit, _CHUNK) if limit else _CHUNK
        try:
            answer, size = await self._chunk(key, last, at, size)
            revision, total = at or answer.header.revision, answer.count
            records = _records(answer)
            while answer.more and (not limit or len(records) < limit):
                key = answer.kvs[-1].key + b"\0"
                size = min(size, limit - len(records)) if limit else size
                answer, size = await self._chunk(key, last, revision, size)
                records += _records(answer)
        except (CompactedRevision, RevisionAhead) as error:
            raise await self._about(revision, error) from error
        return Page(records, revision, answer.more, total if count else 0)

    async def _chunk(self, key: bytes, end: bytes, at: int, size: int) -> tuple[wire.RangeResponse, int]:
        """Return an answer of at most `size` records, or of fewer when so many do not fit into one message."""
        while True:
            try:
                return await self._client.range(key, end, revision=at, limit=size), size
            except KplaneError as error:
                if size == 1 or not is_longer_than_max(error):
                    raise
                size //= 2

    async def revision(self) -> int:
        """Return the newest committed revision."""
        answer = await self._client.get(self._health_key)
        return answer.header.revision

    # --- writing ------------------------------------------------------------------------------------------------------

    async def write(self, key: str, value: bytes | None, *, expect: int, ttl: int | None = None) -> Written | Conflict:
        """Compare-and-set one key.

        Raises:
            ValueTooLarge: etcd does not take a value of this size.
            InvalidKey: a new key is empty, holds NUL or has no UTF-8 form.
            DatabaseFull: etcd's space quota is used up.
        """
        if not expect:
            return await self._create(key, value, ttl)
        name = _bytes(key)
        if value is None:
            answer = await self._client.delete(name, expect)
        elif ttl:
            answer = await self._with_lease(name, value, expect, ttl)
        elif ttl == 0:
            answer = await self._client.update(name, value, expect, 0)
        else:
            answer = await self._keeping_lease(name, value, expect)
        if answer.succeeded:
            return Written(answer.header.revision)
        found = answer.responses[0].response_range.kvs
        return Conflict(_record(key, found[0]) if found else None, answer.header.revision)

    async def _create(self, key: str, value: bytes | None, ttl: int | None) -> Written | Conflict:
        if value is not None:
            name = _new_key(key)
            answer = await (self._with_lease(name, value, 0, ttl) if ttl else self._client.create(name, value, 0))
            if answer.succeeded:
                return Written(answer.header.revision)
        read = await self.read(key)
        return Conflict(read.record, read.revision)

    async def _with_lease(self, key: bytes, value: bytes, expect: int, ttl: int) -> wire.TxnResponse:
        lease = await self._leases.lease_for(ttl)
        try:
            return await self._put(key, value, expect, lease)
        except LeaseGone:
            # A machine that slept does not notice how much time has passed.
            self._leases.forget(lease)
            return await self._put(key, value, expect, await self._leases.lease_for(ttl))

    async def _put(self, key: bytes, value: bytes, expect: int, lease: int) -> wire.TxnResponse:
        if expect:
            return await self._client.update(key, value, expect, lease)
        return await self._client.create(key, value, lease)

    async def _keeping_lease(self, key: bytes, value: bytes, expect: int) -> wire.TxnResponse:
        """Update a key and leave its lease as it is."""
        if self._keeps_leases:
            try:
                return await self._client.update(key, value, expect, 0, keep_lease=True)
            except NotImplementedByServer:
                # kine refuses ignore_lease: name the lease that the key has.
                self._keeps_leases = False
        found = (await self._client.get(key)).kvs
        lease = found[0].lease if found and found[0].mod_revision == expect else 0
        return await self._client.update(key, value, expect, lease)

    # --- watching -----------------------------------------------------------------------------------------------------

    async def watch(self, start: str, end: str, *, after: int, progress: bool = False) -> EtcdWatch:
        """Open a watch on start <= key < end, on a stream of its own.

        Raises:
            Compacted: changes after `after` are already gone; or they begin at the compaction revision itself, where
                versions of etcd below 3.4.36 and 3.5.18 lose deletions.
        """
        watch = EtcdWatch(
            self._client.transport,
            Span(_bytes(start) or b"\0", _bytes(end), after, progress),
            current=self.revision,
            patience=self._patience,
            ended=self._watches.discard,
        )
        self._watches.add(watch)
        newest = await watch.open()
        if after < newest and not self._features().compaction_edge:
            try:
                await self._beyond_the_edge(after)
            except BaseException:
                await watch.aclose()
                raise
        if progress and self._features().progress:
            watch.tell_start()
        return watch

    async def _beyond_the_edge(self, after: int) -> None:
        """Refuse a watch whose first revision is the compaction revision; reads below that revision are refused."""
        try:
            await self._client.get(self._health_key, after)
        except CompactedRevision as error:
            raise await self._about(after, error) from error
        except RevisionAhead:
            return

    async def request_progress(self) -> None:
        """Make watches with `progress` deliver a mark soon, where etcd can be trusted with that."""
        if self._client.transport.closed:
            raise EngineUnreachable("the connection to etcd is closed")
        if self._features().progress:
            for watch in self._watches:
                if watch.wants_progress:
                    watch.ask_progress()

    # --- history ------------------------------------------------------------------------------------------------------

    async def compact(self, revision: int) -> None:
        """Drop versions superseded at or before `revision`.

        Raises:
            Compacted: `revision` is not above the current compaction revision.
            FutureRevision: it is beyond the newest.
        """
        try:
            await self._client.compact(revision)
        except (CompactedRevision, RevisionAhead) as error:
            raise await self._about(revision, error) from error
        self._compacted = max(self._compacted, revision)

    async def compacted(self) -> int:
        """Return the compaction revision; 0 when nothing was compacted.

        etcd has no call for it: a watch from the beginning is refused with it.
        """
        try:
            # Reads at the compaction revision itself work, so one that works says that nothing was compacted since.
            await self._client.get(self._health_key, self._compacted or 1)
        except CompactedRevision:
            self._compacted = await self._floor()
        except RevisionAhead:
            # The database was put back to a time before that compaction.
            self._compacted = 0
            return await self.compacted()
        return self._compacted

    async def _floor(self) -> int:
        transport = self._client.transport
        try:
            async with asyncio.timeout(transport.timeout):
                stream = await WatchStream.open(transport, Span(COMPACT_REV_KEY, b"", 0))
                try:
                    while True:
                        await stream.read()
                finally:
                    await stream.aclose()
        except StreamCompacted as refusal:
            return refusal.compacted
        except StreamLost as error:
            raise unreachable(error) from error
        except TimeoutError as error:
            raise EngineUnreachable(f"etcd did not refuse a watch within {transport.timeout:g} s") from error

    async def _about(self, revision: int, error: KplaneError) -> KplaneError:
        """Return the engine's error about a revision, with what the database has instead."""
        if isinstance(error, RevisionAhead):
            return FutureRevision(revision, await self.revision())
        return Compacted(revision, await self.compacted())

    # --- the rest -----------------------------------------------------------------------------------------------------

    async def check(self) -> None:
        """Return when etcd answers a linearizable read; raises EngineUnreachable otherwise."""
        await self._client.get(self._health_key)

    async def size(self) -> int:
        """Return the bytes of the database file of the member that serves now."""
        return (await self._client.status()).dbSize

    async def aclose(self) -> None:
        """End all watches and close the connection; idempotent."""
        watches = list(self._watches)
        for watch in watches:
            watch.close()
        await self._leases.aclose()
        await self._client.transport.aclose()
        for watch in watches:
            await watch.aclose()


def _bytes(key: str) -> bytes:
    return key.encode(errors="surrogateescape")


def _new_key(key: str) -> bytes:
    if not key or "\0" in key:
        raise InvalidKey(f"a key must have at least one character and no NUL, got {key!r}")
    try:
        return key.encode()
    except UnicodeEncodeError as error:
        raise InvalidKey(f"the key {key!r} has no UTF-8 form: {error.reason}") from error


def _record(key: str, kv: wire.KeyValue) -> Record:
    return Record(key, kv.value, kv.create_revision, kv.mod_revision)


def _records(answer: wire.RangeResponse) -> list[Record]:
    return [
        Record(kv.key.decode("utf-8", "surrogateescape"), kv.value, kv.create_revision, kv.mod_revision)
        for kv in answer.kvs
    ]
