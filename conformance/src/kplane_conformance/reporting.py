"""From pytest's reports to certificates."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kplane_conformance.backend import subject
from kplane_conformance.case import load
from kplane_conformance.harness import choose
from kplane_conformance.report import SCHEMA, Certificate, Entry, certificate
from kplane_conformance.session import Outcome


def certify(config: pytest.Config, reports: Sequence[pytest.TestReport]) -> Sequence[Certificate]:
    """Return one certificate per backend, and write them where `--kplane-report` says.

    Args:
        config: of the session.
        reports: pytest's reports of cases, also those that came from xdist's workers.
    """
    groups = {leaf.id: leaf.case.group.value for leaf in (*load().leaves(), *load().views())}
    found: dict[str, dict[str, Entry]] = {}
    servers: dict[str, str] = {}
    for report in reports:
        told = dict(report.user_properties)
        backend, case = str(told["kplane.backend"]), str(told["kplane.case"])
        servers[backend] = str(told.get("kplane.server", ""))
        entry = Entry(case, groups[case], str(told["kplane.outcome"]), str(told["kplane.reason"]), _number(told))
        if report.when != "call" and report.failed:  # setting up or stopping the backend failed
            entry = Entry(case, groups[case], Outcome.HARNESS_ERROR.value, str(report.longrepr).strip()[-500:])
        elif report.when != "call":
            continue
        found.setdefault(backend, {})[case] = entry
    chosen = [installed for installed in choose(config.getoption("--kplane-backend")) if installed.name in found]
    seed = config.getoption("--kplane-seed")
    certificates = [
        certificate(subject(installed), load(), found[installed.name], seed=seed, server=servers[installed.name])
        for installed in chosen
    ]
    if path := config.getoption("--kplane-report"):
        write(Path(path), certificates)
    return certificates


def _number(told: dict[str, Any]) -> float:
    return float(told["kplane.milliseconds"])


def write(path: Path, certificates: Sequence[Certificate]) -> None:
    """Write certificates to a JSON file."""
    document = {"schema": SCHEMA, "certificates": [one.to_dict() for one in certificates]}
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
