"""A real kubectl does what it does elsewhere, in two virtual clusters that do not see each other."""

import json
import subprocess

import pytest

pytestmark = pytest.mark.kubectl

CONFIGMAP = """
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, labels: {app: demo}}
data: {colour: blue}
"""


def test_the_guestbook_lives_in_one_cluster_only(kubectl, neighbour, manifests):
    """apply, get, label, patch and delete of builtin kinds; the other cluster never sees any of it."""
    folder = str(manifests / "guestbook")
    applied = kubectl("apply", "-f", folder).splitlines()
    assert len(applied) == 8
    assert all(line.endswith(" created") for line in applied)
    assert sorted(kubectl.names("deployments")) == ["frontend", "redis-master", "redis-replica"]
    assert sorted(kubectl.names("services", "-l", "app=redis")) == ["redis-master", "redis-replica"]
    assert kubectl.names("sts") == ["cassandra"]
    assert neighbour.names("deployments,services,statefulsets,storageclasses", "-A") == []

    again = kubectl("apply", "-f", folder).splitlines()
    assert all(line.endswith(" unchanged") for line in again), again

    kubectl("label", "deployment", "frontend", "team=web")
    assert kubectl.names("deployments", "-l", "team=web") == ["frontend"]
    change = {"spec": {"template": {"spec": {"containers": [{"name": "php-redis", "image": "web:2"}]}}}}
    kubectl("patch", "deployment", "frontend", "-p", json.dumps(change))
    frontend = kubectl.json("get", "deployment", "frontend")
    (container,) = frontend["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "web:2"
    assert container["resources"], "the strategic patch changed one field of the container, not the container"
    assert frontend["metadata"]["generation"] == 2, "the label changed no spec, the image did"

    kubectl("delete", "-f", folder)
    assert kubectl.names("deployments,services,statefulsets,storageclasses") == []


def test_objects_of_one_name_in_two_clusters_are_two_objects(kubectl, neighbour):
    kubectl("create", "configmap", "settings", "--from-literal=colour=blue")
    neighbour("create", "configmap", "settings", "--from-literal=colour=red")
    mine, theirs = kubectl.json("get", "cm", "settings"), neighbour.json("get", "cm", "settings")
    assert (mine["data"], theirs["data"]) == ({"colour": "blue"}, {"colour": "red"})
    assert mine["metadata"]["uid"] != theirs["metadata"]["uid"]
    assert "-c1" not in json.dumps(mine), "an object carries no trace of the cluster it lives in"
    neighbour("delete", "configmap", "settings")
    assert kubectl.json("get", "cm", "settings")["data"] == {"colour": "blue"}


@pytest.mark.parametrize(
    "command",
    [
        "namespace team",
        "configmap cm --from-literal=a=1 --from-literal=b=2",
        "secret generic sec --from-literal=password=s3cret",
        "serviceaccount robot",
        "deployment web --image=web:1 --replicas=3 --port=80",
        "job once --image=job:1",
        "cronjob often --image=job:1 --schedule=@daily",
        "role reader --verb=get,list --resource=pods",
        "rolebinding readers --role=reader --serviceaccount=default:robot",
        "service clusterip web --tcp=80:8080",
        "ingress web --rule=example.org/*=web:80",
        "poddisruptionbudget web --selector=app=web --min-available=1",
        "priorityclass high --value=1000",
        "quota small --hard=pods=3",
    ],
    ids=lambda command: command.split()[0],
)
def test_create_stores_what_its_dry_run_prints(kubectl, command):
    """kubectl 1.32 and later post these as protobuf, without asking first what the server understands."""
    planned = kubectl.json("create", *command.split(), "--dry-run=client")
    kubectl("create", *command.split())
    stored = kubectl.json("get", planned["kind"], planned["metadata"]["name"])
    assert stored["metadata"]["uid"]
    assert stored["metadata"]["creationTimestamp"].endswith("Z")
    planned.pop("status", None)  # whoever creates an object does not set its status
    assert contains(stored, planned), (planned, stored)


def contains(stored, planned):
    """Whether everything that was planned is stored; the server may add to it, and leaves out what is empty."""
    if isinstance(planned, dict):
        return all(
            value in ({}, None, [], "") or contains((stored or {}).get(key), value) for key, value in planned.items()
        )
    if isinstance(planned, list):
        return len(stored or []) == len(planned) and all(map(contains, stored, planned))
    return stored == planned


def test_get_watch_shows_this_cluster_only(kubectl, neighbour):
    """`get -w` prints what is there and then each change, as it happens."""
    command = kubectl.command("get", "configmaps", "-w", "-o", "name", "--watch-only=false", "-l", "app=demo")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={"HOME": str(kubectl.home)}) as watching:
        try:
            neighbour("apply", "-f", "-", stdin=CONFIGMAP)
            kubectl("apply", "-f", "-", stdin=CONFIGMAP.replace("settings", "first"))
            kubectl("apply", "-f", "-", stdin=CONFIGMAP.replace("settings", "second"))
            assert [watching.stdout.readline(), watching.stdout.readline()] == [
                "configmap/first\n",
                "configmap/second\n",
            ]
            kubectl("delete", "configmap", "first")
            assert watching.stdout.readline() == "configmap/first\n"
        finally:
            watching.terminate()


def test_a_watch_of_tables_has_columns(kubectl):
    """Without `-o`, each event is a table of one row, and only the first carries the columns."""
    kubectl("create", "configmap", "settings", "--from-literal=a=1")
    command = kubectl.command("get", "configmaps", "-w", "--field-selector", "metadata.name=settings")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={"HOME": str(kubectl.home)}) as watching:
        try:
            assert watching.stdout.readline().split() == ["NAME", "DATA", "AGE"]
            assert watching.stdout.readline().split()[:2] == ["settings", "1"]
            kubectl("patch", "cm", "settings", "--type=merge", "-p", '{"data":{"b":"2"}}')
            assert watching.stdout.readline().split()[:2] == ["settings", "2"]
        finally:
            watching.terminate()


def test_patches_of_every_kind(kubectl):
    kubectl("apply", "-f", "-", stdin=CONFIGMAP)
    kubectl("patch", "cm", "settings", "--type=merge", "-p", '{"data":{"size":"big","colour":null}}')
    assert kubectl.json("get", "cm", "settings")["data"] == {"size": "big"}
    kubectl("patch", "cm", "settings", "--type=json", "-p", '[{"op":"replace","path":"/data/size","value":"small"}]')
    kubectl("patch", "cm", "settings", "-p", '{"metadata":{"finalizers":["a/b"]}}')
    kubectl("annotate", "cm", "settings", "note=hello")
    stored = kubectl.json("get", "cm", "settings")
    assert stored["data"] == {"size": "small"}
    assert stored["metadata"]["finalizers"] == ["a/b"]
    assert stored["metadata"]["annotations"]["note"] == "hello"
    failed = kubectl("patch", "cm", "settings", "--type=json", "-p", '[{"op":"remove","path":"/data/none"}]', ok=False)
    assert "/data/none" in failed


def test_a_finalizer_holds_an_object_until_it_is_removed(kubectl):
    kubectl("apply", "-f", "-", stdin=CONFIGMAP)
    kubectl("patch", "cm", "settings", "-p", '{"metadata":{"finalizers":["a/b"]}}')
    kubectl("delete", "cm", "settings", "--wait=false")
    assert kubectl.json("get", "cm", "settings")["metadata"]["deletionTimestamp"]
    kubectl("patch", "cm", "settings", "--type=json", "-p", '[{"op":"remove","path":"/metadata/finalizers"}]')
    assert kubectl.names("cm", "-l", "app=demo") == []


def test_delete_waits_until_the_object_is_gone(kubectl):
    """kubectl deletes, then lists and watches that one name until it is gone."""
    for name in ("one", "two"):
        kubectl("apply", "-f", "-", stdin=CONFIGMAP.replace("settings", name))
    assert sorted(kubectl("delete", "configmaps", "-l", "app=demo", "--timeout=20s").split('"')[1::2]) == ["one", "two"]
    assert kubectl.names("configmaps", "-l", "app=demo") == []


def test_a_namespace_goes_with_its_content(kubectl, neighbour):
    for one in (kubectl, neighbour):
        one("create", "namespace", "team")
        one("apply", "-n", "team", "-f", "-", stdin=CONFIGMAP)
    kubectl("delete", "namespace", "team", "--timeout=20s")
    assert "team" not in kubectl.names("namespaces")
    assert kubectl.names("configmaps", "-A", "-l", "app=demo") == []
    assert neighbour.names("configmaps", "-n", "team", "-l", "app=demo") == ["settings"]
    refused = kubectl("apply", "-n", "team", "-f", "-", stdin=CONFIGMAP, ok=False)
    assert 'namespaces "team" not found' in refused


def test_diff_shows_the_change_and_changes_nothing(kubectl):
    kubectl("apply", "-f", "-", stdin=CONFIGMAP)
    before = kubectl.json("get", "cm", "settings")
    assert kubectl("diff", "-f", "-", stdin=CONFIGMAP) == ""
    done = subprocess.run(
        kubectl.command("diff", "-f", "-"),
        input=CONFIGMAP.replace("blue", "green"),
        env={"HOME": str(kubectl.home), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "-  colour: blue" in done.stdout
    assert "+  colour: green" in done.stdout
    assert kubectl.json("get", "cm", "settings") == before


def test_replace_needs_the_current_version(kubectl):
    kubectl("apply", "-f", "-", stdin=CONFIGMAP)
    stored = kubectl.json("get", "cm", "settings")
    stored["data"] = {"colour": "green"}
    kubectl("replace", "-f", "-", stdin=json.dumps(stored))
    stored["data"] = {"colour": "red"}
    refused = kubectl("replace", "-f", "-", stdin=json.dumps(stored), ok=False)
    assert "the object has been modified" in refused
    assert kubectl.json("get", "cm", "settings")["data"] == {"colour": "green"}


def test_what_kubectl_asks_about_the_server(kubectl):
    assert "Server Version: v1." in kubectl("version")
    resources = kubectl("api-resources", "--no-headers").splitlines()
    assert any(line.startswith("configmaps ") and " cm " in line for line in resources)
    assert "apps/v1" in kubectl("api-versions").splitlines()
    assert kubectl("get", "--raw", "/readyz?verbose", "--server", kubectl.url.split("/clusters/")[0]).startswith("[+]")
    assert "settings" not in kubectl("get", "all")


def test_describe_shows_object_and_events(kubectl):
    kubectl("create", "deployment", "web", "--image=web:1")
    described = kubectl("describe", "deployment", "web")
    assert "web:1" in described
    kubectl("apply", "-f", "-", stdin=CONFIGMAP)
    assert "blue" in kubectl("describe", "cm", "settings")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("get configmap none", 'configmaps "none" not found'),
        ("get nonsense", 'the server doesn\'t have a resource type "nonsense"'),
        ("create namespace default", 'namespaces "default" already exists'),
        ("create configmap Not_A_Name", 'Invalid value: "Not_A_Name"'),
        ("delete namespace kube-system", "forbidden"),
        ("get configmaps --field-selector spec.colour=blue", "not a known field selector"),
        ("get configmaps -l a=(", "unable to parse"),
        ("create configmap settings -n nowhere", 'namespaces "nowhere" not found'),
    ],
    ids=["absent", "unknown-kind", "exists", "bad-name", "system-namespace", "bad-field", "bad-label", "no-namespace"],
)
def test_mistakes_are_explained(kubectl, command, message):
    assert message in kubectl(*command.split(), ok=False)


def test_a_request_for_a_page_gets_a_page(kubectl):
    documents = "---".join(CONFIGMAP.replace("settings", f"settings-{number:03}") for number in range(25))
    kubectl("create", "-f", "-", stdin=documents)
    assert len(kubectl.names("configmaps", "-l", "app=demo", "--chunk-size=7")) == 25
