"""`kplane backends`: what is installed, from which distribution, and whether it can be used."""

# ruff: noqa: T201 - what a command prints is its work

import json
import traceback
from typing import Any

import attrs

from kplane_core.plugins.capabilities import Supported
from kplane_core.plugins.commands import Command, Parsed
from kplane_core.plugins.discovery import BACKENDS_GROUP, Loaded, Plugins, PluginStatus
from kplane_core.plugins.flags import Flags, option

_SLOW = 1.0  # seconds


@attrs.frozen
class ListOptions:
    """The flags of `kplane backends`."""

    verbose: bool = option(False, short="-v", help="add aliases, capabilities, and the traceback of what failed")
    json: bool = option(False, help="print JSON for programs")


def _configure(flags: Flags) -> None:
    flags.add("", ListOptions, title="output", env="KPLANE_BACKENDS_", toml="backends")


def _run(parsed: Parsed) -> int:
    options = parsed.options(ListOptions)
    parsed.plugins.load_all()
    if options.json:
        print(json.dumps([_document(parsed.plugins, one) for one in parsed.plugins.loaded], indent=2))
    elif parsed.plugins.loaded:
        print(_table(parsed.plugins))
        if options.verbose:
            for one in parsed.plugins.loaded:
                print(_details(parsed.plugins, one))
    else:
        print("no plugin is installed: pip install kplane-memory")
    return 0


def _note(plugins: Plugins, one: Loaded) -> str:
    if one.error is not None:
        note = " ".join(str(one.error).split())
    else:
        note = plugins.backends.get(one.name).summary if one.group == BACKENDS_GROUP else "extension"
    return "; ".join([note, *_habits(one)])


def _habits(one: Loaded) -> list[str]:
    """Return what is not wrong with a plugin but annoys whoever uses it."""
    habits = [f"takes {one.seconds:.1f} s to import"] if one.seconds >= _SLOW else []
    return [*habits, "prints to the standard output while it is imported"] if one.printed else habits


def _table(plugins: Plugins) -> str:
    rows = [("NAME", "DISTRIBUTION", "VERSION", "STATUS", "ABOUT")]
    rows += [(one.name, one.distribution, one.version, one.status.value, _note(plugins, one)) for one in plugins.loaded]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return "\n".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[4]]) for row in rows
    )


def _details(plugins: Plugins, one: Loaded) -> str:
    lines = ["", f"{one.name} ({one.provider}): {one.status}"]
    if one.status is PluginStatus.OK and one.group == BACKENDS_GROUP:
        backend = plugins.backends.get(one.name)
        if backend.aliases:
            lines.append(f"  also selected by {', '.join(backend.aliases)}")
        width = max(map(len, backend.capabilities))
        for capability, support in backend.capabilities.items():
            says = "yes" if isinstance(support, Supported) else "no"
            why = support.note if isinstance(support, Supported) else support.reason
            lines.append(f"  {capability.value:<{width}}  {says:<3}  {why}".rstrip())
    elif one.error is not None and one.error.__cause__ is not None:
        lines += ("  " + line for line in _traceback(one.error.__cause__))
    return "\n".join(lines)


def _traceback(error: BaseException) -> list[str]:
    return "".join(traceback.format_exception(error)).rstrip().split("\n")


def _document(plugins: Plugins, one: Loaded) -> dict[str, Any]:
    document: dict[str, Any] = {
        "name": one.name,
        "kind": "backend" if one.group == BACKENDS_GROUP else "extension",
        "distribution": one.distribution,
        "version": one.version,
        "status": one.status.value,
    }
    if one.error is not None:
        document["error"] = str(one.error)
    if habits := _habits(one):
        document["notes"] = habits
    if one.status is PluginStatus.OK and one.group == BACKENDS_GROUP:
        backend = plugins.backends.get(one.name)
        document["summary"] = backend.summary
        document["aliases"] = list(backend.aliases)
        document["capabilities"] = {
            capability.value: True if isinstance(support, Supported) else support.reason
            for capability, support in backend.capabilities.items()
        }
    return document


command = Command("backends", "list the installed storage backends and what is wrong with them", _configure, _run)
