"""Where objects are: a store and a cache per resource, and who follows them."""
