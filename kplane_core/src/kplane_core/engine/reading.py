"""Stored records to objects: transform, check, canonicalize; and what an unreadable one is called."""

from collections.abc import Sequence

from kplane_core.engine.interface import Record
from kplane_core.errors import CorruptObj, DecodeError, InternalError, KplaneError
from kplane_core.storage.codec import canonical
from kplane_core.storage.interface import StoredObject
from kplane_core.storage.resource import Resource
from kplane_core.storage.transformers import IDENTITY, TransformUnavailable

_REMEMBERED = 200_000


class Unreadable(KplaneError):
    """A record's bytes cannot be transformed or decoded; internal to the engine layer.

    Args:
        error: what a caller should see if this record alone was asked for.
        corrupt: False when the transformer could not look at the data at all.
    """

    def __init__(self, error: KplaneError, *, corrupt: bool) -> None:
        super().__init__(str(error))
        self.error = error
        self.corrupt = corrupt


class RecordReader:
    """Turns the records of one store into objects.

    Args:
        resource: whose records.
        path_prefix: what precedes the store's keys in the database, without a trailing slash.
    """

    def __init__(self, resource: Resource, path_prefix: str) -> None:
        self._resource = resource
        self._strip = len(path_prefix)
        self._transformer = resource.transformer
        self._plain = resource.transformer is IDENTITY
        # Records never change, so one that was encoded or checked here once needs no second look.
        self._checked: dict[str, int] = {}

    def object(self, record: Record) -> StoredObject:
        """Return the object in a record.

        Raises:
            Unreadable: its bytes cannot be read.
        """
        if self._plain and self._checked.get(record.key) == record.mod_revision:
            return StoredObject(record.key[self._strip :], record.mod_revision, record.value)
        plaintext, _ = self.plaintext(record)
        return self.from_plaintext(record, plaintext)

    def known(self, records: Sequence[Record]) -> list[StoredObject] | None:
        """Return the objects in records that were all encoded or checked here; None if one of them needs a look."""
        if not self._plain:
            return None
        checked, strip = self._checked.get, self._strip
        known = [
            StoredObject(record.key[strip:], record.mod_revision, record.value)
            for record in records
            if checked(record.key) == record.mod_revision
        ]
        return known if len(known) == len(records) else None

    def from_plaintext(self, record: Record, plaintext: bytes) -> StoredObject:
        """Return the object in a record whose plaintext is already known.

        Raises:
            Unreadable: it is not a JSON object.
        """
        try:
            raw = canonical(plaintext)
        except DecodeError as error:
            raise Unreadable(self._worded(record, error), corrupt=True) from error
        if raw is record.value:
            self.remember(record.key, record.mod_revision)
        return StoredObject(record.key[self._strip :], record.mod_revision, raw)

    def remember(self, key: str, revision: int) -> None:
        """Note that the record of `key` at `revision` holds canonical JSON."""
        if len(self._checked) >= _REMEMBERED:
            self._checked.clear()
        self._checked[key] = revision

    def plaintext(self, record: Record) -> tuple[bytes, bool]:
        """Return a record's bytes as they were before the transformer, and whether they are stale.

        Raises:
            Unreadable: the transformer failed.
        """
        try:
            return self._transformer.from_storage(record.value, record.key)
        except TransformUnavailable as error:
            raise Unreadable(_transform_failed(record, error), corrupt=False) from error
        except Exception as error:
            # Whatever a transformer raises on stored bytes means that they cannot be read.
            raise Unreadable(self._worded(record, _transform_failed(record, error)), corrupt=True) from error

    def seal(self, key: str, plaintext: bytes) -> bytes:
        """Return the bytes to store.

        Raises:
            InternalError: the transformer failed.
        """
        if self._plain:
            return plaintext
        try:
            return self._transformer.to_storage(plaintext, key)
        except Exception as error:
            raise InternalError(f"unable to transform the value of key {key!r}: {error}") from error

    def _worded(self, record: Record, error: KplaneError) -> KplaneError:
        if self._resource.corrupt_object_reports:
            return CorruptObj(record.key[self._strip :], str(error), record.mod_revision)
        return error


def _transform_failed(record: Record, error: Exception) -> InternalError:
    return InternalError(f'unable to transform key "{record.key}": {error}')
