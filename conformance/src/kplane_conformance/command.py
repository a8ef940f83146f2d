"""`kplane conformance`: hold a backend to the contract, and make documents of the certificates."""

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import attrs

from kplane_core.errors import UsageError
from kplane_core.plugins.commands import Command, Parsed
from kplane_core.plugins.flags import Flags, csv, filled_text, non_negative_int, option


@attrs.frozen
class RunOptions:
    """The flags of `kplane conformance run`."""

    backend: tuple[str, ...] = option(
        (), parse=csv, metavar="NAME,...", help="backends to test; all installed ones by default"
    )
    report: str = option("", parse=filled_text, metavar="FILE.json", help="where the certificates are written")
    case: tuple[str, ...] = option((), parse=csv, metavar="ID,...", help="only these cases, for example 'List[row-20]'")
    view: tuple[str, ...] = option(
        (), parse=csv, metavar="NAME,...", help="only through these views, such as store,cache"
    )
    seed: int = option(0, parse=non_negative_int, help="seed of the random cases; 0 chooses one")
    processes: int = option(0, parse=non_negative_int, help="run in so many processes (needs pytest-xdist); 0 for none")
    allow_unavailable: bool = option(False, help="report a backend whose database cannot start instead of failing")


@attrs.frozen
class RenderOptions:
    """The flags of `kplane conformance render`."""

    markdown: str = option("", parse=filled_text, metavar="FILE", help="write the Markdown matrix here")
    html: str = option("", parse=filled_text, metavar="FILE", help="write the HTML page here")


def _configure(flags: Flags) -> None:
    flags.add("", RunOptions, title="run", env="KPLANE_CONFORMANCE_", toml="conformance")
    flags.add("", RenderOptions, title="render", env="KPLANE_CONFORMANCE_", toml="conformance.render")


def _run(parsed: Parsed) -> int:
    match parsed.words:
        case ("run",):
            return run(parsed.options(RunOptions))
        case ("render", first, *more):
            return render([Path(first), *map(Path, more)], parsed.options(RenderOptions))
        case ("render",):
            raise UsageError("render needs at least one report: kplane conformance render REPORT.json")
        case ("run", unexpected, *_):
            raise UsageError(f"unexpected argument {unexpected!r}; a backend is named by --backend")
        case _:
            raise UsageError(f"kplane conformance {_WORDS}; see kplane conformance --help")


def run(options: RunOptions) -> int:
    """Run the suite and print the verdicts.

    Args:
        options: as given on the command line.

    Returns:
        0 when every case passed or was skipped with a reason, 1 when one failed, 2 when nothing could be tested.
    """
    # Imported here: `kplane --help` lists this command without paying for pytest.
    import pytest  # noqa: PLC0415

    from kplane_conformance.plugin import SUITE  # noqa: PLC0415

    # The rootdir and the configuration of whatever project the user stands in are none of the suite's business.
    arguments = [str(SUITE), "-q", "-p", "no:cacheprovider", f"--rootdir={SUITE.parent}", "-c", os.devnull]
    # This package had to be imported before pytest could ask to rewrite it; the cases themselves were not.
    arguments += ["-W", "ignore:Module already imported so cannot be rewritten; kplane_conformance"]
    arguments += [f"--kplane-backend={name}" for name in options.backend]
    arguments += [f"--kplane-case={name}" for name in options.case]
    arguments += [f"--kplane-view={name}" for name in options.view]
    arguments += [f"--kplane-report={Path(options.report).absolute()}"] if options.report else []
    arguments += [f"--kplane-seed={options.seed}"] if options.seed else []
    arguments += ["-n", str(options.processes)] if options.processes else []
    arguments += ["--kplane-allow-unavailable"] if options.allow_unavailable else []
    with tempfile.TemporaryDirectory() as scratch:
        # What hypothesis remembers between runs is of no use here, and must not appear in the user's folder.
        os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", scratch)
        code = int(pytest.main(arguments))
    return code if code in _MEANT else _NOTHING_TESTED


_MEANT: Final = (0, 1)
_NOTHING_TESTED: Final = 2


def render(reports: Sequence[Path], options: RenderOptions) -> int:
    """Write the documents that were asked for, or the Markdown matrix to the standard output.

    Args:
        reports: files that `--report` or `--kplane-report` wrote.
        options: as given on the command line.
    """
    from kplane_conformance.render import html, markdown, read  # noqa: PLC0415 - only this subcommand needs it

    certificates = read(reports)
    if options.markdown:
        _write(Path(options.markdown), markdown(certificates))
    if options.html:
        _write(Path(options.html), html(certificates))
    if not (options.markdown or options.html):
        sys.stdout.write(markdown(certificates))
    return 0


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error


_WORDS: Final = "run | render REPORT.json..."

command: Final = Command(
    name="conformance",
    summary="hold storage backends to the contract; render their certificates",
    configure=_configure,
    run=_run,
    words=_WORDS,
)
