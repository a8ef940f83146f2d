"""Import cost and import direction are part of the interface."""

import ast
import json
import sys

import pytest

# What must not be imported by whoever only asks which backends there are, or only collects other tests.
DRIVERS = {"grpc", "etcd3", "google", "sqlite3", "uvicorn", "uvloop", "httptools", "yaml", "jsonpatch", "hypothesis"}


def loaded_by(statement, run_command, root):
    """Return the names of the modules that a fresh interpreter has loaded after a statement."""
    code = f"{statement}\nimport sys, json\nprint(json.dumps(sorted(sys.modules)))"
    done = run_command([sys.executable, "-I", "-c", code], cwd=root)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def plugin_modules(all_distributions, group):
    """Return the modules that the repository's distributions register in an entry-point group."""
    found = []
    for distribution in all_distributions:
        points = distribution.pyproject["project"].get("entry-points", {}).get(group, {})
        found += [value.partition(":")[0] for value in points.values()]
    assert found, f"nobody registers in {group}"
    return found


def test_describing_a_backend_imports_no_engine_and_no_driver(run_command, root, all_distributions):
    """`kplane --help` loads every backend's plugin module: it must cost next to nothing."""
    for module in plugin_modules(all_distributions, "kplane.backends"):
        loaded = loaded_by(f"import {module}", run_command, root)
        assert not loaded & (DRIVERS | {"asyncio", "kplane_core.engine.store"}), module


def test_the_pytest_plugins_import_only_pytest(run_command, root, all_distributions):
    """They are loaded into every pytest session of whoever installs us."""
    for module in plugin_modules(all_distributions, "pytest11"):
        before = loaded_by("import pytest, _pytest.config.argparsing", run_command, root)
        added = loaded_by(f"import pytest, _pytest.config.argparsing, {module}", run_command, root) - before
        ours = {name for name in added if name.startswith("kplane_")}
        assert ours <= {module.partition(".")[0], module}, module
        assert not added & (DRIVERS | {"asyncio", "attrs", "msgspec"}), module


@pytest.mark.parametrize("module", ["kplane_core.cli", "kplane_apiserver.commands.serve_command"])
def test_the_command_line_imports_no_server(module, run_command, root):
    """`kplane --help` and `kplane backends` start at once."""
    loaded = loaded_by(f"import {module}", run_command, root)
    assert not loaded & (DRIVERS | {"asyncio", "kplane_core.engine.store", "kplane_apiserver.server"})


def test_the_arrows_point_down(run_command, root):
    """The contracts in pyproject.toml are the arrows of docs/map.md."""
    code = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    done = run_command([sys.executable, "-c", code], cwd=root)
    assert done.returncode == 0, done.stdout + done.stderr


def test_nobody_draws_from_the_shared_generator(all_distributions):
    """A server in a thread beside a property test would seem to be what draws its examples: the test would flake."""
    found = []
    for distribution in all_distributions:
        for path in sorted(distribution.source.rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "random":
                    if node.attr not in {"Random", "SystemRandom"}:
                        found.append(f"{path.name}:{node.lineno}: random.{node.attr}")
                elif isinstance(node, ast.ImportFrom) and node.module == "random":
                    found.append(f"{path.name}:{node.lineno}: from random import")
    assert found == []
