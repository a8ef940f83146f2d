"""Which kinds a cluster serves: its CustomResourceDefinitions and the catalog made of them."""
