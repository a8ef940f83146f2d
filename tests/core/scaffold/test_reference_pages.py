"""The reference pages say what the code says."""

import re
import subprocess
import sys
from pathlib import Path

from kplane_core.engine.unwritten import METHODS, unwritten_methods
from kplane_core.plugins.capabilities import Capability

ROOT = Path(__file__).resolve().parents[3]
REFERENCE = ROOT / "docs" / "reference"


def test_the_pages_are_those_of_the_code():
    """`make docs` writes them."""
    command = [sys.executable, str(ROOT / "tools" / "generate_reference.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_link_of_an_unwritten_method_leads_to_its_promise():
    page = (REFERENCE / "engine.md").read_text("utf-8")
    headings = re.findall(r"^## (.+)$", page, re.MULTILINE)
    for method in unwritten_methods(object):
        path, _, anchor = method.link.partition("#")
        assert ROOT / path == REFERENCE / "engine.md"
        assert anchor in headings
        assert method.promise in page
    assert tuple(headings[: len(METHODS)]) == METHODS


def test_every_method_is_held_to_its_promise_by_a_case():
    page = (REFERENCE / "engine.md").read_text("utf-8")
    for method in METHODS:
        section = page.split(f"\n## {method}\n")[1].split("\n## ")[0]
        assert re.search(r"^\| `engine\.", section, re.MULTILINE), method


def test_every_capability_has_a_section_and_a_case():
    page = (REFERENCE / "capabilities.md").read_text("utf-8")
    for capability in Capability:
        section = page.split(f"\n## {capability.value}\n")[1].split("\n## ")[0]
        assert re.search(r"Required by [1-9]\d* cases", section), capability
