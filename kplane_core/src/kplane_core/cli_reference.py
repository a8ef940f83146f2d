"""The flag reference, made from the code: `python -m kplane_core.cli_reference docs/reference/flags.md` renews it.

A page holds lines `<!-- flags of COMMAND -->` and `<!-- end -->`; what stands between them is replaced.
"""

# ruff: noqa: T201 - what a command prints is its work

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import attrs

from kplane_core.cli import builtin_commands
from kplane_core.cli_phases import CommandTable, sections_for_help
from kplane_core.errors import UsageError
from kplane_core.plugins.discovery import discover
from kplane_core.plugins.flags import Section, Setting

_BLOCK = re.compile(r"(<!-- flags of (?P<command>[a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def renewed(page: str) -> str:
    """Return a page with its flag tables made anew from what is installed.

    Raises:
        UsageError: a command that the page names is not installed.
    """
    table = CommandTable.installed(builtin_commands())

    def block(match: re.Match[str]) -> str:
        command = table.load(match["command"])
        plugins = discover(environ={})
        plugins.load_all()
        sections, _ = sections_for_help(table, command, plugins)
        return match.group(1) + "\n" + "\n".join(_section(one) for one in sections) + "\n" + match.group(3)

    return _BLOCK.sub(block, page)


def _section(section: Section) -> str:
    # Without the version: a release must not change the page.
    heading = section.title.removesuffix(f" ({section.owner})")
    rows = "".join(_row(section, setting) for setting in section.settings)
    return (
        f"### {heading}\n\n{section.description + chr(10) * 2 if section.description else ''}"
        f"| flag | variable | file | default | meaning |\n|---|---|---|---|---|\n{rows}"
    )


def _row(section: Section, setting: Setting) -> str:
    flag = f"`{setting.flag} {setting.metavar}`" if setting.metavar else f"`{setting.flag}`, `{setting.negation}`"
    if setting.option.short:
        flag = f"`{setting.option.short}`, {flag}"
    key = f"`[{section.toml}] {setting.key}`" if section.toml else f"`{setting.key}`"
    shown = "" if setting.default is attrs.NOTHING else setting.show(setting.default)
    default = "required" if setting.option.required else f"`{shown}`" if shown else ""
    cells = (flag, f"`{setting.env}`", key, default, setting.option.help)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def main(argv: Sequence[str]) -> int:
    """Renew the pages named by `argv`."""
    for name in argv:
        path = Path(name)
        try:
            path.write_text(renewed(path.read_text("utf-8")), "utf-8")
        except (UsageError, OSError) as error:
            print(f"{name}: {error}", file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
