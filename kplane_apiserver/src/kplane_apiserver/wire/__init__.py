"""HTTP: from bytes to a request and back, before anything is known of objects."""
