"""The storage contract, the engine layer and the plugin system of kplane.

Import what you need from its rooms: `kplane_core.storage`, `kplane_core.engine`, `kplane_core.plugins`,
`kplane_core.multicluster` and `kplane_core.errors`.
"""

__all__ = ["__version__"]

__version__: str


def __getattr__(name: str) -> str:
    """Return the version when it is asked for: looking it up costs as much as importing all the rest."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import version  # noqa: PLC0415

    return version("kplane-core")
