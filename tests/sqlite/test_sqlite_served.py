"""`kplane serve --storage-backend=sqlite`: two servers on one file, health, backup and restart."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import contextmanager

import pytest

from kplane_sqlite.plugin import SqliteOptions

pytestmark = pytest.mark.slow


@contextmanager
def served(path, *flags):
    """A server on a file; yields the address of its cluster c1."""
    command = [sys.executable, "-m", "kplane_core", "serve", "--storage-backend=sqlite", f"--sqlite-path={path}"]
    env = {name: value for name, value in os.environ.items() if not name.startswith("KPLANE_")}
    with subprocess.Popen(
        [*command, "--port=0", "--cluster=c1", *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=env,
        cwd=path.parent,
    ) as process:
        try:
            shown = ""
            while not (found := re.search(r"http://127\.0\.0\.1:\d+", shown)):
                line = process.stdout.readline()
                assert line, f"the server did not start: {shown}"
                shown += line
            yield found[0]
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=20)
    assert process.returncode == 0


def ask(url, body=None):
    request = urllib.request.Request(url, headers={"Content-Type": "application/json"})
    if body is not None:
        request.data = json.dumps(body).encode()
    with urllib.request.urlopen(request, timeout=20) as answer:
        text = answer.read().decode()
    return json.loads(text) if text.startswith("{") else text


def maps(base):
    return f"{base}/clusters/c1/control-plane/api/v1/namespaces/default/configmaps"


def config_map(name):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "b"}}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "kplane.db"


def test_two_servers_on_one_file_see_each_other_s_objects_and_watch_them(path):
    with served(path) as one, served(path) as other:
        created = ask(maps(one), config_map("mine"))
        listed = ask(f"{maps(other)}?resourceVersion={created['metadata']['resourceVersion']}")
        assert [item["metadata"]["name"] for item in listed["items"]] == ["mine"]
        since = listed["metadata"]["resourceVersion"]
        watched = urllib.request.urlopen(f"{maps(other)}?watch=1&resourceVersion={since}", timeout=20)
        theirs = ask(maps(one), config_map("theirs"))
        event = json.loads(watched.readline())
        watched.close()
        assert (event["type"], event["object"]["metadata"]["uid"]) == ("ADDED", theirs["metadata"]["uid"])
        with pytest.raises(urllib.error.HTTPError) as caught:
            ask(maps(other), config_map("mine"))
        with caught.value as refused:
            assert refused.code == 409


def test_readiness_lists_the_integrity_check(path):
    with served(path) as base:
        assert "[+]sqlite-integrity ok" in ask(f"{base}/readyz?verbose").splitlines()


def test_a_backup_of_a_served_database_is_served_elsewhere_and_the_restart_kept_everything(path):
    with served(path) as base:
        created = ask(maps(base), config_map("kept"))
        backup = path.with_name("backup.db")
        command = [sys.executable, "-m", "kplane_core", "sqlite", "backup", str(backup), f"--sqlite-path={path}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert re.fullmatch(rf"{backup}: the database as of revision \d+\n", done.stdout)
        again = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert again.returncode == 2
        assert "exists already; a backup never replaces a file" in again.stderr
        ask(maps(base), config_map("later"))
    with served(path) as base:
        assert ask(f"{maps(base)}/kept") == created
    with served(backup) as base:
        listed = ask(maps(base))
        assert [item["metadata"]["name"] for item in listed["items"]] == ["kept"]
        assert int(listed["metadata"]["resourceVersion"]) > 1_000_000_000


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--sqlite-path=/nowhere/at/all.db"], "--sqlite-path: the folder '/nowhere/at' does not exist"),
        (["--sqlite-synchronous=ful"], "--sqlite-synchronous: must be one of full, normal, off, not 'ful'"),
        (["--sqlite-compact-interval=-1"], "--sqlite-compact-interval: "),
        (["--sqlite-busy-timeout=soon"], "--sqlite-busy-timeout: "),
    ],
)
def test_a_wrong_flag_is_one_line_that_names_it(tmp_path, flags, message):
    command = [sys.executable, "-m", "kplane_core", "serve", "--storage-backend=sqlite", "--port=0", *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_the_defaults_are_durable():
    assert SqliteOptions().synchronous == "full"


def test_a_server_that_is_killed_lost_nothing_that_it_had_acknowledged(path):
    """kill -9 between two requests; the next server goes on with the objects and above their resourceVersions."""
    command = [sys.executable, "-m", "kplane_core", "serve", "--storage-backend=sqlite", f"--sqlite-path={path}"]
    env = {name: value for name, value in os.environ.items() if not name.startswith("KPLANE_")}
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "env": env, "cwd": path.parent}
    with subprocess.Popen([*command, "--port=0", "--cluster=c1"], **options) as process:
        shown = ""
        while not (found := re.search(r"http://127\.0\.0\.1:\d+", shown)):
            line = process.stdout.readline()
            assert line, f"the server did not start: {shown}"
            shown += line
        created = [ask(maps(found[0]), config_map(f"kept-{number}")) for number in range(20)]
        process.kill()
    with served(path) as base:
        listed = ask(maps(base))
        assert {item["metadata"]["uid"] for item in listed["items"]} == {one["metadata"]["uid"] for one in created}
        later = ask(maps(base), config_map("later"))
    versions = [int(one["metadata"]["resourceVersion"]) for one in (*created, later)]
    assert versions == sorted(set(versions))
    assert versions[-1] < versions[-2] + 100, "a crash was taken for a restore"
