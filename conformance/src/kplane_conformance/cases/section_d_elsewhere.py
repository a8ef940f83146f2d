"""Sharp edges that a plain store cannot show, and the suite that shows each of them."""

from typing import Final

from kplane_conformance.case import Layer
from kplane_conformance.listed import Listed, enter

CACHE_TESTS: Final = "the tests of the watch cache"

enter(
    __name__,
    CACHE_TESTS,
    Layer.CACHE,
    Listed("D1", "A cache that lags behind shows what was deleted to a list at resourceVersion 0 only."),
    Listed("D2", "A cache whose feed has stopped says so in time; it never passes off old data as the newest."),
    Listed("D3", "A cache of an idle resource follows the clock of the whole database, by progress and not by writes."),
    Listed("D6", "A cache answers a consistent page by itself, without turning it into an exact one."),
    Listed("D7", "A watch without a resourceVersion begins with any state on a cache, with the newest on a store."),
    Listed("D23", "A cache with an empty event window serves watches from its list's version on, none from before."),
    Listed("D25", "A watch that is registered while its cache starts anew misses no event, or fails at its start."),
)
