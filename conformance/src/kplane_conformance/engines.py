"""Helpers for the cases that call the ten engine methods directly."""

import asyncio
from collections.abc import Sequence

from kplane_conformance.context import EVENT_TIMEOUT
from kplane_core.engine.interface import Conflict, Engine, EngineEvent, EngineWatch, Record


async def put(engine: Engine, key: str, value: bytes, *, ttl: int | None = None) -> int:
    """Write a key whatever it holds, and return the revision."""
    record = (await engine.read(key)).record
    return revision_of(await engine.write(key, value, expect=record.mod_revision if record else 0, ttl=ttl))


async def delete(engine: Engine, key: str) -> int:
    """Delete a key that exists, and return the revision of the deletion."""
    record = (await engine.read(key)).record
    assert record is not None, f"nothing to delete at {key}"
    return revision_of(await engine.write(key, None, expect=record.mod_revision))


def revision_of(answer: object) -> int:
    """Return the revision of a write that must have been accepted."""
    assert not isinstance(answer, Conflict), f"the write was refused: {answer}"
    revision: int = answer.revision  # type: ignore[attr-defined]
    return revision


async def collect(watch: EngineWatch, last: int, within: float = EVENT_TIMEOUT) -> Sequence[EngineEvent]:
    """Return the events of a watch up to the one with revision `last`, progress marks left out."""
    events: list[EngineEvent] = []
    while all(event.revision < last for event in events):
        try:
            batch = await asyncio.wait_for(watch.batch(), within)
        except TimeoutError:
            raise AssertionError(
                f"no event within {within:g} s; waiting for revision {last}, got {revisions(events)}"
            ) from None
        assert batch, f"the watch ended; waiting for revision {last}, got {revisions(events)}"
        events += [event for event in batch if not event.is_progress]
    return events


def revisions(events: Sequence[EngineEvent]) -> list[int]:
    """Return the revisions of some events, in order."""
    return [event.revision for event in events]


def keys(records: Sequence[Record]) -> list[str]:
    """Return the keys of some records, in order."""
    return [record.key for record in records]
