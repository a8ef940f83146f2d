"""The storage contract, the engine layer and the plugin system of kplane.

Import what you need from its rooms: `kplane_core.storage`, `kplane_core.engine`, `kplane_core.plugins`,
`kplane_core.multicluster` and `kplane_core.errors`.
"""

from importlib.metadata import version as _version

__version__ = _version("kplane-core")
__all__ = ["__version__"]
