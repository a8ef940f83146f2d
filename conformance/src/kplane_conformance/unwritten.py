"""A backend that is being written: which of its engine's methods are left."""

from collections.abc import Sequence

import pytest

from kplane_conformance.harness import HarnessError, InstalledHarness
from kplane_core.engine.unwritten import METHODS, unwritten_methods


def refuse_unwritten(chosen: Sequence[InstalledHarness]) -> None:
    """List the methods that are still unwritten, instead of failing every case with one of them.

    Args:
        chosen: the harnesses of the backends that were asked for; one without an attribute `engine` is not looked at.

    Raises:
        pytest.UsageError: there are such methods.
    """
    for installed in chosen:
        try:
            engine = getattr(installed.make(), "engine", None)
        except HarnessError:
            continue  # collecting the backend's cases says so
        left = unwritten_methods(engine) if isinstance(engine, type) else ()
        if left:
            listed = "\n".join(f"  {method}" for method in left)
            raise pytest.UsageError(
                f"backend {installed.name!r}: {len(left)} of {len(METHODS)} engine methods are still unwritten\n"
                f"{listed}\nrun the cases of a method that is written by --kplane-case=ID"
            )
