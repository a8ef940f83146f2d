"""Where option values come from: flag, then environment, then config file, then default; each remembers its source."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar, cast

import attrs

from kplane_core.errors import KplaneError, UsageError
from kplane_core.plugins.errors import BadConfig, suggestion
from kplane_core.plugins.flags import Section, Setting
from kplane_core.plugins.parsers import hide_user_info

T = TypeVar("T")

_LONGEST_COMPLAINT = 300
_TOML_TYPES = {bool: "a boolean", int: "a number", float: "a number", list: "a list", dict: "a table"}


@attrs.frozen
class Config:
    """A config file, read but not yet judged.

    Attributes:
        path: the file as the operator named it; empty when there is none.
        document: its tables and top-level keys.
    """

    path: str = ""
    document: Mapping[str, Any] = attrs.field(factory=dict)

    def table(self, section: Section) -> Mapping[str, Any]:
        """Return the part of the file that belongs to a section.

        Raises:
            BadConfig: the name of its table holds something else.
        """
        table: Any = self.document
        for name in section.toml.split(".") if section.toml else ():
            table = table.get(name, {})
            if not isinstance(table, dict):
                raise BadConfig(f"{self.path}: {section.toml}: must be a table, written [{section.toml}]")
        return {key: value for key, value in table.items() if not isinstance(value, dict)}

    def check(self, sections: Sequence[Section], other_tables: Iterable[str], other_keys: Iterable[str] = ()) -> None:
        """Refuse keys and tables that nobody knows.

        Args:
            sections: the known sections.
            other_tables: names of tables that belong to commands and backends not loaded now, with all below them.
            other_keys: top-level keys that belong to other commands.

        Raises:
            BadConfig: names the first unknown key or table and its near match.
        """
        known: dict[str, set[str]] = {"": set(other_keys)}
        for section in sections:
            known.setdefault(section.toml, set()).update(setting.key for setting in section.settings)
            self.table(section)
        elsewhere = set(other_tables)
        for name, keys in _tables("", self.document):
            foreign = name.split(".")[0] in elsewhere
            parent, _, key = name.rpartition(".")
            if key and key in known.get(parent, ()):
                raise BadConfig(f"{self.path}: {_place(parent, key)}: must not be a table")
            if name not in known and keys and not foreign:
                raise BadConfig(f"{self.path}: unknown table [{name}]{suggestion(name, {*known, *elsewhere} - {''})}")
            if name in known and (unknown := sorted(keys - known[name])):
                near = suggestion(unknown[0], known[name])
                raise BadConfig(f"{self.path}: {_place(name, f'unknown key {unknown[0]!r}')}{near}")


def _place(table: str, what: str) -> str:
    return f"[{table}] {what}" if table else what


def _tables(name: str, document: Mapping[str, Any]) -> Iterator[tuple[str, set[str]]]:
    """Yield the dotted name and the plain keys of a table and of all tables below it."""
    yield name, {key for key, value in document.items() if not isinstance(value, dict)}
    for key, value in document.items():
        if isinstance(value, dict):
            yield from _tables(f"{name}.{key}" if name else key, value)


def load_config(path: str, source: str = "--config") -> Config:
    """Read a TOML config file.

    Args:
        path: the file.
        source: where the path came from, for the message.

    Raises:
        BadConfig: it cannot be read or is not TOML.
    """
    # Imported here: most starts have no config file.
    import tomllib  # noqa: PLC0415

    try:
        with open(path, "rb") as stream:  # noqa: PTH123 - pathlib is imported for this by nobody else
            return Config(path, tomllib.load(stream))
    except OSError as error:
        raise BadConfig(f"{source}: cannot read {path!r}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadConfig(f"{path}: not a TOML file: {error}") from error


@attrs.frozen
class Source:
    """Where a value came from.

    Attributes:
        kind: which of the four places.
        where: how the operator names it: the flag, the variable, the file with table and key, or `default`.
    """

    kind: Literal["flag", "environment", "file", "default"]
    where: str


@attrs.frozen
class Shown:
    """One value as it may be shown to people.

    Attributes:
        flag: its flag.
        text: the value; `***` for a secret.
        source: where it came from.
    """

    flag: str
    text: str
    source: Source


class Values:
    """The typed options of one invocation.

    Args:
        sections: the known sections.
        given: flag -> the texts it was given, for the flags on the command line.
        environ: the environment.
        config: the config file.
        backend: the selected backend's name; sections of other backends are not in use.
    """

    def __init__(
        self,
        sections: Sequence[Section],
        given: Mapping[str, Sequence[str]],
        environ: Mapping[str, str],
        config: Config,
        backend: str | None = None,
    ) -> None:
        self._sections = tuple(sections)
        self._given = given
        self._environ = environ
        self._config = config
        self._backend = backend
        self._built: dict[int, Any] = {}

    def get(self, options: type[T]) -> T:
        """Return the instance of an options class that was added to the flags.

        Raises:
            BadConfig: a value is refused, or a required one is missing; the message names its source.
            KeyError: no section has this class.
        """
        for section in self._sections:
            if section.options is options:
                return cast("T", self._build(section))
        raise KeyError(options.__name__)

    def section(self, name: str) -> Any:
        """Return the options of the section with this prefix; raises as `get` does."""
        for section in self._sections:
            if section.name == name:
                return self._build(section)
        raise KeyError(name)

    def check(self) -> None:
        """Build every section in use.

        Raises:
            UsageError: a flag was given whose backend is not selected.
            BadConfig: as for `get`.
        """
        for section in self._sections:
            if self._in_use(section):
                self._build(section)
                continue
            for setting in section.settings:
                if setting.flag in self._given:
                    raise UsageError(
                        f"{setting.flag} belongs to the {section.title}, "
                        f"but the selected storage backend is {self._backend!r}"
                    )

    def shown(self) -> tuple[Shown, ...]:
        """Return every value in use as text with its source, secrets hidden."""
        rows = []
        for section in self._sections:
            if self._in_use(section):
                built = self._build(section)
                rows += [
                    Shown(setting.flag, setting.show(getattr(built, setting.field)), self.source(section, setting))
                    for setting in section.settings
                ]
        return tuple(rows)

    def source(self, section: Section, setting: Setting) -> Source:
        """Return where the value of a setting comes from."""
        if setting.flag in self._given:
            return Source("flag", setting.flag)
        if setting.env in self._environ and not _is_service_link(setting, self._environ):
            return Source("environment", setting.env)
        if setting.key in self._config.table(section):
            return Source("file", f"{self._config.path}: {_place(section.toml, setting.key)}")
        return Source("default", "default")

    def _in_use(self, section: Section) -> bool:
        return not section.backend or section.backend == self._backend

    def _build(self, section: Section) -> Any:
        if id(section) not in self._built:
            given = {
                setting.field: value
                for setting in section.settings
                if (value := self._value(section, setting)) is not attrs.NOTHING
            }
            self._built[id(section)] = self._instance(section, given)
        return self._built[id(section)]

    def _value(self, section: Section, setting: Setting) -> Any:
        source = self.source(section, setting)
        if source.kind == "default":
            if setting.option.required:
                table = f"[{section.toml}]" if section.toml else "the top level"
                raise BadConfig(
                    f"{setting.flag} is required; also accepted: {setting.env}, "
                    f"or {setting.key} in {table} of the config file"
                )
            return attrs.NOTHING
        try:
            if source.kind == "flag":
                return _from_texts(setting, self._given[setting.flag])
            if source.kind == "environment":
                return setting.parser(self._environ[setting.env])
            return _from_toml(setting, self._config.table(section)[setting.key])
        except (ValueError, TypeError, OverflowError, KplaneError) as error:
            raise _refused(source, setting, error) from (None if setting.option.secret else error)

    def _instance(self, section: Section, given: Mapping[str, Any]) -> Any:
        try:
            return section.options(**given)
        except (ValueError, TypeError) as error:
            for setting in section.settings:
                if setting.field in given and _refuses(section, setting, given[setting.field]):
                    hidden = None if setting.option.secret else error
                    raise _refused(self.source(section, setting), setting, error) from hidden
            if any(setting.option.secret for setting in section.settings):
                # The sentence may quote any field; without a culprit it cannot be told apart from a secret.
                raise BadConfig(f"{section.title}: the values are refused together") from None
            raise BadConfig(f"{section.title}: {_complaint(error)}") from error


def _is_service_link(setting: Setting, environ: Mapping[str, str]) -> bool:
    # In a pod, a Service named like the prefix makes Kubernetes set <PREFIX>_PORT=tcp://..., which nobody meant for us.
    return setting.env.endswith("_PORT") and environ[setting.env].startswith(("tcp://", "udp://", "sctp://"))


def _from_texts(setting: Setting, texts: Sequence[str]) -> Any:
    if len(texts) > 1 and not setting.parser.repeatable:
        raise ValueError("given twice")
    return setting.parser(",".join(texts))


def _from_toml(setting: Setting, value: object) -> Any:
    parser = setting.parser
    if isinstance(value, str):
        return parser(value)
    if type(value) not in parser.accepts:
        raise ValueError(f"must not be {_TOML_TYPES.get(type(value), 'a date or time')}")
    if isinstance(value, list):
        if not value:
            raise ValueError("is empty")
        return tuple(_item(parser.item or str, one) for one in value)
    return parser(str(value))


def _item(parse: Any, value: object) -> Any:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"must not contain {_TOML_TYPES.get(type(value), 'a date or time')}")  # noqa: TRY004
    return parse(str(value))


def _refuses(section: Section, setting: Setting, value: object) -> bool:
    attribute = getattr(attrs.fields(section.options), setting.field)
    if attribute.validator is None:
        return False
    try:
        attribute.validator(None, attribute, value)
    except (ValueError, TypeError):
        return True
    return False


def _complaint(error: Exception) -> str:
    # Of attrs' own errors only the first argument: the attribute and the value follow as further ones.
    of_attrs = any(isinstance(one, attrs.Attribute) for one in error.args)
    told = str(error.args[0] if of_attrs else error)
    line = hide_user_info(" ".join(told.split())) or type(error).__name__
    return line if len(line) <= _LONGEST_COMPLAINT else f"{line[: _LONGEST_COMPLAINT // 2]} … {line[-100:]}"


def _refused(source: Source, setting: Setting, error: Exception) -> BadConfig:
    complaint = "the value is refused (not shown, it is secret)" if setting.option.secret else _complaint(error)
    return BadConfig(f"{source.where}: {complaint}")
