"""What is known of a backend before its first case: its declaration, its waivers, and who provides it."""

import datetime as dt
import importlib.resources
import tomllib
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any, Final

import attrs

from kplane_conformance.case import Inventory, Leaf, load
from kplane_conformance.harness import HarnessError, InstalledHarness
from kplane_conformance.session import Outcome, Result, Session, applies, unfit
from kplane_core.plugins.capabilities import Capability, Support
from kplane_core.plugins.discovery import discover

WAIVERS_FILE: Final = "conformance.toml"


@attrs.frozen
class Waiver:
    """A known failure, written down by the backend's authors. An unexpected pass, or its expiry, fails.

    Attributes:
        case: the id of a leaf case, or of a case with all its rows.
        reason: why it fails.
        issue: where that is worked on.
        expires: the first day on which it counts no more.
    """

    case: str
    reason: str
    issue: str
    expires: dt.date


@attrs.frozen
class Subject:
    """A backend that is to be held to the contract.

    Attributes:
        installed: its harness.
        capabilities: what it declares.
        waivers: by case id.
        today: decides what has expired.
        suite: the version of the suite, which decides which cases are still provisional.
    """

    installed: InstalledHarness
    capabilities: Mapping[Capability, Support]
    waivers: Mapping[str, Waiver]
    today: dt.date = attrs.field(factory=lambda: dt.datetime.now(dt.UTC).date())
    suite: str = attrs.field(factory=lambda: metadata.version("kplane-conformance"))

    def session(self, *, seed: int = 0, shrink: bool = False) -> Session:
        """Return a session that is not started yet; see `Session`.

        Raises:
            HarnessError: the harness cannot be made.
        """
        return Session(self.installed.make(), self.capabilities, seed=seed, shrink=shrink)

    def applies(self, leaf: Leaf) -> bool:
        """Whether the case is asked of this backend at all."""
        return applies(leaf, self.capabilities)

    def unfit(self, leaf: Leaf) -> Result | None:
        """Return why the case cannot run on this backend, or None when it can."""
        return unfit(leaf, self.capabilities)

    def waiver(self, leaf: Leaf) -> Waiver | None:
        """Return the waiver of a case, if there is one."""
        # A known fault of a backend shows through whatever stands in front of it.
        return self.waivers.get(leaf.id) or self.waivers.get(leaf.name) or self.waivers.get(leaf.case.name)

    def judge(self, leaf: Leaf, result: Result) -> Result:
        """Return the result with the waiver of the case, if any, and the case's age taken into account."""
        waiver = self.waiver(leaf)
        if waiver is None and result.outcome is Outcome.FAILED and not leaf.case.counts(self.suite):
            reason = f"the case is new and counts from suite {leaf.case.provisional} on; {result.reason}"
            return attrs.evolve(result, outcome=Outcome.PROVISIONAL, reason=reason)
        if waiver is None or result.outcome not in {Outcome.PASSED, Outcome.FAILED}:
            return result
        if waiver.expires <= self.today:
            return attrs.evolve(
                result,
                outcome=Outcome.FAILED,
                reason=f"the waiver expired on {waiver.expires} ({waiver.issue}); {result.reason or 'it passed'}",
            )
        if result.outcome is Outcome.PASSED:
            return attrs.evolve(
                result,
                outcome=Outcome.UNEXPECTED_PASS,
                reason=f"remove the waiver ({waiver.reason}; {waiver.issue})",
            )
        return attrs.evolve(result, outcome=Outcome.WAIVED, reason=f"{waiver.reason} ({waiver.issue}): {result.reason}")


def subject(installed: InstalledHarness) -> Subject:
    """Return what is known of an installed backend.

    Raises:
        HarnessError: its waivers cannot be read, or it cannot be made.
        KplaneError: its plugin is not installed, broken, blocked or incompatible.
    """
    backend = discover().select(installed.name)
    # A harness knows the version of its database, which may lack what the backend can do on a newer one.
    capabilities = {**backend.capabilities, **getattr(installed.make(), "capabilities", {})}
    return Subject(installed, capabilities, {waiver.case: waiver for waiver in _waivers(installed, load())})


def _waivers(installed: InstalledHarness, inventory: Inventory) -> Sequence[Waiver]:
    where = f"{WAIVERS_FILE} of {installed.distribution} {installed.version}"
    file = importlib.resources.files(installed.package) / WAIVERS_FILE
    if not file.is_file():
        return ()
    try:
        entries = tomllib.loads(file.read_text(encoding="utf-8")).get("waiver", [])
        waivers = [read_waiver(entry) for entry in entries]
    except (tomllib.TOMLDecodeError, ValueError, TypeError, AttributeError) as error:
        raise HarnessError(f"{where}: {error}") from error
    known = {leaf.id for leaf in (*inventory.leaves(), *inventory.views())} | {case.name for case in inventory.cases()}
    if unknown := [waiver.case for waiver in waivers if waiver.case not in known]:
        raise HarnessError(f"{where}: there is no case {unknown[0]!r} to waive")
    return waivers


def read_waiver(entry: Mapping[str, Any]) -> Waiver:
    """Return the waiver that a `[[waiver]]` table writes.

    Raises:
        ValueError: a key is missing, unknown, empty or of the wrong type.
    """
    wanted = {"case": str, "reason": str, "issue": str, "expires": dt.date}
    if set(entry) != set(wanted):
        raise ValueError(f"a [[waiver]] has the keys {', '.join(wanted)}, not {', '.join(sorted(entry))}")
    for key, kind in wanted.items():
        if not isinstance(entry[key], kind) or not entry[key]:
            raise ValueError(f"waiver of {entry['case']!r}: {key} must be a {kind.__name__}")
    return Waiver(**entry)
