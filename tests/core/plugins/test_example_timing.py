"""The example extension, installed as its own distribution: it times what a server asks of its database."""

import json
import re
import shutil
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "kplane_timing"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The folder into which pip installed the example."""
    folder = tmp_path_factory.mktemp("timing")
    source = shutil.copytree(EXAMPLE, folder / "source")  # builds leave files behind
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    done = subprocess.run(
        [*command, "--target", folder / "site", source], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder / "site"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_it_is_listed_as_an_extension(installed):
    done = subprocess.run(
        [sys.executable, "-m", "kplane_core", "backends"],
        env={"PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert re.search(r"^timing +kplane-timing +0\.1\.0 +ok +extension$", done.stdout, re.MULTILINE)


def test_a_server_with_it_tells_the_time_of_each_operation_by_resource(installed, tmp_path):
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "kplane_core", "serve", "--port=0", "--cluster=c1"],
        env={"PYTHONPATH": str(installed), "KPLANE_TIMING_PORT": str(port), "HOME": str(tmp_path)},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with process:
        try:
            shown = ""
            while not (found := re.search(r"http://127\.0\.0\.1:\d+", shown)):
                line = process.stdout.readline()
                assert line, f"the server did not start: {shown}"
                shown += line
            maps = f"{found[0]}/clusters/c1/control-plane/api/v1/namespaces/default/configmaps"
            body = json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}).encode()
            request = urllib.request.Request(maps, body, {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=20) as created:
                assert created.status == 201
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as scraped:
                metrics = scraped.read().decode()
        finally:
            process.terminate()
    line = 'kplane_store_seconds_count{operation="create",outcome="ok",resource="configmaps"} 1.0'
    assert line in metrics.splitlines()
