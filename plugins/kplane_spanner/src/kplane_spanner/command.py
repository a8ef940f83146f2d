"""`kplane spanner ddl`: print the tables, for operators who apply them themselves."""

import attrs

from kplane_core.errors import UsageError
from kplane_core.plugins.commands import Command, Parsed
from kplane_core.plugins.flags import Flags, duration, filled_text, option
from kplane_spanner import schema


@attrs.frozen
class DdlOptions:
    """The flags of `kplane spanner ddl`.

    Attributes:
        database: its name, for the statement that sets the retention.
        history_retention: seconds of history that the database must keep.
    """

    database: str = option("kplane", parse=filled_text, help="the database's name, for the statement about retention")
    history_retention: float = option(
        3600.0,
        parse=duration,
        validator=attrs.validators.le(schema.LONGEST_RETENTION),
        help="as for the server's --spanner-history-retention",
    )


def _configure(flags: Flags) -> None:
    flags.add("", DdlOptions, title="ddl", env="KPLANE_SPANNER_DDL_", toml="spanner.ddl")


def _run(parsed: Parsed) -> int:
    if parsed.words != ("ddl",):
        raise UsageError("kplane spanner ddl; see kplane spanner --help")
    options = parsed.options(DdlOptions)
    print(";\n\n".join(schema.statements(options.database, options.history_retention)) + ";")  # noqa: T201 - its purpose
    return 0


command = Command(
    name="spanner",
    summary="print the schema of a Spanner database",
    configure=_configure,
    run=_run,
    words="ddl",
)
