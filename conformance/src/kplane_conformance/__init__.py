"""The conformance suite that holds every kplane backend to one storage contract."""
