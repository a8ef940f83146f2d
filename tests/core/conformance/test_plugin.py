"""The suite under pytest: nothing is green by absence, and strangers' sessions are left alone."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

ONE = "--kplane-case=engine.revision"
BACKEND = """
    from kplane_core.plugins.backends import Backend
    from kplane_core.plugins.hookspecs import hookimpl
    from kplane_memory.plugin import CAPABILITIES, MemoryOptions, connect

    @hookimpl
    def kplane_register_backends(registry):
        registry.register(Backend(
            name="thing", summary="memory by another name", options=MemoryOptions, capabilities=CAPABILITIES,
            connect=connect,
        ))
"""
HARNESS = """
    from kplane_memory.conformance import MemoryHarness

    class ThingHarness(MemoryHarness):
        name = "thing"

    harness = ThingHarness
"""


class Site:
    """A folder of installed distributions besides those of this environment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def install(self, harness: str = HARNESS, waivers: str = "", *, backend: str = BACKEND) -> None:
        """Install the distribution kplane-thing 1.0."""
        package = self.folder / "site" / "kplane_thing"
        info = self.folder / "site" / "kplane_thing-1.0.dist-info"
        for made in (package, info):
            made.mkdir(parents=True)
        (package / "__init__.py").write_text("")
        (package / "plugin.py").write_text(dedent(backend))
        (package / "conformance.py").write_text(dedent(harness))
        if waivers:
            (package / "conformance.toml").write_text(dedent(waivers))
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: kplane-thing\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(
            "[kplane.backends]\nthing = kplane_thing.plugin\n"
            "[kplane.conformance]\nthing = kplane_thing.conformance:harness\n"
        )

    def pytest(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run pytest in an empty project of a stranger."""
        project = self.folder / "project"
        project.mkdir(exist_ok=True)
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments],
            cwd=project,
            env=os.environ | {"PYTHONPATH": str(self.folder / "site"), "COLUMNS": "200"},
            capture_output=True,
            text=True,
            check=False,
        )

    def suite(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the suite on kplane-thing."""
        return self.pytest("--pyargs", "kplane_conformance", "--kplane-backend=thing", *arguments)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_an_installed_backend_is_found_and_judged(site: Site) -> None:
    """A harness that imports nothing of the suite is all that a backend needs."""
    site.install()
    done = site.suite(ONE, "--kplane-report=out.json", "--kplane-seed=5")
    assert done.returncode == 0, done.stdout
    assert "thing: incomplete   (kplane-thing 1.0" in done.stdout
    (certificate,) = json.loads((site.folder / "project" / "out.json").read_text())["certificates"]
    assert (certificate["backend"], certificate["distribution"], certificate["seed"]) == ("thing", "kplane-thing", 5)
    assert [entry["outcome"] for entry in certificate["entries"]] == ["passed"]
    assert certificate["verdict"] == "incomplete"
    plain = [one for one in certificate["missing"] if "@" not in one["id"]]
    assert len(plain) + 1 <= certificate["suite"]["size"]


def test_workers_have_harnesses_of_their_own_and_report_to_one_certificate(site: Site) -> None:
    site.install()
    done = site.suite(
        "-n", "2", "--kplane-case=engine.revision", "--kplane-case=Capability", "--kplane-report=out.json"
    )
    (certificate,) = json.loads((site.folder / "project" / "out.json").read_text())["certificates"]
    outcomes = {entry["id"]: entry["outcome"] for entry in certificate["entries"]}
    assert outcomes.pop("engine.revision") == "passed", done.stdout
    assert len(outcomes) == 10


def test_all_workers_use_the_seed_that_the_certificate_names(site: Site) -> None:
    site.install()
    site.suite("-n", "2", "--kplane-case=Capability", "--kplane-report=out.json", "--junitxml=out.xml")
    project = site.folder / "project"
    (certificate,) = json.loads((project / "out.json").read_text())["certificates"]
    seeds = re.findall(r'name="kplane.seed" value="(\d+)"', (project / "out.xml").read_text())
    assert len(seeds) == 10
    assert set(seeds) == {str(certificate["seed"])}


def test_a_backend_that_is_not_installed_is_an_error(site: Site) -> None:
    done = site.suite(ONE)
    assert done.returncode == 4
    assert "ERROR: no conformance harness for backend 'thing'; installed: " in done.stderr


def test_a_harness_that_cannot_be_imported_is_an_error_of_its_distribution(site: Site) -> None:
    site.install("raise ImportError('no driver')")
    done = site.suite(ONE)
    assert done.returncode not in {0, 5}
    assert "'thing' of kplane-thing 1.0 failed to load: ImportError: no driver" in done.stdout


def test_a_broken_plugin_is_an_error_of_its_distribution(site: Site) -> None:
    site.install(backend="import nothing_of_this_name")
    done = site.suite(ONE)
    assert done.returncode not in {0, 5}
    assert "kplane-thing 1.0 failed to load: ModuleNotFoundError" in done.stdout


def test_a_harness_that_lacks_a_member_is_told_which(site: Site) -> None:
    site.install("class harness:\n    name = 'thing'\n")
    done = site.suite(ONE)
    assert done.returncode != 0
    assert "lacks silence, start, stop, connect" in done.stdout


FAILING_START = (
    HARNESS
    + """
    async def start(self):
        raise FileNotFoundError("thingd is not installed")
    ThingHarness.start = start
"""
)


def test_a_database_that_does_not_start_is_a_harness_error_and_not_the_backends_failure(site: Site) -> None:
    site.install(FAILING_START)
    done = site.suite(ONE)
    assert done.returncode == 1
    assert "harness error (nothing is known of the backend)" in done.stdout
    assert "FileNotFoundError: thingd is not installed" in done.stdout
    assert "thing: incomplete" in done.stdout


def test_an_unavailable_database_may_be_allowed_and_is_named_so(site: Site) -> None:
    site.install(FAILING_START)
    done = site.suite(ONE, "--kplane-allow-unavailable")
    assert done.returncode == 0
    assert "thing: unavailable" in done.stdout


def test_a_failing_case_says_what_was_promised_what_came_and_how_to_run_it(site: Site) -> None:
    site.install(
        HARNESS
        + """
    async def size(self):
        return 7
    from kplane_memory.sharing import SharedEngine
    SharedEngine.size = size
    """
    )
    done = site.suite("--kplane-case=engine.check")
    assert done.returncode == 1
    assert "promised: A reachable database passes the check and tells how many bytes it uses." in done.stdout
    assert "what came: AssertionError: assert 7 >= 10000" in done.stdout
    assert "run only this: pytest --pyargs kplane_conformance --kplane-backend=thing" in done.stdout


def test_the_failure_of_a_new_case_is_told_and_makes_nothing_red(site: Site) -> None:
    site.install(
        HARNESS
        + """
    import attrs
    from kplane_conformance.case import load
    from kplane_memory.sharing import SharedEngine

    async def size(self):
        return 7

    SharedEngine.size = size
    load()._cases["engine.check"] = attrs.evolve(load()._cases["engine.check"], provisional="99.0")
    """
    )
    done = site.suite("--kplane-case=engine.check", "--kplane-report=out.json")
    assert done.returncode == 0, done.stdout
    assert "provisional: the case is new and counts from suite 99.0 on; AssertionError: assert 7" in done.stdout
    (certificate,) = json.loads((site.folder / "project" / "out.json").read_text())["certificates"]
    assert [entry["outcome"] for entry in certificate["entries"]] == ["provisional"]


WAIVER = """
    [[waiver]]
    case = "engine.revision"
    reason = "known"
    issue = "https://example.org/1"
    expires = 2999-01-01
"""


def test_an_unexpected_pass_fails(site: Site) -> None:
    site.install(waivers=WAIVER)
    done = site.suite(ONE)
    assert done.returncode == 1
    assert "it passed, but a waiver says that it fails: remove the waiver (known; https://example.org/1)" in done.stdout


def test_a_waiver_of_no_case_is_an_error(site: Site) -> None:
    site.install(waivers=WAIVER.replace("engine.revision", "engine.revison"))
    done = site.suite(ONE)
    assert done.returncode not in {0, 5}
    assert "conformance.toml of kplane-thing 1.0: there is no case 'engine.revison' to waive" in done.stdout


def test_a_case_that_does_not_exist_is_an_error(site: Site) -> None:
    done = site.pytest("--pyargs", "kplane_conformance", "--kplane-backend=memory", "--kplane-case=Lst")
    assert done.returncode not in {0, 5}
    assert "no case is called 'Lst' for backend memory" in done.stdout


def test_a_strangers_session_sees_options_and_no_case(site: Site) -> None:
    """The plugin collects nothing and imports nothing of the suite in somebody else's tests."""
    project = site.folder / "project"
    project.mkdir()
    (project / "test_own.py").write_text(
        "import sys\ndef test_own():\n"
        "    mine = sorted(name for name in sys.modules if name.startswith('kplane_conformance'))\n"
        "    assert mine == ['kplane_conformance', 'kplane_conformance.plugin']\n"
    )
    done = site.pytest("-q")
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
    assert "conformance" not in done.stdout


def test_a_report_of_nothing_is_an_error(site: Site) -> None:
    """Asking for a certificate where no case is collected is not green."""
    project = site.folder / "project"
    project.mkdir()
    (project / "test_own.py").write_text("def test_own():\n    pass\n")
    done = site.pytest("-q", "--kplane-report=out.json")
    assert done.returncode == 4
    assert "no conformance case was collected" in done.stdout


def test_a_selection_by_keyword_can_only_be_incomplete(site: Site) -> None:
    done = site.pytest("--pyargs", "kplane_conformance", "--kplane-backend=memory", "-k", "engine.revision", "-q")
    assert done.returncode == 0, done.stdout
    assert "memory: incomplete" in done.stdout
    assert "the verdict can only be incomplete" in done.stdout
