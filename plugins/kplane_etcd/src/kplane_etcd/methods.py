"""The methods of etcd that are called, and how they may be repeated."""

from enum import Enum
from typing import Any, Final, Generic, TypeVar

import attrs

from kplane_etcd import wire

Answer = TypeVar("Answer")


class Kind(Enum):
    """What a call does, which decides whether it may be sent twice."""

    READ = "read"
    """Changes nothing: repeated on another member, or on the same one, until its deadline."""
    WRITE = "write"
    """May change something: never sent a second time once it may have been sent a first time."""


@attrs.frozen
class Method(Generic[Answer]):
    """One unary method.

    Attributes:
        path: its name in gRPC.
        name: its name in metrics.
        kind: whether it may be sent twice.
        answer: the class of its response.
    """

    path: str
    name: str
    kind: Kind
    answer: type[Answer]

    @property
    def decode(self) -> Any:
        """What makes a response of bytes."""
        return self.answer.FromString  # type: ignore[attr-defined]  # every message has it


RANGE: Final = Method("/etcdserverpb.KV/Range", "range", Kind.READ, wire.RangeResponse)
TXN: Final = Method("/etcdserverpb.KV/Txn", "txn", Kind.WRITE, wire.TxnResponse)
COMPACT: Final = Method("/etcdserverpb.KV/Compact", "compact", Kind.WRITE, wire.CompactionResponse)
LEASE_GRANT: Final = Method("/etcdserverpb.Lease/LeaseGrant", "leaseGrant", Kind.READ, wire.LeaseGrantResponse)
"""Counts as a read: a lease that nobody knows of ends by itself, so asking twice does no harm."""
STATUS: Final = Method("/etcdserverpb.Maintenance/Status", "status", Kind.READ, wire.StatusResponse)
AUTHENTICATE: Final = Method("/etcdserverpb.Auth/Authenticate", "authenticate", Kind.READ, wire.AuthenticateResponse)
WATCH_PATH: Final = "/etcdserverpb.Watch/Watch"
