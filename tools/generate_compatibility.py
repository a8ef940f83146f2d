"""Run the compatibility tests and write docs/compatibility.md: which client does what, as found on this machine.

`make compat` installs every client before.
"""

import ast
import importlib.metadata
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TESTS = ROOT / "tests" / "compat"
TARGET = ROOT / "docs" / "compatibility.md"
BIN = Path(sys.executable).parent
LIBRARIES = ("kubernetes", "kubernetes_asyncio", "kr8s", "lightkube", "kopf")
HEAD = """# Compatibility

Which clients work against kplane, and with what. Every row is a test in `tests/compat` that runs the real client
against a real server; `tools/generate_compatibility.py` runs them and writes this page. A fresh cluster, no TLS.

| client | what it does | result |
|---|---|---|
"""
MANIFESTS = """
## Manifests

Manifests that people apply to real clusters: created, applied by kubectl, and applied by the server. What is read back
is what was sent, but for what the server fills in: `SERVER_FILLED` in `tests/compat/test_manifests.py` lists it.
Objects too large for the annotation of kubectl's own apply are refused there, as in every Kubernetes.

| file | way | result |
|---|---|---|
"""
TAIL = """
Not there, because there are no nodes: running pods and with that logs, exec, attach and port-forward. kubectl before
1.29 needs the second version of OpenAPI, which is not served.
"""


def promises() -> dict[str, str]:
    """Return the first line of each test function: what it does."""
    found = {}
    for path in TESTS.glob("test_*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                found[f"{path.stem}::{node.name}"] = (ast.get_docstring(node) or "").splitlines()[:1]
    return {name: "".join(lines) for name, lines in found.items()}


def version_of(client: str) -> str:
    """Return a client's name with the version that is installed."""
    if client in LIBRARIES:
        return f"{client} {importlib.metadata.version(client)}"
    if not client.startswith(("kubectl-", "helm-")):
        return client
    arguments = ["version", "--client"] if client.startswith("kubectl") else ["version", "--short"]
    done = subprocess.run([BIN / client, *arguments], capture_output=True, text=True, check=True)  # noqa: S603 - ours
    found = re.search(r"v(\d+\.\d+\.\d+)", done.stdout)
    return f"{client.partition('-')[0]} {found[1] if found else client}"


def outcome(case: ET.Element) -> str:
    """Return how a test ended, in a word or with the reason."""
    for tag, word in (("failure", "fails"), ("error", "fails"), ("skipped", "not tried")):
        if case.find(tag) is not None:
            return word
    return "works"


def rows(report: Path) -> tuple[list[str], list[str]]:
    """Return the lines of both tables."""
    clients, manifests, what = [], [], promises()
    for case in ET.parse(report).getroot().iter("testcase"):  # noqa: S314 - written by pytest just now
        name, _, parameter = case.get("name", "").rstrip("]").partition("[")
        module = case.get("classname", "").rpartition(".")[2]
        if module == "test_manifests":
            if parameter:
                file, _, way = parameter.partition(".yaml-")
                manifests.append(f"| {file}.yaml | {way} | {outcome(case)} |\n")
            continue
        library = {"test_kopf": "kopf", "test_python_clients": name.removeprefix("test_")}.get(module, parameter)
        clients.append(f"| {version_of(library)} | {what[f'{module}::{name}']} | {outcome(case)} |\n")
    return sorted(clients), sorted(manifests)


def main() -> int:
    """Run the tests and write the page; the exit code is that of the tests."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", str(TESTS), f"--junitxml={report}", "-p", "no:cacheprovider"]
        env = {**os.environ, "KPLANE_REQUIRE_COMPAT": "1"}
        done = subprocess.run([*command, *sys.argv[1:]], cwd=ROOT, env=env, check=False)  # noqa: S603 - our own arguments
        clients, manifests = rows(report)
    TARGET.write_text(HEAD + "".join(clients) + MANIFESTS + "".join(manifests) + TAIL, encoding="utf-8")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
