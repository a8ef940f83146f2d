"""The Google Cloud Spanner storage backend of kplane."""
