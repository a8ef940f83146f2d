"""What is counted of the traffic with etcd, under the names that Kubernetes gives its metrics."""

import math
from collections.abc import Iterator, Mapping

from kplane_core.metrics import Sample

BUCKETS = (0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0)
"""Upper bounds, in seconds, of the buckets that calls are counted in."""


class _Calls:
    __slots__ = ("counts", "errors", "seconds")

    def __init__(self) -> None:
        self.seconds = 0.0
        self.errors = 0
        self.counts = [0] * (len(BUCKETS) + 1)


class Metrics:
    """The counts of one connection; counting is a few additions.

    Attributes:
        sizes: bytes of each member's database, by URL, as of the last look.
        watches: watch streams that are open.
        resumed: watch streams that were opened anew after a loss.
        failed_over: times that another member was turned to.
        leases: leases granted.
        compactions: compactions that this process made.
    """

    def __init__(self) -> None:
        self._calls: dict[str, _Calls] = {}
        self.sizes: dict[str, int] = {}
        self.watches = 0
        self.resumed = 0
        self.failed_over = 0
        self.leases = 0
        self.compactions = 0

    def answered(self, method: str, seconds: float) -> None:
        """Count a call that was answered."""
        calls = self._calls.get(method)
        if calls is None:
            calls = self._calls[method] = _Calls()
        calls.seconds += seconds
        # Most calls take less than the first bound, so this looks at one of them.
        for index, bound in enumerate(BUCKETS):
            if seconds <= bound:
                calls.counts[index] += 1
                return
        calls.counts[-1] += 1

    def failed(self, method: str) -> None:
        """Count a call that failed."""
        self._calls.setdefault(method, _Calls()).errors += 1

    def samples(self) -> Iterator[Sample]:
        """Yield everything counted."""
        for method, calls in sorted(self._calls.items()):
            labels = (("operation", method),)
            total, below = 0, []
            for count in calls.counts:
                total += count
                below.append(total)
            text = "Calls of etcd, failed ones included."
            yield Sample("etcd_requests_total", "counter", text, labels, total + calls.errors)
            yield Sample("etcd_request_errors_total", "counter", "Failed calls of etcd.", labels, calls.errors)
            text = "Seconds that calls of etcd took, as the caller sees it."
            yield Sample(
                "etcd_request_duration_seconds", "histogram", text, labels, calls.seconds, tuple(below), BUCKETS
            )
        for name, kind, text, value in (
            ("kplane_etcd_watch_streams", "gauge", "Watch streams that are open.", self.watches),
            ("kplane_etcd_watch_resumptions_total", "counter", "Watches that were resumed.", self.resumed),
            ("kplane_etcd_failovers_total", "counter", "Times that another member was turned to.", self.failed_over),
            ("kplane_etcd_leases_granted_total", "counter", "Leases granted.", self.leases),
            ("kplane_etcd_compactions_total", "counter", "Compactions made by this process.", self.compactions),
        ):
            yield Sample(name, kind, text, (), value)
        yield from _sizes(self.sizes)


def _sizes(sizes: Mapping[str, int]) -> Iterator[Sample]:
    for url, size in sorted(sizes.items()):
        text = "Bytes of the database file of a member."
        yield Sample("apiserver_storage_size_bytes", "gauge", text, (("storage_cluster_id", url),), size)
    if not sizes:
        text = "Bytes of the largest database file; nothing is known yet."
        yield Sample("apiserver_storage_size_bytes", "gauge", text, (), math.nan)
