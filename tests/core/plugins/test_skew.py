"""Plugins of other times, as installed wheels: each is told of in one clear line and does not disturb the others."""

import json
import re
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import attrs
import pytest

from kplane_core import __version__
from kplane_core.plugins.requirements import unmet

GOOD = """
import attrs
from kplane_core.plugins.backends import Backend
from kplane_core.plugins.capabilities import Capability, Supported
from kplane_core.plugins.hookspecs import hookimpl

@attrs.frozen
class Options:
    pass

async def connect(options):
    raise AssertionError("nobody connects here")

@hookimpl
def kplane_register_backends(registry):
    registry.register(Backend(name=NAME, summary="a backend for tests", options=Options, connect=connect,
                              capabilities={capability: Supported() for capability in Capability}))
"""


@attrs.frozen
class Wheel:
    """A distribution with one backend."""

    distribution: str
    backend: str
    source: str
    requires: str = "kplane-core>=0.1"

    @property
    def module(self) -> str:
        return self.distribution.replace("-", "_")

    def build(self, folder: Path) -> Path:
        """Write the wheel."""
        stem = f"{self.module}-1.2.3"
        path = folder / f"{stem}-py3-none-any.whl"
        head = f"Metadata-Version: 2.1\nName: {self.distribution}\nVersion: 1.2.3\nRequires-Dist: {self.requires}\n"
        files = {
            f"{self.module}.py": self.source,
            f"{stem}.dist-info/METADATA": head,
            f"{stem}.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            f"{stem}.dist-info/entry_points.txt": f"[kplane.backends]\n{self.backend} = {self.module}\n",
        }
        with zipfile.ZipFile(path, "w") as wheel:
            for name, text in files.items():
                wheel.writestr(name, text)
            wheel.writestr(f"{stem}.dist-info/RECORD", "".join(f"{name},,\n" for name in files))
        return path


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """A folder into which pip has installed every wheel of this module."""
    folder = tmp_path_factory.mktemp("wheels")
    made = [
        Wheel("kplane-old", "old", good("old").replace("name=NAME", "name=NAME, api=0")),
        Wheel("kplane-new", "new", good("new").replace("name=NAME", "name=NAME, api=2")),
        Wheel("kplane-next", "next", "from kplane_core.engine import NotYetInvented", "kplane-core>=7.1,<8"),
        Wheel("kplane-past", "past", good("past"), "kplane-core (>=0.0.1,<0.0.5)"),
        Wheel("kplane-mine", "twice", good("twice")),
        Wheel("kplane-yours", "twice", good("twice")),
        Wheel("kplane-slow", "slow", "import time\ntime.sleep(1.1)\n" + good("slow")),
        Wheel("kplane-loud", "loud", "print('hello from the plugin')\n" + good("loud")),
        Wheel("kplane-fine", "fine", good("fine")),
    ]
    site = folder / "site"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-compile"]
    done = subprocess.run(
        [*command, "--target", site, *(wheel.build(folder) for wheel in made)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return site


def good(name: str) -> str:
    """Return the source of a plugin with a backend of this name."""
    return f"NAME = {name!r}\n{GOOD}"


def kplane(site, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "kplane_core", *arguments],
        env={"PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture(scope="module")
def listed(wheels):
    """What `kplane backends` says of each distribution."""
    done = kplane(wheels, "backends")
    assert done.returncode == 0, done.stderr
    assert "hello" not in done.stdout
    lines = [re.split(r"\s{2,}", line.strip(), maxsplit=4) for line in done.stdout.splitlines()]
    return {distribution: (status, note) for _, distribution, _, status, note in lines}


EXPECTED = {
    "kplane-old": (
        "incompatible",
        (
            "kplane-old 1.2.3 is incompatible: it speaks plugin API 0, this kplane-core speaks 1: "
            "pip install -U kplane-old"
        ),
    ),
    "kplane-new": (
        "incompatible",
        (
            "kplane-new 1.2.3 is incompatible: it speaks plugin API 2, this kplane-core speaks 1: "
            "pip install -U kplane-core"
        ),
    ),
    "kplane-next": (
        "incompatible",
        "kplane-next 1.2.3 is incompatible: it requires kplane-core >=7.1, this is {core}: pip install -U kplane-core",
    ),
    "kplane-past": (
        "incompatible",
        "kplane-past 1.2.3 is incompatible: it requires kplane-core <0.0.5, this is {core}: pip install -U kplane-past",
    ),
    "kplane-mine": (
        "duplicate",
        "storage backend 'twice' is claimed by kplane-mine 1.2.3 and kplane-yours 1.2.3: uninstall one of them",
    ),
    "kplane-yours": (
        "duplicate",
        "storage backend 'twice' is claimed by kplane-mine 1.2.3 and kplane-yours 1.2.3: uninstall one of them",
    ),
    "kplane-loud": ("ok", "a backend for tests; prints to the standard output while it is imported"),
    "kplane-fine": ("ok", "a backend for tests"),
}


@pytest.mark.parametrize("distribution", EXPECTED)
def test_each_is_told_of_in_one_clear_line(listed, distribution):
    status, note = EXPECTED[distribution]
    assert listed[distribution] == (status, note.format(core=__version__))


def test_a_plugin_that_takes_long_to_import_is_told_of(listed):
    status, note = listed["kplane-slow"]
    assert status == "ok"
    assert re.fullmatch(r"a backend for tests; takes \d+\.\d s to import", note)


def test_none_of_them_disturbs_the_output_for_programs(wheels):
    done = kplane(wheels, "backends", "--json")
    found = {one["distribution"]: one for one in json.loads(done.stdout)}
    assert found["kplane-loud"]["notes"] == ["prints to the standard output while it is imported"]
    assert "hello from the plugin" in done.stderr


def test_whoever_selects_another_backend_neither_waits_nor_hears_of_them(wheels):
    """Selecting one imports that one alone; the slow one costs its second only those who use it."""
    code = (
        "import sys; from kplane_core.plugins.discovery import discover; print(discover().select('fine').summary);"
        "sys.exit(bool({'kplane_slow', 'kplane_loud', 'kplane_next', 'kplane_old'} & set(sys.modules)))"
    )
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(wheels)}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "a backend for tests\n", "")
    assert time.perf_counter() - began < 30


@pytest.mark.parametrize("name", ["old", "new", "next", "past", "twice"])
def test_selecting_one_of_them_is_the_same_line_and_exit_code_2(wheels, listed, name):
    done = kplane(wheels, "new-backend", name)
    assert done.returncode == 2
    code = f"from kplane_core.plugins.discovery import discover\ndiscover().select({name!r})"
    failed = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(wheels)}, capture_output=True, text=True, check=False
    )
    last = failed.stderr.strip().splitlines()[-1]
    assert any(note in last for status, note in listed.values() if status != "ok")


@pytest.mark.parametrize(
    ("requirements", "core", "expected"),
    [
        (None, "0.1.0", None),
        ([], "0.1.0", None),
        (["attrs>=99"], "0.1.0", None),
        (["kplane-core"], "0.1.0", None),
        (["kplane-core>=0.1,<0.2"], "0.1.0", None),
        (["kplane_core>=0.1,<0.2"], "0.2.0", "<0.2"),
        (["kplane-core>=0.1,<0.2"], "0.2.0rc1", "<0.2"),
        (["Kplane-Core>=2"], "0.1.0", None),  # metadata is normalized by every build backend in use
        (["kplane-core[encryption] (>=0.10)"], "0.9.4", ">=0.10"),
        (["kplane-core==0.1"], "0.1.0", None),
        (["kplane-core>0.1"], "0.1.0", ">0.1"),
        (["kplane-core<=0.1"], "0.1.1", "<=0.1"),
        (["kplane-core>=9; extra == 'next'"], "0.1.0", None),
        (["kplane-core~=9.0"], "0.1.0", None),  # not judged
        (["kplane-core-tools>=9"], "0.1.0", None),
    ],
)
def test_only_plain_comparisons_of_the_core_s_version_are_judged(requirements, core, expected):
    assert unmet(requirements, core) == expected
