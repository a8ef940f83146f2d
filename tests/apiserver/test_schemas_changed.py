"""Objects from before their schema changed are shown as the present one has them, and all others as they are stored."""

import json

import pytest

from kplane_apiserver.storing.stores import Served
from kplane_memory.engine import MemoryEngine

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
DEFINITION = f"{DEFINITIONS}/widgets.example.com"
WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"
TEXT = {"type": "string"}


def a(**properties):
    return {"type": "object", "properties": properties}


BOTH = a(spec=a(kept=TEXT, gone=TEXT))
ONE = a(spec=a(kept=TEXT))


def define(cluster, schema, **more):
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, **more}
    names = {"plural": "widgets", "kind": "Widget"}
    spec = {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]}
    answer = cluster.post(DEFINITIONS, {"metadata": {"name": "widgets.example.com"}, "spec": spec})
    assert answer.status_code == 201, answer.text


def redefine(cluster, schema=None, **more):
    document = cluster.get(DEFINITION).json()
    version = document["spec"]["versions"][0]
    version.update(more)
    if schema is not None:
        version["schema"]["openAPIV3Schema"] = schema
    assert cluster.put(DEFINITION, document).status_code == 200


def create(cluster, name, **metadata):
    spec = {"kept": "k", "gone": "g"}
    answer = cluster.post(WIDGETS, {"metadata": {"name": name, **metadata}, "spec": spec}, fieldValidation="Ignore")
    assert answer.status_code == 201, answer.text
    return answer.json()


def spec_of(cluster, name, path=WIDGETS):
    return cluster.get(f"{path}/{name}").json()["spec"]


def since(cluster):
    kind = cluster.server.api.services.catalog.lookup(cluster.name, "example.com", "v1", "widgets")
    return kind.custom.fitted_since


def aged(cluster, *names):
    """Store objects with two fields, of which the schema then loses one."""
    define(cluster, BOTH)
    created = [create(cluster, name) for name in names]
    redefine(cluster, ONE)
    return created


@pytest.mark.parametrize("cached", [True, False])
def test_a_field_that_the_schema_lost_is_shown_to_nobody(serve, cached):
    cluster = serve(watch_cache=cached).cluster()
    [old] = aged(cluster, "old")
    assert spec_of(cluster, "old") == {"kept": "k"}
    [item] = cluster.get(WIDGETS).json()["items"]
    assert item["spec"] == {"kept": "k"}
    with cluster.watch(WIDGETS, resourceVersion=str(int(old["metadata"]["resourceVersion"]) - 1)) as events:
        assert events.next()["object"]["spec"] == {"kept": "k"}
    assert cluster.get(f"{WIDGETS}/old").json()["metadata"] == old["metadata"], "nothing was written"


def test_another_process_knows_it_too(serve):
    """After a restart it is not known what the schema was, but it is known that it changed."""
    engine = MemoryEngine()
    first = serve(engine=engine).cluster("c")
    aged(first, "old")
    fresh = create(first, "fresh")
    second = serve(engine=engine).cluster("c")
    assert spec_of(second, "old") == {"kept": "k"}
    assert int(fresh["metadata"]["resourceVersion"]) > since(second) > 0


def test_a_later_default_comes_into_old_objects_alone(cluster):
    define(cluster, a(spec=a(kept=TEXT)))
    create(cluster, "old")
    redefine(cluster, a(spec=a(kept=TEXT, size={"type": "integer", "default": 3})))
    assert spec_of(cluster, "old") == {"kept": "k", "size": 3}


def test_the_columns_of_a_table_show_it_too(cluster):
    columns = [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}]
    define(cluster, a(spec=a(kept=TEXT)), additionalPrinterColumns=columns)
    create(cluster, "old")
    redefine(cluster, a(spec=a(kept=TEXT, size={"type": "integer", "default": 3})))
    table = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    for path in (WIDGETS, f"{WIDGETS}/old"):
        [row] = cluster.request("GET", path, headers=table).json()["rows"]
        assert row["cells"] == ["old", 3]


@pytest.mark.parametrize("schema", [BOTH, a(spec=a(kept=TEXT, gone=TEXT, size={"type": "integer", "default": 3}))])
def test_what_was_written_by_the_present_schema_is_not_looked_at(cluster, monkeypatch, schema):
    define(cluster, schema)
    create(cluster, "first")
    redefine(cluster, a(spec=a(kept=TEXT, gone=TEXT, size={"type": "integer", "default": 4})))
    written = create(cluster, "second")

    def looked_at(_served, _stored):
        raise AssertionError("an object was looked at")

    monkeypatch.setattr(Served, "_spliced", looked_at)
    assert cluster.get(f"{WIDGETS}/second").json() == written
    assert cluster.get(f"{WIDGETS}/first").status_code == 500, "the other one is"


def test_a_status_that_is_defaulted_is_there_from_the_beginning(cluster):
    status = a(phase=TEXT) | {"default": {"phase": "New"}}
    define(cluster, a(spec=BOTH["properties"]["spec"], status=status), subresources={"status": {}})
    create(cluster, "w")
    assert cluster.get(f"{WIDGETS}/w").json()["status"] == {"phase": "New"}


def test_only_a_change_of_the_schemas_makes_objects_old(cluster):
    define(cluster, BOTH)
    create(cluster, "w")
    redefine(cluster, additionalPrinterColumns=[{"name": "Kept", "type": "string", "jsonPath": ".spec.kept"}])
    assert since(cluster) == 0
    redefine(cluster, ONE)
    assert since(cluster) > 0


def test_what_one_cluster_changes_makes_no_difference_to_another(live):
    one, other = live.cluster(), live.cluster()
    for cluster in (one, other):
        define(cluster, BOTH)
        create(cluster, "w")
    redefine(one, ONE)
    redefine(one, BOTH)
    assert since(one) > since(other) == 0
    assert spec_of(other, "w") == {"kept": "k", "gone": "g"}


def test_a_write_that_looks_at_the_metadata_alone_brings_nothing_back(cluster):
    """It gives an object a new revision, by which it would pass for one of the present schema."""
    define(cluster, BOTH)
    owner = create(cluster, "owner")
    reference = {"apiVersion": "example.com/v1", "kind": "Widget", "name": "owner", "uid": owner["metadata"]["uid"]}
    create(cluster, "held", finalizers=["example.com/held"])
    create(cluster, "owned", ownerReferences=[reference])
    redefine(cluster, ONE)
    deleted = cluster.delete(f"{WIDGETS}/held").json()
    assert deleted["metadata"]["deletionTimestamp"]
    assert deleted["spec"] == spec_of(cluster, "held") == {"kept": "k"}
    with cluster.watch(WIDGETS, resourceVersion=deleted["metadata"]["resourceVersion"]) as events:
        cluster.delete(f"{WIDGETS}/owner", {"propagationPolicy": "Orphan"})
        found = next(event for event in iter(events.next, None) if event["object"]["metadata"]["name"] == "owned")
    assert "ownerReferences" not in found["object"]["metadata"]
    assert found["object"]["spec"] == {"kept": "k"}


def test_copies_of_old_objects_are_of_the_present_schema(live):
    source, root = live.cluster(), live.cluster("root")
    aged(source, "old")
    clusters = "/apis/kplane.dev/v1/clusters"
    name = f"{source.name}-fork"
    answer = root.post(f"{clusters}/{source.name}/fork", {"metadata": {"name": name}})
    assert answer.status_code == 201, answer.text
    fork = live.cluster(name)
    assert spec_of(fork, "old") == {"kept": "k"}
    redefine(fork, BOTH)
    assert spec_of(fork, "old") == {"kept": "k"}, "what is gone does not come back"


def test_an_object_that_was_written_while_its_schema_changed_is_an_old_one(cluster):
    define(cluster, BOTH)
    catalog = cluster.server.api.services.catalog
    before = catalog.lookup(cluster.name, "example.com", "v1", "widgets")
    redefine(cluster, ONE)
    after = catalog.lookup(cluster.name, "example.com", "v1", "widgets")
    late = after.custom.fitted_since + 5

    async def write(kind):
        catalog.wrote(cluster.name, kind, late)

    cluster.server.call(write(after))
    assert since(cluster) < late
    cluster.server.call(write(before))
    assert since(cluster) == late


def test_an_old_object_can_be_changed(cluster):
    aged(cluster, "old")
    changed = cluster.patch(f"{WIDGETS}/old", {"spec": {"kept": "new"}})
    assert changed.status_code == 200
    assert json.loads(changed.text)["spec"] == {"kept": "new"}
    redefine(cluster, BOTH)
    assert spec_of(cluster, "old") == {"kept": "new"}
