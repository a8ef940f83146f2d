"""The pytest plugin. Imports only pytest: a session that runs no conformance case pays nothing for it."""

import os
from pathlib import Path
from typing import Any, Final

import pytest

SUITE: Final = Path(__file__).with_name("suite.py")
"""The file that stands for all cases in a collection; nothing but it is collected as a case."""

_SEED: Final = "kplane_seed"

# The cases live in a package that an editable install does not list file by file, so pytest is told.
pytest.register_assert_rewrite(
    *(f"kplane_conformance.{module}" for module in ("cases", "context", "engines", "machine", "modelling"))
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the suite's options."""
    group = parser.getgroup("kplane", "kplane storage conformance")
    group.addoption(
        "--kplane-backend",
        action="append",
        default=[],
        metavar="NAME",
        help="backend to hold to the contract; repeatable; all installed ones by default",
    )
    group.addoption("--kplane-report", metavar="FILE.json", help="write the certificate of every backend to this file")
    group.addoption(
        "--kplane-allow-unavailable",
        action="store_true",
        help="a backend whose database cannot be started is reported as unavailable instead of failing",
    )
    group.addoption(
        "--kplane-case",
        action="append",
        default=[],
        metavar="ID",
        help="run only this case, or this row: 'List' or 'List[row-20]'; repeatable",
    )
    group.addoption(
        "--kplane-view",
        action="append",
        default=[],
        metavar="NAME",
        help="look at the backend only through this: store, cache, cache-no-history, clusters or second-handle; "
        "repeatable; the verdict can then only be incomplete",
    )
    group.addoption(
        "--kplane-shrink", action="store_true", help="let a random case that fails look for a shorter way to fail"
    )
    group.addoption(
        "--kplane-seed",
        type=int,
        default=0,
        metavar="N",
        help="seed of the random cases; chosen and printed by default",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Check what was asked for, and watch for results of the suite."""
    config.addinivalue_line("markers", "kplane(id): a case of the kplane conformance suite")
    # A worker of xdist reads the command line anew: the controller tells it the seed, so that all use one.
    config.option.kplane_seed = getattr(config, "workerinput", {}).get(_SEED, config.option.kplane_seed)
    if not config.option.kplane_seed:
        config.option.kplane_seed = int.from_bytes(os.urandom(3), "big") + 1
    names = config.getoption("--kplane-backend")
    if names:
        from kplane_conformance.collecting import choose_or_refuse  # noqa: PLC0415 - only when the suite is asked for
        from kplane_conformance.unwritten import refuse_unwritten  # noqa: PLC0415 - as above

        chosen = choose_or_refuse(names)
        if not config.option.kplane_case:  # single cases are how an author goes from method to method
            refuse_unwritten(chosen)
    config.pluginmanager.register(_Observer(config), "kplane-conformance-observer")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker of xdist the seed."""
    node.workerinput[_SEED] = node.config.option.kplane_seed


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect the cases where this distribution's own folder is collected, and nowhere else."""
    if file_path.name != SUITE.name or file_path.resolve() != SUITE.resolve():
        return None
    from kplane_conformance.collecting import SuiteFile  # noqa: PLC0415 - strangers' sessions never come here

    return SuiteFile.from_parent(parent, path=file_path)


class _Observer:
    """Collects the results of the suite's cases, also those that xdist's workers send, and closes the report."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._reports: list[pytest.TestReport] = []
        self._certificates: Any = None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the reports of cases."""
        if any(name == "kplane.case" for name, _ in report.user_properties):
            self._reports.append(report)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Compute the verdicts and write the report; nothing collected although it was asked for is an error."""
        if hasattr(self._config, "workerinput"):  # a worker of xdist: its controller reports
            return
        asked = self._config.getoption("--kplane-backend") or self._config.getoption("--kplane-report")
        if self._reports:
            from kplane_conformance.reporting import certify  # noqa: PLC0415 - only with results

            self._certificates = certify(self._config, self._reports)
        elif (
            asked
            and not self._config.option.collectonly
            and session.exitstatus in (0, pytest.ExitCode.NO_TESTS_COLLECTED)
        ):
            session.exitstatus = pytest.ExitCode.USAGE_ERROR
            self._certificates = ()

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the verdict of every backend."""
        if self._certificates is None:
            return
        from kplane_conformance.summary import summarize  # noqa: PLC0415 - only with results

        summarize(terminalreporter, self._certificates)

    def pytest_unconfigure(self) -> None:
        """Close the event loop that the cases ran on."""
        if runner := self._config.stash.get(RUNNER, None):
            runner.close()


RUNNER: Final = pytest.StashKey[Any]()
"""Where the session's `asyncio.Runner` is kept, once there is one."""
