"""The requests that this backend sends: the shapes that Kubernetes sends, and no others.

Whatever stands in for etcd (kine, for one) knows these shapes, and other tools find the data where they expect it.
"""

from typing import Final

from kplane_etcd import wire
from kplane_etcd.methods import COMPACT, RANGE, STATUS, TXN
from kplane_etcd.transport import Transport

COMPACT_REV_KEY: Final = b"compact_rev_key"


class EtcdClient:
    """The calls of etcd that are needed, in its own words.

    Every method raises what `errors.translate` returns.

    Args:
        transport: to etcd; closed with the client by whoever made it.
    """

    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    async def get(self, key: bytes, revision: int = 0, *, within: float = 0.0) -> wire.RangeResponse:
        """Read one key, linearizably when no revision is given."""
        return await self.transport.call(RANGE, wire.RangeRequest(key=key, limit=1, revision=revision), timeout=within)

    async def range(self, key: bytes, end: bytes, *, revision: int = 0, limit: int = 0) -> wire.RangeResponse:
        """Read the keys from `key` up to, not including, `end`."""
        return await self.transport.call(
            RANGE, wire.RangeRequest(key=key, range_end=end, revision=revision, limit=limit)
        )

    async def create(self, key: bytes, value: bytes, lease: int) -> wire.TxnResponse:
        """Put a key that must be absent. There is no Else: kine knows a creation by that."""
        request = wire.TxnRequest(
            compare=(wire.Compare(target=wire.TARGET_MOD, key=key, mod_revision=0),),
            success=(wire.RequestOp(request_put=wire.PutRequest(key=key, value=value, lease=lease)),),
        )
        return await self.transport.call(TXN, request, size=len(value))

    async def update(
        self, key: bytes, value: bytes, expect: int, lease: int, *, keep_lease: bool = False
    ) -> wire.TxnResponse:
        """Put a key if its mod revision is `expect`, or else read it."""
        put = wire.PutRequest(key=key, value=value, lease=lease, ignore_lease=keep_lease)
        request = wire.TxnRequest(
            compare=(wire.Compare(target=wire.TARGET_MOD, key=key, mod_revision=expect),),
            success=(wire.RequestOp(request_put=put),),
            failure=(wire.RequestOp(request_range=wire.RangeRequest(key=key)),),
        )
        return await self.transport.call(TXN, request, size=len(value))

    async def delete(self, key: bytes, expect: int) -> wire.TxnResponse:
        """Delete a key if its mod revision is `expect`, or else read it."""
        request = wire.TxnRequest(
            compare=(wire.Compare(target=wire.TARGET_MOD, key=key, mod_revision=expect),),
            success=(wire.RequestOp(request_delete_range=wire.DeleteRangeRequest(key=key)),),
            failure=(wire.RequestOp(request_range=wire.RangeRequest(key=key)),),
        )
        return await self.transport.call(TXN, request)

    async def claim_compaction(self, round_: int, revision: int) -> wire.TxnResponse:
        """Put the compaction marker if it was put `round_` times so far, or else read it."""
        put = wire.PutRequest(key=COMPACT_REV_KEY, value=b"%d" % revision)
        request = wire.TxnRequest(
            compare=(wire.Compare(target=wire.TARGET_VERSION, key=COMPACT_REV_KEY, version=round_),),
            success=(wire.RequestOp(request_put=put),),
            failure=(wire.RequestOp(request_range=wire.RangeRequest(key=COMPACT_REV_KEY)),),
        )
        return await self.transport.call(TXN, request)

    async def compact(self, revision: int) -> None:
        """Compact the history at a revision."""
        await self.transport.call(COMPACT, wire.CompactionRequest(revision=revision))

    async def status(self) -> wire.StatusResponse:
        """Ask the member that serves now how it is."""
        return await self.transport.call(STATUS, wire.StatusRequest())
