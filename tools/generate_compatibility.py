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
CLIENTS = ("test_helm", "test_kopf", "test_kubectl", "test_python_clients")
LIBRARIES = ("kubernetes", "kubernetes_asyncio", "kr8s", "lightkube", "kopf")
HEAD = """# Compatibility

Which clients work against kplane, and with what. Every row is a test in `tests/compat` that runs the real client
against a real server, in a fresh cluster; `tools/generate_compatibility.py` runs them and writes this page. Each client
is tried twice: without users, where everybody may do everything; and over TLS with a token for that one cluster, out of
the kubeconfig that `kplane token create` writes, where RBAC allows its user what is needed and nothing else.

| client | what it does | without users | TLS, token and roles |
|---|---|---|---|
"""
RIGHTS = """
The user of helm and of the Python clients has the role `admin` in the namespace default; the one of kubectl may also
handle namespaces and the definition of the kind it uses. An operator has the roles that kopf's documentation asks for,
and may patch the status of its kind; in one namespace it needs no ClusterRole, but `settings.scanning.disabled = True`.
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
Not there, because there are no nodes: running pods and with that logs, exec, attach and port-forward; and tokens of
ServiceAccounts (`kubectl create token`). kubectl before 1.29 needs the second version of OpenAPI, which is not served.
kubectl before 1.34 leaves the cluster out after `--raw`: the whole path is `/clusters/c1/control-plane/version`. So
does every `kubectl proxy` without `--append-server-path`.
"""
WAYS = ("open", "secured")
NOTHING = "-"


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
    clients: dict[tuple[str, str], dict[str, str]] = {}
    manifests, what = [], promises()
    for case in ET.parse(report).getroot().iter("testcase"):  # noqa: S314 - written by pytest just now
        name, _, parameter = case.get("name", "").rstrip("]").partition("[")
        module = case.get("classname", "").rpartition(".")[2]
        if module == "test_manifests":
            if parameter:
                file, _, way = parameter.partition(".yaml-")
                manifests.append(f"| {file}.yaml | {way} | {outcome(case)} |\n")
            continue
        if module not in CLIENTS:
            continue
        way = next(found for found in parameter.split("-")[::-1] if found in WAYS)
        program = parameter.replace(way, "").strip("-")
        library = {"test_kopf": "kopf", "test_python_clients": name.removeprefix("test_")}.get(module, program)
        clients.setdefault((version_of(library), what[f"{module}::{name}"]), {})[way] = outcome(case)
    lines = [
        f"| {client} | {promise} | {' | '.join(results.get(way, NOTHING) for way in WAYS)} |\n"
        for (client, promise), results in clients.items()
    ]
    return sorted(lines), sorted(manifests)


def main() -> int:
    """Run the tests and write the page; the exit code is that of the tests."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", str(TESTS), f"--junitxml={report}", "-p", "no:cacheprovider"]
        env = {**os.environ, "KPLANE_REQUIRE_COMPAT": "1"}
        done = subprocess.run([*command, *sys.argv[1:]], cwd=ROOT, env=env, check=False)  # noqa: S603 - our own arguments
        clients, manifests = rows(report)
    TARGET.write_text(HEAD + "".join(clients) + RIGHTS + MANIFESTS + "".join(manifests) + TAIL, encoding="utf-8")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
