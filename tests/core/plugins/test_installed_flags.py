"""Every flag of everything installed takes nonsense with one line that names it, from every source."""

from collections.abc import Callable
from typing import Any

import pytest

from kplane_core.cli import builtin_commands
from kplane_core.cli_phases import CommandTable, sections_for_help
from kplane_core.errors import UsageError
from kplane_core.plugins.arguments import Arguments
from kplane_core.plugins.discovery import discover
from kplane_core.plugins.flags import Section, Setting
from kplane_core.plugins.values import Config, Values

NONSENSE = [
    "0",
    "-1",
    "9" * 40,
    "9" * 5000,
    "",
    " ",
    "nonsense",
    "1.5",
    "\0",
    ",",
    "true",
    "\N{SNOWMAN}",
    "-9s",
    "%s{}",
]


def _installed() -> list[tuple[str, Section, Setting]]:
    table = CommandTable.installed(builtin_commands())
    plugins = discover(environ={})
    plugins.load_all()
    rows = []
    for name in table.names():
        sections, _ = sections_for_help(table, table.load(name), plugins)
        rows += [(name, section, setting) for section in sections for setting in section.settings]
    return rows


INSTALLED = _installed()


def _required(section: Section, but: Setting) -> list[str]:
    """Return flags for the other options of a section that cannot do without, so that only the one is judged."""
    return [f"{setting.flag}=given" for setting in section.settings if setting.option.required and setting is not but]


def _check(where: str, secret: bool, given: str, build: Callable[[], Any]) -> bool:  # noqa: FBT001
    """Tell whether a value is accepted; if not, the refusal must be good."""
    try:
        build()
    except UsageError as error:
        message = str(error)
        # A value may also be refused together with others; then the section is named.
        assert message.startswith((f"{where}: ", f"{where} is required")) or " options" in message
        assert "\n" not in message
        assert len(message) < 400
        assert not secret or len(given) < 2 or given not in message
        return False
    return True


@pytest.mark.parametrize(
    ("section", "setting"), [row[1:] for row in INSTALLED], ids=[f"{name} {row.flag}" for name, _, row in INSTALLED]
)
def test_nonsense_is_accepted_or_refused_in_one_line(section: Section, setting: Setting) -> None:
    arguments = Arguments("kplane test", "tests", [section])
    config = Config("k.toml")
    secret = setting.option.secret
    place = f"k.toml: [{section.toml}] {setting.key}" if section.toml else f"k.toml: {setting.key}"
    verdicts: list[bool] = []
    required = arguments.parse(_required(section, setting))
    for given in NONSENSE:

        def from_flag(given: str = given) -> None:
            values = Values(
                [section],
                arguments.parse([*_required(section, setting), f"{setting.flag}={given}"]),
                {},
                config,
                section.backend,
            )
            values.section(section.name)

        def from_environment(given: str = given) -> None:
            Values([section], required, {setting.env: given}, config, section.backend).section(section.name)

        def from_file(given: str = given) -> None:
            document: dict[str, Any] = {setting.key: given}
            for table in reversed(section.toml.split(".") if section.toml else []):
                document = {table: document}
            Values([section], required, {}, Config("k.toml", document), section.backend).section(section.name)

        outcome = {
            _check(setting.flag, secret, given, from_flag),
            _check(setting.env, secret, given, from_environment),
            _check(place, secret, given, from_file),
        }
        assert len(outcome) == 1, f"{given!r} is judged differently by source"
        verdicts += outcome
    assert not all(verdicts), "takes everything: not even a NUL character is refused"


@pytest.mark.parametrize(
    ("section", "setting"), [row[1:] for row in INSTALLED], ids=[f"{name} {row.flag}" for name, _, row in INSTALLED]
)
def test_a_flag_given_twice_is_refused_unless_it_takes_a_list(section: Section, setting: Setting) -> None:
    twice = [setting.flag] * 2 if setting.negation else [f"{setting.flag}=1", f"{setting.flag}=1"]
    given = Arguments("kplane test", "tests", [section]).parse([*_required(section, setting), *twice])
    if setting.parser.repeatable:
        return
    with pytest.raises(UsageError, match=f"^{setting.flag}: given twice$"):
        Values([section], given, {}, Config(), section.backend).section(section.name)


def test_every_flag_has_help_and_a_variable_of_kplane() -> None:
    for name, _, setting in INSTALLED:
        assert setting.option.help, (name, setting.flag)
        assert setting.env.startswith("KPLANE_"), (name, setting.flag)
