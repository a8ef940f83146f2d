"""What every section of the benchmarks shares: results, timing, a server in its own process, load."""
