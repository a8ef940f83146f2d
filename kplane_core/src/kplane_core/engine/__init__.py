"""Implement ten methods, get a Store."""

from kplane_core.engine.factory import CompactionPolicy, Connection, EngineConnection
from kplane_core.engine.interface import (
    Compacted,
    Conflict,
    Engine,
    EngineEvent,
    EngineUnreachable,
    EngineWatch,
    FutureRevision,
    Page,
    Read,
    Record,
    ValueTooLarge,
    Written,
)
from kplane_core.engine.store import EngineStore

__all__ = [
    "Compacted",
    "CompactionPolicy",
    "Conflict",
    "Connection",
    "Engine",
    "EngineConnection",
    "EngineEvent",
    "EngineStore",
    "EngineUnreachable",
    "EngineWatch",
    "FutureRevision",
    "Page",
    "Read",
    "Record",
    "ValueTooLarge",
    "Written",
]
