"""What the caches count, under the names that upstream gives its metrics.

Counting is a plain addition on a plain attribute; whoever serves metrics reads them through `CacherMetrics.samples`.
"""

from collections.abc import Iterator

import attrs

from kplane_core.metrics import Sample

READ_WAIT_BUCKETS = (0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0)
"""Upper bounds, in seconds, of the buckets that waiting readers are counted in."""


_HELP = {
    "apiserver_init_events_total": "Objects sent as initial events of watches.",
    "apiserver_terminated_watchers_total": "Watchers closed because the history had passed them.",
    "apiserver_watch_cache_events_received_total": "Changes taken in from storage.",
    "apiserver_watch_cache_events_dispatched_total": "Changes offered to watchers.",
    "apiserver_watch_cache_initializations_total": "Times the cache was filled by a list.",
    "apiserver_watch_cache_initialization_errors_total": "Times the cache lost its feed.",
    "apiserver_cache_list_total": "Lists served from the cache.",
    "apiserver_cache_list_fetched_objects_total": "Objects looked at by lists from the cache.",
    "apiserver_cache_list_returned_objects_total": "Objects returned by lists from the cache.",
}


@attrs.define(eq=False)
class CacherMetrics:
    """The counts of one cache."""

    init_events: int = 0
    terminated_watchers: int = 0
    events_received: int = 0
    events_dispatched: int = 0
    initializations: int = 0
    initialization_errors: int = 0
    list_total: int = 0
    list_fetched_objects: int = 0
    list_returned_objects: int = 0
    consistent_reads_cached: int = 0
    consistent_reads_refused: int = 0
    consistent_reads_stored: int = 0
    consistency_successes: int = 0
    consistency_failures: int = 0
    consistency_errors: int = 0
    read_wait_sum: float = 0.0
    read_wait_counts: list[int] = attrs.field(factory=lambda: [0] * (len(READ_WAIT_BUCKETS) + 1))
    initialization_seconds: float = 0.0

    def waited(self, seconds: float) -> None:
        """Count a reader that waited for freshness."""
        self.read_wait_sum += seconds
        self.read_wait_counts[-1] += 1
        for index, bound in enumerate(READ_WAIT_BUCKETS):
            if seconds <= bound:
                self.read_wait_counts[index] += 1

    def samples(self, *, revision: int, capacity: int) -> Iterator[Sample]:
        """Yield everything counted.

        Args:
            revision: the newest revision in the cache.
            capacity: events that the history has room for.
        """
        values = (
            self.init_events,
            self.terminated_watchers,
            self.events_received,
            self.events_dispatched,
            self.initializations,
            self.initialization_errors,
            self.list_total,
            self.list_fetched_objects,
            self.list_returned_objects,
        )
        for (name, text), value in zip(_HELP.items(), values, strict=True):
            yield Sample(name, "counter", text, (), value)
        for success, fallback, value in (
            ("true", "false", self.consistent_reads_cached),
            ("false", "skipped", self.consistent_reads_refused),
            ("false", "true", self.consistent_reads_stored),
        ):
            labels = (("success", success), ("fallback", fallback))
            text = "Consistent reads by where they ended."
            yield Sample("apiserver_watch_cache_consistent_read_total", "counter", text, labels, value)
        for status, value in (
            ("success", self.consistency_successes),
            ("failure", self.consistency_failures),
            ("error", self.consistency_errors),
        ):
            text = "Comparisons of the cache with the storage."
            yield Sample("apiserver_storage_consistency_checks_total", "counter", text, (("status", status),), value)
        # Upstream reports the revision modulo 1e15 so that it stays exact as a float.
        text = "The newest resourceVersion in the cache, modulo 1e15."
        yield Sample("apiserver_watch_cache_resource_version", "gauge", text, (), revision % 10**15)
        yield Sample("watch_cache_capacity", "gauge", "Events that the history has room for.", (), capacity)
        text = "Seconds that the last filling of the cache took."
        yield Sample(
            "apiserver_watch_cache_initialization_duration_seconds", "gauge", text, (), self.initialization_seconds
        )
        text = "Seconds that readers waited for the cache to be fresh."
        name = "apiserver_watch_cache_read_wait_seconds"
        yield Sample(name, "histogram", text, (), self.read_wait_sum, tuple(self.read_wait_counts), READ_WAIT_BUCKETS)
