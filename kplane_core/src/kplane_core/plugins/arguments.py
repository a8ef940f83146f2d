"""The command line: sections of flags become an argparse parser, `--help` pages and the texts that were given."""

import argparse
import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NoReturn

from kplane_core.errors import UsageError
from kplane_core.plugins.errors import suggestion
from kplane_core.plugins.flags import Section, Setting

_WIDTH = 110
_HELP_COLUMN = 42
_EPILOG = (
    "A flag --a-b is also the variable KPLANE_A_B and the key b in table [a] of the file given by --config. "
    "A flag wins over the environment, the environment over the file."
)


class _Formatter(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str, negatable: Collection[str]) -> None:
        width = min(shutil.get_terminal_size((_WIDTH, 24)).columns, _WIDTH)
        super().__init__(prog, max_help_position=_HELP_COLUMN, width=width)
        self._negatable = negatable

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if isinstance(action, argparse._AppendConstAction):  # noqa: SLF001 - argparse has no public way to shape a row
            *short, flag = action.option_strings
            return ", ".join([*short, f"--[no-]{flag[2:]}" if flag in self._negatable else flag])
        return super()._format_action_invocation(action)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


class Arguments:
    """The parser of one command's flags.

    Args:
        prog: the command as typed, for example `kplane serve`.
        summary: what the command does, for `--help`.
        sections: its flags.
        foreign: for backends whose flags are not known here, name -> what follows "--name-flag belongs to the ".
        notes: lines for the end of `--help`.
        words: what may be typed besides flags; empty for nothing.
    """

    def __init__(
        self,
        prog: str,
        summary: str,
        sections: Sequence[Section],
        *,
        foreign: Mapping[str, str] | None = None,
        notes: Iterable[str] = (),
        words: str = "",
    ) -> None:
        self._prog = prog
        self._takes_words = bool(words)
        #: What the last `parse` found besides flags.
        self.words: tuple[str, ...] = ()
        self._foreign = foreign or {}
        self._settings = {setting.flag: setting for section in sections for setting in section.settings}
        negatable = {flag for flag, setting in self._settings.items() if setting.default is True}
        self._parser = _Parser(
            prog=prog,
            usage=f"{prog} {words} [flags]" if words else f"{prog} [flags]",
            description=summary,
            epilog="\n".join([*_wrapped(_EPILOG), *notes]),
            formatter_class=lambda prog: _Formatter(prog, negatable),
            allow_abbrev=False,
            add_help=False,
            exit_on_error=False,
        )
        for section in sections:
            group = self._parser.add_argument_group(section.title, _described(section))
            for setting in section.settings:
                _add(group, setting)
        last = self._parser.add_argument_group("help")
        last.add_argument("-h", "--help", action="store_true", help="show this page")

    def help(self) -> str:
        """Return the `--help` page."""
        return self._parser.format_help()

    def parse(self, argv: Sequence[str]) -> dict[str, list[str]]:
        """Return flag -> the texts it was given.

        Raises:
            UsageError: a flag is unknown, lacks its value, or belongs to a backend that is not in use here.
        """
        try:
            found, extra = self._parser.parse_known_args(self._plain_booleans(argv))
        except argparse.ArgumentError as error:
            raise UsageError(_reworded(error)) from error
        plain = [argument for argument in extra if self._takes_words and not argument.startswith("-")]
        if len(plain) != len(extra):
            raise UsageError(self._unexpected(next(argument for argument in extra if argument not in plain)))
        self.words = tuple(plain)
        given = vars(found)
        return {flag: given[flag] for flag in self._settings if given.get(flag)}

    def _plain_booleans(self, argv: Sequence[str]) -> list[str]:
        """Turn `--x=false`, which people know from Go programs, into `--no-x`."""
        plain = []
        for argument in argv:
            flag, equals, value = argument.partition("=")
            setting = self._settings.get(flag)
            if not equals or setting is None or setting.negation is None:
                plain.append(argument)
                continue
            try:
                plain.append(flag if setting.parser(value) else setting.negation)
            except ValueError as error:
                raise UsageError(f"{flag}: {error}") from error
        return plain

    def _unexpected(self, argument: str) -> str:
        flag = argument.partition("=")[0]
        if not flag.startswith("-"):
            return f"unexpected argument {argument!r}: {self._prog} takes flags only; {self._prog} --help lists them"
        for name, title in self._foreign.items():
            if flag.startswith((f"--{name}-", f"--no-{name}-")):
                return f"{flag} belongs to the {title}"
        negations = (setting.negation for setting in self._settings.values() if setting.negation)
        near = suggestion(flag, [*self._settings, *negations, "--help"])
        return f"unknown flag {flag}{near or f'; {self._prog} --help lists those there are'}"


def _wrapped(text: str) -> list[str]:
    # Imported here: only --help needs it, and argparse loads it then anyway.
    import textwrap  # noqa: PLC0415

    return textwrap.wrap(text, min(shutil.get_terminal_size((_WIDTH, 24)).columns, _WIDTH) - 2)


def _described(section: Section) -> str | None:
    """Return the lines below a heading; a section without a prefix says how its other names are formed."""
    if section.name or not section.toml:
        return section.description or None
    names = f"Variables begin with {section.env}, the table in the config file is [{section.toml}]."
    return f"{section.description} {names}".strip()


def _add(group: Any, setting: Setting) -> None:
    words = _help(setting)
    names = [setting.option.short, setting.flag] if setting.option.short else [setting.flag]
    if not setting.negation:
        group.add_argument(*names, dest=setting.flag, action="append", metavar=setting.metavar, help=words)
        return
    group.add_argument(*names, dest=setting.flag, action="append_const", const="true", help=words)
    group.add_argument(
        setting.negation, dest=setting.flag, action="append_const", const="false", help=argparse.SUPPRESS
    )


def _help(setting: Setting) -> str:
    notes = []
    if setting.option.required:
        notes.append("required")
    elif setting.default is not False and (shown := setting.show(setting.default)):
        notes.append(f"default {shown}")
    if setting.option.env:
        notes.append(f"env {setting.option.env}")
    words = f"{setting.option.help} ({'; '.join(notes)})" if notes else setting.option.help
    return words.replace("%", "%%")


def _reworded(error: argparse.ArgumentError) -> str:
    flag = (error.argument_name or "").split("/")[-1]
    if "expected" in str(error.message):
        return f"{flag}: needs a value; one that begins with a dash is written {flag}=VALUE"
    return f"{flag}: {error.message}"
