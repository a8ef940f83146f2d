"""The watch cache: one per resource, for all clusters."""

from kplane_core.cacher.cacher import Cacher, CacherConfig, OutOfOrder
from kplane_core.cacher.delegator import CachedStore
from kplane_core.cacher.metrics import CacherMetrics

__all__ = ["CachedStore", "Cacher", "CacherConfig", "CacherMetrics", "OutOfOrder"]
