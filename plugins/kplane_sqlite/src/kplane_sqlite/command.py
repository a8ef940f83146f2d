"""`kplane sqlite backup FILE`: a copy of the database while it is served."""

# ruff: noqa: T201 - what a command prints is its work

from pathlib import Path
from typing import Final

from kplane_core.errors import UsageError
from kplane_core.plugins.commands import Command, Parsed
from kplane_core.plugins.flags import Flags
from kplane_sqlite.plugin import SqliteOptions

_WORDS: Final = "backup FILE"


def _configure(flags: Flags) -> None:
    flags.add("sqlite", SqliteOptions, title="database")


def _run(parsed: Parsed) -> int:
    match parsed.words:
        case ("backup", file):
            from kplane_sqlite.backup import back_up  # noqa: PLC0415 - --help needs no SQLite

            revision = back_up(parsed.options(SqliteOptions).path, Path(file))
            print(f"{file}: the database as of revision {revision}")
            return 0
        case _:
            raise UsageError(f"kplane sqlite {_WORDS}; see kplane sqlite --help")


command: Final = Command(
    name="sqlite",
    summary="back up a database of the sqlite backend, also while it is served",
    configure=_configure,
    run=_run,
    words=_WORDS,
)
