"""The benchmarks compare with their floors as they say, and every section of them can be loaded."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
SECTIONS = ("store", "http", "cluster", "start")


@pytest.fixture(scope="module")
def results() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_results", ROOT / "benchmarks" / "harness" / "results.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("value", "by_cpu", "floor", "at_most", "verdict"),
    [
        (11_000, None, 10_000, False, "ok"),
        (9_000, 12_000, 10_000, False, "ok (cpu)"),
        (9_000, 9_500, 10_000, False, "missed"),
        (9_000, None, 10_000, False, "missed"),
        (1.5, None, 2.0, True, "ok"),
        (2.5, 1.9, 2.0, True, "ok (cpu)"),
        (2.5, 2.1, 2.0, True, "missed"),
        (0, None, 0, True, "ok"),
        (5, 6, None, False, ""),
    ],
)
def test_a_floor_is_met_by_the_clock_or_by_processor_time(results, value, by_cpu, floor, at_most, verdict):
    result = results.Result("x", value, "/s", by_cpu=by_cpu, floor=floor, at_most=at_most)
    assert result.verdict == verdict
    assert json.loads(json.dumps(result.to_dict(), allow_nan=False))["verdict"] == verdict


def test_the_table_shows_the_floor_and_how_far_off_it_is(results):
    made = results.Result("create", 25_000, "/s", by_cpu=40_000, floor=20_000)
    start = results.Result("start", 0.35, "s", floor=0.7, at_most=True)
    lines = results.table({"store": [made], "start": [start]}).splitlines()
    assert [cell.strip() for cell in lines[2].split("|")[1:-1]] == [
        "store", "create", ">= 20.0k/s", "25.0k/s", "40.0k/s", "1.25 / 2.00", "ok",
    ]  # fmt: skip
    assert "<= 0.70 s" in lines[3]
    assert len({len(line) for line in lines}) == 1


def test_every_default_section_can_be_loaded_and_an_unknown_one_is_named(run_command, root):
    names = ", ".join(f"benchmarks.{name}" for name in SECTIONS)
    code = f"import {names}; print(all(callable(m.measure) for m in ({names},)))"
    done = run_command([sys.executable, "-c", code], cwd=root)
    assert (done.returncode, done.stdout.strip()) == (0, "True"), done.stderr
    done = run_command([sys.executable, "-m", "benchmarks", "stoer"], cwd=root)
    assert done.returncode != 0
    assert "no section 'stoer'; there are store, http, cluster, start" in done.stderr
