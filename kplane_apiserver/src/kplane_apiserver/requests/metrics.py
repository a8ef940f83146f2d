"""`/metrics`: what the server counts, under the names that upstream gives it, in Prometheus' text format.

Requests are counted by additions on plain integers; the families of the client library are made of them only when
somebody scrapes. That is several times cheaper than the library's own counters, which lock.
"""

from bisect import bisect_left
from collections.abc import Container, Iterable, Iterator
from itertools import accumulate

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from kplane_apiserver.kinds import KindKey
from kplane_apiserver.requests.watches import Watches
from kplane_apiserver.storing.stores import StoreSet
from kplane_apiserver.wire.http import Request, Response
from kplane_apiserver.wire.routes import EVERY_CLUSTER, Route
from kplane_core.metrics import Measured, Sample

_FAST = (0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5)
BUCKETS = (*_FAST, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0)
"""Upper bounds, in seconds, of the buckets that requests are counted in: upstream's."""

_NO_KIND: KindKey = ("", "", "")
_LABELS = ("verb", "group", "version", "resource", "subresource", "scope")
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

_Key = tuple[KindKey, str, str, str, str]


class _Series:
    """The requests that are alike."""

    __slots__ = ("codes", "counts", "seconds")

    def __init__(self) -> None:
        self.codes: dict[int, int] = {}
        self.counts = [0] * (len(BUCKETS) + 1)
        self.seconds = 0.0


class RequestMetrics:
    """Counts requests.

    Args:
        by_cluster: whether clusters are told apart, which makes as many more series.
        known: the clusters that there are.
    """

    def __init__(self, *, by_cluster: bool = False, known: Container[str] = ()) -> None:
        self.by_cluster = by_cluster
        self._known = known
        self._series: dict[_Key, _Series] = {}

    def answered(self, request: Request, code: int, seconds: float) -> None:
        """Count a request that was answered after some time."""
        series = self._series_of(request, _verb(request))
        series.codes[code] = series.codes.get(code, 0) + 1
        series.counts[bisect_left(BUCKETS, seconds)] += 1
        series.seconds += seconds

    def began(self, request: Request) -> None:
        """Count a watch that begins; how long it lasts says nothing about the server."""
        series = self._series_of(request, "WATCH")
        series.codes[200] = series.codes.get(200, 0) + 1

    def unrouted(self, method: str, code: int) -> None:
        """Count a request whose path means nothing."""
        series = self._find((_NO_KIND, method if method in _METHODS else "OTHER", "", "", ""))
        series.codes[code] = series.codes.get(code, 0) + 1

    def labels(self) -> tuple[str, ...]:
        """Return the names of the labels of what `collect` yields, without the code."""
        return (*_LABELS, "cluster") if self.by_cluster else _LABELS

    def collect(self) -> Iterator[Metric]:
        """Yield what was counted."""
        labels = self.labels()
        total = CounterMetricFamily(
            "apiserver_request", "Requests by what they asked and how they ended.", None, (*labels, "code")
        )
        duration = HistogramMetricFamily(
            "apiserver_request_duration_seconds", "Seconds that requests other than watches took.", labels=labels
        )
        for key, series in list(self._series.items()):
            values = self._values(key)
            for code, count in series.codes.items():
                total.add_metric((*values, str(code)), count)
            if any(series.counts):
                duration.add_metric(values, _cumulative(BUCKETS, accumulate(series.counts)), series.seconds)
        yield total
        yield duration

    def values_of(self, route: Route, kind: KindKey) -> tuple[str, ...]:
        """Return the values of the labels for a watch."""
        return self._values((kind, "WATCH", route.subresource, _scope(route), route.cluster))

    def _values(self, key: _Key) -> tuple[str, ...]:
        (group, version, resource), verb, subresource, scope, cluster = key
        values = (verb, group, version, resource, subresource, scope)
        return (*values, cluster) if self.by_cluster else values

    def _series_of(self, request: Request, verb: str) -> _Series:
        # What a client made up must not become a label: only clusters and kinds that exist are named, and what lies
        # below them.
        kind, route = request.kind, request.route
        named = self.by_cluster and (route.cluster in self._known or route.cluster == EVERY_CLUSTER)
        cluster = route.cluster if named else ""
        if kind is None:
            return self._find((_NO_KIND, verb, "", "", cluster))
        subresource = route.subresource if route.subresource in kind.subresources else ""
        return self._find((kind.key, verb, subresource, _scope(route), cluster))

    def _find(self, key: _Key) -> _Series:
        series = self._series.get(key)
        if series is None:
            series = self._series[key] = _Series()
        return series


class Metrics(Collector):
    """Everything that `/metrics` shows.

    Args:
        requests: what was asked.
        watches: which watches are open.
        stores: the caches.
        connection: the backend's; what it counts is shown too, if it counts anything.
    """

    def __init__(self, requests: RequestMetrics, watches: Watches, stores: StoreSet, connection: object) -> None:
        self._requests = requests
        self._watches = watches
        self._stores = stores
        self._connection = connection
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def respond(self) -> Response:
        """Return the page."""
        return Response(generate_latest(self._registry), 200, CONTENT_TYPE_LATEST.encode())

    def collect(self) -> Iterable[Metric]:
        """Yield what the server itself counts."""
        yield from self._requests.collect()
        yield self._long_running()
        yield from _families(self._caches())
        if isinstance(self._connection, Measured):
            yield from _families(self._connection.samples())

    def _long_running(self) -> Metric:
        labels = self._requests.labels()
        family = GaugeMetricFamily("apiserver_longrunning_requests", "Watches that are open.", None, labels)
        counts: dict[tuple[str, ...], int] = {}
        for stream in self._watches:
            values = self._requests.values_of(stream.route, stream.served.kind.key)
            counts[values] = counts.get(values, 0) + 1
        for values, count in counts.items():
            family.add_metric(values, count)
        return family

    def _caches(self) -> Iterator[Sample]:
        for group_resource, store in self._stores.caches():
            resource, _, group = group_resource.partition(".")
            cacher = store.cacher
            capacity = cacher.history.everything.capacity
            for sample in cacher.metrics.samples(revision=cacher.revision, capacity=capacity):
                yield sample._replace(labels=(("group", group), ("resource", resource), *sample.labels))


def _families(samples: Iterable[Sample]) -> Iterator[Metric]:
    families: dict[str, Metric] = {}
    for sample in samples:
        family = families.get(sample.name)
        if family is None:
            family = families[sample.name] = _family_of(sample)
        _add(family, sample, tuple(value for _, value in sample.labels))
    yield from families.values()


def _family_of(sample: Sample) -> Metric:
    labels = tuple(name for name, _ in sample.labels)
    match sample.kind:
        case "counter":
            return CounterMetricFamily(sample.name.removesuffix("_total"), sample.help, None, labels)
        case "histogram":
            return HistogramMetricFamily(sample.name, sample.help, labels=labels)
        case _:
            return GaugeMetricFamily(sample.name, sample.help, None, labels)


def _add(family: Metric, sample: Sample, values: tuple[str, ...]) -> None:
    if isinstance(family, HistogramMetricFamily):
        family.add_metric(values, _cumulative(sample.bounds, sample.buckets), sample.value)
    elif isinstance(family, CounterMetricFamily | GaugeMetricFamily):
        family.add_metric(values, sample.value)


def _cumulative(bounds: tuple[float, ...], counts: Iterable[int]) -> list[tuple[str, float]]:
    return list(zip([*map(str, bounds), "+Inf"], counts, strict=True))


def _verb(request: Request) -> str:
    method, route = request.method, request.route
    if method == "GET":
        return "GET" if route.name or not route.resource else "LIST"
    if method == "DELETE":
        return "DELETE" if route.name else "DELETECOLLECTION"
    if method == "PATCH" and b"apply-patch" in request.header(b"content-type"):
        return "APPLY"
    return method if method in _METHODS else "OTHER"


def _scope(route: Route) -> str:
    if route.name:
        return "resource"
    return "namespace" if route.namespace else "cluster"
