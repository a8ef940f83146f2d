"""Two API servers on one database."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx

KPLANE = Path(sys.executable).with_name("kplane")


@contextmanager
def serving(options, tmp_path, name):
    """`kplane serve` in a process of its own; its URL."""
    command = [
        *(KPLANE, "serve", "--port", "0", "--storage-backend=spanner", "--cluster", "c1"),
        *("--kubeconfig", str(tmp_path / f"{name}.kubeconfig")),
        *("--spanner-project", options.project, "--spanner-instance", options.instance),
        *("--spanner-database", options.database, "--spanner-emulator-host", options.emulator_host),
        "--spanner-create-instance",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said = []
    try:
        for line in process.stdout:
            said.append(line)
            if found := re.search(r"http://127\.0\.0\.1:\d+", line):
                break
        else:
            raise AssertionError(f"the server did not start: {''.join(said)}")
        drain = threading.Thread(target=process.stdout.read, daemon=True)
        drain.start()
        yield found[0]
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(15) == 0
        drain.join()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def config_map(name):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "b"}}


def watched(client, url, version, count):
    """Return the names and types of so many events after a resourceVersion."""
    found = []
    query = {"watch": "1", "resourceVersion": version, "timeoutSeconds": "30"}
    with client.stream("GET", url, params=query) as answer:
        for line in answer.iter_lines():
            event = json.loads(line)
            assert event["type"] != "ERROR", event
            found.append((event["type"], event["object"]["metadata"]["name"]))
            if len(found) == count:
                return found
    return found


def test_two_servers_share_a_database_and_a_watch_goes_on_at_the_other_one(options, tmp_path):
    path = "/clusters/c1/control-plane/api/v1/namespaces/default/configmaps"
    with ExitStack() as stack:
        client = stack.enter_context(httpx.Client(timeout=40))
        with serving(options, tmp_path, "one") as one, serving(options, tmp_path, "two") as two:
            first = client.post(one + path, json=config_map("first"))
            assert first.status_code == 201, first.text
            version = first.json()["metadata"]["resourceVersion"]
            assert client.get(f"{two}{path}/first").json() == first.json()
            second = client.post(two + path, json=config_map("second"))
            assert watched(client, one + path, version, 1) == [("ADDED", "second")]
            resumed = second.json()["metadata"]["resourceVersion"]
            stale = first.json() | {"data": {"a": "c"}}
            assert client.put(f"{two}{path}/first", json=stale).status_code == 200
            assert client.put(f"{one}{path}/first", json=stale).status_code == 409
            assert client.delete(f"{two}{path}/second").status_code == 200
            # The watch that began at the first server goes on at the second one.
            assert watched(client, two + path, resumed, 2) == [("MODIFIED", "first"), ("DELETED", "second")]
            assert client.get(f"{one}/readyz").status_code == 200
        # Servers come and go, the objects and their versions stay.
        with serving(options, tmp_path, "three") as three:
            names = [item["metadata"]["name"] for item in client.get(three + path).json()["items"]]
            assert "first" in names
            assert "second" not in names
            assert watched(client, three + path, resumed, 2) == [("MODIFIED", "first"), ("DELETED", "second")]
