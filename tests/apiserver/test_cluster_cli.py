"""`kplane cluster` against a running server: what it does, what it prints, and how it fails."""

import json
import os

import pytest
import yaml

from kplane_apiserver.commands.clusters_cli import run
from kplane_apiserver.commands.clusters_client import Client
from kplane_apiserver.commands.clusters_command import ClusterOptions, command
from kplane_apiserver.credentials.kubeconfig import write_kubeconfig
from kplane_core.errors import UsageError

MAPS = "/api/v1/namespaces/default/configmaps"
CLUSTERS = "/apis/kplane.dev/v1/clusters"


@pytest.fixture
def server(serve):
    """A server of its own, so that lists are complete."""
    return serve()


@pytest.fixture
def kplane(server, tmp_path, capsys):
    """Run `kplane cluster` with words and options, and return what it prints."""

    def call(*words, **options):
        given = {"server": server.url, "kubeconfig": tmp_path / "kubeconfig", **options}
        assert run(ClusterOptions(**given), words) == 0
        return capsys.readouterr().out

    return call


def test_a_cluster_is_created_listed_and_deleted(kplane, server):
    assert kplane("list") == f"no clusters at {server.url}\n"
    assert kplane("create", "c1", ttl=3600.0, label=("team=red", "a=b")) == "cluster c1 created\n"
    assert kplane("create", "c2", output="name") == "c2\n"
    made = server.client.get(f"{CLUSTERS}/c1").json()
    assert made["spec"] == {"ttlSeconds": 3600}
    assert made["metadata"]["labels"] == {"team": "red", "a": "b"}
    head, first, second = kplane("list").splitlines()
    assert head.split() == ["NAME", "PHASE", "AGE", "ENDS", "IN", "LABELS"]
    assert first.split()[:2] == ["c1", "Ready"]
    assert first.split()[-1] == "a=b,team=red"
    assert second.split()[-2:] == ["<never>", "<none>"]
    assert head.index("PHASE") == first.index("Ready") == second.index("Ready")
    assert kplane("list", output="name", label=("team=red",)) == "c1\n"
    assert len(json.loads(kplane("list", output="json"))["items"]) == 2
    assert kplane("delete", "c1", "c2") == "cluster c1 deleted\ncluster c2 deleted\n"
    assert server.keys("/clusters/c1/") == []
    assert kplane("list", output="name") == ""


def test_a_snapshot_goes_into_a_file_and_out_of_it_again(kplane, server, tmp_path):
    server.cluster("c1").config_map("a", data={"k": "v"})
    file = str(tmp_path / "c1.json")
    assert kplane("snapshot", "c1", file).startswith(f"{file}: 9 objects of cluster c1 as of revision ")
    assert kplane("restore", "c2", file, ttl=60.0) == "cluster c2 restored\n"
    assert server.client.get(f"{CLUSTERS}/c2").json()["spec"] == {"ttlSeconds": 60}
    assert server.cluster("c2").get(f"{MAPS}/a").json()["data"] == {"k": "v"}
    assert json.loads(kplane("snapshot", "c1"))["cluster"] == "c1"


def test_a_cluster_is_forked(kplane, server):
    server.cluster("c1").config_map("a")
    assert kplane("fork", "c1", "c2", label=("x=y",)) == "cluster c2 forked from c1\n"
    assert server.cluster("c2").get(f"{MAPS}/a").status_code == 200
    assert kplane("list", output="name", label=("x=y",)) == "c2\n"


def test_the_kubeconfig_gets_a_context_per_cluster_and_names_the_server_from_then_on(kplane, server, tmp_path):
    kplane("create", "c1")
    file = tmp_path / "kubeconfig"
    assert kplane("kubeconfig", "c1") == f"{file}: kplane-c1\n"
    (cluster,) = yaml.safe_load(file.read_text())["clusters"]
    assert cluster["cluster"]["server"] == f"{server.url}/clusters/c1/control-plane"
    assert kplane("list", output="name", server="") == "c1\n"
    with pytest.raises(UsageError, match="not found"):
        kplane("kubeconfig", "c3")


@pytest.mark.parametrize(
    ("words", "options", "message"),
    [
        ((), {}, "a verb is needed; there are create, list"),
        (("destroy", "c1"), {}, "no such verb 'destroy'"),
        (("create",), {}, "usage: kplane cluster create NAME"),
        (("fork", "c1"), {}, "usage: kplane cluster fork SOURCE NAME"),
        (("create", "c1"), {"label": ("x",)}, "--label x: must be NAME=VALUE"),
        (("create", "a..b"), {}, "is invalid"),
        (("create", "root"), {}, "the root cluster always exists"),
        (("delete", "c9"), {}, '"c9" not found'),
        (("snapshot", "c9"), {}, '"c9" not found'),
        (("fork", "c9", "c1"), {}, '"c9" not found'),
        (("restore", "c1", "/nonexistent/file"), {}, "cannot read the snapshot /nonexistent/file"),
        (("restore", "c1", os.devnull), {}, "is no snapshot"),
        (("restore", "c1", "-"), {"label": ("a=b",)}, "--label does not go with restore"),
        (
            ("list",),
            {"server": "http://127.0.0.1:1"},
            "no kplane server answers at http://127.0.0.1:1: Connection refused",
        ),
        (("list",), {"server": "ftp://x"}, "names no http:// or https:// address"),
        (("list",), {"server": ""}, "does not exist; name it with --server URL"),
    ],
)
def test_failures_are_one_line_that_says_what_to_do(kplane, words, options, message):
    with pytest.raises(UsageError) as caught:
        kplane(*words, **options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "x", "kind: Config", "- a", "{", "contexts: [{name: a, context: {cluster: b}}]"])
def test_a_file_that_names_no_server_is_said_to_be_so(tmp_path, text):
    file = tmp_path / "kubeconfig"
    file.write_text(text)
    with pytest.raises(UsageError, match="names no server; name it with --server URL"):
        Client.find("", file)


def test_a_token_is_for_the_server_that_it_is_written_for(tmp_path):
    file = tmp_path / "kubeconfig"
    write_kubeconfig(file, "http://127.0.0.1:8080", ["c1"])
    document = yaml.safe_load(file.read_text())
    document["users"][0]["user"] = {"token": "hunter2"}
    file.write_text(yaml.safe_dump(document))
    assert Client.find("", file).credentials.token == "hunter2"
    assert Client.find("http://127.0.0.1:8080/", file).credentials.token == "hunter2"
    other = Client.find("http://127.0.0.1:9090", file)
    assert other.credentials.token == ""
    assert "hunter2" not in repr(Client.find("", file))


def test_the_command_is_found_by_its_entry_point():
    from importlib.metadata import entry_points  # noqa: PLC0415 - only here

    (found,) = [one for one in entry_points(group="kplane.commands") if one.name == "cluster"]
    assert found.load() is command
