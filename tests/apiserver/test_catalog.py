"""The catalog knows each cluster's kinds, of its own writes at once and of other processes' soon after."""

import asyncio
import gc
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest

from kplane_apiserver.definitions.catalog import Catalog
from kplane_apiserver.kinds import builtin_kinds
from kplane_core.engine.factory import EngineConnection
from kplane_core.errors import InvalidError
from kplane_core.multicluster.keylayout import KeyLayout
from kplane_core.storage.interface import Store, StoredObject
from kplane_core.storage.resource import Resource
from kplane_memory.engine import MemoryEngine

NOW = "2026-03-01T12:00:00Z"
LAYOUT = KeyLayout("/apiextensions.k8s.io/customresourcedefinitions", namespaced=False)


def crd(plural: str = "things", kind: str = "Thing", group: str = "example.com", **names: Any) -> dict[str, Any]:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind} | names,
            "versions": [
                {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
            ],
        },
    }


@attrs.frozen
class World:
    """One database, and one process's catalog over it."""

    store: Store
    catalog: Catalog

    async def install(self, cluster: str, document: dict[str, Any], *, observe: bool = True) -> StoredObject:
        prepared = self.catalog.prepare(cluster, document, None, NOW)
        stored = await self.store.create(LAYOUT.key(cluster, "", document["metadata"]["name"]), prepared)
        if observe:
            self.catalog.observe(cluster, stored)
        return stored

    async def remove(self, cluster: str, name: str, *, observe: bool = True) -> StoredObject:
        gone = await self.store.delete(LAYOUT.key(cluster, "", name))
        if observe:
            self.catalog.observe(cluster, gone, deleted=True)
        return gone

    def serves(self, cluster: str, plural: str = "things", version: str = "v1") -> bool:
        return self.catalog.lookup(cluster, "example.com", version, plural) is not None


@asynccontextmanager
async def world(**engine: Any) -> AsyncIterator[World]:
    connection = EngineConnection(MemoryEngine(**engine))
    resource = Resource(
        "customresourcedefinitions.apiextensions.k8s.io",
        LAYOUT.kind_root_prefix(),
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
    )
    store = connection.store(resource)
    catalog = Catalog(LAYOUT)
    await catalog.start(store)
    try:
        yield World(store, catalog)
    finally:
        await catalog.aclose()
        await connection.aclose()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 (what is waited for happens in the task under test)
            await asyncio.sleep(0.001)


def test_every_cluster_serves_the_builtin_kinds_and_only_root_those_about_clusters() -> None:
    catalog = Catalog(LAYOUT, root_cluster="hub")
    pods = catalog.lookup("any", "", "v1", "pods")
    assert pods is builtin_kinds()[("", "v1", "pods")]
    assert catalog.lookup("any", "apps", "v1", "deployments") is not None
    assert catalog.lookup("any", "apps", "v2", "deployments") is None
    assert catalog.lookup("hub", "kplane.dev", "v1", "clusters") is not None
    assert catalog.lookup("any", "kplane.dev", "v1", "clusters") is None
    assert {"kplane.dev"} == set(catalog.groups("hub")) - set(catalog.groups("any"))
    assert catalog.groups("any")[0] == ""


def test_a_definition_is_served_by_the_next_request_in_its_cluster_alone() -> None:
    async def scenario() -> None:
        async with world() as here:
            assert not here.serves("c1")
            await here.install("c1", crd())
            assert here.serves("c1")
            assert not here.serves("c10")
            assert not here.serves("c1", version="v2")
            assert "example.com" in here.catalog.groups("c1")
            assert "example.com" not in here.catalog.groups("c10")
            await here.remove("c1", "things.example.com")
            assert not here.serves("c1")
            assert here.catalog.kinds("c1") == here.catalog.kinds("c10")

    asyncio.run(scenario())


def test_another_processs_writes_are_followed() -> None:
    async def scenario() -> None:
        async with world() as here:
            await here.install("c1", crd(), observe=False)
            await until(lambda: here.serves("c1"))
            await here.remove("c1", "things.example.com", observe=False)
            await until(lambda: not here.serves("c1"))

    asyncio.run(scenario())


def test_a_catalog_that_starts_later_knows_what_was_there() -> None:
    async def scenario() -> None:
        async with world() as here:
            await here.install("c1", crd())
            late = Catalog(LAYOUT)
            await late.start(here.store)
            assert late.lookup("c1", "example.com", "v1", "things") is not None
            await late.aclose()

    asyncio.run(scenario())


def test_a_watch_that_was_cut_off_is_made_good_by_a_new_list(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with world(history_limit=3) as here:
            await here.install("c1", crd())
            plurals = [f"p{number}" for number in range(40)]
            for plural in plurals:
                await here.install("c1", crd(plural, plural.title()), observe=False)
            await here.remove("c1", "things.example.com", observe=False)
            await until(lambda: all(here.serves("c1", plural) for plural in plurals) and not here.serves("c1"))
            assert "watching" in caplog.text
            await here.install("c2", crd(), observe=False)
            await until(lambda: here.serves("c2"))

    asyncio.run(scenario())


def test_old_news_does_not_undo_what_is_known() -> None:
    async def scenario() -> None:
        async with world() as here:
            first = await here.install("c1", crd())
            await here.remove("c1", "things.example.com")
            here.catalog.observe("c1", first)
            assert not here.serves("c1")
            again = await here.install("c1", crd())
            here.catalog.observe("c1", again)
            here.catalog.observe("c1", first, deleted=True)
            assert here.serves("c1")
            # The watch tells all of it once more, late; at the end the newest counts.
            await here.install("c2", crd(), observe=False)
            await until(lambda: here.serves("c2"))
            assert here.serves("c1")

    asyncio.run(scenario())


def test_a_changed_definition_changes_what_is_served() -> None:
    async def scenario() -> None:
        async with world() as here:
            await here.install("c1", crd())

            def add_short_name(current: dict[str, Any], _meta: object) -> tuple[dict[str, Any], None]:
                new = {
                    **current,
                    "spec": {**current["spec"], "names": current["spec"]["names"] | {"shortNames": ["th"]}},
                }
                return here.catalog.prepare("c1", new, current, NOW), None

            stored = await here.store.guaranteed_update(LAYOUT.key("c1", "", "things.example.com"), add_short_name)
            here.catalog.observe("c1", stored)
            kind = here.catalog.lookup("c1", "example.com", "v1", "things")
            assert kind is not None
            assert kind.short_names == ("th",)

    asyncio.run(scenario())


def test_names_conflict_within_a_cluster_and_group_and_are_judged_again_when_free() -> None:
    async def scenario() -> None:
        async with world() as here:
            await here.install("c1", crd("things", "Thing", shortNames=["th"]))
            await here.install("c1", crd("others", "Thing"))
            await here.install("c1", crd("thirds", "Third", shortNames=["th"]))
            await here.install("c1", crd("others", "Thing", group="other.com"))
            await here.install("c2", crd("others", "Thing"))
            assert not here.serves("c1", "others")
            assert not here.serves("c1", "thirds")
            assert here.catalog.lookup("c1", "other.com", "v1", "others") is not None
            assert here.serves("c2", "others")

            await here.remove("c1", "things.example.com")
            await here.catalog.reconsider("c1", "example.com", NOW)
            assert here.serves("c1", "others")
            assert here.serves("c1", "thirds")
            assert not here.serves("c1", "things")

    asyncio.run(scenario())


def test_a_definition_cannot_take_a_builtin_kinds_place() -> None:
    async def scenario() -> None:
        async with world() as here:
            document = crd("ingresses", "Ingress", group="networking.k8s.io")
            document["metadata"]["annotations"] = {"api-approved.kubernetes.io": "https://example.com/1"}
            stored = await here.install("c1", document)
            names = stored.decode()["status"]["conditions"][0]
            assert (names["status"], names["reason"]) == ("False", "ListKindConflict")
            kind = here.catalog.lookup("c1", "networking.k8s.io", "v1", "ingresses")
            assert kind is builtin_kinds()[("networking.k8s.io", "v1", "ingresses")]

    asyncio.run(scenario())


BUILTIN = sorted({(kind.group, kind.plural, kind.kind) for kind in builtin_kinds().values()})
FORGED_NAMES = {"plural": "x", "kind": "X", "listKind": "XList", "singular": "x"}


@pytest.mark.parametrize("version", ["v1", "v9"])
@pytest.mark.parametrize(("group", "plural", "kind"), BUILTIN, ids=lambda one: one or "core")
def test_no_version_of_a_builtin_resource_can_be_defined_in_any_cluster(
    group: str, plural: str, kind: str, version: str
) -> None:
    """Its objects would lie among the builtin kind's own: a tenant's Cluster among the Clusters."""

    async def scenario() -> None:
        async with world() as here:
            document = crd(plural, kind, group=group)
            document["metadata"]["annotations"] = {"api-approved.kubernetes.io": "unapproved"}
            document["spec"]["versions"][0]["name"] = version
            if "." in group:
                prepared = here.catalog.prepare("c1", document, None, NOW)
                assert {one["type"]: one["status"] for one in prepared["status"]["conditions"]}[
                    "Established"
                ] == "False"
            # Clients can write a definition's status.
            forged = {"acceptedNames": FORGED_NAMES, "storedVersions": [version], "conditions": ESTABLISHED}
            key = LAYOUT.key("c1", "", f"{plural}.{group}" if group else plural)
            here.catalog.observe("c1", await here.store.create(key, {**document, "status": forged}))
            assert here.catalog.view("c1").kinds == ()
            found = here.catalog.lookup("c1", group, version, plural)
            assert found is None or found.custom is None
            assert here.catalog.find_anywhere(group, "v9", plural) is None

    asyncio.run(scenario())


@pytest.mark.parametrize(("group", "plural"), [("secrets", "clusters"), ("a.b/c", "ds"), ("a.b", "d/e"), ("a.b", "")])
def test_a_stored_definition_whose_names_are_no_names_is_not_served(group: str, plural: str) -> None:
    """They become a part of keys, in which they could mean something else."""

    async def scenario() -> None:
        async with world() as here:
            document = crd("ds", "D", group="a.b")
            document["spec"] |= {"group": group, "names": {"plural": plural, "kind": "D"}}
            document["status"] = {"acceptedNames": FORGED_NAMES, "conditions": ESTABLISHED}
            here.catalog.observe("c1", await here.store.create(LAYOUT.key("c1", "", "ds.a.b"), document))
            assert here.catalog.view("c1").kinds == ()

    asyncio.run(scenario())


def test_prepare_refuses_what_is_no_definition() -> None:
    with pytest.raises(InvalidError, match=r"spec.group: Required value"):
        Catalog(LAYOUT).prepare("c1", {"metadata": {"name": "x"}, "spec": None}, None, NOW)


ESTABLISHED = [{"type": "Established", "status": "True"}]


@pytest.mark.parametrize(
    "broken",
    [
        {"spec": 3},
        {"spec": {"versions": 3}, "status": {"conditions": ESTABLISHED}},
        {"status": {"acceptedNames": 7, "conditions": ESTABLISHED}},
        {"status": {"storedVersions": 7, "conditions": ESTABLISHED}},
        {"status": []},
        {"status": {"conditions": [3]}},
    ],
)
def test_a_stored_definition_that_makes_no_sense_is_not_served_and_stops_nothing(broken: dict[str, Any]) -> None:
    """Others write to the database too."""

    async def scenario() -> None:
        async with world() as here:
            key = LAYOUT.key("c1", "", "broken.example.com")
            await here.store.create(key, {"metadata": {"name": "broken.example.com"}} | broken)
            await here.store.create(LAYOUT.kind_root_prefix() + "c1/too/deep", crd())
            await here.install("c1", crd(), observe=False)
            await until(lambda: here.serves("c1"))
            assert [kind.plural for kind in here.catalog.view("c1").kinds] == ["things"]

    asyncio.run(scenario())


def test_a_thousand_clusters_with_one_definition_share_its_schema_and_view() -> None:
    fields = {f"field{number}": {"type": "string", "description": "x" * 200} for number in range(500)}
    document = crd()
    document["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = {"type": "object", "properties": fields}

    async def scenario() -> None:
        async with world() as here:
            prepared = here.catalog.prepare("c0", document, None, NOW)
            key = LAYOUT.key("c0", "", "things.example.com")
            raw = (await here.store.create(key, prepared)).raw
            here.catalog.observe("c0", StoredObject(key, 10, raw))
            first = here.catalog.lookup("c0", "example.com", "v1", "things")
            tracemalloc.start()
            before = tracemalloc.get_traced_memory()[0]
            for number in range(1, 1000):
                cluster = f"c{number}"
                here.catalog.observe(cluster, StoredObject(LAYOUT.key(cluster, "", "things.example.com"), 10, raw))
                assert here.catalog.lookup(cluster, "example.com", "v1", "things") is first
            grown = tracemalloc.get_traced_memory()[0] - before
            tracemalloc.stop()
            assert here.catalog.view("c7") is here.catalog.view("c0")
            # One parsed schema of this size takes several times as much.
            assert grown < 1_500_000

    asyncio.run(scenario())


def test_what_no_cluster_uses_any_more_is_let_go() -> None:
    async def scenario() -> None:
        async with world() as here:
            await here.install("c1", crd())
            here.catalog.lookup("c1", "example.com", "v1", "things")
            await here.remove("c1", "things.example.com")
            await until(lambda: not here.serves("c1"))
            gc.collect()
            assert not here.catalog._definitions
            assert not here.catalog._views
            assert not here.catalog._clusters

    asyncio.run(scenario())


def test_closing_leaves_no_task_behind() -> None:
    async def scenario() -> None:
        async with world() as here:
            assert len(asyncio.all_tasks()) > 1
            await here.catalog.aclose()
            await here.catalog.aclose()
            assert [task.get_name() for task in asyncio.all_tasks() if "kplane-follow" in task.get_name()] == []

    asyncio.run(scenario())
