"""The form of a schema itself: which keyword takes what. Whatever compiles schemas may rely on it."""

from __future__ import annotations

from typing import Any

import msgspec


class Rule(msgspec.Struct, rename="camel"):
    """One entry of `x-kubernetes-validations`."""

    rule: str | None = None
    message: str | None = None
    message_expression: str | None = None
    reason: str | None = None
    field_path: str | None = None
    optional_old_self: bool | None = None


class Schema(msgspec.Struct, rename="camel"):
    """A JSON schema as a CustomResourceDefinition may have it; what it does not name is of no consequence."""

    type: str | None = None
    format: str | None = None
    description: str | None = None
    nullable: bool | None = None
    enum: list[Any] | None = None
    maximum: float | None = None
    minimum: float | None = None
    exclusive_maximum: bool | None = None
    exclusive_minimum: bool | None = None
    multiple_of: float | None = None
    max_length: int | None = None
    min_length: int | None = None
    max_items: int | None = None
    min_items: int | None = None
    max_properties: int | None = None
    min_properties: int | None = None
    unique_items: bool | None = None
    pattern: str | None = None
    required: list[str] | None = None
    properties: dict[str, Schema] | None = None
    additional_properties: Schema | bool | None = None
    items: Schema | list[Schema] | None = None
    all_of: list[Schema] | None = None
    any_of: list[Schema] | None = None
    one_of: list[Schema] | None = None
    not_: Schema | None = msgspec.field(name="not", default=None)
    preserve: bool | None = msgspec.field(name="x-kubernetes-preserve-unknown-fields", default=None)
    embedded: bool | None = msgspec.field(name="x-kubernetes-embedded-resource", default=None)
    either: bool | None = msgspec.field(name="x-kubernetes-int-or-string", default=None)
    list_type: str | None = msgspec.field(name="x-kubernetes-list-type", default=None)
    list_map_keys: list[str] | None = msgspec.field(name="x-kubernetes-list-map-keys", default=None)
    map_type: str | None = msgspec.field(name="x-kubernetes-map-type", default=None)
    validations: list[Rule] | None = msgspec.field(name="x-kubernetes-validations", default=None)


def check_shape(schema: dict[str, Any]) -> None:
    """Return when every keyword of a schema has a value of its type.

    Raises:
        msgspec.ValidationError: one has not; the message says which.
    """
    msgspec.convert(schema, Schema)
