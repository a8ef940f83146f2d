"""Reads at one timestamp and read-write transactions, over the pooled sessions."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, TypeVar

from kplane_core.chance import CHANCE
from kplane_core.engine.interface import EngineUnreachable
from kplane_core.errors import KplaneError
from kplane_spanner import messages
from kplane_spanner.calls import Calls
from kplane_spanner.errors import Aborted, Away, SessionLost
from kplane_spanner.messages import RowReader, at
from kplane_spanner.revisions import parse_timestamp
from kplane_spanner.sessions import Session, SessionPool

T = TypeVar("T")

_STRING: Final = 6  # TypeCode.STRING
_TIMESTAMP: Final = 4  # TypeCode.TIMESTAMP
_ROLLBACK: Final = 2.0
_FIRST_PAUSE: Final = 0.004
_LONGEST_PAUSE: Final = 0.25
_LOST_SESSIONS: Final = 3


class Transaction:
    """One attempt at a read-write transaction; made by `Database.transact`.

    Reads do not see the mutations, which are sent with the commit.
    """

    def __init__(self, calls: Calls, session: Session) -> None:
        self._calls = calls
        self._session = session
        self.id = b""
        self.mutations: list[Any] = []

    async def read(self, table: str, columns: Sequence[str], keys: Any) -> Sequence[messages.Row]:
        """Return rows by key, locked until the transaction ends."""
        request = messages.ReadRequest(session=self._session.name, table=table, columns=columns, key_set=keys)
        return (await self._run(self._calls.read, request)).rows

    async def now(self) -> int:
        """Return the database's clock: a microsecond that is not after this transaction's commit."""
        request = messages.ExecuteSqlRequest(session=self._session.name, sql="SELECT CURRENT_TIMESTAMP()")
        ((now,),) = (await self._run(self._calls.sql, request)).rows
        return parse_timestamp(now or "")

    async def _run(self, call: Callable[..., Awaitable[RowReader]], request: Any) -> RowReader:
        if self.id:
            request.transaction.id = self.id
        else:
            request.transaction.begin.read_write.SetInParent()
        answer = await call(request, self._session.headers, repeat=False)
        self.id = self.id or answer.transaction_id
        return answer

    async def commit(self) -> int:
        """Commit and return the microsecond."""
        if not self.id:
            begin = messages.BeginTransactionRequest(session=self._session.name)
            begin.options.read_write.SetInParent()
            self.id = (await self._calls.begin(begin, self._session.headers)).id
        request = messages.CommitRequest(session=self._session.name, transaction_id=self.id, mutations=self.mutations)
        return await self._calls.commit(request, self._session.headers)

    async def rollback(self) -> None:
        """Free the locks, if the database answers soon; otherwise it frees them itself after a while."""
        if self.id:
            request = messages.RollbackRequest(session=self._session.name, transaction_id=self.id)
            try:
                await self._calls.rollback(request, self._session.headers, _ROLLBACK)
            except KplaneError:
                return


class Database:
    """One Spanner database.

    Args:
        calls: how to reach it.
        pool: its sessions.
        transactions: how many transactions that read may run at once.
        patience: seconds after which a transaction that is aborted again and again is given up.
    """

    def __init__(self, calls: Calls, pool: SessionPool, *, transactions: int, patience: float = 30.0) -> None:
        self._calls = calls
        self.pool = pool
        self._slots = asyncio.Semaphore(transactions)
        self._patience = patience
        self._cleanups: set[asyncio.Task[None]] = set()
        #: attempts that were aborted, for those who watch the process
        self.aborts = 0

    @property
    def name(self) -> str:
        """The full name."""
        return self._calls.database

    async def read(
        self,
        table: str,
        columns: Sequence[str],
        keys: Any,
        *,
        micros: int = 0,
        limit: int = 0,
        index: str = "",
    ) -> RowReader:
        """Read rows from one snapshot.

        Args:
            table: where.
            columns: which.
            keys: a key set.
            micros: 0 reads the newest state, linearizably; otherwise exactly that microsecond.
            limit: at most so many rows; 0 for all.
            index: whose keys `keys` holds, in place of the table's.
        """
        request = messages.ReadRequest(table=table, columns=columns, key_set=keys, limit=limit, index=index)
        _snapshot(request, micros)
        return await self._with_session(lambda session: self._calls.read(_in(request, session), session.headers))

    async def query(
        self, sql: str, *, micros: int = 0, texts: dict[str, str] | None = None, times: dict[str, int] | None = None
    ) -> RowReader:
        """Run a query on one snapshot; see `read`.

        Args:
            sql: the query.
            micros: as in `read`.
            texts: the STRING parameters.
            times: the TIMESTAMP parameters, as microseconds.
        """
        request = messages.ExecuteSqlRequest(sql=sql)
        _snapshot(request, micros)
        _parameters(request, texts or {}, times or {})
        return await self._with_session(lambda session: self._calls.sql(_in(request, session), session.headers))

    async def delete_where(self, sql: str, times: dict[str, int]) -> None:
        """Run a DELETE in parts, each a transaction of its own: for what may be large and may run twice."""

        async def run(session: Session) -> None:
            begin = messages.BeginTransactionRequest(session=session.name)
            begin.options.partitioned_dml.SetInParent()
            request = messages.ExecuteSqlRequest(session=session.name, sql=sql)
            _parameters(request, {}, times)
            request.transaction.id = (await self._calls.begin(begin, session.headers)).id
            await self._calls.sql(request, session.headers, repeat=False)

        await self._retrying(lambda: self._with_session(run))

    async def transact(self, body: Callable[[Transaction], Awaitable[T]], *, reads: bool) -> tuple[T, int]:
        """Run a read-write transaction, again and again while it is aborted.

        Args:
            body: reads and adds mutations; it is run anew for every attempt.
            reads: whether it reads. Those that only write hold no lock between two calls, so any number may run at
            once.

        Returns:
            What `body` returned, and the microsecond of the commit.

        Raises:
            RowExists: a row to be inserted exists.
            EngineUnreachable: the database gave no answer, or aborted the transaction for too long.
        """
        if not reads:
            return await self._retrying(lambda: self._with_session(lambda session: self._attempt(session, body)))
        async with self._slots:
            return await self._retrying(lambda: self._with_session(lambda session: self._attempt(session, body)))

    async def _attempt(self, session: Session, body: Callable[[Transaction], Awaitable[T]]) -> tuple[T, int]:
        transaction = Transaction(self._calls, session)
        try:
            answer = await body(transaction)
            return answer, await transaction.commit()
        except (Aborted, SessionLost):
            raise
        except asyncio.CancelledError:
            # An abandoned transaction keeps its locks, and on the emulator everybody else out.
            self._later(transaction.rollback())
            raise
        except BaseException:
            await transaction.rollback()
            raise

    async def _retrying(self, attempt: Callable[[], Awaitable[T]]) -> T:
        loop = asyncio.get_running_loop()
        started = loop.time()
        pause = _FIRST_PAUSE
        while True:
            try:
                return await attempt()
            except Aborted as error:
                self.aborts += 1
                if loop.time() - started > self._patience:
                    raise Away(
                        f"Spanner database {self.name}: a transaction was aborted for {self._patience:g} s on end"
                    ) from error
                wait = max(error.retry_after, pause)
            # Without the random part, transactions that met once would meet again each time.
            await asyncio.sleep(wait * CHANCE.uniform(0.5, 1.5))
            pause = min(pause * 1.6, _LONGEST_PAUSE)

    async def _with_session(self, call: Callable[[Session], Awaitable[T]]) -> T:
        for _ in range(_LOST_SESSIONS):
            session = await self.pool.take()
            try:
                answer = await call(session)
            except SessionLost:
                self.pool.discard(session)
                self.pool.discard_idle()
                continue
            except BaseException:
                self.pool.put(session)
                raise
            self.pool.put(session)
            return answer
        raise EngineUnreachable(f"Spanner database {self.name} forgets every session at once")

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name="kplane-spanner-rollback")
        self._cleanups.add(task)
        task.add_done_callback(self._cleanups.discard)

    async def aclose(self) -> None:
        """Finish what was begun and delete the sessions."""
        if self._cleanups:
            await asyncio.wait(set(self._cleanups))
        await self.pool.aclose()


def _in(request: Any, session: Session) -> Any:
    request.session = session.name
    return request


def _snapshot(request: Any, micros: int) -> None:
    options = request.transaction.single_use.read_only
    options.return_read_timestamp = True
    if micros:
        options.read_timestamp.FromMicroseconds(micros)
    else:
        options.strong = True


def _parameters(request: Any, texts: dict[str, str], times: dict[str, int]) -> None:
    for name, text in texts.items():
        request.params.fields[name].string_value = text
        request.param_types[name].code = _STRING
    for name, micros in times.items():
        request.params.fields[name].string_value = at(micros)
        request.param_types[name].code = _TIMESTAMP
