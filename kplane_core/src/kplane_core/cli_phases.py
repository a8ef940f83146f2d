"""From a command line to a running command: the table of commands, and parsing in two phases.

The first phase reads only what decides which plugins are loaded: `--config`, `--no-plugin` and `--storage-backend`.
The second parses everything with the flags of the plugins that are in use.
"""

# ruff: noqa: T201 - what a command prints is its work

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import attrs

from kplane_core.errors import UsageError
from kplane_core.plugins.arguments import Arguments
from kplane_core.plugins.commands import COMMANDS_GROUP, Command, Parsed
from kplane_core.plugins.discovery import Plugins, discover, installed, provided_by
from kplane_core.plugins.errors import COMMAND_PROVIDERS, BrokenPlugin, FlagConflict, suggestion
from kplane_core.plugins.flags import Flags, Section, csv, filled_text, option
from kplane_core.plugins.values import Config, Values, load_config

if TYPE_CHECKING:
    from importlib_metadata import EntryPoint

DEFAULT_BACKEND = "memory"


def _names(given: str) -> tuple[str, ...]:
    return tuple(filled_text(name.strip()) for name in given.split(",") if name.strip())


# Unlike other lists it may be empty: an empty KPLANE_DISABLE_PLUGINS means none, as with other switches of that kind.
_NAMES = attrs.evolve(csv, convert=_names, empty=True)


@attrs.frozen
class PluginOptions:
    """The flags of every command."""

    config: str = option("", parse=filled_text, metavar="FILE", help="a TOML file with values for any of these flags")
    no_plugin: tuple[str, ...] = option(
        (),
        parse=_NAMES,
        env="KPLANE_DISABLE_PLUGINS",
        metavar="NAME,...",
        help="plugins or distributions to leave alone",
    )


@attrs.frozen
class BackendOptions:
    """The flag of every command that works on a storage backend."""

    storage_backend: str = option(
        DEFAULT_BACKEND, parse=filled_text, metavar="NAME", help="where the data lies; `kplane backends` lists them"
    )


_BEFORE_COMMAND = ("--config", "--no-plugin", "--storage-backend")


def split_command(argv: Sequence[str]) -> tuple[str | None, list[str]]:
    """Return the command, or None when only help is asked for, and all other arguments.

    The flags of the first phase may stand before the command, so that `kplane --config k.toml serve` works.

    Raises:
        UsageError: something else stands before the command, or nothing follows those flags.
    """
    skip = False
    for index, argument in enumerate(argv):
        flag = argument.partition("=")[0]
        if skip:
            skip = False
        elif not argument.startswith("-"):
            return argument, [*argv[:index], *argv[index + 1 :]]
        elif argument in {"-h", "--help"}:
            return None, [argument]
        elif flag in _BEFORE_COMMAND:
            skip = argument == flag
        else:
            near = suggestion(flag, [*_BEFORE_COMMAND, "--help", "--version"])
            raise UsageError(f"unknown flag {flag} before the command{near}")
    if argv:
        raise UsageError("no command is given; kplane --help lists them")
    return None, []


class CommandTable:
    """The commands that are installed, loaded one by one.

    Args:
        builtin: the core's own.
        entry_points: those of other distributions.
    """

    def __init__(self, builtin: Iterable[Command], entry_points: Iterable["EntryPoint"]) -> None:
        self._builtin = {command.name: command for command in builtin}
        self._found: dict[str, list[EntryPoint]] = {}
        for entry_point in entry_points:
            self._found.setdefault(entry_point.name, []).append(entry_point)

    @classmethod
    def installed(cls, builtin: Iterable[Command]) -> "CommandTable":
        """Return the table of everything that is installed."""
        return cls(builtin, installed(COMMANDS_GROUP))

    def names(self) -> tuple[str, ...]:
        """Return the names of all commands, sorted."""
        return tuple(sorted({*self._builtin, *self._found}))

    def load(self, name: str) -> Command:
        """Return a command.

        Raises:
            UsageError: there is no such command, or two distributions provide it.
            BrokenPlugin: its distribution fails to load; the original exception is chained.
        """
        if command := self._builtin.get(name):
            return command
        found = self._found.get(name, [])
        if not found:
            if provider := COMMAND_PROVIDERS.get(name):
                raise UsageError(f"command {name!r} is provided by {provider}, not installed: pip install {provider}")
            near = suggestion(name, self.names())
            raise UsageError(f"unknown command {name!r}; installed: {', '.join(self.names())}{near}")
        if len(found) > 1:
            providers = " and ".join(" ".join(provided_by(one)) for one in found)
            raise UsageError(f"command {name!r} is provided by {providers}: uninstall one of them")
        return _load_command(found[0])

    def owner(self, name: str) -> str:
        """Return the distribution with its version that provides a command."""
        found = self._found.get(name)
        return " ".join(provided_by(found[0])) if found else "kplane-core"

    def help(self) -> str:
        """Return the page of `kplane --help`; a command that cannot be loaded says so and hides no other."""
        rows = []
        for name in self.names():
            try:
                rows.append((name, self.load(name).summary))
            except UsageError as error:
                rows.append((name, f"(not usable: {error})"))
        width = max(len(name) for name, _ in rows)
        listed = "\n".join(f"  {name:<{width}}  {summary}" for name, summary in rows)
        return (
            "usage: kplane COMMAND [flags]\n\n"
            "Many isolated Kubernetes-style control planes in one process, on any storage.\n\n"
            f"commands:\n{listed}\n\n"
            "other:\n  --version   show the version\n  -h, --help  show this page\n\n"
            "kplane COMMAND --help lists the flags of a command.\n"
        )


def _load_command(entry_point: "EntryPoint") -> Command:
    # Imported here: contextlib is only needed where something is loaded.
    import contextlib  # noqa: PLC0415

    provider = " ".join(provided_by(entry_point))
    try:
        with contextlib.redirect_stdout(sys.stderr):
            command = entry_point.load()
    except Exception as error:
        message = str(error).strip().split("\n", maxsplit=1)[0]
        raise BrokenPlugin(entry_point.name, provider, f"{type(error).__name__}: {message}") from error
    if not isinstance(command, Command) or command.name != entry_point.name:
        raise BrokenPlugin(entry_point.name, provider, f"{entry_point.value} is no Command named {entry_point.name!r}")
    return command


def run_command(table: CommandTable, name: str, argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Parse the arguments of one command and run it.

    Args:
        table: the installed commands.
        name: the command.
        argv: the arguments without the command's name.
        environ: the environment.

    Returns:
        What the command returns.

    Raises:
        UsageError: the operator must change something.
    """
    command = table.load(name)
    phase = _FirstPhase.read(command, argv, environ)
    plugins = discover(disabled=phase.no_plugin, environ=environ)
    if not phase.wants_help and plugins.unknown_blocked:
        _warn(f"switched off, but not installed: {', '.join(plugins.unknown_blocked)}")
    # Loaded in strict mode even where nobody needs them, so that CI hears of each broken one.
    if phase.wants_help or plugins.strict:
        plugins.load_all()
    if phase.wants_help:
        print(_command_help(table, command, plugins), end="")
        return 0
    parsed = _second_phase(table, command, plugins, phase)
    for one in plugins.problems:
        _warn(str(one.error))
    return command.run(parsed)


@attrs.frozen
class _FirstPhase:
    argv: tuple[str, ...]
    environ: Mapping[str, str]
    config: Config
    no_plugin: tuple[str, ...]
    storage_backend: str
    wants_help: bool

    @classmethod
    def read(cls, command: Command, argv: Sequence[str], environ: Mapping[str, str]) -> "_FirstPhase":
        flags = Flags()
        _core_flags(flags, command)
        given = {
            setting.flag: texts
            for section in flags.sections
            for setting in section.settings
            if (texts := _peek(argv, setting.flag))
        }
        wants_help = bool({"-h", "--help"} & set(argv))
        bare = Values(flags.sections, given, environ, Config())
        path = bare.get(PluginOptions).config
        config = load_config(path, _named_by(given)) if path and not wants_help else Config()
        values = Values(flags.sections, given, environ, config)
        selected = values.get(BackendOptions).storage_backend if command.selects_backend else ""
        return cls(tuple(argv), environ, config, values.get(PluginOptions).no_plugin, selected, wants_help)


def _named_by(given: Mapping[str, Sequence[str]]) -> str:
    return "--config" if "--config" in given else "KPLANE_CONFIG"


def _peek(argv: Sequence[str], flag: str) -> list[str]:
    texts = []
    for index, argument in enumerate(argv):
        if argument.startswith(f"{flag}="):
            texts.append(argument[len(flag) + 1 :])
        elif argument == flag and index + 1 < len(argv):
            texts.append(argv[index + 1])
    return texts


def _core_flags(flags: Flags, command: Command) -> None:
    if command.selects_backend:
        flags.add("", BackendOptions, title="storage")
    flags.add("", PluginOptions, title="plugins and configuration")


def _second_phase(table: CommandTable, command: Command, plugins: Plugins, phase: _FirstPhase) -> Parsed:
    flags = Flags()
    backend = plugins.select(phase.storage_backend) if command.selects_backend else None
    plugins.load_extensions()
    command.configure(flags.owned_by(table.owner(command.name)))
    _core_flags(flags, command)
    foreign: dict[str, str] = {}
    if backend is not None:
        plugins.backends.add_flags(flags, (backend.name,))
        foreign = {
            name: f"{name} storage backend ({plugins.provider(name)}), "
            f"but the selected storage backend is {backend.name!r}"
            for name in plugins.backend_names()
            if name != backend.name
        }
    plugins.add_flags(flags)
    arguments = Arguments(
        f"kplane {command.name}", command.summary, flags.sections, foreign=foreign, words=command.words
    )
    given = arguments.parse(phase.argv)
    elsewhere = {*plugins.backend_names(), *plugins.installed_names(), *table.names()}
    phase.config.check(flags.sections, elsewhere, [field.name for field in attrs.fields(BackendOptions)])
    values = Values(flags.sections, given, phase.environ, phase.config, backend.name if backend else None)
    values.check()
    # Its own flags may have broken the selected plugin.
    return Parsed(values, plugins, plugins.select(backend.name) if backend else None, arguments.words)


def sections_for_help(table: CommandTable, command: Command, plugins: Plugins) -> tuple[Sequence[Section], list[str]]:
    """Return every section that a command could use, and why some are missing.

    Args:
        table: the installed commands.
        command: the command.
        plugins: with everything loaded.
    """
    flags = Flags()
    command.configure(flags.owned_by(table.owner(command.name)))
    _core_flags(flags, command)
    missing = []
    if command.selects_backend:
        for name in plugins.backends.names():
            try:
                plugins.backends.add_flags(flags, (name,))
            except FlagConflict as error:
                missing.append(f"{name}: {error}")
    try:
        plugins.add_flags(flags)
    except FlagConflict as error:
        missing.append(str(error))
    return flags.sections, missing + [f"{one.name}: {one.error}" for one in plugins.problems]


def _command_help(table: CommandTable, command: Command, plugins: Plugins) -> str:
    sections, missing = sections_for_help(table, command, plugins)
    notes = ["", "not shown:", *(f"  {line}" for line in missing)] if missing else []
    return Arguments(f"kplane {command.name}", command.summary, sections, notes=notes, words=command.words).help()


def _warn(message: str) -> None:
    print(f"kplane: warning: {message}", file=sys.stderr)
