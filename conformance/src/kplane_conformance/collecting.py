"""Cases as pytest items: `suite.py::memory::List[row-20]`."""

import asyncio
import sysconfig
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import pytest

from kplane_conformance.backend import Subject, subject
from kplane_conformance.case import Leaf, View, load
from kplane_conformance.harness import HarnessError, InstalledHarness, choose
from kplane_conformance.plugin import RUNNER
from kplane_conformance.session import Outcome, Result, Session
from kplane_core.errors import KplaneError, UsageError


def choose_or_refuse(names: Sequence[str]) -> Sequence[InstalledHarness]:
    """Return the chosen harnesses.

    Raises:
        pytest.UsageError: one is not installed.
    """
    try:
        return choose(names)
    except UsageError as error:
        raise pytest.UsageError(str(error)) from None


class SuiteFile(pytest.File):
    """All cases, once per backend."""

    def collect(self) -> Iterator[pytest.Collector]:
        """Yield one collector per backend.

        Raises:
            CollectError: there is none.
        """
        try:
            chosen = choose(self.config.getoption("--kplane-backend"))
        except UsageError as error:
            raise self.CollectError(str(error)) from None
        for installed in chosen:
            yield BackendCollector.from_parent(self, name=installed.name, installed=installed)


class BackendCollector(pytest.Collector):
    """The cases of one backend, and the backend under test itself: it starts with the first case, stops after the last.

    Args:
        installed: the backend's harness.
        rest: pytest's own.
    """

    def __init__(self, installed: InstalledHarness, **rest: Any) -> None:
        super().__init__(**rest)
        self.installed = installed
        self.subject: Subject
        self._session: Session | None = None
        self._refused: HarnessError | None = None

    def collect(self) -> Iterator[pytest.Item]:
        """Yield an item per leaf case that is asked of this backend.

        Raises:
            CollectError: the plugin is broken, or `--kplane-case` names a case that does not exist.
        """
        try:
            self.subject = subject(self.installed)
        except (HarnessError, KplaneError) as error:
            raise self.CollectError(str(error)) from None
        leaves = [leaf for leaf in (*load().leaves(), *load().views()) if self.subject.applies(leaf)]
        leaves = self._seen_through(leaves)
        wanted = set(self.config.getoption("--kplane-case"))
        if unknown := wanted.difference(*map(_names, leaves)):
            raise self.CollectError(f"no case is called {min(unknown)!r} for backend {self.name}")
        for leaf in leaves:
            if not wanted or wanted & _names(leaf):
                yield CaseItem.from_parent(self, name=leaf.id, leaf=leaf)

    def _seen_through(self, leaves: list[Leaf]) -> list[Leaf]:
        asked = set(self.config.getoption("--kplane-view"))
        known = {view.value for view in View}
        if unknown := asked - known:
            raise self.CollectError(f"no view is called {min(unknown)!r}; there are {', '.join(sorted(known))}")
        return [leaf for leaf in leaves if not asked or leaf.view.value in asked]

    def run(self, leaf: Leaf) -> Result:
        """Run one case on the session's event loop, starting the backend if this is its first."""
        if self.subject.unfit(leaf) is None and not self._started():
            allowed = self.config.getoption("--kplane-allow-unavailable")
            outcome = Outcome.UNAVAILABLE if allowed else Outcome.HARNESS_ERROR
            return Result(outcome, str(self._refused), self._refused)
        session = self._session or self._new_session()
        return self.subject.judge(leaf, self._runner().run(session.run(leaf)))

    @property
    def server(self) -> str:
        """The version of the database, where the harness tells it once it has started."""
        return str(getattr(self._session.harness, "server_version", "")) if self._session else ""

    def _started(self) -> bool:
        if self._session is None and self._refused is None:
            session = self._new_session()
            try:
                self._runner().run(session.start())
            except HarnessError as error:
                self._refused = error
            else:
                self._session = session
        return self._session is not None

    def _new_session(self) -> Session:
        options = self.config.option
        return self.subject.session(seed=options.kplane_seed, shrink=options.kplane_shrink)

    def _runner(self) -> asyncio.Runner:
        if RUNNER not in self.config.stash:
            self.config.stash[RUNNER] = asyncio.Runner()
        runner: asyncio.Runner = self.config.stash[RUNNER]
        return runner

    def teardown(self) -> None:
        """Stop the backend after its last case."""
        if self._session is not None:
            session, self._session = self._session, None
            self._runner().run(session.stop())


def _names(leaf: Leaf) -> frozenset[str]:
    """Return what a leaf case may be asked for by: its case, its row, and either through one view only."""
    own = {leaf.case.name, leaf.name} if leaf.view is View.STORE else {f"{leaf.case.name}@{leaf.view.value}"}
    return frozenset({leaf.id, *own})


class CaseFailed(Exception):
    """A case ended badly; carries what came of it."""

    def __init__(self, result: Result) -> None:
        super().__init__(result.reason)
        self.result = result


class CaseItem(pytest.Item):
    """One leaf case of one backend.

    Args:
        leaf: the case.
        rest: pytest's own.
    """

    def __init__(self, leaf: Leaf, **rest: Any) -> None:
        super().__init__(**rest)
        self.leaf = leaf
        self.add_marker(pytest.mark.kplane(leaf.id))

    @property
    def backend(self) -> BackendCollector:
        """The backend under test."""
        assert isinstance(self.parent, BackendCollector)
        return self.parent

    def runtest(self) -> None:
        """Run the case, and write down what came of it before pytest is told."""
        result = self.backend.run(self.leaf)
        self.user_properties += [
            ("kplane.case", self.leaf.id),
            ("kplane.backend", self.backend.name),
            ("kplane.outcome", result.outcome.value),
            ("kplane.reason", result.reason),
            ("kplane.milliseconds", round(result.milliseconds, 3)),
            ("kplane.server", self.backend.server),
            ("kplane.seed", self.config.getoption("--kplane-seed")),
        ]
        match result.outcome:
            case Outcome.PASSED:
                return
            case Outcome.SKIPPED | Outcome.ELSEWHERE | Outcome.UNAVAILABLE:
                pytest.skip(result.reason)
            case Outcome.WAIVED | Outcome.PROVISIONAL:
                pytest.xfail(result.reason)
        raise CaseFailed(result) from result.error

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], *_: Any, **__: Any) -> Any:
        """Return what was promised, what came, and how to run this one case."""
        if not isinstance(excinfo.value, CaseFailed):
            return super().repr_failure(excinfo)
        return explain(self.leaf, self.backend.name, excinfo.value.result, self.config.getoption("--kplane-seed"))

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return where the case is written."""
        code = self.leaf.case.function.__code__
        return Path(code.co_filename), code.co_firstlineno - 1, self.leaf.id


def explain(leaf: Leaf, backend: str, result: Result, seed: int) -> str:
    """Return a failure in words.

    Args:
        leaf: the case.
        backend: whose failure it is.
        result: what came.
        seed: of the session.
    """
    promised = leaf.case.promise.replace("\n", "\n          ")
    lines = [f"promised: {promised}"]
    if leaf.row is not None:
        lines.append(f"row:      {_row(leaf.row)}")
    lines += ["", f"{_HEADLINE[result.outcome]}: {result.reason}", ""]
    if result.error is not None and result.outcome is Outcome.FAILED:
        lines += [_where(result.error), *getattr(result.error, "__notes__", ())]
    lines.append(
        f"run only this: pytest --pyargs kplane_conformance --kplane-backend={backend} --kplane-case='{leaf.id}'"
    )
    if leaf.case.group.value == "model":
        lines[-1] += f" --kplane-seed={seed} --kplane-shrink"
    return "\n".join(lines)


_HEADLINE: Final = {
    Outcome.FAILED: "what came",
    Outcome.UNEXPECTED_PASS: "it passed, but a waiver says that it fails",
    Outcome.HARNESS_ERROR: "harness error (nothing is known of the backend)",
}


def _row(row: Any) -> str:
    if attrs.has(type(row)):
        return ", ".join(f"{name}={value!r}" for name, value in attrs.asdict(row, recurse=False).items())
    return repr(row)


def _foreign(filename: str) -> bool:
    """Whether a file belongs to Python itself or to what drives the random cases."""
    path = Path(filename)
    return "hypothesis" in path.parts or (
        path.is_relative_to(sysconfig.get_path("stdlib")) and "site-packages" not in path.parts
    )


def _where(error: BaseException) -> str:
    """Return the places from the case downwards, which is all that its author can change."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _foreign(frame.filename)]
    own = [number for number, frame in enumerate(frames) if Path(frame.filename).parent.name == "cases"]
    text = "".join(traceback.format_list(frames[own[0] :])) if own else ""
    chained = error.__cause__ or error.__context__
    if chained is not None and not error.__suppress_context__:
        text += f"because of {type(chained).__name__}: {chained}\n"
    return text
