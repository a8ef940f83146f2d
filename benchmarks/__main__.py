"""`python -m benchmarks [SECTION ...] [--json FILE]`."""

import argparse
import importlib
import json
import pkgutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import benchmarks
from benchmarks.harness.results import Result, Unavailable, machine, notes, table

_DEFAULT = ("store", "http", "cluster", "start", "cacher")


def section_names() -> tuple[str, ...]:
    """Return the sections there are: each module beside this one, those that run by default first."""
    found = [module.name for module in pkgutil.iter_modules(benchmarks.__path__) if not module.ispkg]
    others = sorted(set(found) - {"__main__", *_DEFAULT})
    return (*(name for name in _DEFAULT if name in found), *others)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the asked sections; return 1 when a floor is missed or a section cannot be measured."""
    names = section_names()
    options = _parser(names).parse_args(arguments)
    if unknown := [name for name in options.sections if name not in names]:
        sys.exit(f"benchmarks: there is no section {unknown[0]!r}; there are {', '.join(names)}")
    asked = options.sections or [name for name in names if name in _DEFAULT]
    measured: dict[str, list[Result]] = {}
    failed = False
    before = machine()
    for name in asked:
        began = time.perf_counter()
        try:
            measured[name] = list(_load(name).measure(options.tries))
        except (Unavailable, RuntimeError) as reason:  # the other sections are still worth having
            failed = True
            print(f"{name}: cannot be measured: {reason}", file=sys.stderr)
        else:
            print(f"{name}: measured in {time.perf_counter() - began:.1f} s", file=sys.stderr)
    _report(measured, before)
    if options.json is not None:
        options.json.write_text(
            json.dumps(_document(measured, before), indent=2, allow_nan=False) + "\n", encoding="utf-8"
        )
    return int(failed or any(result.verdict == "missed" for results in measured.values() for result in results))


def _parser(names: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure the speed and memory of kplane.")
    default = ", ".join(name for name in names if name in _DEFAULT)
    there = f"one or more of {', '.join(names)} (default: {default})"
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=there)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results here too")
    parser.add_argument("--tries", type=int, default=3, metavar="N", help="the best of so many counts (default 3)")
    return parser


def _load(name: str) -> ModuleType:
    module = importlib.import_module(f"benchmarks.{name}")
    if not hasattr(module, "measure"):
        raise Unavailable(f"benchmarks/{name}.py has no function measure(tries)")
    return module


def _report(measured: Mapping[str, Sequence[Result]], before: Mapping[str, Any]) -> None:
    print(f"{before['python']} on {before['system']}, {before['cores']} cores, load {before['load']}\n")
    print(table(measured))
    if told := notes(measured):
        print("\n" + "\n".join(f"  {note}" for note in told))


def _document(measured: Mapping[str, Sequence[Result]], before: Mapping[str, Any]) -> dict[str, Any]:
    results = {name: [result.to_dict() for result in of] for name, of in measured.items()}
    return {"machine": before, "sections": results}


if __name__ == "__main__":
    sys.exit(main())
