"""Flags: one attrs class becomes a --help section, environment variables, a config-file section and typed values."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs

from kplane_core.plugins import parsers
from kplane_core.plugins.errors import FlagConflict
from kplane_core.plugins.parsers import (
    Parser,
    boolean,
    choice,
    csv,
    csv_of,
    duration,
    file,
    filled_text,
    integer,
    integer_between,
    non_negative_int,
    number,
    path,
    port,
    positive_int,
    size,
    text,
    url,
)

__all__ = [
    "Flags",
    "Option",
    "Parser",
    "Section",
    "Setting",
    "boolean",
    "choice",
    "csv",
    "csv_of",
    "duration",
    "file",
    "filled_text",
    "integer",
    "integer_between",
    "non_negative_int",
    "number",
    "option",
    "path",
    "port",
    "positive_int",
    "size",
    "text",
    "url",
]

_METADATA = "kplane_option"


@attrs.frozen
class Option:
    """What `option` remembers about a field.

    Attributes:
        parser: text -> value; None means that the default's type decides.
        help: one phrase for `--help`.
        secret: the value is never shown.
        required: a value must come from somewhere when its section is used.
        env: an environment variable's name in place of the derived one.
        metavar: what stands for the value in `--help`, in place of the parser's.
        short: a one-letter flag besides the derived one.
    """

    parser: Callable[[str], Any] | None
    help: str
    secret: bool
    required: bool
    env: str | None
    metavar: str | None
    short: str | None


def _hidden(value: object) -> str:
    return "***" if value else repr(value)


def option(
    default: Any = attrs.NOTHING,
    *,
    parse: Callable[[str], Any] | None = None,
    help: str = "",  # noqa: A002 - the word that everybody knows from argparse
    secret: bool = False,
    required: bool = False,
    env: str | None = None,
    metavar: str | None = None,
    short: str | None = None,
    validator: Any = None,
) -> Any:
    """Return an attrs field that is also a flag, an environment variable and a config-file key.

    Args:
        default: the typed value when none is given; may be left out with `required`.
        parse: a `Parser`, or a function from text to value that raises ValueError; by default the type of `default`
            or the annotation decides.
        help: one phrase for `--help`.
        secret: never show the value, also not in the options' repr.
        required: complain when the section is used and no value is given.
        env: the environment variable's whole name, in place of the derived one.
        metavar: what stands for the value in `--help`.
        short: a one-letter flag besides the derived one, for example `-v`; for commands, not for backends.
        validator: as for `attrs.field`; its ValueError or TypeError becomes a message that names the source.

    Raises:
        TypeError: there is neither a default nor `required`.
    """
    if default is attrs.NOTHING and not required:
        raise TypeError("option() needs a default or required=True")
    return attrs.field(
        default=default,
        kw_only=True,
        validator=validator,
        repr=_hidden if secret else True,
        metadata={_METADATA: Option(parse, help, secret, required, env, metavar, short)},
    )


@attrs.frozen
class Setting:
    """One option in its section, with all its names.

    Attributes:
        field: the attribute of the options class.
        flag: for example `--memory-history-limit`.
        env: for example `KPLANE_MEMORY_HISTORY_LIMIT`.
        key: the key in the section's table of the config file.
        parser: text -> value.
        option: what `option` was told.
        default: the typed default, or `attrs.NOTHING`.
    """

    field: str
    flag: str
    env: str
    key: str
    parser: Parser[Any]
    option: Option
    default: Any

    @property
    def negation(self) -> str | None:
        """The flag that says false, for a boolean."""
        return f"--no-{self.flag[2:]}" if self.parser is boolean else None

    @property
    def metavar(self) -> str:
        """What stands for the value in `--help`."""
        return self.option.metavar or self.parser.metavar

    def show(self, value: object) -> str:
        """Return `value` as text for people; a secret comes out as `***`."""
        if self.option.secret:
            return "***" if value else ""
        if value is None:
            return ""
        return self.parser.show(value) if not isinstance(value, str) else parsers.hide_user_info(value)


@attrs.frozen
class Section:
    """The options of one owner under one heading.

    Attributes:
        name: the prefix of the flags; empty for a command's own.
        options: the attrs class.
        title: the heading in `--help`.
        description: a line below the heading.
        owner: the distribution with its version.
        env: the prefix of the variables.
        toml: the table in the config file; empty for its top level.
        backend: the backend whose selection puts the section to use; empty means always in use.
        settings: the options, in the order of their fields.
    """

    name: str
    options: type
    title: str
    description: str
    owner: str
    env: str
    toml: str
    backend: str
    settings: tuple[Setting, ...]


def _settings(section: str, options: type, env_prefix: str) -> Iterator[Setting]:
    if not attrs.has(options):
        raise TypeError(f"{options!r} is not an attrs class")
    for field in attrs.fields(options):
        remembered = field.metadata.get(_METADATA)
        if not isinstance(remembered, Option):
            raise TypeError(f"{options.__name__}.{field.name} is not made by option()")
        parser = remembered.parser or parsers.parser_for(field.default, field.type)
        if not isinstance(parser, Parser):
            parser = Parser(parser, accepts=(int, float), empty=True)
        dashed = field.name.replace("_", "-")
        yield Setting(
            field=field.name,
            flag=f"--{section}-{dashed}" if section else f"--{dashed}",
            env=remembered.env or f"{env_prefix}{field.name.upper()}",
            key=field.name,
            parser=parser,
            option=remembered,
            default=field.default,
        )


class Flags:
    """Collects option classes from the core, a command and the plugins; the `cli` room parses them.

    Args:
        owner: who contributes what is added without an owner, with its version.
    """

    def __init__(self, owner: str = "kplane-core") -> None:
        self._owner = owner
        self._sections: list[Section] = []
        self._claims: dict[str, str] = {}

    @property
    def sections(self) -> Sequence[Section]:
        """What was added, in order."""
        return tuple(self._sections)

    def owned_by(self, owner: str) -> "Flags":
        """Return a view of these flags that books every addition on `owner`."""
        view = Flags(owner)
        view._sections, view._claims = self._sections, self._claims
        return view

    def add(
        self,
        section: str,
        options: type,
        *,
        title: str = "",
        description: str = "",
        owner: str = "",
        env: str | None = None,
        toml: str | None = None,
        backend: str = "",
    ) -> None:
        """Contribute the options of an attrs class.

        `flags.add("memory", MemoryOptions)` makes of the field `history_limit` the flag `--memory-history-limit`, the
        variable `KPLANE_MEMORY_HISTORY_LIMIT` and the key `history_limit` in the table `[memory]`.

        Args:
            section: the prefix of the names; empty for flags without one.
            options: an attrs class whose fields are made by `option`.
            title: the heading in `--help`; by default made from `section` and the owner.
            description: a line below the heading.
            owner: the distribution with its version, if other than that of this object.
            env: the prefix of the variables in place of `KPLANE_<SECTION>_`.
            toml: the table in the config file in place of `section`.
            backend: the backend that must be selected for the section to be in use.

        Raises:
            FlagConflict: a name is taken; the message names both owners, and nothing is added.
            TypeError: `options` is not such a class.
        """
        owner = owner or self._owner
        table, prefix = section if toml is None else toml, _env_prefix(section) if env is None else env
        settings = tuple(_settings(section, options, prefix))
        claims = dict.fromkeys(_claimed(settings, table), owner)
        if taken := next((what for what in claims if what in self._claims), None):
            raise FlagConflict(taken, (self._claims[taken], owner))
        self._claims.update(claims)
        title = title or (f"{section} ({owner})" if section else "options")
        self._sections.append(Section(section, options, title, description, owner, prefix, table, backend, settings))


def _env_prefix(section: str) -> str:
    return f"KPLANE_{section.replace('-', '_').upper()}_" if section else "KPLANE_"


def _claimed(settings: Sequence[Setting], table: str) -> Iterator[str]:
    for setting in settings:
        yield setting.flag
        if setting.negation:
            yield setting.negation
        if setting.option.short:
            yield setting.option.short
        yield setting.env
        yield f"[{table}] {setting.key}" if table else setting.key
