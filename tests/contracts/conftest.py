"""What the contract tests share: the checkout, its distributions, and subprocesses that see nothing of the caller."""

import os
import subprocess
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest

ROOT = Path(__file__).resolve().parents[2]


@attrs.frozen
class Distribution:
    """One distribution of this repository."""

    folder: Path

    @property
    def pyproject(self) -> dict[str, Any]:
        return tomllib.loads((self.folder / "pyproject.toml").read_text(encoding="utf-8"))

    @property
    def name(self) -> str:
        return str(self.pyproject["project"]["name"])

    @property
    def package(self) -> str:
        return self.name.replace("-", "_")

    @property
    def source(self) -> Path:
        return self.folder / "src" / self.package


def distributions() -> list[Distribution]:
    """Return every distribution of the checkout, sorted by name."""
    workspace = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["uv"]["workspace"]
    folders = [path for pattern in workspace["members"] for path in ROOT.glob(pattern)]
    return sorted((Distribution(folder) for folder in folders if (folder / "pyproject.toml").exists()), key=_name)


def _name(distribution: Distribution) -> str:
    return distribution.name


def run(
    command: Sequence[str | Path], *, cwd: Path, env: Mapping[str, str] | None = None, timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder without input, without the caller's kplane, Python and pytest variables."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("KPLANE_", "PYTHON", "PYTEST_", "COVERAGE", "MAKE")) and name != "VIRTUAL_ENV"
    }
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**kept, **(env or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that asks for `distribution` once for each."""
    if "distribution" in metafunc.fixturenames:
        found = distributions()
        metafunc.parametrize("distribution", found, ids=[one.name for one in found])


@pytest.fixture(scope="session")
def run_command() -> Any:
    """The function `run`, for the test modules: test folders are not packages to import from."""
    return run


@pytest.fixture(scope="session")
def all_distributions() -> list[Distribution]:
    """Every distribution of the checkout."""
    return distributions()
