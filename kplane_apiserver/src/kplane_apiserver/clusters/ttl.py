"""Clusters and fleets that end by themselves: `spec.ttlSeconds`, counted from their creation."""

import asyncio
import contextlib
from collections.abc import Callable, Hashable
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

import msgspec

from kplane_apiserver.apierrors import field_invalid, invalid
from kplane_apiserver.kinds import Kind
from kplane_core.storage.interface import StoredObject
from kplane_core.tasks import end_task

K = TypeVar("K", bound=Hashable)

LONGEST = 2**31 - 1
_LONGEST_SLEEP = 1.0
"""The time of day may be set, in a test or by an administrator, so it is looked at again soon."""


class _Metadata(msgspec.Struct, rename="camel"):
    creation_timestamp: str = ""


class _Spec(msgspec.Struct, rename="camel"):
    ttl_seconds: int | None = None


class _Probe(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec | None = None


_PROBE = msgspec.json.Decoder(_Probe)


def end_of(stored: StoredObject) -> datetime | None:
    """Return when a Cluster or Fleet ends; None for one that does not end by itself."""
    if b'"ttlSeconds"' not in stored.raw:
        return None
    try:
        probe = _PROBE.decode(stored.raw)
        created = datetime.fromisoformat(probe.metadata.creation_timestamp)
    except (msgspec.DecodeError, ValueError):
        return None
    if probe.spec is None or probe.spec.ttl_seconds is None:
        return None
    return datetime.fromtimestamp(created.timestamp() + probe.spec.ttl_seconds, UTC)


def check_ttl(kind: Kind, document: dict[str, Any]) -> None:
    """Return when `spec.ttlSeconds` is absent or a number of seconds.

    Raises:
        InvalidError: 422; it is not.
    """
    ttl = (document.get("spec") or {}).get("ttlSeconds")
    if ttl is None or (isinstance(ttl, int) and not isinstance(ttl, bool) and 0 < ttl <= LONGEST):
        return
    cause = field_invalid("spec.ttlSeconds", ttl, f"must be a whole number between 1 and {LONGEST}")
    raise invalid([cause], kind=kind.kind, name=document["metadata"]["name"], group=kind.group)


class Expiries(Generic[K]):
    """Tells when something has ended, with one task.

    Args:
        now: the time of day.
        expired: called once with what ended.
    """

    def __init__(self, now: Callable[[], datetime], expired: Callable[[K], None]) -> None:
        self._now = now
        self._expired = expired
        self._ends: dict[K, datetime] = {}
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to watch the time."""
        self._task = asyncio.create_task(self._run(), name="kplane-expiries")

    async def aclose(self) -> None:
        """Stop; idempotent."""
        await end_task(self._task)
        self._task = None

    def put(self, what: K, end: datetime | None) -> None:
        """Take when something ends; None takes it off."""
        if end is None:
            self._ends.pop(what, None)
        else:
            self._ends[what] = end
            self._wake.set()

    def keep(self, choose: Callable[[K], bool]) -> None:
        """Forget everything but what is chosen."""
        self._ends = {what: end for what, end in self._ends.items() if choose(what)}

    def check(self) -> None:
        """Tell of everything that has ended by now."""
        now = self._now()
        for what in [what for what, end in self._ends.items() if end <= now]:
            del self._ends[what]
            self._expired(what)

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            self.check()
            first = min(self._ends.values(), default=None)
            left = None if first is None else min((first - self._now()).total_seconds(), _LONGEST_SLEEP)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._wake.wait()
