"""Types of what `wire` makes at run time; a test holds the two together."""

from collections.abc import MutableSequence, Sequence
from typing import Final, Self

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import Message

PACKAGE: Final[str]
SCHEMA: Final[str]
TARGET_VERSION: Final = 0
TARGET_MOD: Final = 2
EVENT_DELETE: Final = 1

def describe(schema: str, package: str) -> FileDescriptorProto: ...
def serialize(message: Message) -> bytes: ...

class ResponseHeader(Message):
    cluster_id: int
    member_id: int
    revision: int
    raft_term: int
    def __init__(
        self,
        *,
        cluster_id: int | None = ...,
        member_id: int | None = ...,
        revision: int | None = ...,
        raft_term: int | None = ...,
    ) -> None: ...
    @classmethod
    def FromString(cls, data: bytes) -> Self: ...

class KeyValue(Message):
    key: bytes
    create_revision: int
    mod_revision: int
    version: int
    value: bytes
    lease: int
    def __init__(
        self,
        *,
        key: bytes | None = ...,
        create_revision: int | None = ...,
        mod_revision: int | None = ...,
        version: int | None = ...,
        value: bytes | None = ...,
        lease: int | None = ...,
    ) -> None: ...
    @classmethod
    def FromString(cls, data: bytes) -> Self: ...

class Event(Message):
    type: int
    kv: KeyValue
    prev_kv: KeyValue
    def __init__(
        self, *, type: int | None = ..., kv: KeyValue | None = ..., prev_kv: KeyValue | None = ...
    ) -> None: ...
    @classmethod
    def FromString(cls, data: bytes) -> Self: ...

class RangeRequest(Message):
    key: bytes
    range_end: bytes
    limit: int
    revision: int
    keys_only: bool
    count_only: bool
    def __init__(
        self,
        *,
        key: bytes | None = ...,
        range_end: bytes | None = ...,
        limit: int | None = ...,
        revision: int | None = ...,
        keys_only: bool | None = ...,
        count_only: bool | None = ...,
    ) -> None: ...
    @classmethod
    def FromString(cls, data: bytes) -> Self: ...

class RangeResponse(Message):
    header: ResponseHeader
    kvs: MutableSequence[KeyValue]
    more: bool
    count: int
    def __init__(
        self,
        *,
        header: ResponseHeader | None = ...,
        kvs: Sequence[KeyValue] | None = ...,
        more: bool | None = ...,
        count: int | None = ...,
    ) -> None: ...
    @classmethod
    def FromString(cls, data: bytes) -> Self: ...

class PutRequest(Message):
    key: bytes
    value: bytes
    lease: int
    prev_kv: bool
    ignore_value: bool
    ignore_lease: bool
    def __init__(
        self,
        *,
        key: bytes | None = ...,
        value: bytes | None = ...,
        lease: int | None = ...,
        prev_kv: bool | None = ...,
        ignore_value: bool | None = ...,
        ignore_lease: bool | None = ...,
    ) -> None: ...
    @classmethod
    def FromString(cls, data: bytes) -> Self: ...

class PutResponse(Message):
    header: ResponseHeader
    prev_kv: KeyValue
    def __init__(self, *, header: ResponseHeader | None = ..., prev_kv: KeyValue | None = ...) -> None: ...
    @classmethod
    def FromString(cls, data: bytes) -> Self: ...

class DeleteRangeRequest(Message):
    key: bytes
    range_end: bytes
    prev_kv: bool
    def __init__(
        self, *, key: bytes | None = ..., range_end: bytes | None = ..., prev_kv: bool | None = ...
    ) -> None: ...
    @classmethod
    def FromString(cls, data: bytes) -> Self: ...

class DeleteRangeResponse(Message):
    header: ResponseHeader
    deleted: int
    prev_kvs: MutableSequence[KeyValue]
    def __init__(
        self,
        *,
        header: ResponseHeader | None = ...,
        deleted: int | None = ...,
        prev_kvs: Sequence[KeyValue] | None = ...,
    ) -> None: ...
    @classmethod
    def FromString(cls, data: bytes) -> Self: ...

class RequestOp(Message):
    request_range: RangeRequest
    request_put: PutRequest
    request_delete_range: DeleteRangeRequest
    def __init__(
        self,
        *,
        request_range: RangeRequest | None = ...,
        request_put: PutRequest | None = ...,
        request_delete_range: DeleteRangeRequest | None = ...,
    ) -> None: ...
    @classmethod
    def FromString(cls, data: bytes) -> Self: ...

class ResponseOp(Message):
    response_range: RangeResponse
    response_put: PutResponse
    response_delete_range: DeleteRangeResponse
    def __init__(
        self,
        *,
        response_range: RangeResponse | None = ...,
        response_put: PutResponse | None = ...,
        response_delete_range: DeleteRangeResponse | None = ...,
    ) -> None: ...
    @classmethod
    def FromString(cls, data: bytes) -> Self: ...

class Compare(Message):
    result: int
    target: int
    key: bytes
    version: int
    create_revision: int
    mod_revision: int
    def __init__(
        self,
        *,
        result: int | None = ...,
        target: int | None = ...,
        key: bytes | None = ...,
        version: int | None = ...,
        create_revision: int | None = ...,
        mod_revision: int | None = ...,
    ) -> None: ...
    @classmethod
    def FromString(cls, data: bytes) -> Self: ...

class TxnRequest(Message):
    compare: MutableSequence[Compare]
    success: MutableSequence[RequestOp]
    failure: MutableSequence[RequestOp]
    def __init__(
        self,
        *,
        compare: Sequence[Compare] | None = ...,
        success: Sequence[RequestOp] | None = ...,
        failure: Sequence[RequestOp] | None = ...,
    ) -> None: ...
    @classmethod
    def FromString(cls, data: bytes) -> Self: ...

class TxnResponse(Message):
    header: ResponseHeader
    succeeded: bool
    responses: MutableSequence[ResponseOp]
    def __init__(
        self,
        *,
        header: ResponseHeader | None = ...,
        succeeded: bool | None = ...,
        responses: Sequence[ResponseOp] | None = ...,
    ) -> None: ...
    @classmethod
    def FromString(cls, data: bytes) -> Self: ...

class CompactionRequest(Message):
    revision: int
    physical: bool
    def __init__(self, *, revision: int | None = ..., physical: bool | None = ...) -> None: ...
    @classmethod
    def FromString(cls, data: bytes) -> Self: ...

class CompactionResponse(Message):
    header: ResponseHeader
    def __init__(self, *, header: ResponseHeader | None = ...) -> None: ...
    @classmethod
    def FromString(cls, data: bytes) -> Self: ...

class WatchCreateRequest(Message):
    key: bytes
    range_end: bytes
    start_revision: int
    progress_notify: bool
    prev_kv: bool
    watch_id: int
    fragment: bool
    def __init__(
        self,
        *,
        key: bytes | None = ...,
        range_end: bytes | None = ...,
        start_revision: int | None = ...,
        progress_notify: bool | None = ...,
        prev_kv: bool | None = ...,
        watch_id: int | None = ...,
        fragment: bool | None = ...,
    ) -> None: ...
    @classmethod
    def FromString(cls, data: bytes) -> Self: ...

class WatchCancelRequest(Message):
    watch_id: int
    def __init__(self, *, watch_id: int | None = ...) -> None: ...
    @classmethod
    def FromString(cls, data: bytes) -> Self: ...

class WatchProgressRequest(Message):
    @classmethod
    def FromString(cls, data: bytes) -> Self: ...

class WatchRequest(Message):
    create_request: WatchCreateRequest
    cancel_request: WatchCancelRequest
    progress_request: WatchProgressRequest
    def __init__(
        self,
        *,
        create_request: WatchCreateRequest | None = ...,
        cancel_request: WatchCancelRequest | None = ...,
        progress_request: WatchProgressRequest | None = ...,
    ) -> None: ...
    @classmethod
    def FromString(cls, data: bytes) -> Self: ...

class WatchResponse(Message):
    header: ResponseHeader
    watch_id: int
    created: bool
    canceled: bool
    compact_revision: int
    cancel_reason: str
    fragment: bool
    events: MutableSequence[Event]
    def __init__(
        self,
        *,
        header: ResponseHeader | None = ...,
        watch_id: int | None = ...,
        created: bool | None = ...,
        canceled: bool | None = ...,
        compact_revision: int | None = ...,
        cancel_reason: str | None = ...,
        fragment: bool | None = ...,
        events: Sequence[Event] | None = ...,
    ) -> None: ...
    @classmethod
    def FromString(cls, data: bytes) -> Self: ...

class LeaseGrantRequest(Message):
    TTL: int
    ID: int
    def __init__(self, *, TTL: int | None = ..., ID: int | None = ...) -> None: ...
    @classmethod
    def FromString(cls, data: bytes) -> Self: ...

class LeaseGrantResponse(Message):
    header: ResponseHeader
    ID: int
    TTL: int
    error: str
    def __init__(
        self,
        *,
        header: ResponseHeader | None = ...,
        ID: int | None = ...,
        TTL: int | None = ...,
        error: str | None = ...,
    ) -> None: ...
    @classmethod
    def FromString(cls, data: bytes) -> Self: ...

class StatusRequest(Message):
    @classmethod
    def FromString(cls, data: bytes) -> Self: ...

class StatusResponse(Message):
    header: ResponseHeader
    version: str
    dbSize: int
    leader: int
    errors: MutableSequence[str]
    dbSizeInUse: int
    isLearner: bool
    def __init__(
        self,
        *,
        header: ResponseHeader | None = ...,
        version: str | None = ...,
        dbSize: int | None = ...,
        leader: int | None = ...,
        errors: Sequence[str] | None = ...,
        dbSizeInUse: int | None = ...,
        isLearner: bool | None = ...,
    ) -> None: ...
    @classmethod
    def FromString(cls, data: bytes) -> Self: ...

class AuthenticateRequest(Message):
    name: str
    password: str
    def __init__(self, *, name: str | None = ..., password: str | None = ...) -> None: ...
    @classmethod
    def FromString(cls, data: bytes) -> Self: ...

class AuthenticateResponse(Message):
    header: ResponseHeader
    token: str
    def __init__(self, *, header: ResponseHeader | None = ..., token: str | None = ...) -> None: ...
    @classmethod
    def FromString(cls, data: bytes) -> Self: ...
