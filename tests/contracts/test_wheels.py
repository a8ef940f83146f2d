"""Each wheel works alone: built from the checkout, installed into a fresh environment with nothing beside it.

An environment that holds the whole repository hides a dependency that a distribution forgot to declare.
"""

import json
import re
import sys
import zipfile
from pathlib import Path

import attrs
import pytest

from kplane_conformance.case import load

pytestmark = pytest.mark.slow

# Imports every module of a package, so that each undeclared dependency shows.
IMPORT_ALL = """
import importlib, pkgutil, sys
package = importlib.import_module(sys.argv[1])
names = [found.name for found in pkgutil.walk_packages(package.__path__, package.__name__ + ".")]
for name in names:
    if not name.endswith("__main__") and name not in sys.argv[2:]:
        importlib.import_module(name)
print(len(names))
"""


@attrs.frozen
class Environment:
    """A virtual environment that holds one distribution and what that one declares."""

    folder: Path
    run_command: object

    def run(self, *command, **options):
        """Run a program of this environment in its folder."""
        program, *arguments = command
        return self.run_command([self.folder / "bin" / program, *arguments], cwd=self.folder, **options)


@attrs.frozen
class Wheels:
    """A folder with the wheel of every distribution that could be built, and why the others could not."""

    folder: Path
    failures: dict[str, str]

    def find(self, distribution):
        """Return the wheel of one distribution."""
        assert distribution.name not in self.failures, self.failures[distribution.name]
        (path,) = self.folder.glob(f"{distribution.package}-*.whl")
        return path


@pytest.fixture(scope="module")
def wheels(tmp_path_factory, run_command, all_distributions):
    """The wheels, built from the checkout; one that cannot be built fails its own tests only."""
    built = Wheels(tmp_path_factory.mktemp("wheels"), {})
    for distribution in all_distributions:
        build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", built.folder]
        done = run_command(build, cwd=distribution.folder)
        if done.returncode:
            built.failures[distribution.name] = done.stdout + done.stderr
    return built


@pytest.fixture
def install(tmp_path, run_command, wheels):
    """A function that makes an environment with the given distributions only."""

    def make(*names):
        for name in names:
            assert name not in wheels.failures, wheels.failures[name]
        folder = tmp_path / "alone"
        done = run_command([sys.executable, "-m", "venv", "--without-pip", folder], cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        pip = [sys.executable, "-m", "pip", "--python", folder, "install", "--quiet", "--no-input"]
        done = run_command([*pip, "--find-links", wheels.folder, *names], cwd=tmp_path, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        return Environment(folder, run_command)

    return make


def test_a_wheel_holds_the_package_and_its_data_and_no_tests(distribution, wheels):
    names = zipfile.ZipFile(wheels.find(distribution)).namelist()
    expected = {
        str(source.relative_to(distribution.folder / "src"))
        for source in distribution.source.rglob("*")
        if source.is_file() and "__pycache__" not in source.parts
    }
    packed = {name for name in names if not name.startswith(f"{distribution.package}-")}
    assert packed == expected
    assert any(name.endswith("/METADATA") for name in names)


def test_every_module_of_a_wheel_imports_with_only_the_declared_dependencies(distribution, install):
    environment = install(distribution.name)
    project = distribution.pyproject["project"]
    has_pytest = any(re.match(r"pytest\b", requirement) for requirement in project["dependencies"])
    only_pytest_loads = [] if has_pytest else project.get("entry-points", {}).get("pytest11", {}).values()
    done = environment.run("python", "-I", "-c", IMPORT_ALL, distribution.package, *only_pytest_loads)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 1


def test_the_core_alone_says_what_to_install(install):
    """`pip install kplane-core` gives a `kplane` that runs and names what is missing."""
    environment = install("kplane-core")
    shown = environment.run("kplane", "backends")
    assert shown.returncode == 0, shown.stderr
    unknown = environment.run("kplane", "serve")
    assert unknown.returncode == 2
    assert "kplane-apiserver" in unknown.stderr
    assert len(unknown.stderr.strip().splitlines()) == 1


def test_the_server_without_a_backend_says_what_to_install(install):
    environment = install("kplane-apiserver")
    done = environment.run("kplane", "serve", "--port", "0")
    assert done.returncode == 2
    assert done.stdout == ""
    assert "pip install kplane-memory" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_the_suite_without_a_backend_is_a_failure_that_says_so(install):
    """Nothing collected must never look like success."""
    environment = install("kplane-conformance")
    done = environment.run("python", "-m", "pytest", "--pyargs", "kplane_conformance", "--kplane-backend=memory")
    assert done.returncode not in {0, 5}
    assert "no backend to test" in done.stdout + done.stderr


def test_the_suite_from_wheels_gives_the_verdict(install):
    """A backend author runs the suite from PyPI: the same cases, and the same verdict, as in the repository."""
    environment = install("kplane-conformance", "kplane-memory")
    report = environment.folder / "report.json"
    done = environment.run(
        "python", "-m", "pytest", "-q", "--pyargs", "kplane_conformance", "--kplane-backend=memory",
        f"--kplane-report={report}", timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    (certificate,) = json.loads(report.read_text(encoding="utf-8"))["certificates"]
    assert certificate["verdict"] == "conformant"
    assert certificate["suite"]["digest"] == load().digest()
