"""Write the parts of the documentation that repeat what the code says, so that they cannot say anything else.

docs/map.md gets its table of modules from the modules' first lines, docs/reference/api.md the public names of the core
with theirs. `--check` writes nothing and fails when a file would change.
"""

import argparse
import ast
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import get_origin

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ("kplane_core", "kplane_apiserver", "plugins/*", "conformance")
BEGIN, END = "<!-- modules: written by `make docs` -->\n", "<!-- end of modules -->\n"
PUBLIC = (
    "kplane_core.errors",
    "kplane_core.storage",
    "kplane_core.engine",
    "kplane_core.multicluster",
    "kplane_core.plugins.backends",
    "kplane_core.plugins.capabilities",
    "kplane_core.plugins.commands",
    "kplane_core.plugins.flags",
    "kplane_core.plugins.hookspecs",
)

API_HEAD = """# Public names of the core

Written by `make docs` from the code. A name that stands here keeps its meaning within a minor release; everything else
is the repository's own business. Import a name from where it is listed. The behaviour of a store stands in
[the storage contract](../storage.md), the hooks of a plugin in [plugins.md](plugins.md).
"""


def first_sentence(text: str) -> str:
    """Return the first sentence of a docstring, on one line, fit for a table."""
    paragraph = " ".join(inspect.cleandoc(text).split("\n\n", maxsplit=1)[0].split())
    return paragraph.replace("|", "\\|")


def packages() -> Iterator[Path]:
    """Return the folder of every distribution's package."""
    for pattern in SOURCES:
        for project in sorted(ROOT.glob(f"{pattern}/pyproject.toml")):
            yield from sorted(path.parent for path in project.parent.glob("src/*/__init__.py"))


def module_rows(package: Path) -> Iterator[str]:
    """Return a table row per module of a package, folders before what is in them."""
    for path in sorted(package.rglob("*.py"), key=lambda found: found.relative_to(package).parts):
        relative = path.relative_to(package)
        document = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
        if path.name == "__init__.py":
            if len(relative.parts) > 1:
                yield f"| **{relative.parent.as_posix()}/** | {first_sentence(document or '')} |"
        else:
            yield f"| `{relative.with_suffix('').as_posix()}` | {first_sentence(document or '')} |"


def map_text(current: str) -> str:
    """Return docs/map.md with its table of modules as the code has it."""
    parts = [BEGIN]
    for package in packages():
        folder = package.relative_to(ROOT).as_posix()
        parts.append(f"\n### {package.name}\n\n`{folder}`\n\n| module | what it is |\n|---|---|\n")
        parts.extend(f"{row}\n" for row in module_rows(package))
    parts.append(f"\n{END}")
    return re.sub(re.escape(BEGIN) + ".*?" + re.escape(END), lambda _: "".join(parts), current, flags=re.DOTALL)


def api_text() -> str:
    """Return docs/reference/api.md."""
    parts = [API_HEAD]
    for name in PUBLIC:
        module = importlib.import_module(name)
        parts.append(f"\n## {name}\n\n{first_sentence(module.__doc__ or '')}\n\n| name | what it is |\n|---|---|\n")
        parts.extend(f"| `{public}` | {_promise(getattr(module, public))} |\n" for public in public_names(module))
    return "".join(parts)


def public_names(module: ModuleType) -> list[str]:
    """Return the names that a module offers: those it lists, else the classes and functions that it defines."""
    listed: list[str] | None = getattr(module, "__all__", None)
    if listed is None:
        own = {name: value for name, value in vars(module).items() if not name.startswith("_")}
        listed = [name for name, value in own.items() if _is_defined_in(value, module)]
    return sorted(listed, key=str.lower)


def _is_defined_in(value: object, module: ModuleType) -> bool:
    """Whether a class or function is the module's own."""
    return (inspect.isclass(value) or inspect.isroutine(value)) and value.__module__ == module.__name__


def _promise(value: object) -> str:
    """Return the first sentence of what a class or function promises; for another value, the value's own class."""
    if inspect.isclass(value) or inspect.isroutine(value):
        return first_sentence(inspect.getdoc(value) or "")
    if get_origin(value) is not None:
        return "a type alias"
    if isinstance(value, str | int):
        return f"the constant `{value!r}`"
    return f"a value of `{type(value).__name__}`"


def main() -> int:
    """Write the files, or with `--check` only compare them."""
    parser = argparse.ArgumentParser(description="write the generated parts of the documentation")
    parser.add_argument("--check", action="store_true", help="write nothing; fail when something would change")
    check = parser.parse_args().check
    map_file, api_file = ROOT / "docs" / "map.md", ROOT / "docs" / "reference" / "api.md"
    wanted = {map_file: map_text(map_file.read_text(encoding="utf-8")), api_file: api_text()}
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in stale:
        print(f"{'stale, run `make docs`' if check else 'written'}: {path.relative_to(ROOT)}")
        if not check:
            path.write_text(wanted[path], encoding="utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
