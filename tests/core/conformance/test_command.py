"""`kplane conformance`: runs the suite, renders certificates, and refuses in one line what it cannot do."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


def kplane(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kplane_core", "conformance", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_run_leaves_a_report_that_can_be_rendered_and_nothing_else(tmp_path: Path) -> None:
    # A project's own pytest configuration must not reach the suite.
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --nonsense\n")
    done = kplane(tmp_path, "run", "--backend=memory", "--report=r.json", "--case=engine.revision", "--seed=9")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "memory: incomplete" in done.stdout
    assert json.loads((tmp_path / "r.json").read_text())["certificates"][0]["seed"] == 9
    assert {path.name for path in tmp_path.iterdir()} == {"pytest.ini", "r.json"}

    done = kplane(tmp_path, "render", "r.json", "--markdown=backends.md", "--html=backends.html")
    assert (done.returncode, done.stdout) == (0, "")
    text = (tmp_path / "backends.md").read_text()
    assert text.startswith("# Backends\n")
    assert "| **memory** (kplane-memory" in text
    assert (tmp_path / "backends.html").read_text().startswith("<!doctype html>")

    done = kplane(tmp_path, "render", "r.json")
    assert done.stdout == text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "kplane conformance run | render REPORT.json..."),
        (["rnu"], "kplane conformance run | render REPORT.json..."),
        (["run", "memory"], "unexpected argument 'memory'; a backend is named by --backend"),
        (["render"], "render needs at least one report"),
        (["render", "absent.json"], "absent.json: No such file or directory"),
        (["run", "--sed=3"], "--sed"),
        (["run", "--seed=x"], "--seed"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_exit_code_two(tmp_path: Path, arguments: list[str], message: str) -> None:
    done = kplane(tmp_path, *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_an_unknown_backend_exits_with_two(tmp_path: Path) -> None:
    done = kplane(tmp_path, "run", "--backend=nope")
    assert done.returncode == 2
    assert "no conformance harness for backend 'nope'; installed: " in done.stderr
