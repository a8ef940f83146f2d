"""What waits for its content to go or to come: a queue and the one task that works it off."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Literal, NamedTuple

from kplane_core.errors import KplaneError
from kplane_core.tasks import end_task

_log = logging.getLogger(__name__)

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 5.0


class Owner(NamedTuple):
    """Something whose content has to go before it may go itself, or that has to be given what it lacks.

    Attributes:
        what: a namespace, a CustomResourceDefinition, or a whole cluster; or a namespace's default service account, a
            cluster whose time is over, or a fleet.
        cluster: the cluster that it is in; of a cluster, itself.
        name: its name.
    """

    what: Literal["namespace", "definition", "cluster", "account", "expired", "fleet"]
    cluster: str
    name: str


Finish = Callable[[Owner], Awaitable[bool]]
"""Removes what it can of an owner's content; True once the owner itself is gone. May be called again."""


class _Turn:
    """When an owner is looked at next, how long the pause after that is, and whether somebody asked meanwhile."""

    __slots__ = ("again", "at", "pause")

    def __init__(self) -> None:
        self.again = False
        self.at = 0.0
        self.pause = _FIRST_PAUSE


class Lifecycle:
    """Finishes deletions, and what namespaces begin with, in the background.

    Every step can be repeated, so a restart, or another process that does the same, harms nothing.
    """

    def __init__(self) -> None:
        self._waiting: dict[Owner, _Turn] = {}
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self, finish: Finish) -> None:
        """Begin to work, with one task."""
        self._task = asyncio.create_task(self._run(finish), name="kplane-lifecycle")

    async def aclose(self) -> None:
        """Stop; what is not finished is taken up at the next start. Idempotent."""
        await end_task(self._task)
        self._task = None

    def enqueue(self, owner: Owner) -> None:
        """Look after the owner soon."""
        turn = self._waiting.get(owner)
        if turn is None:
            self._waiting[owner] = _Turn()
            self._wake.set()
        else:
            turn.again = True

    def content_left(self, cluster: str, namespace: str) -> None:
        """Take note that an object is gone: what waited for it may go now."""
        if not self._waiting:
            return
        for owner, turn in self._waiting.items():
            if owner.cluster == cluster and (owner.what != "namespace" or owner.name == namespace):
                turn.at, turn.pause = 0.0, _FIRST_PAUSE
                self._wake.set()

    async def _run(self, finish: Finish) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._wake.clear()
            for owner, turn in list(self._waiting.items()):
                if turn.at <= loop.time():
                    await self._take_turn(finish, owner, turn)
            next_turn = min((turn.at for turn in self._waiting.values()), default=None)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(next_turn):
                    await self._wake.wait()

    async def _take_turn(self, finish: Finish, owner: Owner, turn: _Turn) -> None:
        turn.again = False
        try:
            finished = await finish(owner)
        except KplaneError as error:
            finished = False
            _log.warning(
                "what belongs to %s %r in cluster %r could not be set right yet: %s",
                owner.what,
                owner.name,
                owner.cluster,
                error,
            )
        if finished:
            if not turn.again:
                self._waiting.pop(owner, None)
            return
        turn.at = asyncio.get_running_loop().time() + turn.pause
        turn.pause = min(turn.pause * 2, _LONGEST_PAUSE)
