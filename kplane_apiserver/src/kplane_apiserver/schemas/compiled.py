"""A compiled schema: made once per content and shared by all clusters whose definitions agree."""

import hashlib
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import msgspec

from kplane_apiserver.kinds import CustomKind
from kplane_apiserver.schemas import cel, cel_cost, words
from kplane_apiserver.schemas.fitting import Fit, compile_fit
from kplane_apiserver.schemas.judging import Judge, compile_judge
from kplane_apiserver.schemas.places import Fault, Place, steps_of, text_of
from kplane_apiserver.schemas.rules import Check, compile_rules, identity
from kplane_core.errors import StatusCause

Schema = dict[str, Any]


class CompiledSchema:
    """What one version of a custom kind asks of its objects.

    Args:
        schema: the version's `openAPIV3Schema`.
        keep_unknown: whether unknown fields are kept at every depth.

    Attributes:
        defaults_status: whether an object without a status gets one.
    """

    def __init__(self, schema: Schema, *, keep_unknown: bool) -> None:
        self._schema = schema
        self._keep_unknown = keep_unknown
        status = (schema.get("properties") or {}).get("status")
        self.defaults_status = isinstance(status, dict) and status.get("default") is not None

    @cached_property
    def _fit(self) -> Fit:
        return compile_fit(self._schema, keep_unknown=self._keep_unknown)

    @cached_property
    def _judge(self) -> Judge | None:
        return compile_judge(self._schema)

    @cached_property
    def _rules(self) -> Check | None:
        return compile_rules(self._schema) if cel.available() else None

    def fit(self, document: dict[str, Any], unknown: list[Place] | None = None) -> bool:
        """Drop what the schema does not know and fill in its defaults, in place.

        Args:
            document: the object.
            unknown: takes the places of the fields that were dropped.

        Returns:
            Whether the object changed.
        """
        return self._fit(document, (), unknown)

    def causes(self, new: dict[str, Any], old: dict[str, Any] | None) -> list[StatusCause]:
        """Return what is wrong with an object.

        Args:
            new: the object.
            old: what it replaces: faults of values that did not change are forgiven. None on create.
        """
        faults: list[Fault] = []
        if self._judge is not None:
            self._judge(new, (), faults)
            if faults and old is not None:
                faults = [fault for fault in faults if not _unchanged(self._schema, fault.place, new, old)]
        if self._rules is not None:
            if any(fault.cause.reason in words.BLOCKING for fault in faults):
                faults.append(words.unchecked())
            else:
                cel_cost.begin()
                self._rules(new, old, (), faults)
        return [fault.cause for fault in faults]


def unknown_fields(places: list[Place]) -> list[str]:
    """Return what is said of fields that a schema does not know, in order."""
    return [f'unknown field "{text}"' for text in sorted(text_of(place) for place in places)]


def compiled(custom: CustomKind) -> CompiledSchema:
    """Return the compiled schema of one version of a custom kind."""
    found = _by_kind.get(custom)
    if found is None:
        found = _by_kind[custom] = _shared(custom.schema or {}, keep_unknown=_keeps_unknown(custom))
    return found


def _keeps_unknown(custom: CustomKind) -> bool:
    return custom.preserve_unknown_fields or custom.schema is None


def _shared(schema: Schema, *, keep_unknown: bool) -> CompiledSchema:
    digest = hashlib.blake2b(msgspec.json.encode((schema, keep_unknown)), digest_size=16).digest()
    found = _by_content.get(digest)
    if found is None:
        found = _by_content[digest] = CompiledSchema(schema, keep_unknown=keep_unknown)
    return found


_by_kind: WeakKeyDictionary[CustomKind, CompiledSchema] = WeakKeyDictionary()
_by_content: WeakValueDictionary[bytes, CompiledSchema] = WeakValueDictionary()


def _unchanged(schema: Any, place: Place, new: Any, old: Any) -> bool:
    """Return whether the value at a place is the one that the old object has there."""
    for step in steps_of(place):
        if _same(new, old):
            return True
        schema = schema if isinstance(schema, dict) else {}
        if isinstance(step, int):
            if not isinstance(old, list) or schema.get("x-kubernetes-list-type") != "map":
                return False
            keys = schema.get("x-kubernetes-list-map-keys") or ()
            new, wanted = new[step], identity(new[step], keys)
            old = next((item for item in old if identity(item, keys) == wanted), None)
            schema = schema.get("items")
        else:
            if not isinstance(old, dict) or not isinstance(new, dict) or step not in old or step not in new:
                return False
            new, old = new[step], old[step]
            properties = schema.get("properties") or {}
            schema = properties.get(step, schema.get("additionalProperties"))
    return _same(new, old)


def _same(new: Any, old: Any) -> bool:
    """Return whether two values are the same JSON; to Python, true is 1."""
    return bool(new == old) and msgspec.json.encode(new, order="sorted") == msgspec.json.encode(old, order="sorted")
