"""The `kplane` command: finds commands and plugins, parses in two phases, prints an operator's mistake as one line."""

# ruff: noqa: T201 - what a command prints is its work

import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kplane_core.errors import KplaneError, UsageError

if TYPE_CHECKING:
    # Imported where they are used: `kplane --version` and shell completion should not pay for plugins.
    from kplane_core.plugins.commands import Command

EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None, environ: Mapping[str, str] | None = None) -> int:
    """Run the `kplane` command.

    Args:
        argv: the arguments; by default the process's.
        environ: the environment; by default the process's.

    Returns:
        The exit code: 0 for success, 2 for an operator's mistake, 1 for a failure, 130 after an interrupt.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        code = _dispatch(arguments, os.environ if environ is None else environ)
        # Here, not at interpreter exit, a reader that has gone away can still be told from a failure.
        sys.stdout.flush()
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of our output (`head`, `less`) left; the null device keeps the interpreter's last flush quiet.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILURE
    except UsageError as error:
        _complain(error)
        return EXIT_USAGE
    except KplaneError as error:
        _complain(error)
        return EXIT_FAILURE
    return code


def _complain(error: KplaneError) -> None:
    print(f"kplane: error: {' '.join(str(error).split())}", file=sys.stderr)


def _dispatch(argv: list[str], environ: Mapping[str, str]) -> int:
    if argv[:1] == ["--version"]:
        from kplane_core import __version__  # noqa: PLC0415 - looked up only when asked for

        print(f"kplane {__version__}")
        return 0
    # The rooms behind these names are only entered when the command line asks for them.
    from kplane_core.cli_phases import CommandTable, run_command, split_command  # noqa: PLC0415

    name, rest = split_command(argv)
    table = CommandTable.installed(builtin_commands())
    if name is not None:
        return run_command(table, name, rest, environ)
    print(table.help(), end="", file=sys.stdout if rest else sys.stderr)
    return 0 if rest else EXIT_USAGE


def builtin_commands() -> "tuple[Command, ...]":
    """Return the commands that the core itself brings."""
    from kplane_core.cli_backends import command  # noqa: PLC0415
    from kplane_core.scaffold.command import command as new_backend  # noqa: PLC0415

    return (command, new_backend)
