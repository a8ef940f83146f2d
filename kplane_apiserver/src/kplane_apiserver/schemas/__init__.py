"""The schemas of custom kinds at work: what an object must look like, and what becomes of it before.

`guard_for` is the way in for writes, `fit_stored` for reads.
"""

from kplane_apiserver.schemas.guard import Guard, fit_copied, fit_stored, fits_on_read, guard_for

__all__ = ["Guard", "fit_copied", "fit_stored", "fits_on_read", "guard_for"]
