"""docs/tutorial/write-a-backend.md: its commands print what it shows, its steps pass the cases that they name.

That its code is the code that ships is checked with the reference pages (`tools/generate_reference.py --check`).
"""

import asyncio
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import kplane_sqlite
from kplane_conformance.case import load
from kplane_conformance.session import Outcome, Session
from kplane_core.engine.factory import EngineConnection
from kplane_core.engine.unwritten import METHODS, unwritten, unwritten_methods
from kplane_sqlite.conformance import SqliteHarness
from kplane_sqlite.engine import SqliteEngine
from kplane_sqlite.opening import Settings

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "tutorial" / "write-a-backend.md").read_text("utf-8")
STEPS = re.findall(r"^## Step \d+: (.*?)$(.*?)(?=^## )", PAGE, re.MULTILINE | re.DOTALL)


def step_methods(title):
    return re.findall(r"`(\w+)`", title)


def step_cases(text):
    found = re.search(r"^Cases: (.*?)(?:\n\n|\Z)", text, re.MULTILINE | re.DOTALL)
    return re.findall(r"`([\w.-]+)`", found[1]) if found else []


def test_the_steps_write_each_of_the_ten_methods_once():
    written = [method for title, _ in STEPS for method in step_methods(title)]
    assert sorted(written) == sorted(METHODS)


def test_the_steps_name_every_case_of_the_engine():
    """Nothing that can be asked of an engine is left to the end."""
    named = [case for _, text in STEPS for case in step_cases(text)]
    asked = {case.name for case in load().cases() if case.name.startswith("engine.")}
    assert len(set(named)) == len(named)
    assert set(named) == asked


def staged(written):
    """Return the engine as it is after a step: what was not written yet refuses to be called."""
    left = [name for name in METHODS if name not in written]
    left += ["compacted"] if "compact" in left else []
    return type("Staged", (SqliteEngine,), {name: unwritten(getattr(SqliteEngine, name)) for name in left})


class StagedHarness(SqliteHarness):
    def __init__(self, engine):
        super().__init__()
        self.engine = engine

    async def connect(self):
        engine = await self.engine.open(Settings(self.path, "off"), progress_interval=0.5, clock=self.clock)
        self.clock.drives(engine)
        return EngineConnection(engine)


@pytest.mark.parametrize("step", range(len(STEPS)), ids=[title.replace("`", "") for title, _ in STEPS])
def test_after_each_step_its_cases_pass_with_the_methods_written_so_far(step):
    written = {method for title, _ in STEPS[: step + 1] for method in step_methods(title)}
    engine = staged(written)
    assert {method.name for method in unwritten_methods(engine)} == set(METHODS) - written
    leaves = {leaf.id: leaf for leaf in load().leaves()}

    async def run():
        session = Session(StagedHarness(engine))
        await session.start()
        try:
            return {case: await session.run(leaves[case]) for case in step_cases(STEPS[step][1])}
        finally:
            await session.stop()

    results = asyncio.run(run())
    assert {case: result.reason for case, result in results.items() if result.outcome is not Outcome.PASSED} == {}


# --- commands ---------------------------------------------------------------------------------------------------------


def sessions():
    """Yield each command of the page with what it is said to print."""
    for block in re.findall(r"<!-- run -->\n```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL):
        for exchange in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, said = exchange.partition("\n")
            yield command, said


def run(command, folder):
    """Run a command of the page in a folder, with installations in a folder of their own."""
    program, *arguments = command.split()
    if (program, arguments[:2]) == ("pip", ["install", "-e"]):
        # Not editable, so that the environment of the tests stays as it is.
        options = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--target", "site"]
        arguments = ["install", *options, f"./{arguments[2]}"]
    module = {"kplane": "kplane_core"}.get(program, program)
    extra = ["-p", "no:cacheprovider"] if program == "pytest" else []
    done = subprocess.run(
        [sys.executable, "-m", module, *extra, *arguments],
        cwd=folder,
        env={"PYTHONPATH": str(folder / "site"), "HOME": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    return done.stdout


def same(printed, said):
    """Whether the output is what the page shows, where `...` stands for any lines and a run of spaces for any other."""
    printed, said = (re.sub(r"[ \t]+", " ", text).strip() for text in (printed, said))
    return re.fullmatch(re.escape(said).replace(re.escape("..."), ".*?"), printed, re.DOTALL) is not None


@pytest.mark.slow
def test_the_commands_print_what_the_page_shows_and_the_finished_code_in_the_scaffold_is_a_backend(tmp_path):
    commands = list(sessions())
    assert len(commands) == 5
    for command, said in commands:
        printed = run(command, tmp_path)
        assert same(printed, said), f"$ {command}\n{printed}\n--- is not what it shows:\n{said}"
    fill_in(tmp_path / "site" / "kplane_mylite")
    printed = run("kplane conformance run --backend mylite --case engine.read.at,engine.write.atomic,D15", tmp_path)
    assert "outcomes: 3 passed" in printed, printed


def fill_in(package):
    """Put the code that ships into the scaffold, under the scaffold's names."""
    shipped = Path(kplane_sqlite.__file__).parent
    for source in shipped.glob("*.py"):
        text = source.read_text("utf-8").replace("kplane_sqlite", "kplane_mylite")
        text = text.replace('name="sqlite"', 'name="mylite"').replace('name = "sqlite"', 'name = "mylite"')
        (package / source.name).write_text(text, "utf-8")
    shutil.rmtree(package / "__pycache__", ignore_errors=True)
