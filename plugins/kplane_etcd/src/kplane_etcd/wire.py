"""The messages that this backend exchanges with etcd, and the methods that take them.

They are described here, not generated, and live in a pool of their own: any protobuf runtime from 4.25 on can read the
description, and no other package in the process (google-cloud-spanner, another etcd client) can collide with it. The
names and numbers are those of etcd's v3 API; of messages that etcd knows, only the fields in use are described.
"""

from typing import TYPE_CHECKING, Any, Final

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

if TYPE_CHECKING:
    from google.protobuf.message import Message

PACKAGE: Final = "kplane.etcdwire"

# One message a line: its name, then fields as name:number:type. `*` before the type repeats the field; `?` puts it into
# the message's one oneof, which makes a zero visible on the wire.
SCHEMA: Final = """
ResponseHeader       cluster_id:1:uint64 member_id:2:uint64 revision:3:int64 raft_term:4:uint64
KeyValue             key:1:bytes create_revision:2:int64 mod_revision:3:int64 version:4:int64 value:5:bytes lease:6:int64
Event                type:1:int32 kv:2:KeyValue prev_kv:3:KeyValue
RangeRequest         key:1:bytes range_end:2:bytes limit:3:int64 revision:4:int64 keys_only:8:bool count_only:9:bool
RangeResponse        header:1:ResponseHeader kvs:2:*KeyValue more:3:bool count:4:int64
PutRequest           key:1:bytes value:2:bytes lease:3:int64 prev_kv:4:bool ignore_value:5:bool ignore_lease:6:bool
PutResponse          header:1:ResponseHeader prev_kv:2:KeyValue
DeleteRangeRequest   key:1:bytes range_end:2:bytes prev_kv:3:bool
DeleteRangeResponse  header:1:ResponseHeader deleted:2:int64 prev_kvs:3:*KeyValue
RequestOp            request_range:1:?RangeRequest request_put:2:?PutRequest request_delete_range:3:?DeleteRangeRequest
ResponseOp           response_range:1:?RangeResponse response_put:2:?PutResponse response_delete_range:3:?DeleteRangeResponse
Compare              result:1:int32 target:2:int32 key:3:bytes version:4:?int64 create_revision:5:?int64 mod_revision:6:?int64
TxnRequest           compare:1:*Compare success:2:*RequestOp failure:3:*RequestOp
TxnResponse          header:1:ResponseHeader succeeded:2:bool responses:3:*ResponseOp
CompactionRequest    revision:1:int64 physical:2:bool
CompactionResponse   header:1:ResponseHeader
WatchCreateRequest   key:1:bytes range_end:2:bytes start_revision:3:int64 progress_notify:4:bool prev_kv:6:bool watch_id:7:int64 fragment:8:bool
WatchCancelRequest   watch_id:1:int64
WatchProgressRequest
WatchRequest         create_request:1:?WatchCreateRequest cancel_request:2:?WatchCancelRequest progress_request:3:?WatchProgressRequest
WatchResponse        header:1:ResponseHeader watch_id:2:int64 created:3:bool canceled:4:bool compact_revision:5:int64 cancel_reason:6:string fragment:7:bool events:11:*Event
LeaseGrantRequest    TTL:1:int64 ID:2:int64
LeaseGrantResponse   header:1:ResponseHeader ID:2:int64 TTL:3:int64 error:4:string
StatusRequest
StatusResponse       header:1:ResponseHeader version:2:string dbSize:3:int64 leader:4:uint64 errors:8:*string dbSizeInUse:9:int64 isLearner:10:bool
AuthenticateRequest  name:1:string password:2:string
AuthenticateResponse header:1:ResponseHeader token:2:string
"""  # noqa: E501 - one message a line

_SCALARS: Final = {
    "int32": FieldDescriptorProto.TYPE_INT32,
    "int64": FieldDescriptorProto.TYPE_INT64,
    "uint64": FieldDescriptorProto.TYPE_UINT64,
    "bool": FieldDescriptorProto.TYPE_BOOL,
    "bytes": FieldDescriptorProto.TYPE_BYTES,
    "string": FieldDescriptorProto.TYPE_STRING,
}


def describe(schema: str, package: str) -> FileDescriptorProto:
    """Return the file descriptor that a schema text describes."""
    file = FileDescriptorProto(name=f"{package.replace('.', '/')}.proto", package=package, syntax="proto3")
    for line in schema.strip().splitlines():
        name, *fields = line.split()
        message = file.message_type.add(name=name)
        for field in fields:
            _add_field(message, package, *field.split(":"))
    return file


def _add_field(message: DescriptorProto, package: str, name: str, number: str, kind: str) -> None:
    plain = kind.lstrip("*?")
    label = FieldDescriptorProto.LABEL_REPEATED if kind[0] == "*" else FieldDescriptorProto.LABEL_OPTIONAL
    field = message.field.add(name=name, number=int(number), label=label)
    if plain in _SCALARS:
        field.type = _SCALARS[plain]
    else:
        field.type = FieldDescriptorProto.TYPE_MESSAGE
        field.type_name = f".{package}.{plain}"
    if kind[0] == "?":
        if not message.oneof_decl:
            message.oneof_decl.add(name="one")
        field.oneof_index = 0


_POOL: Final = DescriptorPool()
_POOL.AddSerializedFile(describe(SCHEMA, PACKAGE).SerializeToString())


def _class(name: str) -> Any:
    return GetMessageClass(_POOL.FindMessageTypeByName(f"{PACKAGE}.{name}"))


ResponseHeader = _class("ResponseHeader")
KeyValue = _class("KeyValue")
Event = _class("Event")
RangeRequest = _class("RangeRequest")
RangeResponse = _class("RangeResponse")
PutRequest = _class("PutRequest")
PutResponse = _class("PutResponse")
DeleteRangeRequest = _class("DeleteRangeRequest")
DeleteRangeResponse = _class("DeleteRangeResponse")
RequestOp = _class("RequestOp")
ResponseOp = _class("ResponseOp")
Compare = _class("Compare")
TxnRequest = _class("TxnRequest")
TxnResponse = _class("TxnResponse")
CompactionRequest = _class("CompactionRequest")
CompactionResponse = _class("CompactionResponse")
WatchCreateRequest = _class("WatchCreateRequest")
WatchCancelRequest = _class("WatchCancelRequest")
WatchProgressRequest = _class("WatchProgressRequest")
WatchRequest = _class("WatchRequest")
WatchResponse = _class("WatchResponse")
LeaseGrantRequest = _class("LeaseGrantRequest")
LeaseGrantResponse = _class("LeaseGrantResponse")
StatusRequest = _class("StatusRequest")
StatusResponse = _class("StatusResponse")
AuthenticateRequest = _class("AuthenticateRequest")
AuthenticateResponse = _class("AuthenticateResponse")


def serialize(message: "Message") -> bytes:
    """Return a message's bytes."""
    return message.SerializeToString()


TARGET_VERSION: Final = 0
TARGET_MOD: Final = 2
EVENT_DELETE: Final = 1
