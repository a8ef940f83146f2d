"""The reference pages cannot drift from the code."""

import inspect
import re
from pathlib import Path

from kplane_core.cli import builtin_commands
from kplane_core.cli_phases import CommandTable
from kplane_core.cli_reference import renewed
from kplane_core.plugins.backends import Backends
from kplane_core.plugins.capabilities import Capability
from kplane_core.plugins.discovery import PluginStatus
from kplane_core.plugins.flags import Flags
from kplane_core.plugins.hookspecs import KplaneSpecs, hook_names

REFERENCE = Path(__file__).parents[3] / "docs" / "reference"
PLUGINS = (REFERENCE / "plugins.md").read_text("utf-8")


def test_every_hook_has_a_section_with_its_exact_arguments_in_order() -> None:
    wanted = []
    for name in hook_names():
        _, *arguments = inspect.signature(getattr(KplaneSpecs, name)).parameters
        wanted.append(f"## {name}({', '.join(arguments)})")
    assert re.findall(r"^## kplane_.*$", PLUGINS, re.MULTILINE) == wanted


def test_every_hook_argument_is_described() -> None:
    for name in hook_names():
        section = PLUGINS.split(f"## {name}(")[1].split("\n## ")[0]
        _, *arguments = inspect.signature(getattr(KplaneSpecs, name)).parameters
        for argument in arguments:
            assert f"- `{argument}`: " in section, (name, argument)


def test_every_status_is_described() -> None:
    for status in PluginStatus:
        assert f"| `{status.value}` |" in PLUGINS


def test_the_flag_tables_are_those_of_the_code() -> None:
    page = (REFERENCE / "flags.md").read_text("utf-8")
    assert page == renewed(page), "run: python -m kplane_core.cli_reference docs/reference/flags.md"
    assert "`--storage-backend NAME`" in page


def test_every_installed_command_has_its_flag_tables() -> None:
    page = (REFERENCE / "flags.md").read_text("utf-8")
    assert re.findall(r"<!-- flags of (.+) -->", page) == list(CommandTable.installed(builtin_commands()).names())


def test_the_example_backend_registers() -> None:
    source = next(
        block for block in re.findall(r"```python\n(.*?)```", PLUGINS, re.DOTALL) if "GraniteOptions" in block
    )
    namespace: dict[str, object] = {"__name__": "granite_plugin"}
    exec(compile(source, "plugins.md", "exec"), namespace)
    registry = Backends("kplane-granite 1.0")
    register = namespace["kplane_register_backends"]
    assert callable(register)
    register(registry)
    flags = Flags()
    registry.add_flags(flags)
    assert [setting.flag for setting in flags.sections[0].settings] == ["--granite-servers", "--granite-password"]
    assert set(registry.get("granite").capabilities) == set(Capability)
