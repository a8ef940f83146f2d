"""`kplane new-backend`: a distribution to start a storage backend from."""
