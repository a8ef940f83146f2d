"""Benchmarks of kplane: `python -m benchmarks` measures, compares with the floors, and prints a table."""
