"""The end of a run, in words."""

from collections.abc import Sequence
from itertools import groupby
from typing import Final

import attrs
import pytest

from kplane_conformance.report import Certificate, Count, Entry, Verdict
from kplane_conformance.session import Outcome

_GOOD: Final = {Verdict.CONFORMANT, Verdict.WITH_WAIVERS}
_SHOWN: Final = 12


def summarize(terminal: pytest.TerminalReporter, certificates: Sequence[Certificate]) -> None:
    """Print the verdict of every backend, what it rests on, and how to run one failing case.

    Args:
        terminal: where to.
        certificates: one per backend; none when nothing of the suite was collected.
    """
    terminal.write_sep("=", "kplane storage conformance")
    if not certificates:
        terminal.write_line(
            "no conformance case was collected; run: pytest --pyargs kplane_conformance --kplane-backend=NAME", red=True
        )
    for certificate in certificates:
        lines = describe(certificate)
        good = certificate.verdict in _GOOD
        terminal.write_line(lines[0], bold=True, green=good, red=not good)
        for line in lines[1:]:
            terminal.write_line(line)


def describe(certificate: Certificate) -> Sequence[str]:
    """Return the summary of one certificate, its verdict first."""
    lines = [
        f"{certificate.backend}: {certificate.verdict.value}   ({_origin(certificate)})",
        f"  numbered after {certificate.suite['upstream']}",
        _counted("upstream functions", certificate.functions()),
        _counted("upstream leaf cases", certificate.leaves()),
    ]
    lines += [_counted(group, count) for group, count in certificate.groups().items()]
    lines += [_counted(f"again through {view}", count) for view, count in certificate.views().items()]
    lines.append("  outcomes: " + ", ".join(f"{count} {name}" for name, count in certificate.outcomes().items()))
    plain = [name for name in certificate.missing if "@" not in name]
    if unasked := certificate.suite["size"] - len(certificate.entries) - len(plain):
        lines.append(
            f"  not asked: {unasked} cases that prove the absence of capabilities which are declared as supported"
        )
    lines += _reasons(certificate)
    if certificate.missing:
        lines.append(f"  not run: {len(certificate.missing)} cases, so the verdict can only be incomplete")
    lines += _failures(certificate)
    return lines


def everything(certificate: Certificate) -> Sequence[Entry]:
    """Return what came of every case through every view; the view stands behind an at sign."""
    layers = certificate.layers.items()
    through = [attrs.evolve(entry, id=f"{entry.id}@{view}") for view, entries in layers for entry in entries]
    return [*certificate.entries, *through]


def _origin(certificate: Certificate) -> str:
    return (
        f"{certificate.distribution} {certificate.version}, suite {certificate.suite['version']}, "
        f"inventory {certificate.suite['digest']} of {certificate.suite['size']} cases, seed {certificate.seed}"
    )


def _counted(what: str, count: Count) -> str:
    return f"  {what:<30} run {count.run:>3} / skipped {count.skipped:>3} / total {count.total:>3}"


def _reasons(certificate: Certificate) -> Sequence[str]:
    told = [Outcome.SKIPPED, Outcome.ELSEWHERE, Outcome.WAIVED, Outcome.PROVISIONAL, Outcome.UNAVAILABLE]
    lines = []
    mine = [entry for entry in everything(certificate) if entry.outcome in told]
    mine.sort(key=lambda entry: (entry.outcome, entry.reason, entry.id))
    for (outcome, reason), entries in groupby(mine, key=lambda entry: (entry.outcome, entry.reason)):
        names = [entry.id for entry in entries]
        shown = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
        lines.append(f"  {outcome}: {reason}: {shown}")
    return lines


def _failures(certificate: Certificate) -> Sequence[str]:
    bad = [Outcome.FAILED, Outcome.UNEXPECTED_PASS, Outcome.HARNESS_ERROR]
    failed = [entry for entry in everything(certificate) if entry.outcome in bad]
    lines = [f"  {entry.outcome}: {entry.id}" for entry in failed[:_SHOWN]]
    if len(failed) > _SHOWN:
        lines.append(f"  and {len(failed) - _SHOWN} more")
    if failed:
        lines.append(
            f"  run one of them: pytest --pyargs kplane_conformance --kplane-backend={certificate.backend} "
            f"--kplane-case='{failed[0].id}'"
        )
    return lines
