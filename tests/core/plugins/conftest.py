"""A folder of installed distributions, as pip would lay them out, without pip's seconds."""

import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from importlib_metadata import distributions

from kplane_core.plugins.discovery import Plugins, discover

GOOD_PLUGIN = """
import attrs
from kplane_core.plugins.backends import Backend
from kplane_core.plugins.capabilities import Capability, Supported
from kplane_core.plugins.flags import option, positive_int
from kplane_core.plugins.hookspecs import hookimpl

@attrs.frozen
class Options:
    limit: int = option(10, parse=positive_int, help="how many")
    password: str = option("", secret=True, help="user password")
    token: int = option(0, secret=True, help="a secret number")

async def connect(options):
    raise AssertionError("nobody connects here")

@hookimpl
def kplane_register_backends(registry):
    registry.register(Backend(name=NAME, summary="a backend for tests", options=Options, connect=connect,
                              capabilities={capability: Supported() for capability in Capability}))
"""


def good_plugin(name: str) -> str:
    """Return the source of a plugin that registers a backend of this name."""
    return f"NAME = {name!r}\n{GOOD_PLUGIN}"


class Site:
    """One site-packages folder.

    Args:
        folder: where.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def install(
        self, distribution: str, source: str, *, name: str, group: str = "kplane.backends", version: str = "1.2.3"
    ) -> str:
        """Install a distribution of one module and one entry point; return the module's name."""
        module = distribution.replace("-", "_")
        value = f"{module}:command" if group == "kplane.commands" else module
        metadata = self.folder / f"{module}-{version}.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
        (metadata / "entry_points.txt").write_text(f"[{group}]\n{name} = {value}\n")
        (self.folder / f"{module}.py").write_text(textwrap.dedent(source))
        return module

    def discover(self, **options: object) -> Plugins:
        """Return the plugins of this folder and of nothing else."""
        found = [
            entry_point
            for distribution in distributions(path=[str(self.folder)])
            for entry_point in distribution.entry_points
            if entry_point.group in {"kplane.backends", "kplane.extensions"}
        ]
        return discover(entry_points=found, **{"environ": {}, **options})  # type: ignore[arg-type]

    def kplane(self, *arguments: str, environ: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Run the command in a process that sees this folder besides everything installed."""
        return subprocess.run(
            [sys.executable, "-m", "kplane_core", *arguments],
            env={"PYTHONPATH": str(self.folder), "COLUMNS": "110", **(environ or {})},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    before = set(sys.modules)
    yield Site(folder)
    for name in set(sys.modules) - before:
        if str(folder) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture
def plugin_source() -> Callable[[str], str]:
    """The source of a good plugin that registers a backend of a name."""
    return good_plugin
