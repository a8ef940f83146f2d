"""The pytest plugin: its fixtures in this session, and in the session of somebody else's test suite."""

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).resolve().parents[2]
CRD = ROOT / "examples" / "parrot-crd.yaml"
MAPS = "/api/v1/namespaces/default/configmaps"
PARROTS = "/apis/example.org/v1/parrots"
SECRET = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}


@pytest.mark.parametrize("number", range(3))
def test_every_test_has_a_cluster_of_its_own(kplane_cluster, number):
    answer = httpx.post(kplane_cluster.url + MAPS, json={"metadata": {"name": "a"}})
    assert answer.status_code == 201
    assert len(kplane_cluster.requests) == 1


def test_one_server_serves_all_clusters_of_a_session(kplane_server, kplane_cluster, kplane_clusters):
    one, two = kplane_clusters(2)
    (three,) = kplane_clusters(1)
    assert len({kplane_cluster.url, one.url, two.url, three.url}) == 4
    assert all(cluster.url.startswith(kplane_server.url) for cluster in (kplane_cluster, one, two, three))


def test_an_asynchronous_test_needs_no_plugin_of_its_own(kplane_async_cluster):
    async def work():
        await kplane_async_cluster.create(SECRET)
        return await kplane_async_cluster.request("GET", "/api/v1/secrets")

    assert len(asyncio.run(work()).json()["items"]) == 1


@pytest.mark.kplane_crds("../../examples/parrot-crd.yaml")
def test_a_marker_tells_with_which_definitions_a_cluster_begins(kplane_cluster, kplane_clusters):
    assert kplane_cluster.request("GET", PARROTS).status == 200
    assert kplane_clusters(1)[0].request("GET", PARROTS).status == 200


def test_without_a_marker_a_cluster_begins_without_definitions(kplane_cluster):
    assert kplane_cluster.request("GET", PARROTS).status == 404


class TestOverridden:
    @pytest.fixture
    def crd_paths(self):
        return [CRD]

    def test_a_fixture_tells_with_which_definitions_a_cluster_begins(self, kplane_cluster):
        assert kplane_cluster.request("GET", PARROTS).status == 200


# --- in a suite of somebody else --------------------------------------------------------------------------------------


@pytest.fixture
def suite(tmp_path):
    """Run a test file in a folder of its own, and return the exit code and what was printed."""
    shutil.copy(CRD, tmp_path / "parrot-crd.yaml")

    def run(source, *arguments, ini=""):
        (tmp_path / "pytest.ini").write_text(f"[pytest]\nfilterwarnings = error\n{ini}\n", encoding="utf-8")
        (tmp_path / "test_mine.py").write_text(source, encoding="utf-8")
        env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "KPLANE"))}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--strict-markers", *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False)
        return done.returncode, done.stdout + done.stderr

    return run


WORKERS = """
import os, pathlib, pytest

@pytest.mark.parametrize("number", range(4))
def test_it(kplane_server, kplane_cluster, number):
    (pathlib.Path(__file__).parent / os.environ["PYTEST_XDIST_WORKER"]).write_text(kplane_server.url)
    assert kplane_cluster.request("GET", "/apis/example.org/v1/parrots").status == 200
"""


@pytest.mark.slow
def test_parallel_workers_have_a_server_each_and_the_definitions_of_the_configuration(suite, tmp_path):
    pytest.importorskip("xdist")
    code, output = suite(WORKERS, "-n", "2", "--dist", "each", ini="kplane_crd_paths = parrot-crd.yaml")
    assert code == 0, output
    assert "8 passed" in output
    assert len({(tmp_path / worker).read_text(encoding="utf-8") for worker in ("gw0", "gw1")}) == 2


UNUSED = """
import sys

def test_a_suite_that_uses_no_cluster_loads_no_server():
    assert 'kplane_apiserver.testing' not in sys.modules

def test_a_definition_that_is_not_there_is_named(kplane_cluster):
    pass
"""


def test_who_uses_no_cluster_pays_nothing_and_who_misconfigures_it_is_told(suite):
    code, output = suite(UNUSED, ini="kplane_crd_paths = absent.yaml")
    assert code == 1
    assert "1 passed, 1 error" in output
    assert "absent.yaml: no such file" in output
