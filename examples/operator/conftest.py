"""Run the operator against the cluster of a test."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

OPERATOR = Path(__file__).with_name("parrot.py")


@pytest.fixture
def operator(kplane_cluster):
    """The operator, running in a process of its own as it does in production."""
    env = {**os.environ, "KUBECONFIG": str(kplane_cluster.kubeconfig)}
    command = [sys.executable, "-m", "kopf", "run", "--standalone", "--all-namespaces", "--quiet", str(OPERATOR)]
    process = subprocess.Popen(command, env=env)
    yield process
    process.terminate()
    process.wait(timeout=20)


@pytest.fixture
def eventually():
    """A function that waits until a condition holds."""

    def wait(condition, seconds=20):
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, "it did not happen in time"
            time.sleep(0.02)

    return wait
