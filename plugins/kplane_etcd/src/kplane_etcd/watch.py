"""Watches: one stream each, resumed where it broke off, told to the reader in batches."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import attrs

from kplane_core.engine.fanout import Wakeup
from kplane_core.engine.interface import Compacted, EngineEvent, EngineUnreachable, Record
from kplane_core.errors import KplaneError
from kplane_etcd import wire
from kplane_etcd.errors import AccessRefused
from kplane_etcd.stream import Span, StaleToken, StreamCompacted, StreamLost, WatchStream, unreachable
from kplane_etcd.transport import Transport

_log = logging.getLogger(__name__)
_ENOUGH: Final = 1000
"""Events that wait for the reader before the stream is read no further; then etcd holds back."""
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0
_SHORT_LIVED: Final = 1.0
_FRUITLESS: Final = 10


class EtcdWatch:
    """A watch on one key range; see `EngineWatch`.

    A stream that breaks is opened anew right after the last revision that is known to be complete: that of the last
    event, or of progress. The revision in the header of an event is never used for that, because while a watch catches
    up it names the newest revision of the database, not of the events. When the database cannot be reached for
    `patience` seconds, or has gone back behind what was seen, the watch ends with an error.

    Args:
        transport: to etcd.
        span: what to watch; its `after` is where to start.
        current: asks for the newest revision, linearizably.
        patience: seconds for which a broken watch tries to go on.
        ended: told when the watch is over.
    """

    def __init__(
        self,
        transport: Transport,
        span: Span,
        *,
        current: Callable[[], Awaitable[int]],
        patience: float,
        ended: Callable[["EtcdWatch"], None],
    ) -> None:
        self._transport = transport
        self._span = span
        self._current = current
        self._patience = patience
        self._on_end = ended
        self._after = span.after
        self._at_newest = False
        self._events: list[EngineEvent] = []
        self._error: KplaneError | None = None
        self._closed = False
        self._reader = Wakeup()
        self._room = Wakeup()
        self._stream: WatchStream | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def wants_progress(self) -> bool:
        """Whether progress is delivered."""
        return self._span.progress

    async def open(self) -> int:
        """Open the stream and return the newest revision of the member that serves it.

        Raises:
            Compacted: the start is compacted.
            EngineUnreachable: no member took the watch on in time.
        """
        self._transport.metrics.watches += 1
        try:
            stream = self._stream = await self._opened(self._patience)
        except BaseException:
            self.close()
            raise
        if self._closed:
            stream.cancel()
            raise EngineUnreachable("the connection to etcd was closed while a watch was opened")
        self._at_newest = stream.revision == self._span.after
        self._task = asyncio.create_task(self._run(stream), name="kplane-etcd-watch")
        return stream.revision

    # --- the reader's side --------------------------------------------------------------------------------------------

    async def batch(self) -> Sequence[EngineEvent]:
        """Wait for events and return all that are ready; empty once closed.

        Raises:
            Compacted: the position reached is compacted, or the database has gone back behind it.
            EngineUnreachable: the database went away.
        """
        while True:
            if self._events:
                events, self._events = self._events, []
                self._room.wake()
                return events
            if self._error is not None and not self._closed:
                raise self._error
            if self._closed:
                return ()
            await self._reader.wait()

    def ask_progress(self) -> None:
        """Ask etcd how far the watch is; the answer comes as a progress mark, if it comes."""
        if self._stream is not None and not self._closed:
            self.tell_start()
            self._stream.ask_progress()

    def tell_start(self) -> None:
        """Deliver a progress mark at the start, if that was the newest revision and nothing newer is known.

        Until something changes etcd itself says nothing of it: since the middle of 2025 it takes such a watch for one
        that starts in the future (etcd-io/etcd#20229).
        """
        if self._at_newest and self._after == self._span.after:
            self._mark(self._after)
            self._reader.wake()

    def close(self) -> None:
        """End the watch; idempotent. A waiting `batch` returns empty."""
        if self._closed:
            return
        self._closed = True
        self._events = []
        if self._task is not None:
            self._task.cancel()
        if self._stream is not None:
            self._stream.cancel()
        self._transport.metrics.watches -= 1
        self._on_end(self)
        self._reader.wake()

    async def aclose(self) -> None:
        """End the watch and wait until its stream is released; idempotent."""
        self.close()
        if self._task is not None:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([self._task])
        if self._stream is not None:
            await self._stream.aclose()

    # --- the stream's side --------------------------------------------------------------------------------------------

    async def _run(self, stream: WatchStream) -> None:
        """Read streams, one after the other, until an error that no other stream can help."""
        loop = asyncio.get_running_loop()
        fruitless = 0
        try:
            while True:
                opened = loop.time()
                try:
                    await self._follow(stream)
                except StreamLost as lost:
                    # A server that takes a watch on and drops it at once must not be asked without end.
                    fruitless = 0 if loop.time() - opened > _SHORT_LIVED else fruitless + 1
                    if fruitless > _FRUITLESS:
                        raise unreachable(lost) from lost
                    await asyncio.sleep(fruitless * _FIRST_PAUSE)
                    stream = await self._resumed(stream, lost)
        except StreamCompacted as error:
            self._error = Compacted(self._after, error.compacted)
        except KplaneError as error:
            self._error = error
        except asyncio.CancelledError:
            # The transport was closed under the stream, or the watch was.
            if not self._closed and not self._transport.closed:
                raise
            self._error = EngineUnreachable("the connection to etcd is closed")
        finally:
            stream.cancel()
            if self._error is None and not self._closed:
                self._error = EngineUnreachable("the watch ended unexpectedly")
            self._reader.wake()

    async def _follow(self, stream: WatchStream) -> None:
        while True:
            events, revision = await stream.read()
            if events:
                self._take(events)
            elif self._span.progress and revision >= self._after:
                # On a watch that starts in the future etcd may report progress that lies before its start.
                self._after = revision
                self._mark(revision)
            if self._events:
                self._reader.wake()
                if len(self._events) >= _ENOUGH:
                    await self._room.wait()

    def _take(self, events: Sequence[wire.Event]) -> None:
        after = self._after
        append = self._events.append
        revision = after
        for event in events:
            kv = event.kv
            revision = kv.mod_revision
            # All events of one transaction share a revision, so only what came with earlier responses is known.
            if revision > after:
                append(_event(event, kv, revision))
        self._after = max(after, revision)

    def _mark(self, revision: int) -> None:
        if self._events and self._events[-1].is_progress:
            self._events.pop()
        self._events.append(EngineEvent("", revision))

    async def _resumed(self, stream: WatchStream, lost: StreamLost) -> WatchStream:
        """Return a stream that goes on where the broken one ended.

        Raises:
            Compacted: the database went back behind what was seen, so that nothing fits together any more.
            KplaneError: no stream could be had in time.
        """
        _log.info("a watch is resumed after revision %d: %s", self._after, lost)
        stream.cancel()
        if isinstance(lost, StaleToken):
            await self._transport.renew_token()
        else:
            self._transport.lost(stream.endpoint)
        self._stream = None
        self._stream = again = await self._opened(self._patience)
        self._transport.metrics.resumed += 1
        # A member that lags may be behind; the cluster as a whole may not.
        seen = self._after if self._after > self._span.after else 0
        if again.revision < seen and (newest := await self._current()) < seen:
            raise Compacted(seen, newest)
        return again

    async def _opened(self, patience: float) -> WatchStream:
        """Open a stream, trying for as long as patience lasts."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + patience
        pause, renewed = _FIRST_PAUSE, False
        while True:
            try:
                return await WatchStream.open(self._transport, attrs.evolve(self._span, after=self._after))
            except StreamCompacted as error:
                raise Compacted(self._after, error.compacted) from error
            except AccessRefused:
                raise
            except StaleToken as error:
                if renewed:
                    raise AccessRefused(str(error)) from error
                renewed = True
                await self._transport.renew_token()
            except (StreamLost, EngineUnreachable) as error:
                if loop.time() + pause > deadline or self._transport.closed:
                    raise unreachable(error) from error
                self._transport.turn()
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)


def _event(event: wire.Event, kv: wire.KeyValue, revision: int) -> EngineEvent:
    key = kv.key.decode("utf-8", "surrogateescape")
    previous = None
    if event.HasField("prev_kv"):
        before = event.prev_kv
        previous = Record(key, before.value, before.create_revision, before.mod_revision)
    if event.type == wire.EVENT_DELETE:
        return EngineEvent(key, revision, None, previous)
    return EngineEvent(key, revision, kv.value, previous, kv.create_revision == revision)
