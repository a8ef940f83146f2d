"""`kplane serve` over HTTP: the server in its own process on one core, the load on another."""

from collections.abc import Iterable

from benchmarks.harness import load
from benchmarks.harness.load import Load
from benchmarks.harness.results import Result
from benchmarks.harness.serving import Server, beside_the_server, running
from benchmarks.harness.watchers import watch_load
from benchmarks.harness.workload import config_map, pod

SUMMARY = "GET, create, LIST and watch over HTTP"

_PODS = "/api/v1/namespaces/default/pods"
_CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
_SECONDS = 1.0


def measure(tries: int) -> Iterable[Result]:
    """Measure everything, each as the best of `tries` runs of a second."""
    with beside_the_server(), running() as server:
        yield from _objects(server, tries)
        yield from _lists(server, tries)
        yield _watches(server, watchers=100, events=50, tries=tries)
    with beside_the_server(), running() as server:  # with a history of its own
        yield _watches(server, watchers=1000, events=50, tries=tries, floor=20_000)


def _objects(server: Server, tries: int) -> Iterable[Result]:
    cluster = server.cluster("objects")
    load.post_all(cluster + _PODS, [pod("web")])
    load.post_all(cluster + _CONFIG_MAPS, [config_map("web")])
    got = load.read_load(server, f"{cluster}{_PODS}/web", tries=tries, seconds=_SECONDS)
    yield _result("GET of a pod", got, floor=10_000)
    made = load.create_load(server, cluster + _CONFIG_MAPS, config_map("many"), tries=tries, seconds=_SECONDS)
    yield _result("create of a ConfigMap of 1,600 bytes", made, floor=5_000)
    made = load.create_load(server, cluster + _PODS, pod("many"), tries=tries, seconds=_SECONDS)
    yield _result("create of a pod of 1,700 bytes", made)
    cluster = server.cluster("watched")
    load.post_all(cluster + _CONFIG_MAPS, [config_map("web")])
    load.read_load(server, cluster + _CONFIG_MAPS, tries=1, seconds=_SECONDS)  # fills the watch cache
    made = load.create_load(server, cluster + _CONFIG_MAPS, config_map("more"), tries=tries, seconds=_SECONDS)
    yield _result("create of a ConfigMap, into a watch cache too", made, floor=5_000)


def _lists(server: Server, tries: int) -> Iterable[Result]:
    for count, floor, connections in ((500, 500, 8), (10_000, 40, 4)):
        url = server.cluster(f"list-{count}") + _CONFIG_MAPS
        load.post_all(url, [config_map(f"item-{number}") for number in range(count)])
        got = load.read_load(server, url, tries=tries, seconds=_SECONDS, connections=connections)
        yield _result(f"LIST of {count:,} ConfigMaps of 1,600 bytes", got, floor=floor)


def _watches(server: Server, *, watchers: int, events: int, tries: int, floor: float | None = None) -> Result:
    got = watch_load(server, watchers=watchers, events=events, tries=tries)
    return _result(f"deliveries to {watchers} watches, {events} events", got, floor=floor)


def _result(name: str, got: Load, floor: float | None = None) -> Result:
    return Result(name, got.wall, "/s", by_cpu=got.by_cpu, floor=floor, note=got.note)
