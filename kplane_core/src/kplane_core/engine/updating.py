"""guaranteed_update and delete over an engine: compare-and-set until it holds, on suggestions and on fresh data."""

import inspect
from typing import Any

import attrs

from kplane_core.engine.interface import Conflict, Engine, Record, Written
from kplane_core.engine.reading import RecordReader, Unreadable
from kplane_core.engine.translate import translated
from kplane_core.errors import DecodeError, InvalidObj, KeyNotFound
from kplane_core.storage.codec import decode_object, encode_object
from kplane_core.storage.interface import ResponseMeta, StoredObject, UpdateFunc, ValidateFunc
from kplane_core.storage.preconditions import Preconditions


@attrs.define(eq=False)
class _State:
    """What a write is compared against.

    Attributes:
        revision: the record's mod revision; 0 when nothing is stored.
        plaintext: its exact bytes before the transformer; empty when nothing is stored.
        stale: whether the transformer asks for a rewrite.
        current: whether this was read from the database, as opposed to suggested by the caller.
        found: the object in it.
    """

    revision: int
    plaintext: bytes
    stale: bool
    current: bool
    found: StoredObject

    def document(self, key: str) -> dict[str, Any]:
        if not self.plaintext:
            return {}
        try:
            document = decode_object(self.plaintext)
        except DecodeError as error:
            raise DecodeError(f"{error} (key {key!r})") from error
        metadata = document.setdefault("metadata", {})
        if isinstance(metadata, dict):
            metadata["resourceVersion"] = str(self.revision)
        return document


class _Writer:
    """What an update and a deletion share: where the state comes from, and the compare-and-set."""

    def __init__(self, engine: Engine, reader: RecordReader, key: str, full_key: str) -> None:
        self._engine = engine
        self._reader = reader
        self._key = key
        self._full_key = full_key

    def _suggested(self, suggestion: StoredObject | None) -> _State | None:
        if suggestion is None or not suggestion.exists or not suggestion.revision:
            return None
        return _State(suggestion.revision, suggestion.raw, stale=False, current=False, found=suggestion)

    async def _fresh(self, *, absent_ok: bool = False) -> _State:
        with translated(self._key):
            read = await self._engine.read(self._full_key)
        return self._state_of(read.record, absent_ok=absent_ok)

    async def _fresher(self, state: _State, *, absent_ok: bool = False) -> _State:
        """Return newer data than a suggestion; called while handling the error that the suggestion led to.

        The error is the caller's to see when it came from current data, or when the data is still the same.
        """
        if state.current:
            raise  # noqa: PLE0704 - the error that is being handled
        fresh = await self._fresh(absent_ok=absent_ok)
        if fresh.revision == state.revision:
            raise  # noqa: PLE0704 - the error that is being handled
        return fresh

    def _state_of(self, record: Record | None, *, absent_ok: bool = False) -> _State:
        if record is None:
            if not absent_ok:
                raise KeyNotFound(self._key)
            return _State(0, b"", stale=False, current=True, found=StoredObject(self._key, 0, b""))
        try:
            plaintext, stale = self._reader.plaintext(record)
            found = self._reader.from_plaintext(record, plaintext)
        except Unreadable as error:
            raise error.error from error
        return _State(record.mod_revision, plaintext, stale=stale, current=True, found=found)

    async def _write(self, value: bytes | None, expect: int, ttl: int | None = None) -> Written | Conflict:
        with translated(self._key):
            return await self._engine.write(self._full_key, value, expect=expect, ttl=ttl)


class Update(_Writer):
    """One guaranteed_update on its way."""

    async def run(
        self,
        try_update: UpdateFunc,
        *,
        ignore_not_found: bool,
        preconditions: Preconditions | None,
        suggestion: StoredObject | None,
    ) -> StoredObject:
        """Return the object as stored.

        Raises:
            KplaneError: as `Store.guaranteed_update` promises, or what `try_update` raised on current data.
        """
        state = self._suggested(suggestion) or await self._fresh(absent_ok=ignore_not_found)
        while True:
            try:
                document = state.document(self._key)
                if not self._holds(preconditions, state, document):
                    state = await self._fresh(absent_ok=ignore_not_found)
                    continue
                raw, ttl = await _attempt(try_update, document, state.revision)
            except Exception:  # noqa: BLE001 - the caller's function may raise anything; it is judged, then raised
                state = await self._fresher(state, absent_ok=ignore_not_found)
                continue
            if raw == state.plaintext and not state.current:
                # The suggestion says "no change": only the real record can confirm that.
                state = await self._fresh(absent_ok=ignore_not_found)
                if raw != state.plaintext:
                    continue
            if raw == state.plaintext and not state.stale:
                return StoredObject(self._key, state.revision, raw)
            result = await self._write(self._reader.seal(self._full_key, raw), state.revision, ttl)
            if isinstance(result, Written):
                self._reader.remember(self._full_key, result.revision)
                return StoredObject(self._key, result.revision, raw)
            state = self._state_of(result.record, absent_ok=ignore_not_found)

    def _holds(self, preconditions: Preconditions | None, state: _State, document: dict[str, Any]) -> bool:
        """Whether the preconditions hold; raises InvalidObj when they do not hold for what is really stored."""
        if preconditions is None:
            return True
        try:
            preconditions.check(self._key, document)
        except InvalidObj:
            if state.current:
                raise
            return False
        return True


async def _attempt(try_update: UpdateFunc, document: dict[str, Any], revision: int) -> tuple[bytes, int | None]:
    outcome = try_update(document, ResponseMeta(revision))
    new, ttl = await outcome if inspect.isawaitable(outcome) else outcome
    return encode_object(new), ttl


class Deletion(_Writer):
    """One delete on its way."""

    async def run(
        self,
        *,
        preconditions: Preconditions | None,
        validate: ValidateFunc | None,
        suggestion: StoredObject | None,
    ) -> StoredObject:
        """Return the deleted content with the revision of the deletion.

        Raises:
            KplaneError: as `Store.delete` promises, or what `validate` raised on current data.
        """
        state = self._suggested(suggestion) or await self._fresh()
        while True:
            try:
                if preconditions is not None:
                    preconditions.check(self._key, state.document(self._key))
                await _call(validate, state.found)
            except Exception:  # noqa: BLE001 - the caller's function may raise anything; it is judged, then raised
                state = await self._fresher(state)
                continue
            result = await self._write(None, state.revision)
            if isinstance(result, Written):
                return StoredObject(self._key, result.revision, state.found.raw)
            state = self._state_of(result.record)

    async def run_unsafe(self, *, preconditions: Preconditions | None, validate: ValidateFunc | None) -> StoredObject:
        """Delete a record that cannot be read; returns its key and revision without content.

        Raises:
            InvalidObj: the record can be read after all.
            KeyNotFound: nothing is stored there.
            InternalError: the transformer cannot work now, so nothing is known about the record.
        """
        if preconditions is not None and preconditions != Preconditions():
            raise InvalidObj(self._key, "an unreadable object cannot meet preconditions")
        with translated(self._key):
            record = (await self._engine.read(self._full_key)).record
        while True:
            if record is None:
                raise KeyNotFound(self._key)
            self._refuse_readable(record)
            await _call(validate, None)
            result = await self._write(None, record.mod_revision)
            if isinstance(result, Written):
                return StoredObject(self._key, result.revision, b"")
            record = result.record

    def _refuse_readable(self, record: Record) -> None:
        try:
            self._reader.object(record)
        except Unreadable as error:
            if not error.corrupt:
                raise error.error from error
            return
        raise InvalidObj(
            self._key, "the object is readable and decodable from storage: delete it without the unsafe option"
        )


async def _call(validate: ValidateFunc | None, found: StoredObject | None) -> None:
    if validate is not None:
        outcome = validate(found)
        if inspect.isawaitable(outcome):
            await outcome


__all__ = ["Deletion", "Update"]
