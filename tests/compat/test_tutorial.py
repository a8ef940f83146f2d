"""The tutorial about testing operators shows what is in examples/operator, and that runs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OPERATOR = ROOT / "examples" / "operator"
BLOCK = re.compile(r"^```(?:py|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_tutorial_shows_the_files_of_the_example():
    tutorial = (ROOT / "docs" / "tutorial" / "test-your-operator.md").read_text(encoding="utf-8")
    blocks = [match[1] for match in BLOCK.finditer(tutorial) if not match[1].startswith("$ ")]
    shown = "".join(block.strip() for block in blocks)
    assert len(blocks) == 5
    for name in ("parrot.py", "conftest.py", "pytest.ini", "test_parrot.py"):
        text = (OPERATOR / name).read_text(encoding="utf-8")
        assert re.sub(r"\s+", "", text) in re.sub(r"\s+", "", shown), name


@pytest.mark.slow
def test_the_example_passes(module, tmp_path):
    """operators tested with the fixtures: retries after 503, lists again after 410"""
    module("kopf")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={tmp_path / 'temp'}"]
    done = subprocess.run(command, cwd=OPERATOR, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout
