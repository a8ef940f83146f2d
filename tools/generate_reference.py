"""Write the pages that repeat what the code says: promises, errors, capabilities, cases, the code of the tutorial.

`--check` writes nothing and fails when a page would change. The hooks stand in docs/reference/plugins.md and the flags
in docs/reference/flags.md, which have their own tests and their own generator.
"""

import argparse
import ast
import importlib
import inspect
import itertools
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Final

from kplane_conformance.case import Case, Group, load
from kplane_core import errors
from kplane_core.engine import interface
from kplane_core.engine.interface import Engine, EngineWatch
from kplane_core.engine.unwritten import METHODS
from kplane_core.errors import KplaneError, StorageError, Subject, Verb, status_for
from kplane_core.plugins import capabilities
from kplane_core.plugins import errors as plugin_errors
from kplane_core.plugins.capabilities import Capability
from kplane_core.plugins.discovery import discover

ROOT: Final = Path(__file__).resolve().parents[1]
REFERENCE: Final = ROOT / "docs" / "reference"
HEAD: Final = "Written by `python tools/generate_reference.py` (part of `make docs`) from the code.\n"
IN_TREE: Final = ("memory", "sqlite", "etcd", "spanner")

#: Which cases hold which method to its promise; the beginnings of their ids.
HELD_BY: Final = {
    "check": ("engine.check",),
    "revision": ("engine.revision",),
    "aclose": ("engine.close",),
    "read": ("engine.read.",),
    "write": ("engine.write.", "engine.ttl."),
    "scan": ("engine.scan.",),
    "watch": ("engine.watch.",),
    "request_progress": ("engine.watch.progress",),
    "compact": ("engine.compact",),
    "size": ("engine.check",),
}


def markdown(docstring: str) -> str:
    """Return a docstring in Google style as Markdown: its sections become lists."""
    lines: list[str] = []
    for line in inspect.cleandoc(docstring).splitlines():
        if re.fullmatch(r"(Args|Returns|Raises|Attributes):", line):
            lines += [f"**{line[:-1]}**", ""]
        elif (item := re.fullmatch(r"    (\*{0,2}[\w, ]+): (.*)", line)) is not None:
            lines.append(f"- `{item[1]}`: {item[2]}")
        elif line.startswith("        "):
            lines.append(f"  {line.strip()}")
        else:
            lines.append(line.strip())
    return "\n".join(lines).strip() + "\n"


def promise(case: Case) -> str:
    """Return a case's promise on one line, fit for a table."""
    return " ".join(case.promise.split("\n\n", maxsplit=1)[0].split()).replace("|", "\\|")


# --- the engine -------------------------------------------------------------------------------------------------------


ENGINE_HEAD: Final = """`kplane new-backend NAME` writes these methods down, marked as unwritten, in the order of this
page; see the [tutorial](../tutorial/write-a-backend.md). The ids below are cases of the conformance suite:
`pytest --pyargs kplane_conformance --kplane-backend=NAME --kplane-case=ID`.
"""


def engine_page() -> str:
    """Return docs/reference/engine.md."""
    parts = [
        f"# The engine's promises\n\n{HEAD}\n{markdown(interface.__doc__ or '')}\n{markdown(Engine.__doc__ or '')}\n",
        ENGINE_HEAD,
        *(_method(name) for name in METHODS),
        f"\n## An open watch\n\n{markdown(EngineWatch.__doc__ or '')}\n",
        *(_signature(EngineWatch, name, level=3) for name in ("batch", "close", "aclose")),
        "\n## What the methods answer\n",
        *(_value(name) for name in ("Record", "Read", "Page", "Written", "Conflict", "EngineEvent")),
        "\n## What they raise\n",
        *(_value(name) for name in ("EngineUnreachable", "Compacted", "FutureRevision", "ValueTooLarge")),
    ]
    return "".join(parts)


def _method(name: str) -> str:
    text = _signature(Engine, name, level=2)
    if name == "compact":
        text += _signature(Engine, "compacted", level=3)
    cases = [case for case in load().cases() if case.name.startswith(HELD_BY[name])]
    rows = "".join(f"| `{case.name}` | {promise(case)} |\n" for case in cases)
    return f"{text}\n| case | what it holds you to |\n|---|---|\n{rows}"


def _signature(owner: type, name: str, *, level: int) -> str:
    function = getattr(owner, name)
    source = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    assert isinstance(source, ast.FunctionDef | ast.AsyncFunctionDef)
    source.body = [ast.Expr(ast.Constant(...))]
    head = ast.unparse(source).replace("\n    ...", " ...")
    return f"\n{'#' * level} {name}\n\n```py\n{head}\n```\n\n{markdown(inspect.getdoc(function) or '')}"


def _value(name: str) -> str:
    return f"\n### {name}\n\n{markdown(inspect.getdoc(getattr(interface, name)) or '')}"


# --- errors -----------------------------------------------------------------------------------------------------------

ERRORS_HEAD: Final = """# Errors

{head}
Everything that kplane raises on purpose is a `KplaneError`, and each says by `status()` which Kubernetes Status a
client gets. An operator's mistake is a `UsageError`: one line and exit code 2. A driver's own exceptions never get out
of a backend.

## What a client gets for a storage error, by verb

HTTP code and reason. `Unknown` stands where the verb never raises the error, or where upstream does not translate it.

"""

VERBS: Final[tuple[Verb, ...]] = ("get", "list", "create", "update", "delete", "watch")


def errors_page() -> str:
    """Return docs/reference/errors.md."""
    rows = "".join(_answers(kind) for kind in StorageError.__subclasses__())
    parts = [
        ERRORS_HEAD.format(head=HEAD),
        f"| error | {' | '.join(VERBS)} |\n|{'---|' * (len(VERBS) + 1)}\n{rows}",
    ]
    for module in (errors, interface, plugin_errors):
        parts.append(f"\n## {module.__name__}\n\n{_first_line(module.__doc__ or '')}\n")
        parts += (_error(kind) for kind in _errors_of(module))
    return "".join(parts)


def _answers(kind: type[StorageError]) -> str:
    subject = Subject("pods", name="a")
    cells = []
    for verb in VERBS:
        status = status_for(kind("/pods/a"), verb, subject)
        cells.append(f"{status.code} {status.reason}")
    return f"| `{kind.__name__}` | {' | '.join(cells)} |\n"


def _errors_of(module: ModuleType) -> Iterator[type[KplaneError]]:
    for value in vars(module).values():
        if inspect.isclass(value) and issubclass(value, KplaneError) and value.__module__ == module.__name__:
            yield value


def _error(kind: type[KplaneError]) -> str:
    base = kind.__bases__[0].__name__
    above = f"a kind of `{base}`\n\n" if kind is not KplaneError else ""
    return f"\n### {kind.__name__}\n\n{above}{markdown(inspect.getdoc(kind) or '')}"


def _first_line(text: str) -> str:
    return inspect.cleandoc(text).split("\n", maxsplit=1)[0]


# --- capabilities -----------------------------------------------------------------------------------------------------

CAPABILITIES_HEAD: Final = """# Capabilities

{head}
Every backend says yes or no, with a reason, to each of these; `kplane backends -v` shows what the installed ones say.
What a backend says it cannot do must fail in the documented way, and the conformance suite tries that too.

"""


def capabilities_page() -> str:
    """Return docs/reference/capabilities.md."""
    plugins = discover(environ={})
    backends = [plugins.select(name) for name in IN_TREE]
    head = " | ".join(backend.name for backend in backends)
    rows = "".join(
        f"| [{one.value}](#{one.value}) | "
        + " | ".join("yes" if type(backend.capabilities[one]).__name__ == "Supported" else "no" for backend in backends)
        + " |\n"
        for one in Capability
    )
    parts = [CAPABILITIES_HEAD.format(head=HEAD), f"| capability | {head} |\n|{'---|' * (len(backends) + 1)}\n{rows}"]
    told = _docstrings()
    for one in Capability:
        parts.append(f"\n## {one.value}\n\n{markdown(told[one.name])}")
        for backend in backends:
            support = backend.capabilities[one]
            note = getattr(support, "note", "") or getattr(support, "reason", "")
            if note:
                parts.append(f"\n{backend.name}: {note}\n")
        cases = [case.name for case in load().cases() if one in case.requires]
        parts.append(f"\nRequired by {len(cases)} cases, the first of which is `{cases[0]}`.\n")
    return "".join(parts)


def _docstrings() -> dict[str, str]:
    """Return what stands below each member: Python itself forgets it."""
    tree = ast.parse(inspect.getsource(capabilities))
    body = next(node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Capability")
    found = {}
    for node, below in itertools.pairwise(body):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and isinstance(below, ast.Expr):
            found[node.targets[0].id] = str(ast.literal_eval(below.value))
    return found


# --- cases ------------------------------------------------------------------------------------------------------------

CASES_HEAD: Final = """# Conformance cases

{head}
{count} cases. A case with rows counts once here and once per row in a certificate (`List[row-20]`). An id keeps its
meaning for ever. Cases marked with a suite are shown there, and only entered here.

"""


def cases_page() -> str:
    """Return docs/reference/cases.md."""
    cases = load().cases()
    parts = [CASES_HEAD.format(head=HEAD, count=len(cases))]
    for group in Group:
        mine = [case for case in cases if case.group is group]
        parts.append(
            f"\n## {group.value.capitalize()}\n\n{len(mine)} cases.\n\n| case | promise | needs |\n|---|---|---|\n"
        )
        for case in mine:
            needs = ", ".join(one.value for one in case.requires)
            shown = f"shown by {case.elsewhere}" if case.elsewhere else needs
            new = f" (new: counts from suite {case.provisional} on)" if case.provisional else ""
            parts.append(f"| `{case.name}` | {promise(case)}{new} | {shown} |\n")
    return "".join(parts)


# --- the tutorial -----------------------------------------------------------------------------------------------------

_CODE: Final = re.compile(
    r"<!-- code: (?P<module>[\w.]+) (?P<name>[\w.]+) -->\n(\n```py\n.*?^```\n)?", re.DOTALL | re.MULTILINE
)


def tutorial_page() -> str:
    """Return docs/tutorial/write-a-backend.md with its pieces of code as they are in the sources now."""
    text = (REFERENCE / TUTORIAL).read_text(encoding="utf-8")
    return _CODE.sub(
        lambda found: f"<!-- code: {found[1]} {found[2]} -->\n\n```py\n{_source(found[1], found[2])}```\n", text
    )


def _source(module_name: str, name: str) -> str:
    """Return the source of a function, class, method or constant."""
    path = inspect.getsourcefile(importlib.import_module(module_name))
    assert path is not None
    source = Path(path).read_text(encoding="utf-8")
    nodes: list[ast.stmt] = ast.parse(source).body
    for part in name.split("."):
        found = next(node for node in nodes if part in _names(node))
        nodes = getattr(found, "body", [])
    decorators = getattr(found, "decorator_list", [])
    first = min([found.lineno, *(decorator.lineno for decorator in decorators)])
    lines = source.splitlines(keepends=True)[first - 1 : found.end_lineno]
    return textwrap.dedent("".join(lines))


def _names(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    return [node.name] if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) else []


TUTORIAL: Final = "../tutorial/write-a-backend.md"

PAGES: Final = {
    TUTORIAL: tutorial_page,
    "engine.md": engine_page,
    "errors.md": errors_page,
    "capabilities.md": capabilities_page,
    "cases.md": cases_page,
}


def main() -> int:
    """Write the pages, or with `--check` only compare them."""
    parser = argparse.ArgumentParser(description="write the reference pages")
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a page would change")
    check = parser.parse_args().check
    stale = []
    for name, page in PAGES.items():
        path, text = REFERENCE / name, page()
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        print(f"{'stale, run `make docs`' if check else 'written'}: docs/reference/{name}")
        if not check:
            path.write_text(text, encoding="utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
