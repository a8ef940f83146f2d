"""The storage contract: values and protocols, no I/O."""

from kplane_core.storage.codec import canonical, decode_object, encode_object, splice_resource_version
from kplane_core.storage.interface import (
    INITIAL_EVENTS_END,
    INT64_MAX,
    DeleteOptions,
    EventType,
    GetOptions,
    ListOptions,
    ObjectList,
    ResponseMeta,
    Stats,
    Store,
    StoredObject,
    UpdateFunc,
    UpdateResult,
    ValidateFunc,
    Watch,
    WatchEvent,
)
from kplane_core.storage.preconditions import Preconditions
from kplane_core.storage.resource import Resource
from kplane_core.storage.selection import (
    AttributeFunc,
    Attributes,
    FieldSelector,
    LabelSelector,
    Predicate,
    attribute_func,
    parse_field_selector,
    parse_label_selector,
)
from kplane_core.storage.transformers import IDENTITY, Transformer, TransformError, TransformUnavailable
from kplane_core.storage.versioner import compare_resource_versions, parse_resource_version

__all__ = [
    "IDENTITY",
    "INITIAL_EVENTS_END",
    "INT64_MAX",
    "AttributeFunc",
    "Attributes",
    "DeleteOptions",
    "EventType",
    "FieldSelector",
    "GetOptions",
    "LabelSelector",
    "ListOptions",
    "ObjectList",
    "Preconditions",
    "Predicate",
    "Resource",
    "ResponseMeta",
    "Stats",
    "Store",
    "StoredObject",
    "TransformError",
    "TransformUnavailable",
    "Transformer",
    "UpdateFunc",
    "UpdateResult",
    "ValidateFunc",
    "Watch",
    "WatchEvent",
    "attribute_func",
    "canonical",
    "compare_resource_versions",
    "decode_object",
    "encode_object",
    "parse_field_selector",
    "parse_label_selector",
    "parse_resource_version",
    "splice_resource_version",
]
