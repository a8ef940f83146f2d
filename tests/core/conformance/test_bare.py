"""A backend that can do nothing optional is held to the suite: every case that it cannot pass has a guard."""

import json
import os
import re
import subprocess
import sys

import pytest

from kplane_conformance.bare import FROM_ENGINE, NOTHING
from kplane_conformance.case import load
from kplane_core.plugins.capabilities import Capability, Unsupported

FORMS = {"BareHarness": NOTHING, "BareEngineHarness": FROM_ENGINE}


def certified(form, folder):
    """Install a form of the backend, hold it to the suite on its plain store and behind a cache, and say what came."""
    info = folder / "kplane_bare-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: kplane-bare\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[kplane.backends]\nbare = kplane_conformance.bare\n"
        f"[kplane.conformance]\nbare = kplane_conformance.bare:{form}\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--pyargs", "kplane_conformance"]
    command += ["--kplane-backend=bare", "--kplane-view=store", "--kplane-view=cache", "--kplane-report=out.json"]
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:]
    (certificate,) = json.loads((folder / "out.json").read_text())["certificates"]
    return certificate


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_it_passes_what_it_can_and_skips_the_rest_for_a_reason(form, tmp_path):
    declared, certificate = FORMS[form], certified(form, tmp_path)
    reasons = {
        f"{capability.value} is not supported: {support.reason}"
        for capability, support in declared.items()
        if isinstance(support, Unsupported)
    }
    entries = [*certificate["entries"], *certificate["layers"]["cache"]]
    assert {entry["outcome"] for entry in entries} == {"passed", "skipped", "elsewhere"}
    told = {entry["reason"] for entry in entries if entry["outcome"] == "skipped"}
    unexplained = {one for one in told - reasons if not re.match(r"no [a-z_]+ hook(:|$)", one)}
    assert not unexplained
    assert reasons <= told, "no case is guarded by one of the capabilities"
    check_what_is_absent(declared, certificate)


def check_what_is_absent(declared, certificate):
    """What it lacks is answered as documented."""
    lacked = {capability for capability, support in declared.items() if isinstance(support, Unsupported)}
    outcomes = {entry["id"]: entry["outcome"] for entry in certificate["entries"]}
    proofs = {case.name: case.unless for case in load().cases() if case.unless is not None}
    asked = {name: outcomes[name] for name in proofs if name in outcomes}
    assert set(asked) == {name for name, capability in proofs.items() if capability in lacked}
    # Compaction is refused by an engine; that of the stores is not to be seen.
    hidden = {"Capability.compaction.absent"} if Capability.HISTORY_WINDOW in lacked else set()
    assert {name for name, outcome in asked.items() if outcome != "passed"} == hidden
