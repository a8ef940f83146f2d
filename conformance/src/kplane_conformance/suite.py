"""Stands for the whole suite in a pytest collection: `pytest --pyargs kplane_conformance` finds this file."""
