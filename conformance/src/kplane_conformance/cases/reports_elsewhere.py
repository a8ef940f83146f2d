"""Field reports that a plain store cannot show, and the suite that shows each of them."""

from typing import Final

from kplane_conformance.case import Layer
from kplane_conformance.listed import Listed, enter

_CACHE_TESTS: Final = "the tests of the watch cache"
_DATABASE_TESTS: Final = "the tests of each backend against its real database"
_HTTP_TESTS: Final = "the tests of the API server over HTTP"

enter(
    __name__,
    _CACHE_TESTS,
    Layer.CACHE,
    Listed("R10", "A quiet resource's cache reaches a newer resourceVersion by progress, or says that it cannot yet."),
    Listed("R26", "A cache notices that its database went back to an older state, and starts anew."),
    Listed("R30", "A cache fills itself in pages that stay below the database's limit for one answer."),
)
enter(
    __name__,
    _DATABASE_TESTS,
    Layer.DATABASE,
    Listed("R15", "A database that is full can still delete and compact, and says why it is not ready."),
    Listed("R22", "An expiry whose deletion failed is tried again, and is seen as one deletion."),
    Listed("R45", "A certificate for another name is refused with the name, and never passed over."),
    Listed("R46", "A password with any character works in a connection's address, and no error prints it."),
    Listed("R51", "A transaction that somebody abandoned blocks others for a bounded time only."),
    Listed("R52", "Writes that are retried many times hold no more sessions than before."),
)
enter(
    __name__,
    _HTTP_TESTS,
    Layer.HTTP,
    Listed("R17.http", "The last page of a list has no continue token, neither an empty one nor a remaining count."),
    Listed("R33.http", "Names, namespaces and cluster ids that could leave their directory are refused as invalid."),
    Listed("R47", "A bad value of any option of any plugin ends the start with one line that names the option."),
    Listed(
        "R53", "A list over all clusters has the objects of every cluster that has the type, and is never not found."
    ),
)
