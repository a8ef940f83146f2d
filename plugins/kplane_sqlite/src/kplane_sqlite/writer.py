"""The one thread that writes: it commits together whatever was asked for while it was busy with the last commit.

A commit costs one sync of the disk, whether it holds one change or hundreds. The longer a sync takes, the more writers
have queued up behind it, so throughput under load does not depend on how slow the disk is.
"""

import asyncio
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import msgspec

from kplane_core.engine.interface import Conflict, EngineEvent, EngineUnreachable, Written
from kplane_sqlite import schema
from kplane_sqlite.changes import Change, Transaction, microseconds, next_expiry
from kplane_sqlite.opening import Opened, Settings

_TOGETHER: Final = 512  # changes in one transaction, at most
_BYTES_TOGETHER: Final = 16 << 20  # and as soon as their values have so many bytes, no more
_IDLE: Final = 1.0  # seconds after which it looks for deadlines that another process has set
_RETRY: Final = 0.5  # seconds before what is due and could not be deleted is tried again
_TROUBLED: Final = 10.0  # seconds; without writes nobody can know whether the trouble is over


class _Write(msgspec.Struct):
    change: Change
    answer: asyncio.Future[Written | Conflict]


class _Call(msgspec.Struct):
    work: Callable[[sqlite3.Connection], Any]
    answer: asyncio.Future[Any]
    atomic: bool


_Job = _Write | _Call | None  # None ends the thread


class Listener(Protocol):
    """Whoever wants to know of commits; called on the event loop."""

    def committed(self, events: Sequence[EngineEvent]) -> None:
        """Take the changes of one commit, in order; in the turn of the loop in which its writers are answered."""
        ...


class Writer:
    """The writing thread of one open database.

    Args:
        opened: the database; closed by `stop`.
        settings: as it was opened.
        clock: seconds since the epoch, for expiry.
        listener: is told of commits.
    """

    def __init__(self, opened: Opened, settings: Settings, clock: Callable[[], float], listener: Listener) -> None:
        self._opened = opened
        self._settings = settings
        self._clock = clock
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="kplane-sqlite-writer", daemon=True)
        self._due: int | None = next_expiry(opened.connection)
        self._trouble: EngineUnreachable | None = None
        self._trouble_since = 0.0
        self._thread.start()

    @property
    def trouble(self) -> EngineUnreachable | None:
        """Why a transaction failed a short while ago, unless another has succeeded since."""
        recent = time.monotonic() - self._trouble_since < _TROUBLED
        return self._trouble if recent else None

    def write(self, change: Change) -> asyncio.Future[Written | Conflict]:
        """Queue a change; the answer comes when it is on disk."""
        answer: asyncio.Future[Written | Conflict] = self._loop.create_future()
        self._jobs.put(_Write(change, answer))
        return answer

    def call(self, work: Callable[[sqlite3.Connection], Any], *, atomic: bool = True) -> asyncio.Future[Any]:
        """Queue work on the writing connection, in a transaction of its own unless it makes one."""
        answer: asyncio.Future[Any] = self._loop.create_future()
        self._jobs.put(_Call(work, answer, atomic))
        return answer

    def expire(self) -> asyncio.Future[Any]:
        """Queue the deletion of everything that is due; the answer comes when it is done."""
        return self.call(lambda _connection: self._expire(), atomic=False)

    def nudge(self) -> None:
        """Let the thread look at the clock anew, as it does whenever something was queued."""
        self._jobs.put(_Call(lambda _connection: None, self._loop.create_future(), atomic=False))

    def stop(self) -> None:
        """Finish what is queued and close the database; blocks."""
        self._jobs.put(None)
        self._thread.join()
        self._opened.close()

    # --- in the thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        waiting: _Job = None
        while True:
            try:
                job = waiting or self._jobs.get(timeout=self._patience())
            except queue.Empty:
                self._attempt(self._expire)
                continue
            waiting = None
            if job is None:
                return
            if isinstance(job, _Call):
                self._answer_call(job)
                continue
            batch, waiting = self._gather(job)
            self._answer_writes(batch)

    def _gather(self, first: _Write) -> tuple[list[_Write], _Job]:
        """Return what is queued behind a write as far as it can be committed with it, and what comes after that."""
        batch, size = [first], 0
        while len(batch) < _TOGETHER and size < _BYTES_TOGETHER and not self._jobs.empty():
            following = self._jobs.get()
            if following is None:
                self._jobs.put(None)  # nobody queues anything behind it
                break
            if isinstance(following, _Call):
                return batch, following
            batch.append(following)
            size += len(following.change.value or b"")
        return batch, None

    def _patience(self) -> float:
        if self._due is None:
            return _IDLE
        left = self._due / 1e6 - self._clock()
        return min(max(left, 0.0 if self._trouble is None else _RETRY), _IDLE)

    def _answer_writes(self, batch: list[_Write]) -> None:
        def work() -> tuple[list[EngineEvent], list[Written | Conflict]]:
            with schema.transaction(self._opened.connection):
                transaction = self._begin()
                answers = [transaction.apply(one.change) for one in batch]
                transaction.finish()
            self._committed(transaction)
            return transaction.events, answers

        done = self._attempt(work)
        if isinstance(done, Exception):
            self._reply([], [(one.answer, done) for one in batch])
        else:
            events, answers = done
            self._reply(events, list(zip((one.answer for one in batch), answers, strict=True)))

    def _answer_call(self, call: _Call) -> None:
        def work() -> Any:
            if not call.atomic:
                return call.work(self._opened.connection)
            with schema.transaction(self._opened.connection):
                return call.work(self._opened.connection)

        self._reply([], [(call.answer, self._attempt(work))])

    def _expire(self) -> None:
        self._due = next_expiry(self._opened.connection)
        more = self._due is not None and self._due <= microseconds(self._clock())
        while more:
            with schema.transaction(self._opened.connection):
                transaction = self._begin()
                more = transaction.expire()
                transaction.finish()
            self._committed(transaction)
            if transaction.events:
                self._reply(transaction.events, [])

    def _begin(self) -> Transaction:
        return Transaction(self._opened.connection, self._clock())

    def _committed(self, transaction: Transaction) -> None:
        if transaction.events:
            self._trouble = None
            self._opened.mark.raise_to(self._opened.identity, transaction.revision)
        self._due = transaction.due

    def _attempt(self, work: Callable[[], Any]) -> Any:
        """Return what the work returns, or its error."""
        try:
            return work()
        except sqlite3.Error as error:
            return self._note(schema.translated(self._settings.path, error), error)
        except OSError as error:
            return self._note(EngineUnreachable(f"{self._opened.mark.path}: {error.strerror}"), error)
        except Exception as error:  # noqa: BLE001 - it is the answer to whoever asked
            return error

    def _note(self, trouble: EngineUnreachable, cause: Exception) -> EngineUnreachable:
        trouble.__cause__ = cause
        self._trouble, self._trouble_since = trouble, time.monotonic()
        return trouble

    def _reply(self, events: list[EngineEvent], answers: list[tuple[asyncio.Future[Any], Any]]) -> None:
        try:
            self._loop.call_soon_threadsafe(self._deliver, events, answers)
        except RuntimeError:
            # The loop was closed without `aclose`: nobody is left to hear of it, and what was committed stays.
            return

    def _deliver(self, events: list[EngineEvent], answers: list[tuple[asyncio.Future[Any], Any]]) -> None:
        for future, answer in answers:
            if future.done():  # whoever asked was cancelled
                continue
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)
        if events:
            self._listener.committed(events)
