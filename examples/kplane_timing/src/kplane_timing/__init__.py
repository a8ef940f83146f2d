"""An example of a kplane extension: timing per resource."""

__all__: list[str] = []
