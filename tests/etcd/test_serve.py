"""`kplane serve` on etcd: two processes on one etcd are one API, and both survive its loss."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from kplane_etcd.servers import EtcdServer, free_ports

KPLANE = Path(sys.executable).parent / "kplane"


class Served:
    """One `kplane serve` process."""

    def __init__(self, folder: Path, number: int, storage: str, etcd: EtcdServer) -> None:
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        self.namespace = f"{self.url}/clusters/c1/control-plane/api/v1/namespaces/default/configmaps"
        self._log = (folder / f"log-{number}").open("w+")
        command = [
            KPLANE, "serve", f"--storage-backend={storage}", f"--etcd-servers={etcd.url}", f"--port={port}",
            f"--kubeconfig={folder / f'kubeconfig-{number}'}", "--cluster=c1", "--etcd-request-timeout=2s",
            "--etcd-readycheck-timeout=500ms",
        ]  # fmt: skip
        self._process = subprocess.Popen(command, cwd=folder, stdout=self._log, stderr=self._log)

    def ready(self, within: float = 30.0) -> None:
        """Wait until it is ready."""
        deadline = time.monotonic() + within
        while time.monotonic() < deadline:
            assert self._process.poll() is None, self.log()
            if self.readiness() == 200:
                return
            time.sleep(0.05)
        pytest.fail(f"not ready within {within:g} s: {self.log()}")

    def readiness(self) -> int:
        try:
            return httpx.get(f"{self.url}/readyz", timeout=10).status_code
        except httpx.TransportError:
            return 0

    def create(self, name: str) -> int:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "b"}}
        answer = httpx.post(self.namespace, json=body, timeout=30)
        assert answer.status_code == 201, answer.text
        return int(answer.json()["metadata"]["resourceVersion"])

    def watch(self, after: int, count: int) -> list[tuple[str, int]]:
        """Return the first events after a resourceVersion, as names and resourceVersions."""
        parameters = {"watch": "1", "resourceVersion": str(after), "timeoutSeconds": "20"}
        seen = []
        with httpx.stream("GET", self.namespace, params=parameters, timeout=30) as answer:
            for line in answer.iter_lines():
                event = json.loads(line)
                assert event["type"] == "ADDED", event
                metadata = event["object"]["metadata"]
                seen.append((metadata["name"], int(metadata["resourceVersion"])))
                if len(seen) == count:
                    return seen
        raise AssertionError(f"the watch ended after {len(seen)} of {count} events")

    def names(self) -> list[str]:
        return [item["metadata"]["name"] for item in httpx.get(self.namespace, timeout=30).json()["items"]]

    def log(self) -> str:
        self._log.flush()
        return Path(self._log.name).read_text(encoding="utf-8")

    def stop(self) -> None:
        """End it and wait."""
        self._process.terminate()
        self._process.wait(20)
        self._log.close()


@pytest.fixture
def two(own_etcd, tmp_path) -> Iterator[tuple[Served, Served]]:
    """Two processes on one etcd, selected by both names."""
    servers = Served(tmp_path, 1, "etcd", own_etcd), Served(tmp_path, 2, "etcd3", own_etcd)
    try:
        for server in servers:
            server.ready()
        yield servers
    finally:
        for server in servers:
            server.stop()


def test_two_processes_are_one_api_and_outlive_a_kill_of_etcd(two, own_etcd) -> None:
    """Writes through either are read through both; a watch of one is resumed on the other, also across the kill."""
    first, second = two
    start = first.create("a")
    created = [(name, server.create(name)) for name, server in (("b", first), ("c", second), ("d", first))]
    assert first.names() == second.names() == ["a", "b", "c", "d"]
    seen = first.watch(start, 1)
    seen += second.watch(seen[-1][1], 1)
    seen += first.watch(seen[-1][1], 1)
    assert seen == created
    assert 'etcd_requests_total{operation="' in httpx.get(f"{first.url}/metrics").text

    own_etcd.kill()
    deadline = time.monotonic() + 10
    while first.readiness() == 200:
        assert time.monotonic() < deadline, "readiness goes on saying that all is well"
        time.sleep(0.05)
    assert httpx.get(f"{first.url}/livez/ping").status_code == 200
    asyncio.run(own_etcd.start())
    first.ready()
    second.ready()
    later = second.create("e")
    assert first.watch(created[-1][1], 1) == [("e", later)]
    assert first.names() == second.names() == ["a", "b", "c", "d", "e"]


def test_an_etcd_that_is_not_there_is_said_in_one_line(tmp_path) -> None:
    (port,) = free_ports(1)
    done = subprocess.run(
        [KPLANE, "serve", "--storage-backend=etcd", f"--etcd-servers=http://127.0.0.1:{port}", "--port=0",
         "--etcd-dial-timeout=300ms"],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=30,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.strip().splitlines()
    assert f"127.0.0.1:{port}" in line
    assert "refused" in line
