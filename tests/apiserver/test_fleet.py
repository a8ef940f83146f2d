"""Fleets: clusters from a template, as many as are asked for, kept so, and gone with their fleet."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from kplane_memory.engine import MemoryEngine

MAPS = "/api/v1/namespaces/default/configmaps"
CLUSTERS = "/apis/kplane.dev/v1/clusters"
FLEETS = "/apis/kplane.dev/v1/fleets"


def create(server, name, **spec):
    answer = server.client.post(FLEETS, json={"metadata": {"name": name}, "spec": spec})
    assert answer.status_code == 201, answer.text
    return answer.json()


def change(server, name, **spec):
    headers = {"content-type": "application/merge-patch+json"}
    answer = server.client.patch(f"{FLEETS}/{name}", content=json.dumps({"spec": spec}), headers=headers)
    assert answer.status_code == 200, answer.text


def status(server, name):
    return server.client.get(f"{FLEETS}/{name}").json().get("status", {})


def ready(server, name, count):
    """Whether the fleet has seen its newest spec and has `count` members, all of them ready."""
    fleet = server.client.get(f"{FLEETS}/{name}").json()
    found = fleet.get("status", {})
    seen = found.get("observedGeneration") == fleet["metadata"]["generation"]
    return seen and found["readyReplicas"] == found["replicas"] == count


def clusters(server):
    return [item["metadata"]["name"] for item in server.client.get(CLUSTERS).json()["items"]]


def test_a_fleet_has_as_many_members_as_it_asks_for(serve, eventually):
    server = serve()
    create(server, "f", replicas=3, template={"metadata": {"labels": {"team": "red"}}, "spec": {"ttlSeconds": 3600}})
    eventually(lambda: ready(server, "f", 3))
    assert clusters(server) == ["f-0000", "f-0001", "f-0002"]
    member = server.client.get(f"{CLUSTERS}/f-0001").json()
    assert member["metadata"]["labels"] == {"team": "red", "kplane.dev/fleet": "f"}
    assert member["spec"] == {"ttlSeconds": 3600}
    first = status(server, "f")["members"][0]
    assert (first["clusterID"], first["phase"]) == ("f-0000", "Ready")
    assert first["lastTransitionTime"]
    change(server, "f", replicas=1)
    eventually(lambda: clusters(server) == ["f-0000"])
    change(server, "f", replicas=2)
    eventually(lambda: clusters(server) == ["f-0000", "f-0001"])
    eventually(lambda: ready(server, "f", 2))


def test_members_have_the_names_that_are_given_and_numbers_after_them(serve, eventually):
    server = serve()
    create(server, "f", names=["ann", "bob"], replicas=3, namePrefix="agent")
    create(server, "g", names=["carl"])
    eventually(lambda: ready(server, "f", 3) and ready(server, "g", 1))
    assert clusters(server) == ["agent0000", "ann", "bob", "carl"]


def test_a_deleted_fleet_takes_its_members_along_and_no_others(serve, eventually):
    server = serve()
    server.cluster("other").config_map("a")
    create(server, "f", replicas=2)
    eventually(lambda: ready(server, "f", 2))
    server.cluster("f-0000").config_map("a")
    assert server.client.delete(f"{FLEETS}/f").status_code == 200
    eventually(lambda: clusters(server) == ["other"])
    assert server.keys("/clusters/f-0000/") == []


def test_a_member_that_is_deleted_is_made_anew(serve, eventually):
    server = serve()
    create(server, "f", replicas=1)
    eventually(lambda: ready(server, "f", 1))
    uid = server.client.get(f"{CLUSTERS}/f-0000").json()["metadata"]["uid"]
    server.cluster("f-0000").config_map("a")
    server.client.delete(f"{CLUSTERS}/f-0000")

    def renewed():
        answer = server.client.get(f"{CLUSTERS}/f-0000")
        return answer.status_code == 200 and answer.json()["metadata"]["uid"] != uid

    eventually(renewed)
    assert server.cluster("f-0000").get(MAPS).json()["items"] == []


def test_members_begin_as_forks_and_with_the_objects_of_the_template(serve, eventually):
    server = serve()
    server.cluster("golden").config_map("from-golden", data={"k": "v"})
    names = {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"}
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    objects = [
        {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}, "spec": {"size": 1}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "seed", "namespace": "team"}},
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}},
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "things.example.com"},
            "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]},
        },
    ]
    create(server, "f", replicas=2, template={"from": "golden", "objects": objects})
    eventually(lambda: ready(server, "f", 2))
    for name in ("f-0000", "f-0001"):
        member = server.cluster(name)
        assert member.get(f"{MAPS}/from-golden").json()["data"] == {"k": "v"}
        assert member.get("/api/v1/namespaces/team/configmaps/seed").status_code == 200
        assert member.get("/apis/example.com/v1/namespaces/default/things/t").json()["spec"] == {"size": 1}
        eventually(
            lambda member=member: member.get("/api/v1/namespaces/team/serviceaccounts/default").status_code == 200
        )


def test_a_member_that_cannot_be_made_is_failed_and_tried_again(serve, eventually):
    server = serve()
    server.cluster("taken").config_map("a")
    create(server, "f", names=["taken", "free"])
    create(server, "g", replicas=1, template={"from": "later"})
    create(
        server, "h", replicas=1, template={"objects": [{"apiVersion": "x/v1", "kind": "Y", "metadata": {"name": "y"}}]}
    )

    def phases(name):
        return {
            one["clusterID"]: (one["phase"], one.get("message", "")) for one in status(server, name).get("members", ())
        }

    eventually(lambda: phases("f").get("free") == ("Ready", "") and phases("g") and phases("h"))
    assert phases("f")["taken"] == ("Failed", "a cluster of this name exists and is not the fleet's")
    assert "later, which spec.template.from names, does not exist" in phases("g")["g-0000"][1]
    assert "serves no Y of x/v1" in phases("h")["h-0000"][1]
    server.client.delete(f"{CLUSTERS}/taken")
    server.cluster("later").config_map("a")
    eventually(lambda: ready(server, "f", 2) and ready(server, "g", 1))
    server.client.delete(f"{FLEETS}/f")
    eventually(lambda: clusters(server) == ["g-0000", "later"])


def test_what_else_names_a_fleet_as_its_owner_is_not_in_its_way(serve, eventually):
    server = serve()
    uid = create(server, "f", replicas=1)["metadata"]["uid"]
    owner = {"apiVersion": "kplane.dev/v1", "kind": "Fleet", "name": "f", "uid": uid}
    other = {"metadata": {"name": "f-0000", "ownerReferences": [owner]}}
    assert server.client.post(MAPS, json=other).status_code == 201
    change(server, "f", replicas=2)
    eventually(lambda: ready(server, "f", 2))
    assert server.client.get(f"{MAPS}/f-0000").status_code == 200
    change(server, "f", replicas=0)
    eventually(lambda: ready(server, "f", 0))
    assert server.client.get(f"{MAPS}/f-0000").status_code == 200


def test_a_fleet_ends_with_its_members_when_its_time_is_over(serve, eventually):
    moment = [datetime(2030, 1, 1, tzinfo=UTC)]
    server = serve(now=lambda: moment[0])
    create(server, "f", replicas=2, ttlSeconds=60)
    create(server, "g", replicas=1)
    eventually(lambda: ready(server, "f", 2) and ready(server, "g", 1))
    moment[0] += timedelta(seconds=61)
    eventually(lambda: clusters(server) == ["g-0000"])
    assert server.client.get(f"{FLEETS}/f").status_code == 404


def test_a_restarted_server_goes_on_with_its_fleets(serve, eventually):
    engine = MemoryEngine()
    first = serve(engine=engine)
    create(first, "f", replicas=2)
    eventually(lambda: ready(first, "f", 2))
    second = serve(engine=engine)
    change(second, "f", replicas=1)
    eventually(lambda: clusters(second) == ["f-0000"])
    eventually(lambda: ready(second, "f", 1))


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"replicas": -1}, "spec.replicas"),
        ({"replicas": "three"}, "spec.replicas"),
        ({"replicas": 10001}, "spec.replicas"),
        ({"names": ["a", "a"]}, "spec.names"),
        ({"names": ["a..b"]}, "spec.names"),
        ({"replicas": 1, "namePrefix": "-"}, "spec.namePrefix"),
        ({"ttlSeconds": 0}, "spec.ttlSeconds"),
        ({"template": {"spec": {"ttlSeconds": 0}}}, "spec.template.spec.ttlSeconds"),
        ({"template": {"objects": ["x"]}}, "spec.template.objects[0]"),
    ],
)
def test_a_fleet_that_makes_no_sense_is_refused(live, spec, field):
    answer = live.client.post(FLEETS, json={"metadata": {"name": "f"}, "spec": spec})
    assert answer.status_code == 422, answer.text
    assert answer.json()["details"]["causes"][0]["field"] == field


def test_fleets_live_in_the_root_cluster_alone(cluster):
    assert cluster.get(FLEETS).status_code == 404
