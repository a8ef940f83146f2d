"""The messages: described by hand, bytes as etcd wants them, no clash with anybody."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf import descriptor_pool

from kplane_etcd import wire

SCALARS = {"int32": "int", "int64": "int", "uint64": "int", "bool": "bool", "bytes": "bytes", "string": "str"}


def test_a_creation_has_the_bytes_that_the_protocol_says() -> None:
    """Field by field, so that a wrong number shows; the zero of the compared revision must be there."""
    request = wire.TxnRequest(
        compare=[wire.Compare(target=wire.TARGET_MOD, key=b"k", mod_revision=0)],
        success=[wire.RequestOp(request_put=wire.PutRequest(key=b"k", value=b"v", lease=5))],
    )
    compare = b"\x10\x02" + b"\x1a\x01k" + b"\x30\x00"
    put = b"\x0a\x01k" + b"\x12\x01v" + b"\x18\x05"
    operation = b"\x12" + bytes([len(put)]) + put
    expected = b"\x0a" + bytes([len(compare)]) + compare + b"\x12" + bytes([len(operation)]) + operation
    assert wire.serialize(request) == expected


def test_a_watch_response_is_read_field_by_field() -> None:
    kv = b"\x0a\x01k" + b"\x10\x02" + b"\x18\x03" + b"\x20\x04" + b"\x2a\x01v" + b"\x30\x05"
    event = b"\x08\x01" + b"\x12" + bytes([len(kv)]) + kv + b"\x1a" + bytes([len(kv)]) + kv
    data = b"\x0a\x02\x18\x07" + b"\x18\x01\x20\x01\x28\x09" + b"\x32\x03why" + b"\x38\x01"
    response = wire.WatchResponse.FromString(data + b"\x5a" + bytes([len(event)]) + event)
    assert (response.header.revision, response.created, response.canceled, response.compact_revision) == (
        7,
        True,
        True,
        9,
    )
    assert (response.cancel_reason, response.fragment) == ("why", True)
    (found,) = response.events
    assert found.type == wire.EVENT_DELETE
    assert (found.kv.key, found.kv.create_revision, found.kv.mod_revision, found.kv.version) == (b"k", 2, 3, 4)
    assert (found.prev_kv.value, found.prev_kv.lease) == (b"v", 5)


def test_the_stub_says_what_the_schema_says() -> None:
    """Types are checked against the stub, the code runs on the schema: a difference would be a hole."""
    tree = ast.parse(Path(wire.__file__).with_name("wire.pyi").read_text(encoding="utf-8"))
    stub = {
        node.name: {
            field.target.id: ast.unparse(field.annotation) for field in node.body if isinstance(field, ast.AnnAssign)
        }
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }
    schema = {}
    for line in wire.SCHEMA.strip().splitlines():
        name, *fields = line.split()
        schema[name] = {}
        for field in fields:
            attribute, _, kind = field.split(":")
            plain = kind.lstrip("*?")
            python = SCALARS.get(plain, plain)
            schema[name][attribute] = f"MutableSequence[{python}]" if kind[0] == "*" else python
    assert stub == schema
    assert all(hasattr(wire, name) for name in schema)


def test_the_messages_are_in_no_shared_pool() -> None:
    """google-cloud-spanner and every other etcd client in the process have the shared pool for themselves."""
    default = descriptor_pool.Default()
    with pytest.raises(KeyError):
        default.FindFileByName("kplane/etcdwire.proto")
    with pytest.raises(KeyError):
        default.FindMessageTypeByName("etcdserverpb.TxnRequest")


def test_protobuf_in_pure_python_reads_the_description_too() -> None:
    script = (
        "from google.protobuf.internal import api_implementation as a; assert a.Type() == 'python', a.Type()\n"
        "from kplane_etcd import wire\n"
        "print(wire.RangeRequest.FromString(wire.serialize(wire.RangeRequest(key=b'k', limit=1))).limit)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True, text=True, check=False, env={"PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python"},
    )  # fmt: skip
    assert done.stdout.strip() == "1", done.stderr
