"""One backend under test: its harness, its connections, and the running of single cases."""

import asyncio
import itertools
import time
import uuid
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import attrs

from kplane_conformance.case import Leaf, View
from kplane_conformance.context import Context, MissingHook, NotHere
from kplane_conformance.harness import Harness, HarnessError
from kplane_core.engine.factory import Connection, EngineConnection
from kplane_core.engine.interface import Engine
from kplane_core.plugins.capabilities import Capability, Support, Unsupported

LEAK_GRACE: Final = 2.0
"""Seconds that the tasks of an ended case get to finish."""


class Outcome(StrEnum):
    """How a leaf case ended."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    ELSEWHERE = "elsewhere"
    """Not to be seen on a plain store; listed for the suite of another layer."""
    HARNESS_ERROR = "harness error"
    UNAVAILABLE = "unavailable"
    PROVISIONAL = "provisional"
    """Failed, but the case is new: its failure counts from a later version of the suite on."""
    WAIVED = "waived"
    """Failed, as a waiver says."""
    UNEXPECTED_PASS = "unexpected pass"  # noqa: S105 - an outcome, no secret
    """Passed although a waiver says that it fails."""


@attrs.frozen
class Result:
    """What came of a leaf case.

    Attributes:
        outcome: how it ended.
        reason: why, where it did not pass.
        error: what it raised, if anything.
        milliseconds: how long it took.
    """

    outcome: Outcome
    reason: str = ""
    error: BaseException | None = None
    milliseconds: float = 0.0


def applies(leaf: Leaf, capabilities: Mapping[Capability, Support]) -> bool:
    """Whether a case is asked of a backend at all: the proof of an error is not, where the error does not occur."""
    return leaf.case.unless is None or isinstance(capabilities.get(leaf.case.unless), Unsupported)


def unfit(leaf: Leaf, capabilities: Mapping[Capability, Support]) -> Result | None:
    """Return why a case cannot run on a plain store with these capabilities, or None when it can."""
    if leaf.case.elsewhere:
        return Result(Outcome.ELSEWHERE, f"shown by {leaf.case.elsewhere}")
    if leaf.view.layer not in leaf.case.layers:
        layers = " and ".join(layer.value for layer in leaf.case.layers)
        return Result(Outcome.ELSEWHERE, f"to be seen on {layers}, not on a plain store")
    for capability in leaf.case.requires:
        support = capabilities.get(capability)
        if isinstance(support, Unsupported):
            return Result(Outcome.SKIPPED, f"{capability.value} is not supported: {support.reason}")
    return None


class LeakedTasks(AssertionError):
    """Tasks that a case started outlived everything it opened."""


class Session:
    """Holds one backend to cases, one after the other, on one event loop.

    Args:
        harness: the backend's harness.
        capabilities: what the backend declares; empty means that it supports everything.
        seed: of the random cases.
        shrink: whether a random case that fails looks for a shorter way to fail.
    """

    def __init__(
        self,
        harness: Harness,
        capabilities: Mapping[Capability, Support] | None = None,
        *,
        seed: int = 0,
        shrink: bool = False,
    ) -> None:
        self.harness = harness
        self.seed = seed
        self.shrink = shrink
        self.capabilities = dict(capabilities or {})
        self._others: frozenset[asyncio.Task[Any]] = frozenset()
        self._token = uuid.uuid4().hex[:8]
        self._numbers = itertools.count(1)
        self._connection: Connection | None = None
        self._second: Connection | None = None

    # --- life cycle ---------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the database and connect.

        Raises:
            HarnessError: either failed.
        """
        self._others = frozenset(asyncio.all_tasks())
        try:
            await self.harness.start()
            self._connection = await self.harness.connect()
        except Exception as error:
            raise HarnessError(
                f"the harness of {self.harness.name} did not start: {type(error).__name__}: {error}"
            ) from error

    async def stop(self) -> None:
        """Disconnect and stop the database.

        Raises:
            HarnessError: it failed, or tasks outlived it.
        """
        try:
            await self._disconnect()
            await self.harness.stop()
        except Exception as error:
            raise HarnessError(
                f"the harness of {self.harness.name} did not stop: {type(error).__name__}: {error}"
            ) from error
        if left := await _leaked(self._others, lambda _task: False):
            raise HarnessError(f"tasks outlived the harness: {_names(left)}")

    async def restart(self) -> None:
        """Restart the database and connect anew; needs a harness with `restart`."""
        await self._disconnect()
        try:
            await self.harness.restart()  # type: ignore[attr-defined]  # an optional member, looked for by the caller
            self._connection = await self.harness.connect()
        except Exception as error:
            raise HarnessError(f"the harness of {self.harness.name} did not restart: {error}") from error

    async def _renew(self) -> None:
        """Replace the database by a new one, where the harness says that it is worn."""
        if not getattr(self.harness, "worn", False):
            return
        await self._disconnect()
        try:
            await self.harness.renew()  # type: ignore[attr-defined]  # it says that it is worn
            self._connection = await self.harness.connect()
        except Exception as error:
            raise HarnessError(f"the harness of {self.harness.name} did not renew its database: {error}") from error

    async def _disconnect(self) -> None:
        for connection in (self._second, self._connection):
            if connection is not None:
                await connection.aclose()
        self._second = self._connection = None

    # --- connections --------------------------------------------------------------------------------------------------

    @property
    def connection(self) -> Connection:
        """The connection that cases share."""
        if self._connection is None:
            raise HarnessError("the session has not been started")
        return self._connection

    async def second_connection(self) -> Connection:
        """Return another connection to the same database; opened once, then shared."""
        if self._second is None:
            try:
                self._second = await self.harness.connect()
            except Exception as error:
                raise HarnessError(f"a second connection failed: {type(error).__name__}: {error}") from error
        return self._second

    def isolate(self, connection: Connection, root: str) -> Connection:
        """Return a view of a connection whose stores live below `root`, where the connection allows it."""
        return self.wrap(connection.engine, root) if isinstance(connection, EngineConnection) else connection

    def wrap(self, engine: Engine, root: str) -> EngineConnection:
        """Return stores below `root` on an engine. Nobody closes it: the engine belongs to a shared connection."""
        return EngineConnection(engine, path_prefix=root)

    def context(self, view: View = View.STORE) -> Context:
        """Return a world of its own for one case, seen through a view."""
        unique = f"/kc-{self._token}-{next(self._numbers)}"
        if isinstance(self.connection, EngineConnection):
            return Context(self, self.isolate(self.connection, unique), root=unique, view=view)
        return Context(self, self.connection, root="", prefix=f"{unique}/pods/", view=view)

    # --- cases --------------------------------------------------------------------------------------------------------

    async def run(self, leaf: Leaf) -> Result:
        """Run one leaf case in a fresh world and say how it ended. Never raises but for cancellation."""
        if reason := unfit(leaf, self.capabilities):
            return reason
        started = time.perf_counter()
        try:
            await self._renew()
            await self._run(leaf)
        except Exception as error:  # noqa: BLE001 - whatever a case raises is its outcome
            result = _result(_first(error))
        else:
            result = Result(Outcome.PASSED)
        return attrs.evolve(result, milliseconds=(time.perf_counter() - started) * 1000)

    async def _run(self, leaf: Leaf) -> None:
        before = frozenset(asyncio.all_tasks())
        ctx = self.context(leaf.view)
        # A task of its own, so that a case that cancels "the current task" cancels itself only.
        running = asyncio.ensure_future(leaf.call(ctx))
        try:
            done, _ = await asyncio.wait({running}, timeout=leaf.case.timeout)
            if not done:
                where = _position(running)
                running.cancel()
                await asyncio.wait({running})
                raise TimeoutError(
                    f"the case hung: it did not end within {leaf.case.timeout:g} s; it waited in {where}"
                )
            if running.cancelled():
                raise AssertionError("the case was cancelled from within")
            running.result()
        finally:
            running.cancel()
            await ctx.aclose()
        mine = getattr(self.harness, "shared_task", lambda _task: False)
        if left := await _leaked(before, mine):
            names = _names(left)
            for task in left:
                task.cancel()
            await asyncio.wait(left)
            raise LeakedTasks(f"tasks outlived the case's stores and watches: {names}")


_TELLING: Final = (MissingHook, NotHere, HarnessError, AssertionError)


def _first(error: Exception) -> Exception:
    """Return the error itself, or of the errors of concurrent tasks the one that tells most."""
    while isinstance(error, ExceptionGroup):
        telling = [one for one in error.exceptions if isinstance(one, _TELLING)]
        error = (telling or error.exceptions)[0]
    return error


def _result(error: Exception) -> Result:
    match error:
        case MissingHook():
            return Result(Outcome.SKIPPED, str(error))
        case NotHere():
            return Result(Outcome.ELSEWHERE, str(error))
        case HarnessError():
            return Result(Outcome.HARNESS_ERROR, str(error), error)
        case _:
            return Result(Outcome.FAILED, f"{type(error).__name__}: {error}", error)


async def _leaked(before: AbstractSet[asyncio.Task[Any]], shared: Any) -> list[asyncio.Task[Any]]:
    """Return the tasks that are new and do not end by themselves."""

    def left() -> list[asyncio.Task[Any]]:
        mine = asyncio.current_task()
        return [task for task in asyncio.all_tasks() if task not in before and task is not mine and not shared(task)]

    deadline = time.monotonic() + LEAK_GRACE
    while (found := left()) and time.monotonic() < deadline:  # noqa: ASYNC110 - tasks tell nobody that they end
        await asyncio.sleep(0.001)
    return found


def _names(tasks: list[asyncio.Task[Any]]) -> str:
    return ", ".join(f"{task.get_name()} ({task.get_coro()!r})" for task in tasks[:5])


def _position(task: asyncio.Task[Any]) -> str:
    """Return the lines in which a task waits, outermost first."""
    places = []
    waiting: Any = task.get_coro()
    while (frame := getattr(waiting, "cr_frame", None)) is not None:
        places.append(f"{frame.f_code.co_name} (line {frame.f_lineno} of {Path(frame.f_code.co_filename).name})")
        waiting = waiting.cr_await
    return " > ".join(places) or "no place known"
