"""Virtual clusters and their namespaces: which exist, how they begin, and what has to go with them."""
