"""Real clients against a real server; each test has a cluster of its own, or says what is missing."""

import importlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent


def missing(what):
    """Skip the test, or fail it where everything has to be there."""
    reason = f"{what}; `make compat` brings the clients"
    (pytest.fail if os.environ.get("KPLANE_REQUIRE_COMPAT") else pytest.skip)(reason)


def find_program(name):
    """Return the path of a program beside this interpreter or on PATH."""
    found = shutil.which(name, path=f"{BIN}{os.pathsep}{os.environ['PATH']}")
    if found is None:
        missing(f"{name} is not installed")
    return found


def find_module(name):
    """Return a client library."""
    try:
        return importlib.import_module(name)
    except ImportError:
        missing(f"{name} is not installed")


def eventually(check, seconds=20.0):
    """Return what the check returns as soon as that is true."""
    deadline = time.monotonic() + seconds
    while not (found := check()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
    return found


class Program:
    """A program that talks to one cluster, in a home of its own."""

    def __init__(self, path, cluster, home):
        self.path, self.home = path, home
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("KPLANE", "KUBE", "HELM"))}
        self.env = {**kept, "HOME": str(home), "KUBECONFIG": str(cluster.kubeconfig)}

    def __call__(self, *arguments, codes=(0,), stdin=""):
        done = subprocess.run(
            [self.path, *map(str, arguments)],
            input=stdin,
            env=self.env,
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode in codes, f"{self.path} {' '.join(map(str, arguments))}: {done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture
def program(kplane_cluster, tmp_path):
    """A function that returns a program, set up for this test's cluster."""
    return lambda name: Program(find_program(name), kplane_cluster, tmp_path)


@pytest.fixture
def module():
    """A function that returns a client library."""
    return find_module


@pytest.fixture(scope="session")
def wait():
    """A function that waits for a condition."""
    return eventually


@pytest.fixture(scope="session")
def examples():
    """The folder of examples."""
    return ROOT / "examples"
