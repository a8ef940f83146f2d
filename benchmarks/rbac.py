"""What RBAC costs: a decision by a thousand roles, and what a new cluster has more to begin with."""

import asyncio
import gc
import itertools
import statistics
import time
import tracemalloc
from collections.abc import Iterable, Iterator
from typing import Any, Literal

import msgspec

from benchmarks.harness.results import Result
from kplane_apiserver.authorization.questions import Attributes
from kplane_apiserver.authorization.rbac import RBAC_GROUP
from kplane_apiserver.authorization.rbac.authorizer import RbacAuthorizer
from kplane_apiserver.authorization.rbac.service import Rbac
from kplane_apiserver.identity import AUTHENTICATED, User
from kplane_apiserver.server import ApiServer
from kplane_apiserver.settings import Settings
from kplane_apiserver.storing.stores import StoreSet
from kplane_core.engine import EngineConnection
from kplane_core.storage.interface import StoredObject
from kplane_memory.engine import MemoryEngine

SUMMARY = "time of a decision, time and memory of a new cluster's roles"

_MANY = 1_000
_DECISIONS = 1_000
_TRIES = 20  # of so few decisions each: what other processes do is in some of them only
_CLUSTERS = 300
_CLUSTER = "c1"
_GROUPS = ("dev", "ops", AUTHENTICATED)
_ALICE = User("alice", groups=_GROUPS)


def measure(tries: int) -> Iterable[Result]:
    """Measure decisions in this process, and clusters as Python counts their bytes."""
    authorizer = _authorizer()
    for name, asked, allowed in _questions():
        assert authorizer.authorize(asked).allowed == allowed, name
        took = min(_microseconds(authorizer, asked) for _ in range(max(tries, _TRIES)))
        yield Result(f"decision: {name}", took, "us", floor=20, at_most=True)
    plain, bound = (asyncio.run(_clusters(mode)) for mode in ("AlwaysAllow", "RBAC"))
    yield Result("new cluster without RBAC, median", plain[0], "ms")
    yield Result("new cluster with RBAC, median", bound[0], "ms", floor=3, at_most=True)
    note = "its roles and bindings as stored objects, in the memory backend; more than without RBAC"
    yield Result("memory of a cluster's first roles", bound[1] - plain[1], "KB", floor=24, at_most=True, note=note)


def _questions() -> Iterator[tuple[str, Attributes, bool]]:
    def ask(user: User, verb: str, resource: str = "pods", **more: str) -> Attributes:
        return Attributes(user, _CLUSTER, verb, resource=resource, **more)

    robot = User("robot", groups=(AUTHENTICATED,))
    yield "one role among 1,000", ask(_ALICE, "get", namespace="default", name="a"), True
    yield "none of a user's own, refused", ask(User("bob", groups=_GROUPS), "get", namespace="default"), False
    yield "a path", Attributes(_ALICE, _CLUSTER, "get", path="/apis/apps/v1"), True
    yield "1,000 roles of one user", ask(robot, "get", "things", namespace="many", name="n999"), True
    yield "1,000 roles of one user, refused", ask(robot, "delete", "things", namespace="many", name="n1"), False


def _authorizer() -> RbacAuthorizer:
    rbac = Rbac(StoreSet(EngineConnection(MemoryEngine()).store), Settings())
    revisions = itertools.count(1)

    def put(plural: str, namespace: str, name: str, **fields: Any) -> None:
        key = rbac.policies.served(plural).key(_CLUSTER, namespace, name)
        raw = msgspec.json.encode({"metadata": {"name": name}, **fields})
        rbac.policies.observe(plural, StoredObject(key, next(revisions), raw))

    for number in range(_MANY):
        rule = {"verbs": ["get"], "apiGroups": [""], "resources": ["things"], "resourceNames": [f"n{number}"]}
        put("roles", "many", f"r{number}", rules=[rule])
        put("rolebindings", "many", f"r{number}", **_binding("Role", f"r{number}", "robot"))
        put("rolebindings", "default", f"u{number}", **_binding("ClusterRole", "edit", f"user-{number}"))
        put("clusterrolebindings", "", f"u{number}", **_binding("ClusterRole", "view", f"user-{number}"))
    put("rolebindings", "default", "alice", **_binding("ClusterRole", "edit", "alice"))
    return rbac.authorizer


def _binding(kind: str, role: str, user: str) -> dict[str, Any]:
    ref = {"apiGroup": RBAC_GROUP, "kind": kind, "name": role}
    return {"roleRef": ref, "subjects": [{"apiGroup": RBAC_GROUP, "kind": "User", "name": user}]}


def _microseconds(authorizer: RbacAuthorizer, asked: Attributes) -> float:
    began = time.perf_counter()
    for _ in range(_DECISIONS):
        authorizer.authorize(asked)
    return (time.perf_counter() - began) / _DECISIONS * 1e6


async def _clusters(mode: Literal["AlwaysAllow", "RBAC"]) -> tuple[float, float]:
    """Return the milliseconds and the kilobytes of a new cluster."""
    times = []
    async with ApiServer(EngineConnection(MemoryEngine()), settings=Settings(authorization_mode=mode)) as server:
        for number in range(_CLUSTERS):
            began = time.perf_counter()
            await server.ensure_cluster(f"t{number}")
            times.append(time.perf_counter() - began)
        gc.collect()
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        for number in range(_CLUSTERS):
            await server.ensure_cluster(f"m{number}")
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return statistics.median(times) * 1000, (after - before) / _CLUSTERS / 1024
